from __future__ import annotations

import numpy as np
import pytest
from small import assignment, metrics, train

from sweep.hyperparameters import Hyperparameters
from trainables.sequence_transformer import SequenceTransformer

pytestmark = pytest.mark.keras

GIVEN = {
    "optimizer": "adamw",
    "learning_rate": 0.01,
    "weight_decay": 0.01,
    "batch_size": 64,
    "lr_schedule": "cosine",
}
SMALL = {"width": 16, "heads": 2, "depth": 1}


def test_tokens_are_rows_and_their_places() -> None:
    (x, y), (x_val, _) = SequenceTransformer().data(Hyperparameters({}))
    assert (x.shape, x_val.shape) == ((1437, 8, 16), (360, 8, 16))
    assert 0 <= x.min() <= x.max() <= 1
    np.testing.assert_array_equal(x[:, :, 8:], np.broadcast_to(np.eye(8), (1437, 8, 8)))
    assert set(y) == set(range(10))


def test_learns() -> None:
    epochs = train(SequenceTransformer(), assignment(epochs=5, **{**GIVEN, **SMALL}))
    assert epochs[-1].metrics["val_accuracy"] > 0.8


def test_the_place_of_a_row_matters() -> None:
    model = SequenceTransformer().model(Hyperparameters(SMALL))
    x = np.random.default_rng(0).random((4, 8, 16), np.float32)
    shuffled = np.concatenate([x[:, ::-1, :8], x[:, :, 8:]], axis=-1)  # the rows swap places
    together = x[:, ::-1]  # rows move with their places: the same set
    assert not np.allclose(model(x), model(shuffled), atol=1e-4)
    np.testing.assert_allclose(model(x), model(together), atol=1e-5)


@pytest.mark.parametrize("pre_norm", [True, False])
def test_norms_stand_before_or_after(pre_norm: bool) -> None:
    model = SequenceTransformer().model(Hyperparameters({**SMALL, "pre_norm": pre_norm}))
    sequence = [layer.name.rstrip("_0123456789") for layer in model.layers]
    first = sequence.index("layer_normalization")
    assert (first < sequence.index("multi_head_attention")) == pre_norm


@pytest.mark.exhaustive
@pytest.mark.slow
def test_replicas_change_nothing() -> None:
    given = {**GIVEN, **SMALL, "learning_rate": 1e-3, "dropout": 0.1}
    alone, together = (
        train(SequenceTransformer(), assignment(gpus, epochs=2, **given)) for gpus in (0, 2)
    )
    for a, b in zip(metrics(alone), metrics(together), strict=True):
        assert a == pytest.approx(b, abs=1e-5)
