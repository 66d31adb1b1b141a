"""The keys of a single parameter, including `when:`, and the domain that its distribution describes.

One table serves parser, JSON Schema and reference page. Names and meanings are those of W&B sweeps; as there, the
bounds of `log_uniform` and `inv_log_uniform` are exponents of e.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Field, JsonValue

from sweep.events import Value
from sweep.space import Between, Condition, OneOf
from sweep.space.conditions import is_same_value
from sweep.space.domains import (
    Beta,
    Categorical,
    Constant,
    Domain,
    IntUniform,
    LogNormal,
    LogUniform,
    Normal,
    Range,
    Tied,
    Uniform,
    contains,
    get_domain_bounds,
    get_quantum,
    list_choices,
)
from sweep.space.domains import key as canonical
from sweep.space.expressions import Expression, ExpressionError
from sweep.spec.blocks import Block, Count, Number
from sweep.spec.validation import Document, KeyPath, describe_value, flow
from sweep.text import did_you_mean


class Bounds(Block):
    """A test for a number between two bounds, both included."""

    min: Number | None = Field(None, description="Smallest value that meets the condition.")
    max: Number | None = Field(None, description="Largest value that meets the condition.")


def _check_order(bounds: Bounds) -> Bounds:
    """Return the bounds unchanged. Raises ValueError if neither key is given or ``min`` is above ``max``."""
    if bounds.min is None:
        low = -math.inf
    else:
        low = bounds.min
    if bounds.max is None:
        high = math.inf
    else:
        high = bounds.max
    if (bounds.min is None and bounds.max is None) or low > high:
        raise ValueError("min, max or both, and min not above max")
    return bounds


Scalar: TypeAlias = bool | int | float | str | None
Test: TypeAlias = (
    Scalar
    | Annotated[tuple[Scalar, ...], Field(strict=False, min_length=1)]
    | Annotated[Bounds, AfterValidator(_check_order)]
)
When: TypeAlias = Annotated[dict[str, Test], Field(min_length=1, examples=[{"optimizer": "sgd"}])]


def make_condition(when: Mapping[str, Test]) -> Condition:
    """Convert a `when` block to a condition of the search space.

    ``when`` has a test for each parameter, by its name. A single value is a test for this one value, a list one for any
    of its values, and `Bounds` one for the numbers between them, where a missing bound is infinite.
    """
    tests: list[tuple[str, OneOf | Between]] = []
    for name, test in when.items():
        match test:
            case Bounds(min=low, max=high):
                between = Between(
                    -math.inf if low is None else low, math.inf if high is None else high
                )
                tests.append((name, between))
            case tuple():
                tests.append((name, OneOf(test)))
            case _:
                tests.append((name, OneOf((test,))))
    return Condition(tuple(tests))


def condition_to_dict(condition: Condition) -> dict[str, Value]:
    """Convert a condition to a `when` block, the mapping from parameters to tests that a sweep file has.

    A test for values becomes a list, even if it has only one. Infinite bounds are left out. Each name may have only one
    test; of several, only the last one is kept.
    """
    when: dict[str, Value] = {}
    for name, test in condition.tests:
        match test:
            case OneOf(values):
                when[name] = list(values)
            case Between(low, high):
                ends = {"min": low, "max": high}
                when[name] = {end: value for end, value in ends.items() if math.isfinite(value)}
    return when


def check_test_is_possible(
    test: OneOf | Between, domain: Domain, path: KeyPath, document: Document
) -> None:
    """Add mistakes for a test that a parameter with this domain can never pass, at the place ``path``.

    A test for values has a mistake for each value that the parameter can never have. For a continuous parameter that is
    every value, because it hardly ever has exactly this one. A test for a range is a mistake if the parameter has no
    value in it; of a parameter that is continuous or has more than `MAX_CHOICES` values, only the bounds are compared.
    Any test of a tied parameter is accepted.
    """
    if isinstance(domain, Tied):
        return
    possible = list_choices(domain)  # None for a range that is continuous or has too many values
    match test:
        case OneOf(values):
            for value in values:
                _check_value_is_possible(value, domain, path, document)
        case Between(low, high):
            if possible is not None:
                met = any(test.passes(choice) for choice in possible)
            elif isinstance(domain, Constant | Categorical):
                met = False  # not reached, because these have choices; only ranges are left below
            else:
                least, most = get_domain_bounds(domain)
                met = low <= most and least <= high
            if not met:
                document.add_mistake(path, "no value of that parameter lies in this range")


def _check_value_is_possible(
    value: Value, domain: Domain, path: KeyPath, document: Document
) -> None:
    """Add a mistake at ``path`` if a parameter with this domain, which is not tied, can never have the value.

    Every value is a mistake for a continuous parameter, even one within its bounds. The numbers 1 and 1.0 are the same
    value here, but true is another one.
    """
    possible = list_choices(domain)  # None for a range that is continuous or has too many values
    if possible is not None:
        if not any(is_same_value(value, choice) for choice in possible):
            known = [flow(choice) for choice in possible[:20]]  # no more than a hint can show
            # The text "8" equals the number 8 as it is written in a file.
            hint = "remove the quotes" if value in known else did_you_mean(flow(value), known)
            document.add_mistake(
                path, f"{describe_value(value)} is no value of that parameter", hint
            )
    # The types are named for the type checker: only a range comes here.
    elif isinstance(domain, Constant | Categorical | Tied) or get_quantum(domain) is None:
        what = f"{describe_value(value)} is never met exactly by a continuous parameter"
        document.add_mistake(path, what, "use {min: ..., max: ...}")
    else:  # more steps than are listed
        # 5.0 is the same value as 5, but `contains` finds no float in a domain of integers.
        if isinstance(value, float) and value.is_integer():
            number: Value = int(value)
        else:
            number = value
        if not contains(domain, number):
            document.add_mistake(path, f"{describe_value(value)} is no value of that parameter")


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
"""The distributions of W&B sweeps (wandb/sweeps, config/schema.json), and integers on a logarithmic scale."""

Positive: TypeAlias = Annotated[float, Field(gt=0)]
Quantum: TypeAlias = Annotated[int, Field(gt=0)] | Positive
Values: TypeAlias = Annotated[tuple[JsonValue, ...], Field(strict=False, min_length=1)]
Probabilities: TypeAlias = Annotated[
    tuple[Annotated[float, Field(ge=0)], ...], Field(strict=False, min_length=1)
]


class ParameterBlock(Block):
    """One hyperparameter: a value, a list of values, or a distribution."""

    distribution: Name | None = Field(
        None, description="How values are drawn; inferred if left out."
    )
    value: JsonValue = Field(
        None, description="The one value; '= expression' ties it to other parameters."
    )
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
    count: Count | None = Field(
        None, description="Number of values that a grid takes from a range."
    )
    when: When | None = Field(
        None, description="Values of other parameters for which this one exists."
    )


HINTS = {
    **dict.fromkeys(("choice", "choices", "options", "vals"), "did you mean 'values'?"),
    **dict.fromkeys(("default", "fixed"), "did you mean 'value'?"),
    **dict.fromkeys(("high", "upper", "maxval"), "did you mean 'max'?"),
    **dict.fromkeys(("low", "lower", "minval"), "did you mean 'min'?"),
    **dict.fromkeys(
        ("log", "loguniform"), "write distribution: log_uniform_values, or int_log_uniform_values"
    ),
    **dict.fromkeys(("int", "integer", "randint"), "write distribution: int_uniform"),
    "mean": "did you mean 'mu'?",
    "num": "did you mean 'count'?",
    "step": "did you mean 'q'?",
    "alpha": "did you mean 'a'?",
    "beta": "did you mean 'b'?",
}
"""Hints for names that other programs use."""


class KeyMistake(ValueError):
    """A combination of keys that is not a valid distribution; ``key`` is the key to report."""

    def __init__(self, key: str, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.key = key
        self.what = what
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Distribution:
    """A distribution of a parameter's values: its required and optional keys, and how to build its domain."""

    required: tuple[str, ...]
    optional: tuple[str, ...]
    # takes the keys of a parameter and its quantum, which is None if the distribution has no key `q`
    build: Callable[[ParameterBlock, float | None], Domain]
    meaning: str

    @property
    def keys(self) -> tuple[str, ...]:
        """All keys that a parameter with this distribution can have, those that it must have first."""
        return (*self.required, *self.optional, "distribution", "when")


