"""The one line that says why a trial was stopped early."""

from __future__ import annotations

from sweep.space.objectives import Objective


def reason(rule: str, objective: Objective, value: float, epoch: int, cutoff: float) -> str:
    """For example: ``asha: val_accuracy 0.61 at epoch 3 below the cutoff 0.88``."""
    side = "above" if objective.goal == "minimize" else "below"
    return f"{rule}: {objective.name} {value:.6g} at epoch {epoch} {side} the cutoff {cutoff:.6g}"
