from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from keras import layers
from small import assignment, metrics, train
from zoo_sources import WORDS, OnTexts, texts

from trainables.data import chunks, sources
from trainables.data.chunks import split
from trainables.devices.replicas import Replicas

ONE = Replicas(tf.distribute.OneDeviceStrategy("/cpu:0"))
Y = np.zeros(3, np.int32)
WANTED = ["röt", "", "blue"]


@pytest.mark.parametrize(
    "x",
    [
        np.array(WANTED),
        np.array(WANTED, object),
        np.array([one.encode() for one in WANTED]),
        np.array(WANTED, np.dtypes.StringDType()),
        pd.Series(WANTED),
        tf.constant(WANTED),
        tf.data.Dataset.from_tensor_slices((WANTED, Y)),
    ],
    ids=["U", "object", "S", "T", "pandas", "tensor", "dataset"],
)
def test_texts_come_in_any_form(x: Any) -> None:
    data = split(x if isinstance(x, tf.data.Dataset) else (x, Y), ONE, "training data")
    (chunk,) = data.chunks(4, None, 0)
    assert chunk.tensors[0].numpy().tolist() == [one.encode() for one in WANTED]
    assert data.example()[0].dtype == tf.string
    assert chunks.fingerprint(data) is not None


def test_other_texts_have_another_fingerprint() -> None:
    one, other = (
        chunks.fingerprint(split((np.array(x), Y), ONE, "data")) for x in (["ab", "c", "d"], ["a", "bc", "d"])
    )
    assert one != other


def test_large_texts_are_gathered() -> None:
    data = split((np.array(WANTED), Y), ONE, "training data", resident_bytes=0)
    (chunk,) = data.chunks(4, None, 0)
    assert chunk.tensors[0].numpy().tolist() == [one.encode() for one in WANTED]


def test_arrays_of_numbers_are_no_texts() -> None:
    assert not sources.is_text(np.zeros(3))
    assert not sources.is_text(np.array([], object))


@pytest.mark.keras
def test_texts_in_the_model_train_as_their_numbers_do() -> None:
    class Mapped(OnTexts):
        def data(self, hp: Any) -> Any:
            number = layers.TextVectorization(vocabulary=WORDS, output_sequence_length=6)
            return tuple((np.asarray(number(x), np.int32), y) for x, y in texts())

        def model(self, hp: Any) -> keras.Model:
            body = [layers.Embedding(12, 5, mask_zero=True), layers.GlobalAveragePooling1D(), layers.Dense(2)]
            return keras.Sequential([keras.Input((6,), dtype="int32"), *body])

    one, other = (metrics(train(kind(), assignment(epochs=2))) for kind in (OnTexts, Mapped))
    assert one[-1] == pytest.approx(other[-1], abs=1e-6)
