"""The main job as sweep runs it, against the same 27 trainings in one plain Keras process.

    python benchmarks/plain_keras.py

Prints the wall time of both, start-up included, and their ratio.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]


def plain() -> None:
    """27 models, compiled and fitted one after the other, as a loop in a script does it."""
    import keras
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    x, y = load_digits(return_X_y=True)
    images = (x.reshape(-1, 8, 8, 1) / 16).astype("float32")
    x, x_val, y, y_val = train_test_split(images, y, test_size=0.2, random_state=0, stratify=y)
    for rate, decay, strength in itertools.product([1e-2, 3e-3, 1e-3], [1e-1, 1e-2, 1e-3], [0.1, 0.3, 0.6]):
        keras.utils.set_random_seed(0)
        model = keras.Sequential(
            [
                keras.Input((8, 8, 1)),
                keras.layers.RandomRotation(strength / 12),
                keras.layers.RandomZoom(0.25 * strength),
                keras.layers.RandomTranslation(0.2 * strength, 0.2 * strength),
                keras.layers.Conv2D(16, 3, padding="same", activation="relu"),
                keras.layers.Conv2D(32, 3, strides=2, padding="same", activation="relu"),
                keras.layers.Flatten(),
                keras.layers.Dense(64, activation="relu"),
                keras.layers.Dense(10),
            ]
        )
        schedule = keras.optimizers.schedules.CosineDecay(0.0, 23 * 9, warmup_target=rate, warmup_steps=23)
        model.compile(
            keras.optimizers.AdamW(schedule, weight_decay=decay),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            ["accuracy"],
        )
        model.fit(x, y, batch_size=64, epochs=10, validation_data=(x_val, y_val), verbose=0)


def main() -> None:
    """Both, each in a process of its own."""
    with tempfile.TemporaryDirectory() as results:
        job = ["-m", "sweep", "run", "search_spaces/lr_wd_aug.yaml", "--results", results, "-q"]
        ours = _seconds([sys.executable, *job])
    keras_s = _seconds([sys.executable, __file__, "plain"])
    print(f"sweep {ours:.1f} s, plain Keras {keras_s:.1f} s, ratio {keras_s / ours:.2f}")


def _seconds(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - started


if __name__ == "__main__":
    plain() if sys.argv[1:] == ["plain"] else main()
