"""The digits sweep as other tools run it: the same data, net, updates and epochs, without `sweep`.

    python benchmarks/rivals.py optuna --trials 27 --epochs 5

Each is written as its documentation shows it for Keras. `overhead.py` runs and times them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RATES = (1e-2, 3e-3, 1e-3, 7e-3, 5e-3, 2e-3, 1.5e-3, 7e-4, 5e-4, 3e-4, 2e-4, 1e-4)
DECAYS = (1e-1, 1e-2, 1e-3)
STRENGTHS = {"low": 0.1, "medium": 0.3, "high": 0.6}
FILTERS = (8, 16, 32)
BATCH_SIZE = 32
STEADY_EPOCHS = 30

Trial = dict[str, Any]


def grid(trials: int, structures: int = 1) -> dict[str, list[Any]]:
    """Return the values of each parameter; their product has 1 to 3, 9, 18 and so on up to 108 elements.

    With three structures, there are nets of three widths instead of three strengths of augmentation.
    """
    third: dict[str, list[Any]] = (
        {"augmentation": list(STRENGTHS)} if structures == 1 else {"filters": list(FILTERS)}
    )
    if trials <= 3:
        third = {name: values[:trials] for name, values in third.items()}
        return {"learning_rate": [RATES[0]], "weight_decay": [DECAYS[0]], **third}
    return {
        "learning_rate": list(RATES[: trials // (len(DECAYS) * 3)]),
        "weight_decay": list(DECAYS),
        **third,
    }


def combinations(values: dict[str, list[Any]]) -> list[Trial]:
    """Return all trials of a grid."""
    return [
        dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())
    ]


def spanned(trials: list[Trial]) -> dict[str, list[Any]]:
    """Return the grid that has these trials."""
    return {name: list(dict.fromkeys(trial[name] for trial in trials)) for name in trials[0]}


# ---- the training, which is the same for all


def load() -> tuple[Any, Any, Any, Any]:
    """Return the digits, split as in `trainables.digits_cnn`."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    x, y = load_digits(return_X_y=True)
    images = (x.reshape(-1, 8, 8, 1) / 16).astype("float32")
    split: tuple[Any, Any, Any, Any] = train_test_split(
        images, y.astype("int32"), test_size=0.2, random_state=0, stratify=y
    )
    return split


