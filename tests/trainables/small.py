"""A tiny trainable and a way to run it, as tests and notebooks do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from sweep.contract import Assignment, Devices, EpochReported, Trainable, Value
from trainables.keras_trainable import KerasTrainable, session_of


class Small(KerasTrainable):
    """Three classes of points, 70 to train on, so that a batch of 16 leaves a partial one."""

    def data(self, hp: Any) -> tuple[Any, Any]:
        random = np.random.default_rng(0)
        x = random.normal(size=(90, 6)).astype(np.float32)
        y = (x[:, :3].argmax(axis=1)).astype(np.int32)
        return (x[:70], y[:70]), (x[70:], y[70:])

    def model(self, hp: Any) -> keras.Model:
        return keras.Sequential(
            [
                keras.Input((6,)),
                # A bias before a batch norm has no gradient but rounding, which Adam would blow up.
                keras.layers.Dense(hp.integer("units", 8), use_bias=False),
                keras.layers.BatchNormalization(),
                keras.layers.ReLU(),
                keras.layers.Dense(3, dtype="float32"),
            ]
        )


def assignment(
    gpus: int = 0, epochs: int = 2, seed: int = 0, training: Any = None, **params: Value
) -> Assignment:
    defaults: dict[str, Value] = {"learning_rate": 0.05, "batch_size": 16}
    return Assignment(
        trial=0,
        params={**defaults, **params},
        seed=seed,
        epochs=epochs,
        devices=Devices(gpus=gpus, simulated=True),
        training=training or {},
        objective="val_loss",
    )


def train(trainable: KerasTrainable, given: Assignment) -> list[EpochReported]:
    trainable.begin(given)
    return go_on(trainable)


def go_on(trainable: Trainable, pause_after: int | None = None) -> list[EpochReported]:
    epochs: list[EpochReported] = []

    def report(epoch: EpochReported) -> bool:
        epochs.append(epoch)
        return epoch.epoch != pause_after

    trainable.train(report)
    return epochs


def interrupted(given: Assignment, folder: Path) -> tuple[list[EpochReported], Small]:
    """A trial stopped after two epochs and gone on with in another trainable: all its epochs, and the latter."""
    broken, resumed = Small(), Small()
    broken.begin(given)
    first = go_on(broken, pause_after=2)
    broken.save(folder)()
    resumed.begin(given)
    assert resumed.restore(folder) == 2
    return first + go_on(resumed), resumed


def metrics(epochs: Sequence[EpochReported]) -> list[dict[str, float]]:
    return [dict(epoch.metrics) for epoch in epochs]


def weights(trainable: KerasTrainable) -> list[np.ndarray[Any, Any]]:
    return [parts[0] for parts in session_of(trainable).trial.program.state.copy_all().values()]
