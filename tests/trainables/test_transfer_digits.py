from __future__ import annotations

import random

import numpy as np
import pytest
from small import assignment, metrics, train, weights

from sweep.hyperparameters import Hyperparameters
from trainables import transfer_digits
from trainables.transfer_digits import TransferDigits

pytestmark = pytest.mark.keras

GIVEN = {"optimizer": "adam", "learning_rate": 0.01, "batch_size": 20, "lr_schedule": "cosine"}


def test_the_task_is_small_and_its_digits_lie_anywhere() -> None:
    (x, y), (x_val, _) = TransferDigits().data(Hyperparameters({}))
    assert (x.shape, x_val.shape) == ((100, 100), (796, 100))
    assert np.bincount(y).tolist() == [20] * 5
    assert (x_val.reshape(-1, 10, 10).max(axis=(0, 2)) > 0).all()


def test_weights_of_the_first_task_help() -> None:
    accuracy = {}
    for pretrained in (True, False):
        given = assignment(epochs=10, **{**GIVEN, "pretrained": pretrained, "learning_rate": 0.003})
        accuracy[pretrained] = train(TransferDigits(), given)[-1].metrics["val_accuracy"]
    assert accuracy[True] > accuracy[False]
    assert accuracy[True] > 0.6


def test_pretraining_repeats_itself_and_leaves_the_trials_random_state() -> None:
    transfer_digits.pretrained.cache_clear()
    random.seed(3)
    np.random.seed(3)
    first = transfer_digits.pretrained()
    drawn = (random.random(), float(np.random.random()))
    transfer_digits.pretrained.cache_clear()
    random.seed(3)
    np.random.seed(3)
    assert drawn == (random.random(), float(np.random.random()))
    for a, b in zip(first, transfer_digits.pretrained(), strict=True):
        for before, after in zip(a, b, strict=True):
            np.testing.assert_array_equal(before, after)


@pytest.mark.exhaustive
def test_used_worker_gives_the_numbers_of_a_fresh_one() -> None:
    used = TransferDigits()
    train(used, assignment(seed=5, epochs=1, **GIVEN, frozen_layers=1))
    train(used, assignment(seed=6, epochs=1, **GIVEN, pretrained=False))
    again = train(used, assignment(**GIVEN, frozen_layers=1))
    transfer_digits.pretrained.cache_clear()  # as a fresh process
    fresh = TransferDigits()
    assert metrics(train(fresh, assignment(**GIVEN, frozen_layers=1))) == metrics(again)
    for a, b in zip(weights(used), weights(fresh), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("gpus", [0, 2])
def test_frozen_layers_stay_as_they_are(gpus: int) -> None:
    trainable = TransferDigits()
    train(trainable, assignment(gpus, epochs=1, **GIVEN, frozen_layers=1))
    found = {np.asarray(w).shape: np.asarray(w) for w in weights(trainable)}
    (first, _), (second, _) = transfer_digits.pretrained()
    np.testing.assert_array_equal(found[first.shape], first.astype(np.float32))
    assert not np.allclose(found[second.shape], second)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_replicas_change_nothing() -> None:
    given = {**GIVEN, "frozen_layers": 1, "optimizer": "sgd"}
    alone, together = (
        train(TransferDigits(), assignment(gpus, epochs=3, **given)) for gpus in (0, 2)
    )
    for a, b in zip(metrics(alone), metrics(together), strict=True):
        assert a == pytest.approx(b, abs=1e-5)