def model(trial: Trial, epochs: int, updates: int) -> Any:
    """Return the network of `trainables.digits_cnn`, compiled."""
    import keras
    import tensorflow as tf

    class Affine(keras.layers.Layer):
        """Rotates, scales and shifts as `trainables.recipe.augmentation.affine` does: one transformation per image."""

        def call(self, x: Any, training: bool = False) -> Any:
            if not training:
                return x
            u = tf.random.uniform((tf.shape(x)[0], 4), -1.0, 1.0) * STRENGTHS[trial["augmentation"]]
            zoom = 1.0 + 0.25 * u[:, 1]
            cos, sin = tf.cos(u[:, 0] * 0.5235988) / zoom, tf.sin(u[:, 0] * 0.5235988) / zoom
            to_x, to_y = (
                3.5 * (1 - cos + sin) + 1.6 * u[:, 2],
                3.5 * (1 - sin - cos) + 1.6 * u[:, 3],
            )
            zero = tf.zeros_like(cos)
            transforms = tf.stack([cos, -sin, to_x, sin, cos, to_y, zero, zero], axis=1)
            return tf.raw_ops.ImageProjectiveTransformV3(
                images=x,
                transforms=transforms,
                output_shape=[8, 8],
                fill_value=0.0,
                interpolation="BILINEAR",
                fill_mode="NEAREST",
            )

    keras.utils.set_random_seed(0)
    filters = trial.get("filters", 16)
    net = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            *([Affine()] if "augmentation" in trial else []),
            keras.layers.Conv2D(filters, 3, padding="same", activation="relu"),
            keras.layers.Conv2D(2 * filters, 3, strides=2, padding="same", activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    schedule = keras.optimizers.schedules.CosineDecay(
        0.0,
        max(updates * (epochs - 1), 1),
        warmup_target=trial["learning_rate"],
        warmup_steps=updates,
    )
    net.compile(
        keras.optimizers.AdamW(schedule, weight_decay=trial["weight_decay"]),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return net


def fit(
    trial: Trial, epochs: int, marker: str | None, callbacks: tuple[Any, ...] = (), data: Any = None
) -> float:
    """Train one trial and return its last validation accuracy; the first epoch that ends creates the marker."""
    import keras

    x, x_val, y, y_val = data or load()
    mark = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: Path(marker).touch() if marker else None
    )
    history = model(trial, epochs, -(-len(x) // BATCH_SIZE)).fit(
        x,
        y,
        batch_size=BATCH_SIZE,
        epochs=epochs,
        validation_data=(x_val, y_val),
        callbacks=[*callbacks, mark],
        verbose=0,
    )
    return float(history.history["val_accuracy"][-1])


# ---- the tools


def loop(trials: list[Trial], epochs: int, marker: str | None) -> None:
    """Train all trials in a loop, as in a script."""
    data = load()
    for trial in trials:
        fit(trial, epochs, marker, data=data)


def optuna(trials: list[Trial], epochs: int, marker: str | None) -> None:
    """Run `study.optimize` in this process."""
    import optuna as library

    data, values = load(), spanned(trials)

    def objective(found: Any) -> float:
        trial = {name: found.suggest_categorical(name, choices) for name, choices in values.items()}
        return fit(trial, epochs, marker, data=data)

    library.logging.set_verbosity(library.logging.ERROR)
    study = library.create_study(
        direction="maximize", sampler=library.samplers.GridSampler(values, seed=0)
    )
    study.optimize(objective, n_trials=len(trials))


def keras_tuner(trials: list[Trial], epochs: int, marker: str | None) -> None:
    """Run `GridSearch.search` in this process."""
    import keras
    import keras_tuner as library

    x, x_val, y, y_val = load()
    values = spanned(trials)

    def build(hp: Any) -> Any:
        trial = {name: hp.Choice(name, choices) for name, choices in values.items()}
        return model(trial, epochs, -(-len(x) // BATCH_SIZE))

    mark = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: Path(marker).touch() if marker else None
    )
    with tempfile.TemporaryDirectory() as folder:
        tuner = library.GridSearch(
            build, "val_accuracy", max_trials=len(trials), directory=folder, overwrite=True
        )
        tuner.search(
            x,
            y,
            batch_size=BATCH_SIZE,
            epochs=epochs,
            validation_data=(x_val, y_val),
            callbacks=[mark],
            verbose=0,
        )


def ray_tune(trials: list[Trial], epochs: int, marker: str | None, *, reuse: bool = False) -> None:
    """Run `Tuner.fit` with a function that calls `Model.fit` with Ray's callback for Keras; one CPU per trial."""
    from ray import tune

    def train(config: Trial) -> None:
        from ray.tune.integration.keras import TuneReportCheckpointCallback

        fit(
            config,
            epochs,
            marker,
            (TuneReportCheckpointCallback(checkpoint_on=[], report_metrics_on="epoch_end"),),
        )

    with tempfile.TemporaryDirectory() as folder:
        tuner = tune.Tuner(
            tune.with_resources(train, {"cpu": 1}),
            param_space={
                name: tune.grid_search(values) for name, values in spanned(trials).items()
            },
            tune_config=tune.TuneConfig(metric="val_accuracy", mode="max", reuse_actors=reuse),
            run_config=tune.RunConfig(storage_path=folder, verbose=0),
        )
        found = tuner.fit()
    if len(found) != len(trials) or found.num_errors:
        raise RuntimeError(
            f"{found.num_errors} of {len(found)} trials failed, expected {len(trials)} good ones"
        )


def ray_tune_reuse(trials: list[Trial], epochs: int, marker: str | None) -> None:
    """Run the same with `reuse_actors=True`."""
    ray_tune(trials, epochs, marker, reuse=True)


def steady(trials: list[Trial], epochs: int, marker: str | None) -> None:
    """Print as JSON how long all epochs of all trials take in `Model.fit` alone, with one compiled, warm model."""
    import keras

    class Clock(keras.callbacks.Callback):
        ends: list[float] = []  # noqa: RUF012 - one list for all trials of the process

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.ends.append(time.perf_counter())

    clock = Clock()
    fit(trials[0], STEADY_EPOCHS + 1, marker, (clock,))
    epoch_s = (clock.ends[-1] - clock.ends[0]) / STEADY_EPOCHS
    print(json.dumps({"epoch_s": epoch_s, "wall_s": epoch_s * epochs * len(trials)}))


def imports(trials: list[Trial], epochs: int, marker: str | None) -> None:
    """Print as JSON how long the import of Ray and TensorFlow and the start of a local Ray take, without training."""
    began = time.perf_counter()
    import ray
    import tensorflow  # noqa: F401 - it is the import that counts

    ray.init(address="local", log_to_driver=False, logging_level="ERROR")
    print(json.dumps({"wall_s": time.perf_counter() - began}))
    ray.shutdown()


RIVALS: dict[str, Callable[[list[Trial], int, str | None], None]] = {
    "ray": ray_tune,
    "ray_reuse": ray_tune_reuse,
    "keras_tuner": keras_tuner,
    "optuna": optuna,
    "loop": loop,
    "fit": steady,
    "imports": imports,
}


def main() -> None:
    """Run one rival."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rival", choices=list(RIVALS))
    parser.add_argument("--trials", type=int, default=27)
    parser.add_argument("--structures", type=int, choices=[1, 3], default=1)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--marker", help="this file is created when the first epoch ends")
    given = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    trials = combinations(grid(given.trials, given.structures))
    if len(trials) != given.trials:
        sys.exit(f"no grid of {given.trials} trials; the next one has {len(trials)}")
    RIVALS[given.rival](trials, given.epochs, given.marker)


if __name__ == "__main__":
    main()
