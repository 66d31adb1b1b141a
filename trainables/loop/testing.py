"""The test data: evaluated once, by the model that was chosen. Training never sees more than the first two parts."""

from __future__ import annotations

from typing import Any

from trainables.data import node_cache
from trainables.data.chunks import split
from trainables.loop.trial import Trial
from trainables.recipe import features


def of_trial(trainable: Any) -> dict[str, float] | None:
    """The metrics of the present trial's model on the third part of `data`, without ``val_``; None where it has two.

    It is a method of `KerasTrainable`, which runs `data` once more. Raises DataError.
    """
    trial: Trial = trainable._begun()
    attributes = trainable._attributes()
    trainable._set_attributes(trainable._bare or {})
    try:
        data = features.test_data(trainable, trial.hp, trial.placement.devices[0])
    finally:
        trainable._set_attributes(attributes)
    if data is None:
        return None
    with trial.placement.strategy.scope(), trial.hp.recording(trial.structure.reads):
        held_out = split(node_cache.written(data), trial.placement.strategy, "test data")
        size, seed = trial.validation_batch_size, trial.assignment.seed
        return trial.program.evaluate(held_out, batch_size=size, seed=seed, epoch=trial.epoch)