def infer_distribution(block: ParameterBlock) -> Name | None:
    """Return the distribution of a parameter that names none, by W&B's rules.

    It is "constant" for the key ``value``, else for ``values`` "categorical_w_probabilities" if there are
    ``probabilities`` and "categorical" if not, else for ``min`` or ``max`` "q_uniform" with ``q``, "int_uniform" if
    both bounds are whole, and "uniform" for others. A missing bound counts with its default, 0 or 1;
    `find_key_mistakes` reports it. Returns None if there is none of ``value``, ``values``, ``min`` and ``max``.
    """
    keys = block.model_fields_set  # the keys that the file has
    if "value" in keys:
        return "constant"
    if "values" in keys:
        if "probabilities" in keys:
            return "categorical_w_probabilities"
        return "categorical"
    # one of them suffices here: `find_key_mistakes` reports that the other is missing
    if not {"min", "max"} & keys:
        return None
    if "q" in keys:
        return "q_uniform"
    whole = isinstance(block.min, int) and isinstance(block.max, int)
    return "int_uniform" if whole else "uniform"


def find_key_mistakes(block: ParameterBlock, name: Name) -> list[KeyMistake]:
    """Return a mistake for each key that a parameter with the distribution ``name`` must not have, or lacks.

    The keys that it must not have come first, in alphabetical order. Returns [] if there are none of either.
    """
    known = DISTRIBUTIONS[name]
    is_named_in_file = block.distribution is not None  # otherwise the name was inferred
    keys = block.model_fields_set  # the keys that the file has
    found = []
    for key in sorted(keys - set(known.keys)):
        if key == "q" and f"q_{name}" in DISTRIBUTIONS:
            hint = f"use distribution: q_{name}"
        else:
            hint = ""
        takes = ", ".join((*known.required, *known.optional))
        if is_named_in_file:
            excluded_by = f"distribution {name}, which takes {takes}"
        else:  # the message has the keys from which the name was inferred, as the file does not have the name
            excluded_by = " and ".join(known.required)
        found.append(KeyMistake(key, f"does not go with {excluded_by}", hint))
    for key in known.required:
        if key not in keys:
            if is_named_in_file:
                needs = f"distribution {name} needs it"
            else:  # of the inferred distributions, only ranges can lack a key
                needs = "min and max go together"
            found.append(KeyMistake(key, f"missing, {needs}"))
    return found


