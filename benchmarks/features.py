"""Measure what frozen features cost in each epoch, and what remains of it if they are computed once.

    python benchmarks/features.py

The model is a head of 10 classes on a frozen MobileNetV3Small, with 512 images of 64 x 64 on one device.
"""

from __future__ import annotations

import os
from typing import Any

EPOCHS = 4


def main() -> None:
    """Measure both ways, one after the other."""
    os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    import keras
    import numpy as np

    from sweep.contract import Assignment, Devices, EpochReported
    from trainables.keras_trainable import KerasTrainable

    class Head(KerasTrainable):
        def data(self, hp: Any) -> Any:
            random = np.random.default_rng(0)
            x, y = (
                random.normal(size=(512, 64, 64, 3)).astype(np.float32),
                random.integers(0, 10, 512),
            )
            return (x[:448], y[:448]), (x[448:], y[448:])

        def features(self, hp: Any) -> keras.Model:
            return keras.applications.MobileNetV3Small(
                (64, 64, 3),
                include_top=False,
                pooling="avg",
                weights=None,
                include_preprocessing=False,
            )

        def model(self, hp: Any) -> keras.Model:
            return keras.Sequential([keras.Input((576,)), keras.layers.Dense(10)])

    print(f"{'features':16}{'before s':>10}{'epoch s':>10}{'loss':>10}")
    for cached in (True, False):
        epochs: list[EpochReported] = []
        trainable = Head()
        params = {"batch_size": 32, "learning_rate": 1e-3, "cache_features": cached}
        trainable.begin(
            Assignment(trial=0, params=params, seed=0, epochs=EPOCHS, devices=Devices(cpus=1))
        )
        trainable.train(lambda epoch, heard=epochs: heard.append(epoch) or True)
        before_s = sum(trainable.facts().overhead_s.values())
        name = "computed once" if cached else "in each update"
        print(
            f"{name:16}{before_s:10.1f}{min(e.time_s for e in epochs):10.3f}{epochs[-1].metrics['loss']:10.5f}"
        )


if __name__ == "__main__":
    main()
