"""Test data: nothing reads them but the one evaluation at the end, and that is of the weights that were validated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from sampling import sampled
from small import Small, assignment, train

from sweep.contract import Fold
from sweep.hyperparameters import Hyperparameters

pytestmark = pytest.mark.keras

READ = "the test data was read"


class Sealed:
    """Stands for arrays that must not be looked at."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(READ)

    def __len__(self) -> int:
        raise RuntimeError(READ)


class WithTest(Small):
    """Three parts; ``open`` opens the third."""

    open = False
    stream = True

    def data(self, hp: Hyperparameters) -> Any:
        train, validation = super().data(hp)
        x, y = (np.concatenate([part, part[:7]]) for part in validation[:2])
        if not self.stream:
            return train, validation, (x, y) if self.open else Sealed()

        def examples() -> Any:
            if not type(self).open:
                raise RuntimeError(READ)
            yield from zip(x, y, strict=True)

        signature = (tf.TensorSpec(x.shape[1:], x.dtype), tf.TensorSpec(y.shape[1:], y.dtype))
        stream = tf.data.Dataset.from_generator(examples, output_signature=signature)
        return train, validation, stream.apply(tf.data.experimental.assert_cardinality(len(x)))


class Arrays(WithTest):
    stream = False


@pytest.fixture(autouse=True)
def sealed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WithTest, "open", False)


def opened(trainable: WithTest) -> dict[str, float] | None:
    type(trainable).open = True
    return trainable.test()


@pytest.mark.parametrize(
    ("kind", "way"),
    sampled(
        [
            (WithTest, "alone"),
            (Arrays, "shared"),
            (Arrays, "folds"),
            (Arrays, "all data"),
            (WithTest, "patience"),
        ],
        2,
        several=True,
    ),
)
def test_no_training_of_any_kind_reads_them(kind: type[WithTest], way: str, tmp_path: Path) -> None:
    training = {"all data": {"all_data": True}, "patience": {"patience": 1}}.get(way)
    given = assignment(epochs=2, training=training)
    if way == "shared":
        given = replace(given, shared=tmp_path / "node")
    if way == "folds":
        given = replace(given, fold=Fold(0, 2, 0))
    trainable = kind()
    reports = train(trainable, given)
    assert len(reports) == 2
    (tmp_path / "saved").mkdir()
    (trainable.save(tmp_path / "saved") or (lambda: None))()
    again = kind()
    again.begin(given)
    assert again.restore(tmp_path / "saved") == 2
    if kind is WithTest:
        with pytest.raises(Exception, match=READ):
            again.test()
    found = opened(again)
    assert found is not None
    assert "loss" in found


@pytest.mark.parametrize("kind", sampled([Arrays, WithTest], 1))
def test_it_is_what_the_trained_model_reaches(kind: type[WithTest]) -> None:
    trainable = kind()
    train(trainable, assignment(epochs=2))
    found = opened(trainable)
    x, y = (
        np.concatenate([part, part[:7]])
        for part in Small.data(trainable, Hyperparameters({}))[1][:2]
    )
    predicted = trainable.trained_model().predict(x, verbose=0)
    loss = trainable.loss(Hyperparameters({}), trainable.trained_model())
    loss = keras.losses.get(loss) if isinstance(loss, str) else loss
    assert found is not None
    assert found["loss"] == pytest.approx(float(np.mean(loss(y, predicted))), rel=1e-4)


def test_without_a_third_part_there_is_no_test() -> None:
    trainable = Small()
    train(trainable, assignment())
    assert trainable.test() is None


def test_the_data_that_trains_is_the_same_with_and_without() -> None:
    facts = []
    for kind in (Small, Arrays):
        trainable = kind()
        train(trainable, assignment())
        facts.append(trainable.facts().data)
    assert facts[0] == facts[1]
