"""The keys of a sweep file about configurations: `constraints:`, `start_with:`, `prior:` and `baseline:`.

The baseline is the author's own configuration, which may lie outside of the search space.
"""

from __future__ import annotations

import random
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from sweep.errors import InputError
from sweep.events import Params, Value
from sweep.space import Parameter, Space
from sweep.space.domains import (
    Categorical,
    Constant,
    Domain,
    Range,
    Tied,
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
from sweep.text import did_you_mean, join_words, nearest

TRIED = 100
"""Number of random points at which expressions are evaluated to check the types of their results."""


def read_constraints(
    data: Value, names: Sequence[str], objectives: Sequence[str], path: KeyPath, document: Document
) -> dict[str, Expression]:
    """Return the constraints by their text, over parameters or over metrics; note invalid ones.

    Apart from the ``objectives``, only the trainable knows its metrics. So an unknown name counts as a mistake if the
    constraint also names a parameter, or if it resembles a parameter's name. An objective such as ``val/loss`` without
    backquotes, which would be parsed as a division, is a mistake, too.
    """
    constraints: dict[str, Expression] = {}
    for index, text in enumerate(data if isinstance(data, list) else []):
        if not isinstance(text, str) or not text:  # the model has noted it
            continue
        torn = next((name for name in objectives if _is_torn(name, text)), None)
        if torn is not None:
            what = f"{torn!r} in {text!r} is read as a calculation"
            document.mistake((*path, index), what, f"put the name in backquotes: `{torn}`")
            continue
        try:
            constraint = Expression.parse(text)
        except ExpressionError as error:
            note(error, (*path, index), document)
            continue
        unknown = sorted(constraint.names - set(names))
        if set(unknown) < constraint.names or any(nearest(name, names) for name in unknown):
            for name in unknown:
                document.mistake((*path, index), f"no parameter {name!r} in {text!r}", did_you_mean(name, names))
        if not constraint.names:
            document.mistake((*path, index), f"{text!r} names no parameter")
        if text in constraints:
            document.mistake((*path, index), f"{text!r} appears twice")
        constraints[text] = constraint
    return constraints


def _is_torn(name: str, text: str) -> bool:
    """Return whether a name that needs backquotes appears in an expression without them."""
    bare = re.sub("`[^`]*`", "", text)
    return (
        not name.replace(".", "_").isidentifier()
        and re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", bare) is not None
    )


def note(error: ExpressionError, path: KeyPath, document: Document) -> None:
    """Note the mistake in an expression."""
    document.mistake(path, f"{error.text!r}, column {error.column}: {error.message}")


def check_satisfiable(
    space: Space, places: Mapping[str, KeyPath], path: KeyPath, document: Document, *, grid: bool
) -> None:
    """Note constraints that no point of the space meets, and expressions that do not fit the parameters' values.

    ``places`` maps the text of each expression to its place in the file. Finite spaces are counted, others are sampled.
    """
    if not places:
        return
    try:
        _check_truth(space, places, document)
        if _count_points(space, grid=grid):
            return
        if not _count_points(Space(space.parameters), grid=grid):
            document.mistake(next(iter(places.values())), "tied values without a result at any point")
            return
        alone = [c for c in space.constraints if not _count_points(Space(space.parameters, (c,)), grid=grid)]
        for constraint in alone:
            document.mistake(places[constraint.text], f"{constraint.text!r} holds at no point of the space")
        if not alone:
            document.mistake(path, "each holds somewhere, but no point meets all of them")
    except ExpressionError as error:
        note(error, places.get(error.text, path), document)
    except InputError as error:
        for problem in error.problems:
            document.mistake(("parameters",), problem.what, problem.hint)


def _count_points(space: Space, *, grid: bool) -> int:
    """Return the number of points that meet the constraints; of an infinite space, 1 if any was found, else 0."""
    size = space.grid_size() if grid else space.cardinality
    if size is None:
        return int(find_feasible_point(space) is not None)
    return size


def _check_truth(space: Space, places: Mapping[str, KeyPath], document: Document) -> None:
    numbers: dict[str, Value] = {}
    for params in _draws(space, TRIED):
        for constraint in space.constraints:
            if constraint.names <= params.keys():
                with suppress(UndefinedError):
                    numbers.setdefault(constraint.text, constraint.evaluate(params))
    for text, value in numbers.items():
        if not isinstance(value, bool):
            if isinstance(value, int | float):
                kind = "a number"
            else:
                kind = "no number"
            what = f"{text!r} is {kind}, expected a comparison"
            document.mistake(places[text], what, f"such as {text} < 1")


def _draws(space: Space, count: int) -> Iterator[dict[str, Value]]:
    """Yield random points whose tied values have results, the same ones every time."""
    numbers = random.Random(0)  # not cryptographic; any fixed sample works
    for _ in range(count):
        with suppress(UndefinedError):
            yield space.complete(lambda parameter: from_unit(parameter.domain, numbers.random()))


LISTED = 10  # maximum number of values that a message lists


def read_start_with(
    given: Iterable[Mapping[str, Value]], space: Space, path: KeyPath, document: Document
) -> tuple[Params, ...]:
    """Return the starting configurations with values as searchers choose them; note those outside the space."""
    parameters = {}
    for parameter in space.parameters:
        parameters[parameter.name] = parameter
    starts: list[Params] = []
    for index, start in enumerate(given):
        before = document.found
        for name, value in start.items():
            place = (*path, index, name)
            if name not in parameters:
                document.mistake(place, f"no parameter {name!r}", did_you_mean(name, parameters), at_key=True)
            else:
                _check_value(parameters[name], value, start, place, document)
        if document.found > before:
            continue
        known = {}
        for name, value in start.items():
            known[name] = as_drawn(parameters[name].domain, value)
        found = find_feasible_point(space.fix(known))
        if found is None:
            document.mistake((*path, index), "no configuration with these values meets the constraints")
        elif missing := [name for name in known if name not in found]:
            what = f"{missing[0]!r} does not apply with the other values"
            document.mistake((*path, index, missing[0]), what, "remove it", at_key=True)
        elif key(known) in map(key, starts):
            document.mistake((*path, index), "stands there already, expected different configurations")
        starts.append(known)
    return tuple(starts)


def read_configurations(
    given: Iterable[Mapping[str, Value]], space: Space, path: KeyPath, document: Document, *, numbered: bool = True
) -> tuple[Params, ...]:
    """Return whole configurations with values as searchers choose them; note those that are not in the space.

    Fixed and tied parameters may be left out, and so must those that do not apply. Unless they are ``numbered``, there
    is only one, and ``path`` is its place.
    """
    found: list[Params] = []
    for index, one in enumerate(given):
        place = (*path, index) if numbered else path
        params = _read_configuration(one, space, place, document)
        if params is None:
            continue
        if key(params) in map(key, found):
            document.mistake(place, "stands there already, expected different configurations")
        found.append(params)
    return tuple(found)


def _read_configuration(given: Mapping[str, Value], space: Space, path: KeyPath, document: Document) -> Params | None:
    """Return a whole configuration, or None after noting all mistakes in it."""
    parameters = {parameter.name: parameter for parameter in space.parameters}
    before = document.found
    for name, value in given.items():
        if name not in parameters:
            document.mistake((*path, name), f"no parameter {name!r}", did_you_mean(name, parameters), at_key=True)
        else:
            _check_value(parameters[name], value, parameters, (*path, name), document)
    params = _complete_baseline(given, space)
    for name in given:
        if name in parameters and name not in params and document.found == before:
            document.mistake((*path, name), "does not apply with the other values", "remove it", at_key=True)
    missing = [one.name for one in space.parameters if one.name not in params and _must_be_given(one, params)]
    if missing:
        what = f"lacks {join_words(missing, 'and')}, expected a value for each parameter that varies"
        document.mistake(path, what, "only fixed parameters, and those that do not apply, may be left out")
    if document.found > before:
        return None
    for text in space.list_violated(params):
        document.mistake(path, f"does not meet the constraint {text!r}")
    if document.found == before and not space.has(params):
        document.mistake(path, "is not in the space")
    if document.found > before:
        return None
    return {name: params[name] for name in space.names if name in params}


def _must_be_given(parameter: Parameter, params: Params) -> bool:
    """Return whether a parameter is searched and applies; one whose condition is not decided does not count."""
    if not parameter.drawn:
        return False
    when = parameter.when
    return when is None or (when.names <= params.keys() and when.holds(params))


def read_prior(
    given: Mapping[str, Value] | None, parameters: Iterable[Parameter], path: KeyPath, document: Document
) -> dict[str, Belief]:
    """Return the author's beliefs by parameter; note invalid ones."""
    known = {}
    for parameter in parameters:
        known[parameter.name] = parameter
    found = dict[str, Belief]()
    for name, said in (given or {}).items():
        place, before = (*path, name), document.found
        if isinstance(said, dict) and "value" in said and said.keys() <= {"value", "confidence"}:
            block = said
        else:
            block = None
        value = said if block is None else block["value"]
        confidence = "medium" if block is None else block.get("confidence", "medium")
        if name not in known:
            document.mistake(place, f"no parameter {name!r}", did_you_mean(name, known), at_key=True)
            continue
        if not known[name].drawn:
            document.mistake(place, "is not searched: it has one value, or is tied to others", "remove it", at_key=True)
            continue
        _check_value(known[name], value, known, place, document)
        sure = next((one for one in CONFIDENCES if one == confidence), None)
        if sure is None:
            document.mistake((*place, "confidence"), f"{describe_value(confidence)}, expected low, medium or high")
        elif document.found == before:
            found[name] = Belief(as_drawn(known[name].domain, value), sure)
    return found


def _check_value(parameter: Parameter, value: Value, start: Container[str], path: KeyPath, document: Document) -> None:
    domain = parameter.domain
    if isinstance(domain, Tied):
        document.mistake(path, f"is tied to other parameters: {domain.expression.text}", "remove it", at_key=True)
    elif not contains(domain, value):
        document.mistake(path, f"{describe_value(value)}, expected {_describe_possible(domain)}")
    elif parameter.when is not None:
        missing = sorted(name for name in parameter.when.names if name not in start)
        if missing:
            what = f"exists for some values of {missing[0]!r} alone, which is not given"
            document.mistake(path, what, f"give {missing[0]!r} as well", at_key=True)


def _describe_possible(domain: Domain) -> str:
    """Describe the values that a parameter can have."""
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


def as_drawn(domain: Domain, value: Value) -> Value:
    """Convert a value of a domain to the form in which searchers choose it."""
    if isinstance(domain, Constant | Categorical | Tied) or not isinstance(value, int | float):
        return value
    return snap(domain, float(value) if get_quantum(domain) is None else value)


def read_baseline(
    given: Mapping[str, Value] | None, space: Space, path: KeyPath, document: Document, notes: list[str]
) -> Params | None:
    """Return the baseline in the order of the parameters, None without one; note mistakes in the document.

    Constants that it does not set have their value, and tied parameters are computed. Parameters that remain unset are
    listed in ``notes``.
    """
    if given is None:
        return None
    parameters = {parameter.name: parameter for parameter in space.parameters}
    before = document.found
    for name, value in given.items():
        _check_baseline_value(parameters, name, value, path, document)
    if document.found > before:
        return None
    baseline = _complete_baseline(given, space)
    for name in given:
        if name not in baseline:
            what = f"{name!r} does not apply with the other values"
            document.mistake((*path, name), what, "remove it", at_key=True)
    if document.found > before:
        return None
    missing = []
    for p in space.parameters:
        if p.name not in baseline and p.when is None:
            missing.append(p.name)
    if missing:
        notes.append(f"baseline does not set {', '.join(missing)}: the trainable's own default, if it has one")
    return {parameter.name: baseline[parameter.name] for parameter in space.parameters if parameter.name in baseline}


def _check_baseline_value(
    parameters: Mapping[str, Parameter], name: str, value: Value, path: KeyPath, document: Document
) -> None:
    """Note a mistake if there is no such parameter, or if its values are of another kind."""
    if name not in parameters:
        document.mistake((*path, name), f"no parameter {name!r}", did_you_mean(name, parameters), at_key=True)
        return
    expected = _find_expected_kind(parameters[name], value)
    if expected:
        document.mistake((*path, name), f"{describe_value(value)}, expected {expected}")


def _complete_baseline(given: Mapping[str, Value], space: Space) -> dict[str, Value]:
    """Return the given values that apply, with constants and tied parameters."""
    baseline: dict[str, Value] = {}
    known = -1
    while len(baseline) > known:  # conditions and ties may refer to later parameters
        known = len(baseline)
        for parameter in space.parameters:
            _add_value(parameter, given, baseline)
    return baseline


def _add_value(parameter: Parameter, given: Mapping[str, Value], baseline: dict[str, Value]) -> None:
    name = parameter.name
    domain = parameter.domain
    if name in baseline:
        return
    when = parameter.when
    if when is not None and not (when.names <= baseline.keys() and when.holds(baseline)):
        return
    if name in given:
        value = given[name]
        if contains(domain, value):
            baseline[name] = as_drawn(domain, value)
        else:
            baseline[name] = value
    elif isinstance(domain, Constant):
        baseline[name] = domain.value
    elif isinstance(domain, Tied) and domain.expression.names <= baseline.keys():
        with suppress(ExpressionError):
            baseline[name] = domain.expression.evaluate(baseline)


def _find_expected_kind(parameter: Parameter, value: Value) -> str | None:
    """Return the expected kind if a value is of another kind than all values of the search; None if it fits."""
    domain = parameter.domain
    if parameter.name == "epochs":
        is_whole = isinstance(value, int) and not isinstance(value, bool) and value >= 1
        if is_whole:
            return None
        return "a whole number from 1"
    examples: Sequence[Value] = (0.0,) if isinstance(domain, Range) else list_choices(domain) or ()
    kinds = {name_kind(example) for example in examples}
    if value is None or not kinds or name_kind(value) in kinds or "nothing" in kinds:
        return None
    return " or ".join(sorted(kinds))
