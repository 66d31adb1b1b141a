"""One hyperparameter of a space, and when it applies."""

from __future__ import annotations

from dataclasses import dataclass

from sweep.events import Params
from sweep.space.conditions import Condition
from sweep.space.domains import Constant, Domain, Range, Tied
from sweep.space.draws import Belief, from_unit


@dataclass(frozen=True, slots=True)
class Parameter:
    """One hyperparameter: its flat, dotted name, its domain, and the condition under which it applies.

    ``grid_count`` is the number of values that a grid takes from a continuous domain, ``belief`` the author's guess of
    the best value.
    """

    name: str
    domain: Domain
    when: Condition | None = None
    grid_count: int | None = None
    belief: Belief | None = None

    @property
    def needs(self) -> frozenset[str]:
        """The names of the parameters that determine whether this one applies, or from which its value is computed."""
        names: frozenset[str] = frozenset()
        if isinstance(self.domain, Tied):
            names |= self.domain.expression.names
        if self.when:
            names |= self.when.names
        return names

    @property
    def drawn(self) -> bool:
        """Whether a searcher chooses its value, which is neither constant nor computed."""
        return not isinstance(self.domain, Constant | Tied)

    @property
    def adaptable(self) -> bool:
        """Whether an evolution strategy can adapt it.

        It can if the parameter is a number with several possible values that applies to every trial.
        """
        if self.when is not None or not isinstance(self.domain, Range):
            return False
        return from_unit(self.domain, 0.0) != from_unit(self.domain, 1 - 1e-9)

    def applies(self, params: Params) -> bool:
        """Return whether the parameter applies at a point whose values so far are ``params``.

        It does if its condition holds, or if it has none. A tied parameter does not apply if a parameter in its
        expression is absent.
        """
        if isinstance(self.domain, Tied) and not self.domain.expression.names <= params.keys():
            return False
        return self.when is None or self.when.holds(params)