def build_domain(block: ParameterBlock, name: Name) -> Domain:
    """Build the domain of a parameter, whose keys must be those of the distribution ``name`` (`find_key_mistakes`).

    ``count`` and ``when`` are no part of the domain. Raises `KeyMistake` for values of keys that make no domain, such
    as ``min`` above ``max`` or a range without a multiple of ``q``, and for a ``count`` above the number of values of a
    range.
    """
    known = DISTRIBUTIONS[name]
    quantum: float | None = None  # for the distributions without `q`
    if "q" in known.optional:
        quantum = block.q
    try:
        domain = known.build(block, quantum)
    except KeyMistake:  # it is a ValueError, too
        raise
    except ValueError:  # from the domain itself, whose other requirements ``build`` has checked
        raise KeyMistake(
            "q", f"{describe_value(block.q)}, which has no multiple between min and max"
        ) from None
    if block.count is not None and not isinstance(domain, Constant | Categorical | Tied):
        values = list_choices(domain)
        if values is not None and block.count > len(values):
            raise KeyMistake(
                "count",
                f"{describe_value(block.count)}, but the range has only {len(values)} values",
            )
    return domain


def domain_to_dict(domain: Domain) -> dict[str, Value]:
    """Convert a domain to the keys of a parameter in a sweep file, without ``count`` and ``when``.

    The name of the distribution is one of the keys, unless the domain is tied. It may be another one than in the file
    that the domain was read from: for bounds given as exponents, the bounds themselves are returned.
    """
    match domain:
        case Constant(value):
            return {"distribution": "constant", "value": value}
        case Tied(expression):
            return {"value": f"= {expression.text}"}
        case Categorical(values, None):
            return {"distribution": "categorical", "values": list(values)}
        case Categorical(values, probabilities):
            return {
                "distribution": "categorical_w_probabilities",
                "values": list(values),
                "probabilities": list(probabilities or ()),  # None is the case above
            }
        case _:
            return _range_to_dict(domain)


