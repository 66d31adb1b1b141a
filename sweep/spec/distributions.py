"""The distributions of a parameter: what each is called, which keys it takes, which domain it is.

One table serves parser, JSON Schema and reference page. Names and meaning are those of W&B sweeps;
bounds of `log_uniform` and `inv_log_uniform` are exponents of e there and here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from sweep.events import Value
from sweep.space.domains import (
    Beta,
    Categorical,
    Constant,
    Domain,
    IntUniform,
    LogNormal,
    LogUniform,
    Normal,
    Tied,
    Uniform,
    choices,
)
from sweep.space.domains import key as canonical
from sweep.space.expressions import Expression, ExpressionError
from sweep.spec.document import flow, show
from sweep.spec.parameter_block import Name, ParameterBlock


class KeyMistake(ValueError):
    """A parameter's keys are each well formed but make no distribution; ``key`` is the one to look at."""

    def __init__(self, key: str, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.key, self.what, self.hint = key, what, hint


@dataclass(frozen=True, slots=True)
class Distribution:
    """A way to draw a parameter: the keys it takes beside `distribution` and `when`, and its domain."""

    required: tuple[str, ...]
    optional: tuple[str, ...]
    build: Callable[[ParameterBlock, float | None], Domain]
    meaning: str

    @property
    def keys(self) -> tuple[str, ...]:
        """All keys that a parameter of this distribution may have."""
        return (*self.required, *self.optional, "distribution", "when")


def infer(block: ParameterBlock) -> Name | None:
    """Return the distribution of a parameter that names none, by W&B's rules; None if its keys tell nothing."""
    keys = block.model_fields_set
    if "value" in keys:
        return "constant"
    if "values" in keys:
        return "categorical_w_probabilities" if "probabilities" in keys else "categorical"
    if not {"min", "max"} & keys:
        return None
    if "q" in keys:
        return "q_uniform"
    whole = isinstance(block.min, int) and isinstance(block.max, int)
    return "int_uniform" if whole else "uniform"


def misfits(block: ParameterBlock, name: Name) -> list[KeyMistake]:
    """Return the keys that a parameter of this distribution lacks, or has and must not have."""
    known, named = DISTRIBUTIONS[name], block.distribution is not None
    keys = block.model_fields_set
    found = []
    for key in sorted(keys - set(known.keys)):
        hint = f"use distribution: q_{name}" if key == "q" and f"q_{name}" in DISTRIBUTIONS else ""
        takes = ", ".join((*known.required, *known.optional))
        there = f"distribution {name}, which takes {takes}" if named else " and ".join(known.required)
        found.append(KeyMistake(key, f"does not go with {there}", hint))
    for key in known.required:
        if key not in keys:
            needs = f"distribution {name} needs it" if named else "min and max go together"
            found.append(KeyMistake(key, f"missing, {needs}"))
    return found


def build(block: ParameterBlock, name: Name) -> Domain:
    """Return the domain that a parameter without `misfits` describes; raise `KeyMistake`."""
    known = DISTRIBUTIONS[name]
    try:
        domain = known.build(block, block.q if "q" in known.optional else None)
    except KeyMistake:
        raise
    except ValueError:
        raise KeyMistake("q", f"{show(block.q)}, which has no multiple between min and max") from None
    if block.count is not None and not isinstance(domain, Constant | Categorical | Tied):
        values = choices(domain)
        if values is not None and block.count > len(values):
            raise KeyMistake("count", f"{show(block.count)}, but the range has only {len(values)} values")
    return domain


def to_dict(domain: Domain) -> dict[str, Value]:
    """Return a domain as it is written in a file, with its distribution named."""
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
                "probabilities": list(probabilities or ()),
            }
        case IntUniform(low, high, log=True):
            return {"distribution": "int_log_uniform_values", "min": low, "max": high}
        case IntUniform(low, high):
            return {"distribution": "int_uniform", "min": low, "max": high}
        case Uniform(low, high, q):
            return _quantized("uniform", q, min=low, max=high)
        case LogUniform(low, high, q):
            return _quantized("log_uniform_values", q, min=low, max=high)
        case Normal(mu, sigma, q):
            return _quantized("normal", q, mu=mu, sigma=sigma)
        case LogNormal(mu, sigma, q):
            return _quantized("log_normal", q, mu=mu, sigma=sigma)
        case Beta(a, b, q):
            return _quantized("beta", q, a=a, b=b)


