"""The one line that says why a trial was stopped early."""

from __future__ import annotations

from sweep.space.objectives import Objective


def reason(rule: str, objective: Objective, loss: float, epoch: int, cutoff: float) -> str:
    """For example: ``asha: val_accuracy 0.61 at epoch 3 below the cutoff 0.88``; the cutoff is a loss as well."""
    side = "above" if objective.goal == "minimize" else "below"
    value, bound = objective.of_loss(loss), objective.of_loss(cutoff)
    return f"{rule}: {objective.name} {value:.6g} at epoch {epoch} {side} the cutoff {bound:.6g}"
