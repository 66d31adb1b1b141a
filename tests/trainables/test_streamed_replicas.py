"""Replicas that are each sent their own rows of a stream train to the same bits as with all rows on all of them."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from small import metrics, train

from sweep.contract import Assignment, Devices
from trainables.keras_trainable import KerasTrainable, session_of
from trainables.loop.graph_program import GraphProgram

pytestmark = pytest.mark.keras


class Streamed(KerasTrainable):
    def data(self, hp: Any) -> tuple[Any, Any]:
        random = np.random.default_rng(0)
        x = random.integers(0, 256, (41, 6, 6, 3), np.uint8)
        y = (x.mean(axis=(1, 2, 3)) > 127).astype(np.int32)
        return tf.data.Dataset.from_tensor_slices((x, y)), tf.data.Dataset.from_tensor_slices(
            (x[:19], y[:19])
        )

    def model(self, hp: Any) -> keras.Model:
        layers = [
            keras.layers.Rescaling(1 / 255),
            keras.layers.Flatten(),
            keras.layers.Dense(8),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(2),
        ]
        return keras.Sequential([keras.Input((6, 6, 3), dtype="uint8"), *layers])


def trained(**params: Any) -> tuple[list[dict[str, float]], dict[str, Any]]:
    given = {"batch_size": 12, "learning_rate": 0.05, **params}
    streamed = Streamed()
    trial = Assignment(
        trial=0, params=given, seed=3, epochs=1, devices=Devices(gpus=3, simulated=True)
    )
    found = metrics(train(streamed, trial))
    return found, session_of(streamed).trial.program.state.copy_all()


RARE = [
    pytest.param(given, marks=pytest.mark.exhaustive)
    for given in ({"micro_batches": 2}, {"mixup": 0.4})
]


@pytest.mark.parametrize("params", [{}, *RARE], ids=str)
def test_bits_are_those_of_whole_chunks(
    params: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    own, weights = trained(**params)
    monkeypatch.setattr(GraphProgram, "shares", lambda program, rank: (None, None))
    whole, theirs = trained(**params)
    assert own == whole
    for path, arrays in weights.items():
        for mine, other in zip(arrays, theirs[path], strict=True):
            np.testing.assert_array_equal(mine, other)
