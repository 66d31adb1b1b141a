"""The keys of a sweep file about configurations: `constraints:`, `start_with:`, `prior:` and `baseline:`.

The baseline is the author's own configuration, which may lie outside of the search space.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from sweep.errors import InputError
from sweep.events import Params, Value, is_number
from sweep.space import Parameter, Space
from sweep.space.domains import (
    Categorical,
    Constant,
    Domain,
    Range,
    Tied,
    configuration_key,
    contains,
    get_domain_bounds,
    get_quantum,
    key,
    list_choices,
    snap,
)
from sweep.space.draws import CONFIDENCES, Belief, from_unit
from sweep.space.expressions import Expression, ExpressionError, UndefinedError
from sweep.space.feasible_points import find_feasible_point
from sweep.spec.validation import Document, KeyPath, describe_value, flow, name_kind
from sweep.text import did_you_mean, is_typo, join_words, nearest

TRIED = 100
"""Number of random points at which expressions are evaluated to check the types of their results."""


def read_constraints(
    data: Value, names: Sequence[str], objectives: Sequence[str], path: KeyPath, document: Document
) -> dict[str, Expression]:
    """Parse the constraints; return them by their text, and add mistakes to the document.

    ``data`` is the value of the key; it has none if that is not a list. Items that are no text are skipped. ``names``
    are the names of the parameters, and ``objectives`` those of the metrics of the sweep. An objective such as
    ``val/loss`` without backquotes, which would be parsed as a division, is a mistake. Such constraints, and those that
    cannot be parsed, are left out of the result. Those with other mistakes are not: a constraint that names nothing,
    one that appears twice, and one with an unknown name.

    Only the trainable knows its metrics, except for the ``objectives``. So an unknown name is a mistake only if the
    constraint also names a parameter, or if it is a parameter's name but for a letter.
    """
    constraints: dict[str, Expression] = {}
    for index, text in enumerate(data if isinstance(data, list) else []):
        # the validation of the file has added this mistake already
        if not isinstance(text, str) or not text:
            continue
        unquoted = next((name for name in objectives if _lacks_backquotes(name, text)), None)
        if unquoted is not None:
            what = f"{unquoted!r} in {text!r} is read as a calculation"
            document.add_mistake((*path, index), what, f"put the name in backquotes: `{unquoted}`")
            continue
        try:
            constraint = Expression.parse(text)
        except ExpressionError as error:
            add_expression_mistake(error, (*path, index), document)
            continue
        unknown = sorted(constraint.names - set(names))
        names_parameter = len(unknown) < len(constraint.names)
        is_misspelt = any(
            is_typo(name, near)
            for name in unknown
            if name not in objectives and (near := nearest(name, names)) is not None
        )
        if names_parameter or is_misspelt:
            for name in unknown:
                document.add_mistake(
                    (*path, index), f"no parameter {name!r} in {text!r}", did_you_mean(name, names)
                )
        if not constraint.names:
            document.add_mistake((*path, index), f"{text!r} names no parameter")
        if text in constraints:
            document.add_mistake((*path, index), f"{text!r} appears twice")
        constraints[text] = constraint
    return constraints


def _lacks_backquotes(name: str, text: str) -> bool:
    """Return whether a name that needs backquotes is written in ``text`` without them, and so read as a calculation.

    A name of identifiers with dots between them needs none.
    """
    bare = re.sub("`[^`]*`", "", text)
    return (
        not name.replace(".", "_").isidentifier()  # a dotted name needs none
        and re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", bare) is not None
    )


def add_expression_mistake(error: ExpressionError, path: KeyPath, document: Document) -> None:
    """Add an error in the expression at ``path`` to the mistakes of the document, with its column in the expression."""
    document.add_mistake(path, f"{error.text!r}, column {error.column}: {error.message}")


def check_satisfiable(
    space: Space, places: Mapping[str, KeyPath], path: KeyPath, document: Document, *, grid: bool
) -> None:
    """Add mistakes for constraints that no point of the space meets, and for expressions with unsuitable results.

    A constraint that holds at no point is a mistake at its own place. If each holds somewhere, but no point meets all,
    the mistake is at ``path``. It is also a mistake if a constraint is no comparison, if an expression does not accept
    the type of a value, if tied values have no result at any point, or if a grid has too many points to count.

    All points of a finite space are tried; with ``grid``, only those of the grid. An infinite space, or one that is too
    large, is searched with a limited number of samples, and what holds at none of them counts as never met. ``places``
    maps the text of each constraint and each tied value to its place in the file; if it is empty, nothing is checked.
    """
    if not places:
        return
    try:
        _check_are_comparisons(space, places, document)
        if _count_points(space, grid=grid):
            return  # some point meets all constraints
        # Without constraints, a space is empty only if a tied value has no result anywhere.
        if not _count_points(Space(space.parameters), grid=grid):
            document.add_mistake(
                next(iter(places.values())), "tied values without a result at any point"
            )
            return
        never_met = [
            c
            for c in space.constraints
            if not _count_points(Space(space.parameters, (c,)), grid=grid)
        ]
        for constraint in never_met:
            points, hint = _describe_empty_set(Space(space.parameters, (constraint,)), grid=grid)
            document.add_mistake(
                places[constraint.text],
                f"{constraint.text!r} holds at no point of the {points}",
                hint,
            )
        if not never_met:
            points, hint = _describe_empty_set(space, grid=grid)
            point = "point of the grid" if points == "grid" else "point"
            document.add_mistake(
                path, f"each holds somewhere, but no {point} meets all of them", hint
            )
    except ExpressionError as error:
        add_expression_mistake(error, places.get(error.text, path), document)
    except InputError as error:  # a grid with too many points to count
        for problem in error.problems:
            document.add_mistake(("parameters",), problem.what, problem.hint)


def _describe_empty_set(space: Space, *, grid: bool) -> tuple[str, str]:
    """Return which set of points has none that meets the constraints, and a hint: ("grid", hint) or ("space", "").

    It is the grid if ``grid`` is True and points outside of the grid meet the constraints. The caller knows already
    that no point, or no point of the grid, meets them.
    """
    if grid and _count_points(space, grid=False):
        return "grid", "raise count, so that the grid has such a point, or write method: random"
    return "space", ""


def _count_points(space: Space, *, grid: bool) -> int:
    """Return the number of points that meet the constraints; with ``grid``, of those that a grid would try.

    For a space that is infinite or too large to count, return 1 if such a point was found, otherwise 0. Raises
    InputError if a grid has too many points to count, and ExpressionError if an expression does not accept a type.
    """
    size = space.grid_size() if grid else space.cardinality
    if size is None:
        return int(find_feasible_point(space) is not None)
    return size


def _check_are_comparisons(space: Space, places: Mapping[str, KeyPath], document: Document) -> None:
    """Add a mistake for each constraint whose value is not true or false, at random points of the space.

    Of each constraint, its value at the first of `TRIED` points where it has one counts; without any, nothing is added.
    Raises ExpressionError if an expression does not accept the type of a value.
    """
    results: dict[str, Value] = {}  # by the text of the constraint
    for params in _draw_points(space, TRIED):
        for constraint in space.constraints:
            if constraint.names <= params.keys():  # conditions may leave a parameter out
                with suppress(UndefinedError):  # such as a division by zero, at this point only
                    results.setdefault(constraint.text, constraint.evaluate(params))
    for text, value in results.items():
        if not isinstance(value, bool):
            if isinstance(value, int | float):
                kind = "a number"
            else:
                kind = "no number"
            what = f"{text!r} is {kind}, expected a comparison"
            document.add_mistake(places[text], what, f"such as {text} < 1")


def _draw_points(space: Space, count: int) -> Iterator[dict[str, Value]]:
    """Yield at most ``count`` random points of the space, the same ones in each call; constraints are not checked.

    Points at which a tied value has no result are left out, and not replaced by others. Raises ExpressionError if the
    expression of a tied value does not accept the type of a value.
    """
    numbers = random.Random(0)  # not cryptographic; any fixed sample works
    for _ in range(count):
        with suppress(UndefinedError):
            yield space.complete(lambda parameter: from_unit(parameter.domain, numbers.random()))


LISTED = 10  # maximum number of values that a message lists


def read_start_with(
    given: Iterable[Mapping[str, Value]], space: Space, path: KeyPath, document: Document
) -> tuple[Params, ...]:
    """Return the starting configurations in the form that searchers use; add mistakes for those outside the space.

    A configuration is outside if it has an unknown parameter, a value that is not possible, or one of a parameter that
    does not apply with the other values, or if no point with its values that meets the constraints is found. One that
    appears twice is a mistake too. A number is converted by `_undo_rounding` first. ``path`` is the place of the list.

    A configuration may lack parameters, and the result lacks the same ones. With mistakes, the result is of no use:
    some configurations with mistakes are in it, and others are not.
    """
    parameters = {}
    for parameter in space.parameters:
        parameters[parameter.name] = parameter
    starts: list[Params] = []
    for index, given_start in enumerate(given):
        mistakes_before = document.found
        start = _undo_roundings(parameters, given_start)
        for name, value in start.items():
            place = (*path, index, name)
            if name not in parameters:
                document.add_mistake(
                    place, f"no parameter {name!r}", did_you_mean(name, parameters), at_key=True
                )
            else:
                _check_value(parameters[name], value, start, place, document)
        # Only values that are possible each by itself can be converted, and tried together.
        if document.found > mistakes_before:
            continue
        converted = {}
        for name, value in start.items():
            converted[name] = convert_to_drawn_form(parameters[name].domain, value)
        completed = find_feasible_point(space.fix(converted))
        if completed is None:
            document.add_mistake(
                (*path, index), "no configuration with these values meets the constraints"
            )
        elif missing := [name for name in converted if name not in completed]:
            what = f"{missing[0]!r} does not apply with the other values"
            document.add_mistake((*path, index, missing[0]), what, "remove it", at_key=True)
        elif key(converted) in map(key, starts):
            document.add_mistake(
                (*path, index), "stands there already, expected different configurations"
            )
        starts.append(converted)
    return tuple(starts)


def read_configurations(
    given: Iterable[Mapping[str, Value]],
    space: Space,
    path: KeyPath,
    document: Document,
    *,
    numbered: bool = True,
) -> tuple[Params, ...]:
    """Return complete configurations in the form that searchers use; add mistakes for those not in the space.

    A number is converted by `_undo_rounding` first, and constants and tied values are added. Fixed and tied parameters
    may be left out; those that do not apply, and tied ones with another value than their expression has, must be.
    Configurations that are not in the space are left out of the result; one that appears twice is a mistake and stays
    in it. ``path`` is the place of the list or, unless ``numbered``, of the single configuration.
    """
    found: list[Params] = []
    for index, one in enumerate(given):
        place = (*path, index) if numbered else path
        params = _read_configuration(one, space, place, document)
        if params is None:
            continue
        if key(params) in map(key, found):
            document.add_mistake(place, "stands there already, expected different configurations")
        found.append(params)
    return tuple(found)


def _read_configuration(
    given: Mapping[str, Value], space: Space, path: KeyPath, document: Document
) -> Params | None:
    """Return one complete configuration, in the order of the space; None after adding its mistakes to the document.

    ``path`` is the place of the configuration. What is required of it is said in `read_configurations`.
    """
    parameters = {parameter.name: parameter for parameter in space.parameters}
    mistakes_before = document.found
    given = _undo_roundings(parameters, given)
    # Tied values are computed, not taken from `given`, and compared with those by `_check_given`.
    not_tied = {}
    for name, value in given.items():
        if name not in parameters or not isinstance(parameters[name].domain, Tied):
            not_tied[name] = value
    params = _complete_baseline(not_tied, space)
    _check_given(given, parameters, params, path, document)
    for name in given:
        # Only without other mistakes, since a wrong value may be why another parameter seems not to apply.
        if name in parameters and name not in params and document.found == mistakes_before:
            document.add_mistake(
                (*path, name), "does not apply with the other values", "remove it", at_key=True
            )
    missing = [
        one.name
        for one in space.parameters
        if one.name not in params and _must_be_given(one, params)
    ]
    if missing:
        what = (
            f"lacks {join_words(missing, 'and')}, expected a value for each parameter that varies"
        )
        document.add_mistake(
            path, what, "only fixed parameters, and those that do not apply, may be left out"
        )
    if document.found > mistakes_before:
        return None
    for text in space.list_violated(params):
        document.add_mistake(path, f"does not meet the constraint {text!r}")
    # such as a tied value without a result
    if document.found == mistakes_before and not space.has(params):
        document.add_mistake(path, "is not in the space")
    if document.found > mistakes_before:
        return None
    # in the order of the space
    return {name: params[name] for name in space.names if name in params}


def _check_given(
    given: Mapping[str, Value],
    parameters: Mapping[str, Parameter],
    params: Params,
    path: KeyPath,
    document: Document,
) -> None:
    """Add a mistake for each unknown parameter, and for each value in ``given`` that is not possible by itself.

    ``params`` is the configuration as completed from the values in ``given`` that are not tied. The value of a tied
    parameter must be the one in ``params``, if that has one; 1 and 1.0 are equal there.
    """
    for name, value in given.items():
        if name not in parameters:
            document.add_mistake(
                (*path, name), f"no parameter {name!r}", did_you_mean(name, parameters), at_key=True
            )
            continue
        if isinstance(parameters[name].domain, Tied):
            # a table of trials has tied values as well, and whole numbers maybe as floats
            computed = {name: params.get(name, value)}
            if configuration_key({name: value}) == configuration_key(computed):
                continue
        # All names are passed as given: a parameter of a condition may be fixed or tied, and is then left out.
        _check_value(parameters[name], value, parameters, (*path, name), document)


def _must_be_given(parameter: Parameter, params: Params) -> bool:
    """Return whether a configuration must have a value for this parameter: it is searched, and its condition holds.

    ``params`` has the other values of the configuration.
    """
    if not parameter.drawn:
        return False
    when = parameter.when
    return when is None or (when.names <= params.keys() and when.holds(params))


def read_prior(
    given: Mapping[str, Value] | None,
    parameters: Iterable[Parameter],
    path: KeyPath,
    document: Document,
) -> dict[str, Belief]:
    """Return the author's beliefs (`prior`) by parameter; add mistakes for invalid ones, which are left out.

    ``given`` has for each parameter a value, or a mapping with ``value`` and maybe ``confidence``. A value without a
    confidence has "medium". The result is {} if ``given`` is None. The values are in the form that searchers use.
    """
    known = {}
    for parameter in parameters:
        known[parameter.name] = parameter
    found = dict[str, Belief]()
    for name, said in (given or {}).items():
        place = (*path, name)
        mistakes_before = document.found
        # Any other mapping is itself the value, of a parameter whose choices are mappings.
        value = said
        confidence: Value = "medium"
        if isinstance(said, dict) and "value" in said and said.keys() <= {"value", "confidence"}:
            value = said["value"]
            confidence = said.get("confidence", "medium")
        if name not in known:
            document.add_mistake(
                place, f"no parameter {name!r}", did_you_mean(name, known), at_key=True
            )
            continue
        if not known[name].drawn:
            document.add_mistake(
                place,
                "is not searched: it has one value, or is tied to others",
                "remove it",
                at_key=True,
            )
            continue
        value = _undo_rounding(known[name].domain, value)
        # All names are passed as given, because a belief needs no beliefs about the parameters of its condition.
        _check_value(known[name], value, known, place, document)
        known_confidence = next((one for one in CONFIDENCES if one == confidence), None)
        if known_confidence is None:
            document.add_mistake(
                (*place, "confidence"),
                f"{describe_value(confidence)}, expected low, medium or high",
            )
        elif document.found == mistakes_before:
            found[name] = Belief(convert_to_drawn_form(known[name].domain, value), known_confidence)
    return found


def _check_value(
    parameter: Parameter, value: Value, start: Container[str], path: KeyPath, document: Document
) -> None:
    """Add a mistake if a value is not possible for a parameter, or if a parameter of its condition is not in ``start``.

    ``start`` contains the names of the parameters that are given together with this one. Whether the condition holds
    is not checked. A tied parameter can have no value. At most one mistake is added.
    """
    domain = parameter.domain
    if isinstance(domain, Tied):
        document.add_mistake(
            path, f"is tied to other parameters: {domain.expression.text}", "remove it", at_key=True
        )
    elif not contains(domain, value):
        document.add_mistake(
            path, f"{describe_value(value)}, expected {_describe_possible(domain)}"
        )
    elif parameter.when is not None:
        missing = sorted(name for name in parameter.when.names if name not in start)
        if missing:
            what = f"exists for some values of {missing[0]!r} alone, which is not given"
            document.add_mistake(path, what, f"give {missing[0]!r} as well", at_key=True)


def _describe_possible(domain: Domain) -> str:
    """Return the possible values of a parameter in words, such as "a whole number from 1 to 8".

    It is "nothing" for a tied one. Of a list, at most `LISTED` values are named, followed by "..." if there are more.
    """
    match domain:
        case Constant(value):
            return flow(value)
        case Categorical():
            values = list_choices(domain) or ()
            listed = [flow(value) for value in values[:LISTED]]
            if len(values) > LISTED:
                listed.append("...")
            return f"one of {', '.join(listed)}"
        case Tied():
            return "nothing"
        case _:
            low, high = get_domain_bounds(domain)
            step = get_quantum(domain)
            number = "a number"
            if step is not None:
                if step == 1:
                    number = "a whole number"
                else:
                    number = f"a multiple of {step:g}"
            return f"{number} from {low:g} to {high:g}"


def convert_to_drawn_form(domain: Domain, value: Value) -> Value:
    """Return a value of a domain in the form that searchers use.

    It is a float for a continuous range, and the nearest multiple for one with a quantum, within the bounds. Values
    that are no numbers, and those of other domains, are returned unchanged.
    """
    if isinstance(domain, Constant | Categorical | Tied) or not isinstance(value, int | float):
        return value
    return snap(domain, float(value) if get_quantum(domain) is None else value)


def _undo_roundings(
    parameters: Mapping[str, Parameter], given: Mapping[str, Value]
) -> dict[str, Value]:
    """Return a copy of ``given`` with `_undo_rounding` for each value; those of unknown parameters stay."""
    found = dict(given)
    for name in given.keys() & parameters.keys():
        found[name] = _undo_rounding(parameters[name].domain, given[name])
    return found


def _undo_rounding(domain: Domain, value: Value) -> Value:
    """Return the number of a domain that ``value`` stands for, such as 0.3 for 0.30000000000000004, and 8 for 8.0.

    Other tools compute multiples of a step with such an error, and a table stores whole numbers as floats where some
    are missing. A value that is in the domain, or not within a billionth of one that is, is returned unchanged, and so
    is one of a tied domain or that is no number.
    """
    if not is_number(value) or isinstance(domain, Tied) or contains(domain, value):
        return value
    if isinstance(domain, Constant | Categorical):
        candidates = [choice for choice in list_choices(domain) or () if is_number(choice)]
        step = None
    else:
        candidates = [snap(domain, value)]
        step = get_quantum(domain)
    for candidate in candidates:
        # near 0, the error is compared with the step instead of the value
        if math.isclose(candidate, value, rel_tol=1e-9, abs_tol=1e-9 * (step or 0.0)):
            return candidate
    return value


def read_baseline(
    given: Mapping[str, Value] | None,
    space: Space,
    path: KeyPath,
    document: Document,
    notes: list[str],
) -> Params | None:
    """Return the complete baseline, or None without one; add mistakes to the document and then also return None.

    Constants and tied parameters that it does not set get their value. Values may lie outside of the space, but must be
    of the kind of the parameter's values, and their parameters must be known and apply. Parameters without a condition
    that remain unset are named in one text, which is appended to ``notes``. The result is in the order of the space.
    """
    if given is None:
        return None
    parameters = {parameter.name: parameter for parameter in space.parameters}
    mistakes_before = document.found
    for name, value in given.items():
        _check_baseline_value(parameters, name, value, path, document)
    if document.found > mistakes_before:
        return None
    baseline = _complete_baseline(given, space)
    for name in given:
        if name not in baseline:  # its condition does not hold
            what = f"{name!r} does not apply with the other values"
            document.add_mistake((*path, name), what, "remove it", at_key=True)
    if document.found > mistakes_before:
        return None
    missing = []
    for p in space.parameters:
        # others may be missing because they do not apply
        if p.name not in baseline and p.when is None:
            missing.append(p.name)
    if missing:
        notes.append(
            f"baseline does not set {', '.join(missing)}: the trainable's own default, if it has one"
        )
    return {
        parameter.name: baseline[parameter.name]
        for parameter in space.parameters
        if parameter.name in baseline
    }


def _check_baseline_value(
    parameters: Mapping[str, Parameter], name: str, value: Value, path: KeyPath, document: Document
) -> None:
    """Add a mistake if there is no parameter ``name``, or if its values are of another kind than ``value``.

    `_find_expected_kind` says which kinds fit.
    """
    if name not in parameters:
        document.add_mistake(
            (*path, name), f"no parameter {name!r}", did_you_mean(name, parameters), at_key=True
        )
        return
    expected = _find_expected_kind(parameters[name], value)
    if expected:
        document.add_mistake((*path, name), f"{describe_value(value)}, expected {expected}")


def _complete_baseline(given: Mapping[str, Value], space: Space) -> dict[str, Value]:
    """Return the given values of parameters that apply, completed by constants and tied parameters.

    Values within their domain, but for rounding, are converted to the form that searchers use; all others are kept as
    given. Unknown parameters are left out, and so are tied ones without a result.
    """
    baseline: dict[str, Value] = {}
    size_before = -1
    # Until a pass adds nothing: conditions and ties may refer to parameters that stand below.
    while len(baseline) > size_before:
        size_before = len(baseline)
        for parameter in space.parameters:
            _add_value(parameter, given, baseline)
    return baseline


def _add_value(
    parameter: Parameter, given: Mapping[str, Value], baseline: dict[str, Value]
) -> None:
    """Add a parameter's value to the baseline, if it applies and can be determined already.

    It is the one in ``given``, even for a tied or constant parameter; otherwise that of a constant, or the result of a
    tied parameter whose names are all in ``baseline``. Values in ``baseline`` stay.
    """
    name = parameter.name
    domain = parameter.domain
    if name in baseline:
        return
    when = parameter.when
    if when is not None and not (when.names <= baseline.keys() and when.holds(baseline)):
        return
    if name in given:
        value = _undo_rounding(domain, given[name])
        if contains(domain, value):
            baseline[name] = convert_to_drawn_form(domain, value)
        else:
            baseline[name] = value
    elif isinstance(domain, Constant):
        baseline[name] = domain.value
    elif isinstance(domain, Tied) and domain.expression.names <= baseline.keys():
        # values outside of the space may have no result, such as a logarithm of 0
        with suppress(ExpressionError):
            baseline[name] = domain.expression.evaluate(baseline)


def _find_expected_kind(parameter: Parameter, value: Value) -> str | None:
    """Return in words what kind of value a parameter expects if ``value`` is of another kind; None if it fits.

    Kinds are those of `name_kind`; whether a value lies in the domain does not matter. For the parameter ``epochs``,
    only a whole number from 1 fits. For any other parameter, the value None fits. A parameter that is tied to others,
    or that has null among its values, takes any value.
    """
    domain = parameter.domain
    if parameter.name == "epochs":
        is_whole = isinstance(value, int) and not isinstance(value, bool) and value >= 1
        if is_whole:
            return None
        return "a whole number from 1"
    # Whole and other numbers are of one kind, so 0.0 stands for all values of a range.
    examples: Sequence[Value] = (0.0,) if isinstance(domain, Range) else list_choices(domain) or ()
    kinds = {name_kind(example) for example in examples}
    # Without kinds, it is tied to others, whose result may be of any kind. "nothing" is the kind of null.
    if value is None or not kinds or name_kind(value) in kinds or "nothing" in kinds:
        return None
    return " or ".join(sorted(kinds))
