"""The test data: evaluated once, by the model that was chosen. Training never sees more than the first two parts."""

from __future__ import annotations

from typing import Any

from trainables.data import residence
from trainables.data.chunks import split
from trainables.data.passes import VALIDATION_BATCH, HeldOut
from trainables.loop.trial import Trial


def evaluated(trial: Trial, data: Any) -> dict[str, float] | None:
    """The metrics of a trial's model on test data, named without ``val_``; None without such data. Raises DataError."""
    if data is None:
        return None
    with trial.placement.replicas.scope(), trial.hp.recording(trial.structure.reads):
        whole = split(residence.written(data), trial.placement.replicas, "test data")
        size = trial.hp.integer("validation_batch_size", max(trial.walk.batch_size, VALIDATION_BATCH), standard=True)
        size = size if trial.held_out is None else trial.held_out.batch_size  # as the loss may ask for
        held_out = HeldOut(whole, size, parts=trial.assignment.accumulate)
        return trial.program.evaluate(held_out, seed=trial.assignment.seed, epoch=trial.epoch).metrics
