from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from sweep.contract import Devices
from trainables import fingerprint
from trainables.data import split
from trainables.devices import place

pytestmark = pytest.mark.keras

X = np.arange(60, dtype=np.float32).reshape(20, 3)
Y = np.arange(20, dtype=np.int32)


def of(*data: Any) -> str:
    strategy = place(Devices()).strategy
    return fingerprint.of(*(None if one is None else split(one, strategy, "data") for one in data))


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
