from __future__ import annotations

import pickle
from pathlib import Path

import keras
import numpy as np
import pytest
from small import train

from sweep.contract import Assignment
from sweep.hyperparameters import Hyperparameters
from trainables.cifar_resnet import CifarResNet
from trainables.keras_trainable import KerasTrainable

pytestmark = pytest.mark.keras


@pytest.fixture
def cifar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files that the real loader finds in Keras's cache, with 50,000 + 10,000 random images."""
    folder = tmp_path / "datasets" / "cifar-10-batches-py-target" / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        batch = {
            b"data": random.integers(0, 256, (10_000, 3072), np.uint8),
            b"labels": random.integers(0, 10, 10_000).tolist(),
        }
        (folder / name).write_bytes(pickle.dumps(batch))
    monkeypatch.setattr(keras.utils, "get_file", lambda *a, **k: str(folder.parent))
    import keras.src.datasets.cifar10 as loader

    monkeypatch.setattr(loader, "get_file", lambda *a, **k: str(folder.parent))


@pytest.mark.usefixtures("cifar")
def test_real_loader_reads_cifar_files() -> None:
    (x, y), (x_test, y_test) = CifarResNet().data(Hyperparameters({}))
    assert x.shape == (50_000, 32, 32, 3)
    assert x.dtype == np.uint8
    assert y.shape == (50_000,)
    assert x_test.shape[0] == y_test.shape[0] == 10_000


@pytest.mark.parametrize(("depth", "weights"), [(20, 0.27e6), (50, 23.5e6)])
def test_sizes_of_the_paper(depth: int, weights: float) -> None:
    model = CifarResNet().model(Hyperparameters({"depth": depth}))
    trainable = sum(int(np.prod(v.shape)) for v in model.trainable_variables)
    assert trainable == pytest.approx(weights, rel=0.03)
    assert model.output_shape == (None, 10)


@pytest.mark.slow
def test_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    x, y = (
        random.integers(0, 256, (32, 32, 32, 3)).astype(np.uint8),
        np.arange(32, dtype=np.int32) % 10,
    )
    monkeypatch.setattr(CifarResNet, "data", lambda self, hp: ((x, y), None))
    given = Assignment(
        trial=0,
        params={
            "optimizer": "sgd",
            "momentum": 0.9,
            "learning_rate": 0.05,
            "augmentation": "low",
            "label_smoothing": 0.1,
        },
        seed=0,
        epochs=2,
    )
    trainable: KerasTrainable = CifarResNet()
    epochs = train(trainable, given)
    assert len(epochs) == 2
    assert np.isfinite(epochs[-1].metrics["loss"])