def _range_to_dict(domain: Range) -> dict[str, Value]:
    """Convert the domain of a number to the keys of a sweep file.

    The bounds of a `LogUniform` are written as they are, not as exponents. The ``q`` of an `IntUniform` is left out.
    """
    match domain:
        case IntUniform(low, high, log=log):
            return {
                "distribution": "int_log_uniform_values" if log else "int_uniform",
                "min": low,
                "max": high,
            }
        case Uniform(low, high, q):
            return _quantized_to_dict("uniform", q, min=low, max=high)
        case LogUniform(low, high, q):
            return _quantized_to_dict("log_uniform_values", q, min=low, max=high)
        case Normal(mu, sigma, q):
            return _quantized_to_dict("normal", q, mu=mu, sigma=sigma)
        case LogNormal(mu, sigma, q):
            return _quantized_to_dict("log_normal", q, mu=mu, sigma=sigma)
        case Beta(a, b, q):
            return _quantized_to_dict("beta", q, a=a, b=b)


def _quantized_to_dict(name: str, q: float | None, **numbers: float) -> dict[str, Value]:
    """Return the keys of a range: its distribution, its ``numbers`` and, unless ``q`` is None, ``q``.

    The distribution is ``name`` or, with ``q``, its quantized form, which has ``q_`` in front of the name.
    """
    block: dict[str, Value] = {"distribution": name if q is None else f"q_{name}", **numbers}
    return block if q is None else {**block, "q": q}


def _make_constant(block: ParameterBlock, _q: float | None) -> Domain:
    """Build a constant, or a tied parameter if the value is a text that begins with "=".

    If the block names its distribution, such a text is a constant as well. Raises `KeyMistake` if the expression after
    "=" is invalid.
    """
    value = block.value
    # With `distribution: constant`, a text that begins with "=" is no expression.
    if not isinstance(value, str) or not value.startswith("=") or block.distribution:
        return Constant(value)
    try:
        return Tied(Expression.parse(value[1:].strip()))
    except ExpressionError as error:
        raise KeyMistake(
            "value", f"{error.text!r}, column {error.column}: {error.message}"
        ) from None


def _make_categorical(block: ParameterBlock, _q: float | None) -> Domain:
    """Build a choice among values. Raises `KeyMistake` if a value appears twice; 1, 1.0 and true are different."""
    seen: set[str] = set()
    for value in block.values:
        if canonical(value) in seen:
            raise KeyMistake(
                "values", f"{flow(value)} appears twice", "give probabilities to prefer a value"
            )
        seen.add(canonical(value))
    return Categorical(block.values)


def _make_weighted(block: ParameterBlock, _q: float | None) -> Domain:
    """Build a choice among values with probabilities.

    Raises `KeyMistake` if a value appears twice, if there is not one probability for each, or if their sum differs from
    1 by more than 1e-6.
    """
    _make_categorical(block, None)  # only for its check
    if len(block.probabilities) != len(block.values):
        there = f"{len(block.probabilities)} probabilities for {len(block.values)} values"
        raise KeyMistake("probabilities", f"{there}, expected one for each")
    total = math.fsum(block.probabilities)
    if abs(total - 1) > 1e-6:
        raise KeyMistake("probabilities", f"their sum is {total:g}, expected 1")
    return Categorical(block.values, block.probabilities)


