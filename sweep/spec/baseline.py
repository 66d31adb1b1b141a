"""The `baseline:` block: the author's own configuration, which need not lie in the space that is searched."""

from __future__ import annotations

from collections.abc import Mapping

from sweep.errors import did_you_mean
from sweep.events import Params, Value
from sweep.space.domains import Categorical, Constant, Tied, choices, contains
from sweep.space.expressions import ExpressionError
from sweep.space.space import Parameter, Space
from sweep.spec.document import Document, KeyPath, show
from sweep.spec.starting_points import as_drawn


def read(
    given: Mapping[str, Value] | None, space: Space, path: KeyPath, document: Document, notes: list[str]
) -> Params | None:
    """The configuration, in the order of the parameters; notes mistakes in the document, and what is left open.

    Parameters of one value have that one where none is given, tied ones are computed.
    """
    if given is None:
        return None
    parameters = {parameter.name: parameter for parameter in space.parameters}
    before = document.found
    for name, value in given.items():
        if name not in parameters:
            document.mistake((*path, name), f"no parameter {name!r}", did_you_mean(name, parameters), at_key=True)
        elif expected := _unlike(parameters[name], value):
            document.mistake((*path, name), f"{show(value)}, expected {expected}")
    if document.found > before:
        return None
    whole: dict[str, Value] = {}
    known = -1
    while len(whole) > known:  # conditions and ties may look at later ones
        known = len(whole)
        for parameter in space.parameters:
            _add(parameter, given, whole)
    for name in given:
        if name not in whole:
            what = f"{name!r} does not apply with the other values"
            document.mistake((*path, name), what, "remove it", at_key=True)
    if document.found > before:
        return None
    missing = [p.name for p in space.parameters if p.name not in whole and p.when is None]
    if missing:
        notes.append(f"baseline does not set {', '.join(missing)}: the trainable's own default, if it has one")
    return {parameter.name: whole[parameter.name] for parameter in space.parameters if parameter.name in whole}


def _add(parameter: Parameter, given: Mapping[str, Value], whole: dict[str, Value]) -> None:
    name, domain = parameter.name, parameter.domain
    if name in whole:
        return
    if parameter.when is not None and not (parameter.when.names <= whole.keys() and parameter.when.holds(whole)):
        return
    if name in given:
        value = given[name]
        whole[name] = as_drawn(domain, value) if contains(domain, value) else value
    elif isinstance(domain, Constant):
        whole[name] = domain.value
    elif isinstance(domain, Tied) and domain.expression.names <= whole.keys():
        try:
            whole[name] = domain.expression.evaluate(whole)
        except ExpressionError:
            return


def _unlike(parameter: Parameter, value: Value) -> str | None:
    """What was expected of a value that is of another kind than all that the search tries."""
    domain = parameter.domain
    if parameter.name == "epochs":
        whole = isinstance(value, int) and not isinstance(value, bool) and value >= 1
        return None if whole else "a whole number from 1"
    if isinstance(domain, Constant):
        known: tuple[Value, ...] | None = (domain.value,)
    elif isinstance(domain, Tied):
        return None
    else:
        known = choices(domain) if isinstance(domain, Categorical) else (0.0,)
    kinds = {_kind(one) for one in known or ()}
    if value is None or not kinds or _kind(value) in kinds or "nothing" in kinds:
        return None
    return " or ".join(sorted(kinds))


def _kind(value: Value) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list():
            return "a list"
        case _:
            return "a mapping"
