from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from sweep.contract import Devices
from trainables.data import chunks, streams
from trainables.data.chunks import make_examples
from trainables.devices.placement import place

pytestmark = pytest.mark.keras

X = np.arange(60, dtype=np.float32).reshape(20, 3)
Y = np.arange(20, dtype=np.int32)


def of(*data: Any) -> str | None:
    strategy = place(Devices()).replicas
    return chunks.compute_fingerprint(
        *(None if one is None else make_examples(one, strategy, "data") for one in data)
    )


def changed(array: Any) -> Any:
    array = array.copy()
    array.flat[-1] += 1
    return array


def test_the_same_data_has_the_same_name() -> None:
    assert of((X, Y), None) == of((X.copy(), Y.copy()), None)


@pytest.mark.parametrize(
    "other",
    [
        ((changed(X), Y), None),
        ((X, changed(Y)), None),
        ((X[:-1], Y[:-1]), None),
        ((X, Y.astype(np.int64)), None),
        ((X, Y), (X, Y)),
        ((X, Y, np.ones(20, np.float32)), None),
        (tf.data.Dataset.from_tensor_slices((X, Y)), None),
    ],
)
def test_other_data_has_another(other: Any) -> None:
    assert of(*other) != of((X, Y), None)


def test_a_stream_is_known_by_all_of_its_examples() -> None:
    def stream(y: Any) -> Any:
        return tf.data.Dataset.from_tensor_slices((X, y))

    noise = np.random.default_rng(0).permutation(Y)
    noise[0] = Y[0]
    assert of(stream(Y)) == of(stream(Y.copy()))
    assert of(stream(Y)) != of(stream(noise))


def test_large_arrays_are_known_by_all_of_their_rows() -> None:
    long = np.zeros((10_001, 1), np.float32)
    other = long.copy()
    other[5001] = 1.0
    targets = np.zeros(10_001, np.int32)
    assert of((long, targets)) != of((other, targets))


def test_what_is_too_large_to_read_has_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "LARGEST_BYTES", 100)
    monkeypatch.setattr(streams, "LARGEST_STREAM_BYTES", 100)
    assert of((X, Y)) is None
    assert of(tf.data.Dataset.from_tensor_slices((X, Y))) is None
