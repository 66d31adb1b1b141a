"""How far two trainings of one model agree: on one replica and on two, beside a control in plain Keras.

    python benchmarks/agreement.py

The left column is `sweep` on one and on two replicas (logical CPU devices), which sum the same numbers in other orders.
The right column is the control: plain Keras twice on one device, where one run begins with weights that differ in the
last bit. Each figure is the largest difference between two weights, as a share of the largest weight, and the median
over seeds.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

from sweep.contract import Assignment, Devices
from trainables.keras_trainable import KerasTrainable

BATCH = 32
AT = (1, 5, 10, 20, 50, 100, 200)
RATES = {"sgd": 0.05, "adam": 1e-3}


def _data() -> tuple[np.ndarray, np.ndarray]:
    digits = load_digits()
    return digits.data.astype("float32") / 16, digits.target.astype("int32")


def _dense() -> keras.Model:
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((64,)),
            layers.Dense(64, "relu"),
            layers.Dense(64, "relu"),
            layers.Dense(10, "softmax"),
        ]
    )


def _convolutions() -> keras.Model:
    """Return a network with batch normalisation, which amplifies small differences."""
    layers = keras.layers
    stack: list[keras.Layer] = [keras.Input((64,)), layers.Reshape((8, 8, 1))]
    for filters in (16, 32, 32):
        stack += [
            layers.Conv2D(filters, 3, padding="same"),
            layers.BatchNormalization(),
            layers.ReLU(),
        ]
    return keras.Sequential([*stack, layers.GlobalAveragePooling2D(), layers.Dense(10, "softmax")])


MODELS = {"dense": _dense, "batch normalisation": _convolutions}


class Net(KerasTrainable):
    """A small network that classifies digits."""

    kept: list[np.ndarray]

    def data(self, hp: Any) -> Any:
        """Return the digits for training, and a few of them for validation."""
        x, y = _data()
        return (x, y), (x[:BATCH], y[:BATCH])

    def model(self, hp: Any) -> keras.Model:
        """Return the network that the parameter ``model`` names."""
        return MODELS[hp.text("model")]()


def ours(model: str, optimizer: str, seed: int, replicas: int) -> list[np.ndarray]:
    """Return the weights after each number of updates in `AT`, trained by sweep on so many replicas."""
    author = Net()
    session: Any = author.__trainable__(author)
    params = {
        "model": model,
        "optimizer": optimizer,
        "learning_rate": RATES[optimizer],
        "batch_size": BATCH,
        "steps_per_epoch": 1,
    }
    devices = Devices(cpus=1, gpus=replicas if replicas > 1 else 0, simulated=replicas > 1)
    session.begin(Assignment(trial=0, params=params, seed=seed, epochs=AT[-1], devices=devices))
    kept = []

    def report(epoch: Any) -> bool:
        if epoch.epoch in AT:
            kept.append(_flat(session.trained_model()))
        return True

    session.train(report)
    return kept


def plain(name: str, optimizer: str, seed: int, *, nudged: bool) -> list[np.ndarray]:
    """Return the weights after each number of updates in `AT`, trained by `train_on_batch`."""
    keras.utils.set_random_seed(seed)
    model, (x, y) = MODELS[name](), _data()
    if nudged:
        model.set_weights(
            [np.nextafter(weight, np.inf, dtype=weight.dtype) for weight in model.get_weights()]
        )
    kind = {"sgd": keras.optimizers.SGD, "adam": keras.optimizers.Adam}[optimizer]
    model.compile(kind(RATES[optimizer]), "sparse_categorical_crossentropy")
    order, kept = np.random.default_rng(seed), []
    for update in range(1, AT[-1] + 1):
        rows = order.choice(len(x), BATCH, replace=False)
        model.train_on_batch(x[rows], y[rows])
        if update in AT:
            kept.append(_flat(model))
    return kept


def _flat(model: keras.Model) -> np.ndarray:
    return np.concatenate([weight.ravel() for weight in model.get_weights()])


def _differences(one: list[np.ndarray], other: list[np.ndarray]) -> list[float]:
    return [float(np.abs(a - b).max() / np.abs(a).max()) for a, b in zip(one, other, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    seeds = range(parser.parse_args().seeds)
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    print(
        "model                optimizer  updates  sweep, 1 and 2 replicas  plain Keras, last bit changed"
    )
    for name, optimizer in itertools.product(MODELS, RATES):
        here, there = [], []
        for seed in seeds:
            here.append(
                _differences(ours(name, optimizer, seed, 1), ours(name, optimizer, seed, 2))
            )
            exact, nudged = (
                plain(name, optimizer, seed, nudged=False),
                plain(name, optimizer, seed, nudged=True),
            )
            there.append(_differences(exact, nudged))
        for number, updates in enumerate(AT):
            left = statistics.median(row[number] for row in here)
            right = statistics.median(row[number] for row in there)
            print(f"{name:19}  {optimizer:9}  {updates:7}  {left:23.1e}  {right:29.1e}")


if __name__ == "__main__":
    main()
