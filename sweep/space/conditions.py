"""Conditions under which a parameter applies: tests on the values of other parameters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

from sweep.events import Params, Value, is_number


def is_same_value(one: Value, other: Value) -> bool:
    """Return whether two values of a sweep file are equal: 1 equals 1.0, but not true.

    Inside of lists and mappings, 1 equals true as well.
    """
    return one == other and isinstance(one, bool) == isinstance(other, bool)


@dataclass(frozen=True, slots=True)
class OneOf:
    """A test that passes if a value is one of ``values``."""

    values: tuple[Value, ...]

    def passes(self, value: Value) -> bool:
        return any(is_same_value(value, one) for one in self.values)


@dataclass(frozen=True, slots=True)
class Between:
    """A test that passes if a value is a number from ``min`` to ``max``, both included."""

    min: float = -math.inf
    max: float = math.inf

    def passes(self, value: Value) -> bool:
        return is_number(value) and self.min <= value <= self.max


Test: TypeAlias = OneOf | Between


@dataclass(frozen=True, slots=True)
class Condition:
    """The condition under which a parameter applies: a test for each of some other parameters, all of which must pass.

    A test of a parameter that is absent fails.
    """

    tests: tuple[tuple[str, Test], ...]

    @property
    def names(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.tests)

    def holds(self, params: Params) -> bool:
        """Return whether all tests pass at the point ``params``; one of a parameter that the point lacks does not.

        Without any test, the condition holds.
        """
        return all(name in params and test.passes(params[name]) for name, test in self.tests)
