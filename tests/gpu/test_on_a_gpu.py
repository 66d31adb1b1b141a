"""What only a GPU can show. CUDA_VISIBLE_DEVICES=0 python -m pytest -m gpu tests/gpu; never run by their author."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import keras
import numpy as np
import pytest

from sweep.contract import Assignment, Devices, EpochReported
from trainables.keras_trainable import KerasTrainable, session_of

pytestmark = [pytest.mark.gpu, pytest.mark.keras]


@pytest.fixture(autouse=True)
def a_gpu() -> None:
    if os.environ.get("CUDA_VISIBLE_DEVICES", "-1") == "-1":
        pytest.skip(
            "CUDA_VISIBLE_DEVICES hides all GPUs, as in all other tests: set it to 0 to run these on one"
        )
    import tensorflow as tf

    if not tf.config.list_physical_devices("GPU"):
        pytest.skip("TensorFlow sees no GPU here")


class Images(KerasTrainable):
    """Bytes and int32 labels, a convolution, batch statistics."""

    def data(self, hp: Any) -> tuple[Any, Any]:
        random = np.random.default_rng(0)
        x = random.integers(0, 256, (512, 16, 16, 3), np.uint8)
        y = (x[:, :8].mean(axis=(1, 2, 3)) > x[:, 8:].mean(axis=(1, 2, 3))).astype(np.int32)
        return (x[:384], y[:384]), (x[384:], y[384:])

    def model(self, hp: Any) -> keras.Model:
        layers = [
            keras.layers.Rescaling(1 / 128, -1.0),
            keras.layers.Conv2D(8, 3, activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Flatten(),
            keras.layers.Dense(2, dtype="float32"),
        ]
        return keras.Sequential([keras.Input((16, 16, 3), dtype="uint8"), *layers])


def _trained(training: dict[str, Any], epochs: int = 2) -> tuple[Images, list[EpochReported]]:
    params = {"learning_rate": 0.05, "batch_size": 64}
    images, reports = Images(), list[EpochReported]()
    images.begin(
        Assignment(
            trial=0,
            params=params,
            seed=0,
            epochs=epochs,
            devices=Devices(gpus=1),
            training=training,
        )
    )

    def report(epoch: EpochReported) -> bool:
        reports.append(epoch)
        return True

    images.train(report)
    return images, reports


def test_packed_rows_are_gathered_there() -> None:
    import tensorflow as tf

    from trainables.data import residence
    from trainables.devices.replicas import Replicas

    strategy = Replicas(tf.distribute.OneDeviceStrategy("/gpu:0"))
    for dtype in ("uint8", "int8", "uint16", "int16", "int32", "uint32", "uint64"):
        array = np.arange(120).astype(dtype).reshape(40, 3)
        held = residence.put_on_devices(array, strategy)
        with tf.device("/gpu:0"):
            found = residence.gather(held, tf.constant([39, 0], tf.int64))
        assert "GPU" in held.device
        np.testing.assert_array_equal(found, array[[39, 0]])


def test_a_deterministic_trial_has_the_same_bits_again() -> None:
    bits = []
    for _ in range(2):
        images, _ = _trained({"precision": "float32", "deterministic": True})
        assert images.facts().numerics == {
            "deterministic": "yes",
            "tf32": "off",
            "cudnn": "deterministic",
        }
        bits.append(session_of(images).trial.program.state.copy_all())
    for path, arrays in bits[0].items():
        np.testing.assert_array_equal(arrays[0], bits[1][path][0], err_msg=path)


def test_it_learns_and_says_what_it_cost() -> None:
    _, reports = _trained({"precision": "auto"}, epochs=4)
    assert reports[-1].metrics["loss"] < reports[0].metrics["loss"]
    assert reports[-1].measures["gpu_memory_peak_bytes"] > 0
    assert reports[-1].measures.get("energy_j", 0.0) >= 0


def test_a_share_has_a_hard_limit() -> None:
    """In a process of its own: TensorFlow keeps the limit that it began with."""
    command = [sys.executable, "-m", "trainables.doctor.device_probe", "share"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["refused"], found["works"]) == (True, True)
    assert found["limit_bytes"] > 0
