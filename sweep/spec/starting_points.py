"""The `start_with:` list: configurations that are tried first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sweep.errors import did_you_mean
from sweep.events import Params, Value
from sweep.space import conditioning
from sweep.space.domains import Categorical, Constant, Domain, Tied, bounds, choices, contains, key, quantum, snap
from sweep.space.space import Parameter, Space
from sweep.spec.document import Document, KeyPath, flow, show

LISTED = 10  # values of a list that a message names


def read(given: Iterable[Mapping[str, Value]], space: Space, path: KeyPath, document: Document) -> tuple[Params, ...]:
    """The configurations with values as searchers choose them; notes those that are none of the space."""
    parameters = {parameter.name: parameter for parameter in space.parameters}
    starts: list[Params] = []
    for index, start in enumerate(given):
        before = document.found
        for name, value in start.items():
            place = (*path, index, name)
            if name not in parameters:
                document.mistake(place, f"no parameter {name!r}", did_you_mean(name, parameters), at_key=True)
            else:
                _check(parameters[name], value, start, place, document)
        if document.found > before:
            continue
        known = {name: as_drawn(parameters[name].domain, value) for name, value in start.items()}
        found = conditioning.witness(space.fixed(known))
        if found is None:
            document.mistake((*path, index), "no configuration with these values meets the constraints")
        elif missing := [name for name in known if name not in found]:
            what = f"{missing[0]!r} does not apply with the other values"
            document.mistake((*path, index, missing[0]), what, "remove it", at_key=True)
        elif key(known) in map(key, starts):
            document.mistake((*path, index), "stands there already, expected different configurations")
        starts.append(known)
    return tuple(starts)


def _check(parameter: Parameter, value: Value, start: Mapping[str, Value], path: KeyPath, document: Document) -> None:
    domain = parameter.domain
    if isinstance(domain, Tied):
        document.mistake(path, f"is tied to other parameters: {domain.expression.text}", "remove it", at_key=True)
    elif not contains(domain, value):
        document.mistake(path, f"{show(value)}, expected {_possible(domain)}")
    elif ungiven := sorted(name for name in (parameter.when.names if parameter.when else ()) if name not in start):
        what = f"exists for some values of {ungiven[0]!r} alone, which is not given"
        document.mistake(path, what, f"give {ungiven[0]!r} as well", at_key=True)


def _possible(domain: Domain) -> str:
    """What a parameter can be, in a few words."""
    match domain:
        case Constant(value):
            return flow(value)
        case Categorical():
            values = choices(domain) or ()
            return "one of " + ", ".join([*map(flow, values[:LISTED]), *(["..."] if len(values) > LISTED else [])])
        case Tied():
            return "nothing"
        case _:
            low, high = bounds(domain)
            step = quantum(domain)
            number = "a number" if step is None else "a whole number" if step == 1 else f"a multiple of {step:g}"
            return f"{number} from {low:g} to {high:g}"


def as_drawn(domain: Domain, value: Value) -> Value:
    """A value of a domain, as searchers choose it."""
    if isinstance(domain, Constant | Categorical | Tied) or not isinstance(value, int | float):
        return value
    return snap(domain, float(value) if quantum(domain) is None else value)
