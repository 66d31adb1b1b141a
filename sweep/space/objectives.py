"""What a sweep optimizes, and the constraints on its metrics."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sweep.events import EpochReported
from sweep.space.expressions import Expression

Goal: TypeAlias = Literal["minimize", "maximize"]
Impute: TypeAlias = Literal["latest", "best", "worst"]


INFEASIBLE = 1e100
"""A loss above that of any trial that meets the constraints, for all losses that occur in practice."""


@dataclass(frozen=True, slots=True)
class Objective:
    """A metric, its direction, and the value of a trial that has no final one.

    ``constraints`` on metrics say which trials are feasible; ``others`` are the other objectives of the sweep.
    """

    name: str
    goal: Goal
    impute: Impute | None = None
    constraints: tuple[Expression, ...] = ()
    others: tuple[Objective, ...] = ()

    @property
    def maximize(self) -> bool:
        """Whether larger values are better."""
        return self.goal == "maximize"

    @property
    def sign(self) -> float:
        """The factor between a value and its loss; prefer `loss` and `of_loss`."""
        return -1.0 if self.maximize else 1.0

    def value(self, metrics: Mapping[str, float]) -> float | None:
        """Return the metric's value, or None if it is absent, NaN or infinite."""
        value = metrics.get(self.name)
        if value is not None and math.isfinite(value):
            return value
        return None

    def diverged(self, epoch: EpochReported) -> str:
        """Return why the trial diverged in this epoch, "" if it did not: its loss or an objective is not finite."""
        for name in ("loss", self.name, *(other.name for other in self.others)):
            value = epoch.metrics.get(name)
            if value is not None and not math.isfinite(value):
                return f"{name} is {value} in epoch {epoch.epoch}"
        return ""

    def loss(self, metrics: Mapping[str, float]) -> float | None:
        """Return the metric as a loss (lower is better), or None if it has no finite value."""
        value = self.value(metrics)
        if value is None:
            return None
        return self.to_loss(value)

    def violated(self, metrics: Mapping[str, float]) -> list[str]:
        """Return the constraints that these metrics violate, as text; absent, NaN and infinite metrics violate them."""
        violated = []
        for one in self.constraints:
            if one.distance(metrics) > 0:
                violated.append(one.text)
        return violated

    def violation(self, metrics: Mapping[str, float]) -> float:
        """Return the distance to meeting the constraints: 0 if they hold, smaller the nearer the metrics are."""
        return sum(one.distance(metrics) for one in self.constraints)

    def standing(self, metrics: Mapping[str, float]) -> float | None:
        """Return the loss by which trials are compared; None if the metric has no finite value.

        If constraints are violated, it is above that of all feasible trials and increases with the violation: the rule
        of Deb (2000), "An efficient constraint handling method for genetic algorithms", section 3.
        """
        loss = self.loss(metrics)
        if loss is None:
            by = 0.0
        else:
            by = self.violation(metrics)
        return INFEASIBLE * (1 + by) if by else loss

    def standings(self, metrics: Mapping[str, float]) -> tuple[float, ...] | None:
        """Return the losses of this and the other objectives, by which trials are compared; None unless all are finite.

        Where the constraints do not hold, all are above those of trials that meet them, by the violation: one that
        meets them dominates one that does not, as in `standing`.
        """
        losses = [one.loss(metrics) for one in (self, *self.others)]
        finite = tuple(loss for loss in losses if loss is not None)
        if len(finite) < len(losses):
            return None
        by = self.violation(metrics)
        if by:
            return (INFEASIBLE * (1 + by),) * len(finite)
        return finite

    def ranked(self, metrics: Mapping[str, float]) -> float:
        """Return `standing`, or infinity if it is None, so that the trial ranks last."""
        found = self.standing(metrics)
        return math.inf if found is None else found

    def imputed(self, epochs: Iterable[Mapping[str, float]]) -> float | None:
        """Return the loss that ``impute`` assigns to a trial without a final value; None ranks last."""
        losses = [loss for metrics in epochs if (loss := self.loss(metrics)) is not None]
        if not losses or self.impute in (None, "worst"):
            return None
        if self.impute == "latest":
            return losses[-1]
        return min(losses)

    def to_loss(self, value: float) -> float:
        """Return a value of the metric, or a difference of two, as a loss (lower is better)."""
        return self.sign * value

    def of_loss(self, loss: float) -> float:
        """Return the metric's value of a loss, or the difference of values of a difference of losses."""
        return self.sign * loss

    def reached(self, target: float | None, metrics: Mapping[str, float]) -> str | None:
        """Return a message that the metric has reached a target; None if it has not, or without a target."""
        value = self.value(metrics)
        if target is None or value is None or self.to_loss(value) > self.to_loss(target) or self.violated(metrics):
            return None
        return f"target reached: {self.name} {value:.4g}"


def objective(name: str, goal: str) -> Objective:
    """Return the objective of a name and goal from `SweepInfo.objectives`, which has checked them."""
    return Objective(name, "maximize" if goal == "maximize" else "minimize")
