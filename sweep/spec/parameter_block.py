"""The keys of one parameter in a sweep file, its `when:` among them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Field, JsonValue

from sweep.errors import did_you_mean
from sweep.events import Value
from sweep.space.domains import Categorical, Constant, Domain, Tied, bounds, choices
from sweep.space.space import Between, Condition, OneOf
from sweep.spec.blocks import Block, Count, Number
from sweep.spec.document import Document, KeyPath, flow, show


class Bounds(Block):
    """A test for a number between two bounds, both included."""

    min: Number | None = Field(None, description="Smallest value that meets the condition.")
    max: Number | None = Field(None, description="Largest value that meets the condition.")


def _in_order(bounds: Bounds) -> Bounds:
    low = -math.inf if bounds.min is None else bounds.min
    high = math.inf if bounds.max is None else bounds.max
    if not bounds.model_fields_set or low > high:
        raise ValueError("min, max or both, and min not above max")
    return bounds


Scalar: TypeAlias = bool | int | float | str | None
Test: TypeAlias = (
    Scalar
    | Annotated[tuple[Scalar, ...], Field(strict=False, min_length=1)]
    | Annotated[Bounds, AfterValidator(_in_order)]
)
When: TypeAlias = Annotated[dict[str, Test], Field(min_length=1, examples=[{"optimizer": "sgd"}])]


def condition_of(when: Mapping[str, Test]) -> Condition:
    """Return the block as the condition that a space checks."""
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


def condition_to_dict(condition: Condition) -> dict[str, Value]:
    """Return a condition as it is written in a file; two tests of one name cannot be."""
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


Name: TypeAlias = Literal[
    "constant",
    "categorical",
    "categorical_w_probabilities",
    "int_uniform",
    "int_log_uniform_values",
    "uniform",
    "q_uniform",
    "log_uniform",
    "log_uniform_values",
    "q_log_uniform",
    "q_log_uniform_values",
    "inv_log_uniform",
    "inv_log_uniform_values",
    "normal",
    "q_normal",
    "log_normal",
    "q_log_normal",
    "beta",
    "q_beta",
]
"""The distributions of W&B sweeps (wandb/sweeps, config/schema.json), and whole numbers on a logarithmic scale."""

Positive: TypeAlias = Annotated[float, Field(gt=0)]
Quantum: TypeAlias = Annotated[int, Field(gt=0)] | Positive
Values: TypeAlias = Annotated[tuple[JsonValue, ...], Field(strict=False, min_length=1)]
Probabilities: TypeAlias = Annotated[tuple[Annotated[float, Field(ge=0)], ...], Field(strict=False, min_length=1)]


class ParameterBlock(Block):
    """One hyperparameter: a value, a list of values, or a distribution."""

    distribution: Name | None = Field(None, description="How values are drawn; inferred if left out.")
    value: JsonValue = Field(None, description="The one value; '= expression' ties it to other parameters.")
    values: Values = Field((), description="The values to choose from.", examples=[[0.1, 0.01]])
    probabilities: Probabilities = Field(
        (), description="Probability of each of the values; they sum to one.", examples=[[0.7, 0.3]]
    )
    min: Number = Field(0, description="Lower bound, included.")
    max: Number = Field(1, description="Upper bound, included.")
    q: Quantum = Field(1, description="Quantum: values are multiples of it.")
    mu: float = Field(0.0, description="Mean of the normal distribution, or of the logarithm.")
    sigma: Positive = Field(1.0, description="Standard deviation of it.")
    a: Positive = Field(1.0, description="First shape parameter of beta.")
    b: Positive = Field(1.0, description="Second shape parameter of beta.")
    count: Count | None = Field(None, description="Number of values that a grid takes from a range.")
    when: When | None = Field(None, description="Values of other parameters for which this one exists.")


HINTS = {
    **dict.fromkeys(("choice", "choices", "options", "vals"), "did you mean 'values'?"),
    **dict.fromkeys(("default", "fixed"), "did you mean 'value'?"),
    **dict.fromkeys(("high", "upper", "maxval"), "did you mean 'max'?"),
    **dict.fromkeys(("low", "lower", "minval"), "did you mean 'min'?"),
    **dict.fromkeys(("log", "loguniform"), "write distribution: log_uniform_values, or int_log_uniform_values"),
    **dict.fromkeys(("int", "integer", "randint"), "write distribution: int_uniform"),
    "mean": "did you mean 'mu'?",
    "num": "did you mean 'count'?",
    "step": "did you mean 'q'?",
    "alpha": "did you mean 'a'?",
    "beta": "did you mean 'b'?",
}
"""Help with the words of other programs."""
