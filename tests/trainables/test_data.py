from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from trainables import data
from trainables.data import ArraySplit, DataError, Split

pytestmark = pytest.mark.keras

X = np.arange(10, dtype=np.float32)[:, None]
Y = np.arange(10, dtype=np.int32)


def _strategy() -> tf.distribute.Strategy:
    return tf.distribute.OneDeviceStrategy("/cpu:0")


def _seen(split: Split, seed: int | None, epoch: int) -> list[int]:
    return [int(i) for chunk in split.chunks(4, seed, epoch) for i in tf.gather(chunk.tensors[1], chunk.order).numpy()]


def test_every_epoch_is_another_permutation_of_all_examples() -> None:
    split = data.split((X, Y), _strategy(), "training data")
    first, second = _seen(split, 0, 1), _seen(split, 0, 2)
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second
    assert _seen(split, 0, 1) == first
    assert _seen(split, None, 1) == list(range(10))


def test_data_too_large_for_the_device_comes_in_the_same_order(monkeypatch: pytest.MonkeyPatch) -> None:
    small = data.split((X, Y), _strategy(), "training data")
    monkeypatch.setattr(data, "RESIDENT_BYTES", 8)
    monkeypatch.setattr(data, "CHUNK_BYTES", 40)
    large = ArraySplit((X, Y), _strategy(), "training data")
    assert len(list(large.chunks(4, 3, 1))) == 3
    assert _seen(large, 3, 1) == _seen(small, 3, 1)


def test_datasets() -> None:
    split = data.split(tf.data.Dataset.from_tensor_slices((X, Y)), _strategy(), "training data")
    assert split.size == 10
    assert sorted(_seen(split, 0, 1)) == list(range(10))
    assert _seen(split, 0, 1) == _seen(split, 0, 1)
    assert _seen(split, 0, 1) != _seen(split, 0, 2)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ((X, Y[:5]), r"arrays of \[5, 10\] examples"),
        ((X[:0], Y[:0]), "above 0"),
        ([X, Y], "list, expected"),
        (tf.data.Dataset.from_tensors((X, Y)).repeat(), "endless"),
    ],
)
def test_wrong_data(wrong: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        data.split(wrong, _strategy(), "training data")