def _quantized(name: str, q: float | None, **numbers: float) -> dict[str, Value]:
    block: dict[str, Value] = {"distribution": name if q is None else f"q_{name}", **numbers}
    return block if q is None else {**block, "q": q}


def _constant(block: ParameterBlock, _: float | None) -> Domain:
    value = block.value
    # With `distribution: constant` a text is taken as it is.
    if not isinstance(value, str) or not value.startswith("=") or block.distribution:
        return Constant(value)
    try:
        return Tied(Expression.parse(value[1:].strip()))
    except ExpressionError as error:
        raise KeyMistake("value", f"{error.text!r}, column {error.column}: {error.message}") from None


def _categorical(block: ParameterBlock, _: float | None) -> Domain:
    seen: set[str] = set()
    for value in block.values:
        if canonical(value) in seen:
            raise KeyMistake("values", f"{flow(value)} appears twice", "give probabilities to prefer a value")
        seen.add(canonical(value))
    return Categorical(block.values)


def _weighted(block: ParameterBlock, _: float | None) -> Domain:
    _categorical(block, None)
    if len(block.probabilities) != len(block.values):
        there = f"{len(block.probabilities)} probabilities for {len(block.values)} values"
        raise KeyMistake("probabilities", f"{there}, expected one for each")
    total = math.fsum(block.probabilities)
    if abs(total - 1) > 1e-6:
        raise KeyMistake("probabilities", f"their sum is {total:g}, expected 1")
    return Categorical(block.values, block.probabilities)


def _int_uniform(block: ParameterBlock, _: float | None) -> IntUniform:
    low, high = block.min, block.max
    for end, number in (("min", low), ("max", high)):
        if not isinstance(number, int):
            raise KeyMistake(end, f"{show(number)}, expected a whole number")
    _range(block)
    return IntUniform(int(low), int(high))


def _int_log_uniform_values(block: ParameterBlock, _: float | None) -> Domain:
    domain = _int_uniform(block, None)
    if block.min < 1:
        raise KeyMistake("min", f"{show(block.min)}, expected a whole number of at least 1", "a log scale has no zero")
    return replace(domain, log=True)


def _uniform(block: ParameterBlock, q: float | None) -> Domain:
    low, high = _range(block)
    if not math.isfinite(high - low):
        raise KeyMistake("max", f"{show(block.max)}, too far from min")
    return Uniform(low, high, q)


def _log_uniform_values(block: ParameterBlock, q: float | None) -> Domain:
    low, high = _range(block)
    if low <= 0:
        hint = "exponents go with distribution: log_uniform" if low < 0 else "a log scale has no zero"
        raise KeyMistake("min", f"{show(block.min)}, expected a number above 0", hint)
    return LogUniform(low, high, q)


def _log_uniform(block: ParameterBlock, q: float | None) -> Domain:
    low, high = _exponents(block)
    return LogUniform(math.exp(low), math.exp(high), q)


def _inv_log_uniform(block: ParameterBlock, _: float | None) -> Domain:
    low, high = _exponents(block)
    return LogUniform(math.exp(-high), math.exp(-low))


def _normal(block: ParameterBlock, q: float | None) -> Domain:
    if not math.isfinite(abs(block.mu) + 9 * block.sigma):
        raise KeyMistake("mu", "beyond the largest number with this sigma")
    return Normal(block.mu, block.sigma, q)


