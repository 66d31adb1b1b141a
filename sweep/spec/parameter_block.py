"""The keys of one parameter in a sweep file."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, JsonValue

from sweep.spec.blocks import Block, Count, Number
from sweep.spec.conditions import When

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
