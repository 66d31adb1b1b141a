"""Which events count as a new loss."""

from __future__ import annotations

import math

from sweep.events import EpochReported, SessionStarted
from sweep.schedulers.losses import Losses
from sweep.space.objectives import Objective


def test_only_new_epochs_with_a_finite_objective_count_smaller_being_better() -> None:
    losses = Losses(Objective("m", "maximize"))

    def of(epoch: int, **metrics: float) -> tuple[int, int, float] | None:
        return losses.of(EpochReported(trial=3, epoch=epoch, metrics=metrics, time=0.0, time_s=1.0))

    assert of(1, m=0.5) == (3, 1, -0.5)
    assert of(1, m=0.6) is None  # reported again, as after a resume
    assert of(2, m=math.nan) is None
    assert of(2, other=1.0) is None
    assert of(4, m=2.0) == (3, 4, -2.0)
    assert losses.of(SessionStarted(time=0.0, resumed=True, version="1")) is None
