"""Why trials end early, in words."""

from __future__ import annotations

from sweep.space.objectives import INFEASIBLE, Objective


def reason(rule: str, objective: Objective, loss: float, epoch: int, cutoff: float) -> str:
    """For example: ``asha: val_accuracy 0.61 at epoch 3 below the cutoff 0.88``; the cutoff is a loss as well."""
    side = "below" if objective.maximize else "above"
    if loss >= INFEASIBLE:
        return f"{rule}: constraints not met at epoch {epoch}, and nearer to it by others"
    value, bound = objective.of_loss(loss), objective.of_loss(cutoff)
    return f"{rule}: {objective.name} {value:.6g} at epoch {epoch} {side} the cutoff {bound:.6g}"


def standing(rule: str, objective: Objective, loss: float, epoch: int) -> str:
    """For example: ``pasha: val_accuracy 0.61 at epoch 3``."""
    if loss >= INFEASIBLE:
        return f"{rule}: constraints not met at epoch {epoch}"
    return f"{rule}: {objective.name} {objective.of_loss(loss):.6g} at epoch {epoch}"
