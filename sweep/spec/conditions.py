"""The `when:` key of a parameter: on which values of others it depends."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, Field

from sweep.errors import did_you_mean
from sweep.events import Value
from sweep.space.domains import Categorical, Constant, Domain, Tied, bounds, choices
from sweep.space.space import Between, Condition, OneOf
from sweep.spec.blocks import Block, Number
from sweep.spec.document import Document, KeyPath, flow, show


class Bounds(Block):
    """A test for a number between two bounds, both included."""

    min: Number | None = Field(None, description="Smallest value that meets the condition.")
    max: Number | None = Field(None, description="Largest value that meets the condition.")


def _range(bounds: Bounds) -> Bounds:
    low = -math.inf if bounds.min is None else bounds.min
    high = math.inf if bounds.max is None else bounds.max
    if not bounds.model_fields_set or low > high:
        raise ValueError("min, max or both, and min not above max")
    return bounds


Scalar: TypeAlias = bool | int | float | str | None
Test: TypeAlias = (
    Scalar
    | Annotated[tuple[Scalar, ...], Field(strict=False, min_length=1)]
    | Annotated[Bounds, AfterValidator(_range)]
)
When: TypeAlias = Annotated[dict[str, Test], Field(min_length=1, examples=[{"optimizer": "sgd"}])]


def build(when: Mapping[str, Test]) -> Condition:
    """The block as the condition that a space checks."""
    tests: list[tuple[str, OneOf | Between]] = []
    for name, test in when.items():
        match test:
            case Bounds(min=low, max=high):
                between = Between(-math.inf if low is None else low, math.inf if high is None else high)
                tests.append((name, between))
            case tuple():
                tests.append((name, OneOf(test)))
            case _:
                tests.append((name, OneOf((test,))))
    return Condition(tuple(tests))


def to_dict(condition: Condition) -> dict[str, Value]:
    """A condition as it is written in a file; two tests of one name cannot be."""
    when: dict[str, Value] = {}
    for name, test in condition.tests:
        match test:
            case OneOf(values):
                when[name] = list(values)
            case Between(low, high):
                ends = {"min": low, "max": high}
                when[name] = {end: value for end, value in ends.items() if math.isfinite(value)}
    return when


def check_possible(test: OneOf | Between, domain: Domain, path: KeyPath, document: Document) -> None:
    """Note values that the parameter of ``domain`` never takes, so that a condition on them never holds."""
    if isinstance(domain, Tied):
        return
    possible = choices(domain)
    match test:
        case OneOf(values):
            for value in values:
                if possible is None:
                    reason = f"{show(value)} is never met exactly by a continuous parameter"
                    document.mistake(path, reason, "use {min: ..., max: ...}")
                elif not any(_same(value, choice) for choice in possible):
                    known = [flow(choice) for choice in possible[:20]]
                    hint = "remove the quotes" if value in known else did_you_mean(flow(value), known)
                    document.mistake(path, f"{show(value)} is no value of that parameter", hint)
        case Between(low, high):
            if possible is not None:
                met = any(test.passes(choice) for choice in possible)
            elif isinstance(domain, Constant | Categorical):
                met = False
            else:
                least, most = bounds(domain)
                met = low <= most and least <= high
            if not met:
                document.mistake(path, "no value of that parameter lies in this range")


def _same(one: Value, other: Value) -> bool:
    """Equality as people see it: 1 is 1.0, but not true."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)
