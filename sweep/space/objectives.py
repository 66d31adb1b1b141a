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
    """A metric to optimize, its direction, and the loss of a trial without a final value.

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
        """The factor that converts a value of the metric to a loss; prefer `to_loss` and `from_loss`."""
        return -1.0 if self.maximize else 1.0

    def value(self, metrics: Mapping[str, float]) -> float | None:
        """Return the value of the metric in ``metrics``, or None if it is absent, NaN or infinite."""
        value = metrics.get(self.name)
        if value is not None and math.isfinite(value):
            return value
        return None

    def explain_divergence(self, epoch: EpochReported) -> str:
        """Return why a trial diverged in an epoch, by the first such metric; "" if it did not.

        A trial diverges if its metric "loss" or an objective, also one of `others`, is NaN or infinite. They are
        checked in this order. Absent metrics do not count.
        """
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

    def list_violated(self, metrics: Mapping[str, float]) -> list[str]:
        """Return the texts of the constraints that ``metrics`` violate; [] if there are none.

        A constraint that depends on a metric that is absent, NaN or infinite counts as violated.
        """
        violated = []
        for one in self.constraints:
            if one.distance(metrics) > 0:
                violated.append(one.text)
        return violated

    def measure_violation(self, metrics: Mapping[str, float]) -> float:
        """Return how far ``metrics`` are from meeting the constraints: 0 if they do, less the nearer they are.

        The distances of all constraints (`Expression.distance`) are added. That of one without a result, as for an
        absent metric, is `WITHOUT_RESULT`. The result is 0 without constraints.
        """
        return sum(one.distance(metrics) for one in self.constraints)

    def constrained_loss(self, metrics: Mapping[str, float]) -> float | None:
        """Return the loss by which trials are compared; None if the metric is absent, NaN or infinite.

        If the metrics violate constraints, it is above the loss of every feasible trial and increases with the
        violation: the rule of Deb (2000), "An efficient constraint handling method for genetic algorithms", section 3.
        """
        loss = self.loss(metrics)
        if loss is None:
            by = 0.0
        else:
            by = self.measure_violation(metrics)
        return INFEASIBLE * (1 + by) if by else loss

    def constrained_losses(self, metrics: Mapping[str, float]) -> tuple[float, ...] | None:
        """Return the loss for each objective by which trials are compared; None unless all are finite.

        The loss of this objective comes first, then those of `others`. If the metrics violate constraints, all losses
        are above those of feasible trials and increase with the violation, so that every feasible trial dominates the
        trial, as in `constrained_loss`.
        """
        losses = [one.loss(metrics) for one in (self, *self.others)]
        finite = tuple(loss for loss in losses if loss is not None)
        if len(finite) < len(losses):
            return None
        by = self.measure_violation(metrics)
        if by:
            return (INFEASIBLE * (1 + by),) * len(finite)
        return finite

    def ranking_loss(self, metrics: Mapping[str, float]) -> float:
        """Return `constrained_loss`, or infinity in place of None, so that a trial with ``metrics`` ranks last."""
        found = self.constrained_loss(metrics)
        return math.inf if found is None else found

    def impute_loss(self, epochs: Iterable[Mapping[str, float]]) -> float | None:
        """Return the loss that ``impute`` assigns to a trial without a final value.

        ``epochs`` are its metrics, epoch by epoch; those without a finite loss are left out. The result is the latest
        or the best loss, without regard to constraints. Returns None if the trial counts as worse than all others:
        ``impute`` is ``worst`` or None, or no epoch has a finite loss.
        """
        losses = [loss for metrics in epochs if (loss := self.loss(metrics)) is not None]
        if not losses or self.impute in (None, "worst"):
            return None
        if self.impute == "latest":
            return losses[-1]
        return min(losses)

    def to_loss(self, value: float) -> float:
        """Convert a value of the metric, or a difference of two values, to a loss (lower is better)."""
        return self.sign * value

    def from_loss(self, loss: float) -> float:
        """Convert a loss, or a difference of two losses, to a value of the metric."""
        return self.sign * loss

    def describe_reached(self, target: float | None, metrics: Mapping[str, float]) -> str | None:
        """Return a message with the metric's value if ``metrics`` reach the target and meet the constraints.

        A value equal to the target reaches it, and so does a better one. Returns None otherwise, and if the target is
        None or the metric has no finite value.
        """
        value = self.value(metrics)
        if target is None or value is None:
            return None
        if self.to_loss(value) > self.to_loss(target) or self.list_violated(metrics):
            return None
        return f"target reached: {self.name} {value:.4g}"


def objective(name: str, goal: str) -> Objective:
    """Return an objective for a metric's name and goal, as stored in `SweepInfo.objectives`.

    Every goal but ``maximize`` is to minimize. The objective has no constraints and no `others`.
    """
    return Objective(name, "maximize" if goal == "maximize" else "minimize")