def _log_normal(block: ParameterBlock, q: float | None) -> Domain:
    if abs(block.mu) + 9 * block.sigma >= 700:
        hint = "mu and sigma are those of the logarithm"
        raise KeyMistake("mu", f"{show(block.mu)}, too large: e to the power of it overflows", hint)
    return LogNormal(block.mu, block.sigma, q)


def _beta(block: ParameterBlock, q: float | None) -> Domain:
    return Beta(block.a, block.b, q)


def _range(block: ParameterBlock) -> tuple[float, float]:
    if block.min > block.max:
        raise KeyMistake("min", f"{show(block.min)}, expected at most max, which is {block.max}")
    return float(block.min), float(block.max)


def _exponents(block: ParameterBlock) -> tuple[float, float]:
    low, high = _range(block)
    hint = f"real bounds go with distribution: {block.distribution}_values"
    for key, exponent in (("min", block.min), ("max", block.max)):
        if abs(exponent) > 700:
            raise KeyMistake(key, f"{show(exponent)}, too large for an exponent of e", hint)
    if 0 < low < high <= 1:  # learning rates, not their logarithms
        there = f"an exponent of e: values would lie between {math.exp(low):g} and {math.exp(high):g}"
        raise KeyMistake("min", f"{show(block.min)} is {there}", hint)
    return low, high


DISTRIBUTIONS: dict[Name, Distribution] = {
    "constant": Distribution(("value",), (), _constant, "one value"),
    "categorical": Distribution(("values",), (), _categorical, "one of the values, equally likely"),
    "categorical_w_probabilities": Distribution(
        ("values", "probabilities"), (), _weighted, "one of the values, by their probabilities"
    ),
    "int_uniform": Distribution(
        ("min", "max"), ("count",), _int_uniform, "whole numbers from min to max, both included"
    ),
    "int_log_uniform_values": Distribution(
        ("min", "max"), ("count",), _int_log_uniform_values, "whole numbers from min to max, their logarithm uniform"
    ),
    "uniform": Distribution(("min", "max"), ("count",), _uniform, "numbers from min to max"),
    "q_uniform": Distribution(
        ("min", "max"), ("q", "count"), _uniform, "multiples of q from min to max; q is 1 if left out"
    ),
    "log_uniform": Distribution(
        ("min", "max"), ("count",), _log_uniform, "e to the power of a uniform number: bounds are exponents"
    ),
    "log_uniform_values": Distribution(
        ("min", "max"), ("count",), _log_uniform_values, "numbers from min to max, their logarithm uniform"
    ),
    "q_log_uniform": Distribution(
        ("min", "max"), ("q", "count"), _log_uniform, "multiples of q, otherwise as log_uniform"
    ),
    "q_log_uniform_values": Distribution(
        ("min", "max"), ("q", "count"), _log_uniform_values, "multiples of q, otherwise as log_uniform_values"
    ),
    "inv_log_uniform": Distribution(
        ("min", "max"), ("count",), _inv_log_uniform, "1 / e to the power of a uniform number"
    ),
    "inv_log_uniform_values": Distribution(
        ("min", "max"), ("count",), _log_uniform_values, "numbers from min to max, log(1/x) uniform"
    ),
    "normal": Distribution((), ("mu", "sigma", "count"), _normal, "normal with mean mu, deviation sigma"),
    "q_normal": Distribution((), ("mu", "sigma", "q", "count"), _normal, "multiples of q, otherwise as normal"),
    "log_normal": Distribution((), ("mu", "sigma", "count"), _log_normal, "positive numbers, their logarithm normal"),
    "q_log_normal": Distribution(
        (), ("mu", "sigma", "q", "count"), _log_normal, "multiples of q, otherwise as log_normal"
    ),
    "beta": Distribution((), ("a", "b", "count"), _beta, "numbers from 0 to 1 with the beta distribution"),
    "q_beta": Distribution((), ("a", "b", "q", "count"), _beta, "multiples of q, otherwise as beta"),
}