def _make_int_uniform(block: ParameterBlock, _q: float | None) -> IntUniform:
    """Build a range of whole numbers. Raises `KeyMistake` if a bound is not whole, or ``min`` is above ``max``."""
    low, high = block.min, block.max
    for end, number in (("min", low), ("max", high)):
        if not isinstance(number, int):
            raise KeyMistake(end, f"{describe_value(number)}, expected a whole number")
    _get_bounds(block)  # only for its check: as floats, large bounds would lose digits
    return IntUniform(int(low), int(high))


def _make_int_log_uniform_values(block: ParameterBlock, _q: float | None) -> Domain:
    """Build a range of whole numbers whose logarithm is uniform.

    Raises `KeyMistake` if a bound is below 1 or not whole, or if ``min`` is above ``max``.
    """
    domain = _make_int_uniform(block, None)
    if block.min < 1:
        raise KeyMistake(
            "min",
            f"{describe_value(block.min)}, expected a whole number of at least 1",
            "a log scale has no zero",
        )
    return replace(domain, log=True)


def _make_uniform(block: ParameterBlock, q: float | None) -> Domain:
    """Build a range of numbers or, with ``q``, of its multiples.

    Raises `KeyMistake` if ``min`` is above ``max`` or the width is too large for a float, and another ValueError if
    there is no multiple of ``q`` between them.
    """
    low, high = _get_bounds(block)
    if not math.isfinite(high - low):
        raise KeyMistake("max", f"{describe_value(block.max)}, too far from min")
    return Uniform(low, high, q)


def _make_log_uniform_values(block: ParameterBlock, q: float | None) -> Domain:
    """Build a range of numbers, or of multiples of ``q``, whose logarithm is uniform.

    Raises `KeyMistake` if ``min`` is not positive or above ``max``, and another ValueError if there is no multiple of
    ``q`` between them.
    """
    low, high = _get_bounds(block)
    if low <= 0:
        if low < 0:  # probably meant as an exponent, such as -5
            hint = "exponents go with distribution: log_uniform"
        else:
            hint = "a log scale has no zero"
        raise KeyMistake("min", f"{describe_value(block.min)}, expected a number above 0", hint)
    return LogUniform(low, high, q)


def _make_log_uniform(block: ParameterBlock, q: float | None) -> Domain:
    """Build a log-uniform range from e to the power of ``min`` to e to the power of ``max``.

    Raises `KeyMistake` if the bounds cannot be exponents of e (`_get_exponents`), and another ValueError if there is no
    multiple of ``q`` in the range.
    """
    low, high = _get_exponents(block)
    return LogUniform(math.exp(low), math.exp(high), q)


def _make_inv_log_uniform(block: ParameterBlock, _q: float | None) -> Domain:
    """Build a log-uniform range from e to the power of ``-max`` to e to the power of ``-min``.

    Raises `KeyMistake` if the bounds cannot be exponents of e (`_get_exponents`).
    """
    low, high = _get_exponents(block)
    return LogUniform(math.exp(-high), math.exp(-low))


def _make_normal(block: ParameterBlock, q: float | None) -> Domain:
    """Build a normal distribution. Raises `KeyMistake` if ``mu`` -+ 9 ``sigma`` is too large for a float."""
    if not math.isfinite(abs(block.mu) + 9 * block.sigma):
        raise KeyMistake("mu", "beyond the largest number with this sigma")
    return Normal(block.mu, block.sigma, q)


def _make_log_normal(block: ParameterBlock, q: float | None) -> Domain:
    """Build a log-normal distribution. Raises `KeyMistake` if the absolute ``mu`` plus 9 ``sigma`` is 700 or more."""
    if abs(block.mu) + 9 * block.sigma >= 700:
        hint = "mu and sigma are those of the logarithm"
        raise KeyMistake(
            "mu", f"{describe_value(block.mu)}, too large: e to the power of it overflows", hint
        )
    return LogNormal(block.mu, block.sigma, q)


def _make_beta(block: ParameterBlock, q: float | None) -> Domain:
    return Beta(block.a, block.b, q)


def _get_bounds(block: ParameterBlock) -> tuple[float, float]:
    """Return ``min`` and ``max`` as floats. Raises `KeyMistake` if ``min`` is above ``max``."""
    if block.min > block.max:
        raise KeyMistake(
            "min", f"{describe_value(block.min)}, expected at most max, which is {block.max}"
        )
    return float(block.min), float(block.max)


