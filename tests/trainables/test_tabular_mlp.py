from __future__ import annotations

import numpy as np
import pytest
from small import assignment, metrics, train

from sweep.hyperparameters import Hyperparameters
from trainables.tabular_mlp import TabularMLP

pytestmark = pytest.mark.keras

GIVEN = {
    "optimizer": "adamw",
    "learning_rate": 0.01,
    "weight_decay": 0.3,
    "batch_size": 32,
    "lr_schedule": "cosine",
}


def test_columns_are_standardised_by_the_training_part() -> None:
    (x, y), (x_val, y_val) = TabularMLP().data(Hyperparameters({}))
    assert (x.shape, y.shape, x_val.shape, y_val.shape) == ((353, 10), (353, 1), (89, 10), (89, 1))
    np.testing.assert_allclose(x.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(y.std(axis=0), 1, atol=1e-5)
    assert np.abs(x_val.mean(axis=0)).max() > 0.01  # the means are not its own


def test_learns_more_than_the_mean() -> None:
    epochs = train(TabularMLP(), assignment(epochs=10, **{**GIVEN, "width": 16, "depth": 1}))
    assert epochs[-1].metrics["val_loss"] < 0.65
    assert set(epochs[-1].metrics) >= {"val_loss", "val_mae"}


@pytest.mark.parametrize("normalization", ["none", "batch", "layer"])
def test_shape_of_the_net(normalization: str) -> None:
    hp = Hyperparameters({"width": 8, "depth": 3, "normalization": normalization, "dropout": 0.1})
    model = TabularMLP().model(hp)
    assert [layer.units for layer in model.layers if hasattr(layer, "units")] == [8, 8, 8, 1]
    assert sum("normalization" in layer.name for layer in model.layers) == (
        0 if normalization == "none" else 3
    )


def test_an_unknown_normalization_is_named() -> None:
    with pytest.raises(ValueError, match="'bach', expected one of none, batch, layer"):
        TabularMLP().model(Hyperparameters({"normalization": "bach"}))


@pytest.mark.exhaustive
@pytest.mark.slow
def test_replicas_change_nothing() -> None:
    given = {**GIVEN, "width": 16, "normalization": "batch", "dropout": 0.2}
    alone, together = (train(TabularMLP(), assignment(gpus, epochs=2, **given)) for gpus in (0, 2))
    for a, b in zip(metrics(alone), metrics(together), strict=True):
        assert a == pytest.approx(b, abs=1e-5)