def _get_exponents(block: ParameterBlock) -> tuple[float, float]:
    """Return ``min`` and ``max`` as floats, after a check that they can be meant as exponents of e.

    Raises `KeyMistake` if ``min`` is above ``max``, if one is above 700 or below -700, or if they differ and lie
    between 0 and 1, where 0 is excluded: those are probably the bounds of the values themselves.
    """
    low, high = _get_bounds(block)
    hint = f"real bounds go with distribution: {block.distribution}_values"
    for key, exponent in (("min", block.min), ("max", block.max)):
        if abs(exponent) > 700:  # e to the power of 710 is no finite number
            raise KeyMistake(
                key, f"{describe_value(exponent)}, too large for an exponent of e", hint
            )
    if 0 < low < high <= 1:  # probably learning rates instead of their logarithms
        there = (
            f"an exponent of e: values would lie between {math.exp(low):g} and {math.exp(high):g}"
        )
        raise KeyMistake("min", f"{describe_value(block.min)} is {there}", hint)
    return low, high


DISTRIBUTIONS: dict[Name, Distribution] = {
    "constant": Distribution(("value",), (), _make_constant, "one value"),
    "categorical": Distribution(
        ("values",), (), _make_categorical, "one of the values, equally likely"
    ),
    "categorical_w_probabilities": Distribution(
        ("values", "probabilities"), (), _make_weighted, "one of the values, by their probabilities"
    ),
    "int_uniform": Distribution(
        ("min", "max"),
        ("count",),
        _make_int_uniform,
        "whole numbers from min to max, both included",
    ),
    "int_log_uniform_values": Distribution(
        ("min", "max"),
        ("count",),
        _make_int_log_uniform_values,
        "whole numbers from min to max, their logarithm uniform",
    ),
    "uniform": Distribution(("min", "max"), ("count",), _make_uniform, "numbers from min to max"),
    "q_uniform": Distribution(
        ("min", "max"),
        ("q", "count"),
        _make_uniform,
        "multiples of q from min to max; q is 1 if left out",
    ),
    "log_uniform": Distribution(
        ("min", "max"),
        ("count",),
        _make_log_uniform,
        "e to the power of a uniform number: bounds are exponents",
    ),
    "log_uniform_values": Distribution(
        ("min", "max"),
        ("count",),
        _make_log_uniform_values,
        "numbers from min to max, their logarithm uniform",
    ),
    "q_log_uniform": Distribution(
        ("min", "max"),
        ("q", "count"),
        _make_log_uniform,
        "multiples of q, otherwise as log_uniform",
    ),
    "q_log_uniform_values": Distribution(
        ("min", "max"),
        ("q", "count"),
        _make_log_uniform_values,
        "multiples of q, otherwise as log_uniform_values",
    ),
    "inv_log_uniform": Distribution(
        ("min", "max"), ("count",), _make_inv_log_uniform, "1 / e to the power of a uniform number"
    ),
    "inv_log_uniform_values": Distribution(
        ("min", "max"),
        ("count",),
        _make_log_uniform_values,
        "numbers from min to max, log(1/x) uniform",
    ),
    "normal": Distribution(
        (), ("mu", "sigma", "count"), _make_normal, "normal with mean mu, deviation sigma"
    ),
    "q_normal": Distribution(
        (), ("mu", "sigma", "q", "count"), _make_normal, "multiples of q, otherwise as normal"
    ),
    "log_normal": Distribution(
        (), ("mu", "sigma", "count"), _make_log_normal, "positive numbers, their logarithm normal"
    ),
    "q_log_normal": Distribution(
        (),
        ("mu", "sigma", "q", "count"),
        _make_log_normal,
        "multiples of q, otherwise as log_normal",
    ),
    "beta": Distribution(
        (), ("a", "b", "count"), _make_beta, "numbers from 0 to 1 with the beta distribution"
    ),
    "q_beta": Distribution(
        (), ("a", "b", "q", "count"), _make_beta, "multiples of q, otherwise as beta"
    ),
}
