"""The trials of `fuzz.py`, trained by plain Keras with `compile`, `fit` and `evaluate`."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from fuzz_models import AUTHORS, of_the_model
from fuzz_recipes import Recipe

from sweep.hyperparameters import Hyperparameters
from trainables.data.sources import permutation
from trainables.loop import building
from trainables.numbers.live import Live

OPTIMIZERS = {
    "adadelta": keras.optimizers.Adadelta,
    "adafactor": keras.optimizers.Adafactor,
    "adagrad": keras.optimizers.Adagrad,
    "adam": keras.optimizers.Adam,
    "adamax": keras.optimizers.Adamax,
    "adamw": keras.optimizers.AdamW,
    "ftrl": keras.optimizers.Ftrl,
    "lamb": keras.optimizers.Lamb,
    "lion": keras.optimizers.Lion,
    "muon": keras.optimizers.Muon,
    "nadam": keras.optimizers.Nadam,
    "rmsprop": keras.optimizers.RMSprop,
    "schedule_free_adamw": keras.optimizers.ScheduleFreeAdamW,
    "sgd": keras.optimizers.SGD,
}
WITHOUT = (
    *(
        "lr_schedule",
        "warmup_steps",
        "sam_rho",
        "ema_momentum",
        "swa_from",
        "mixup",
        "layer_decay",
        "frozen_layers",
    ),
    *("steps_per_epoch", "gradient_checkpointing"),
)
"""Parameters that `compile` does not have, or has in another form."""


def has_fit(recipe: Recipe) -> bool:
    """Return whether plain Keras can train the recipe to the same result."""
    params = recipe.params
    if (
        recipe.author not in ("compiled", "stepped", "of_the_model")
        or params.get("split") == "drawn"
    ):
        return False
    if "keeps" in params:  # its hooks are ours
        return False
    if recipe.author == "stepped" and params.get("reduction") == "sum":
        return False  # the author's step takes the mean
    layers = set(params["layers"].split("+"))
    if layers & {"dropout", "gaussian", "noise"}:
        return False  # draws of our loop are of (seed, update, place in the batch)
    if recipe.precision != "float32" and "activity" in layers:
        return False  # Keras 3.15 cannot add a loss of a layer in half precision to one in float32
    if recipe.precision == "mixed_float16" or (recipe.micro > 1 and "bn" in layers):
        return False  # its loss scale is not in `compile`
    return (
        not any(params.get(name) for name in WITHOUT)
        and params["optimizer"] != "schedule_free_adamw"
    )


def by_fit(recipe: Recipe) -> dict[str, Any]:
    """Return the metrics of all epochs and the model's weights."""
    params, hp = (
        recipe.params,
        Hyperparameters({n: v for n, v in recipe.params.items() if n != "seed"}),
    )
    author = AUTHORS[recipe.author if recipe.author != "stepped" else "compiled"]()
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(recipe.precision)
    try:
        author.live = Live(hp)
        (x, y, *weight), held_out = author.data(hp)
        model = building.build_model(author, hp, params["seed"])
        loss = _loss(params)
        smooth = params.get("label_smoothing") and params["target"] == "labels"
        measured = ["accuracy"] if params["target"] == "labels" else []
        model.compile(_optimizer(params, model), loss, metrics=measured, jit_compile=False)
        weight = _weight(params, y, weight)
        targets = np.eye(3, dtype=np.float32)[y] if smooth else y
        found: dict[str, Any] = {}
        for epoch in range(1, recipe.epochs + 1):
            order = permutation(
                len(x), params["seed"] if params.get("shuffle", True) else None, epoch
            )
            parts = None if weight is None else weight[order]
            options = {
                "shuffle": False,
                "verbose": 0,
                "batch_size": params["batch_size"],
                "sample_weight": parts,
            }
            seen = model.fit(x[order], targets[order], **options).history
            found |= {f"{name} of epoch {epoch}": values[-1] for name, values in seen.items()}
            if held_out is not None:
                v, w, *u = held_out
                w = np.eye(3, dtype=np.float32)[w] if smooth else w
                # A sum hangs on the batch: then we validate in batches of the training's size.
                at_once = params["batch_size"] if params.get("reduction") == "sum" else 256
                held = model.evaluate(
                    v, w, at_once, sample_weight=u[0] if u else None, verbose=0, return_dict=True
                )
                found |= {f"val_{name} of epoch {epoch}": value for name, value in held.items()}
        return found | of_the_model(model)
    finally:
        keras.config.set_dtype_policy(before)


def _loss(params: dict[str, Any]) -> Any:
    smoothing = params.get("label_smoothing", 0.0)
    if params["target"] == "numbers":
        return keras.losses.MeanSquaredError(
            reduction=params.get("reduction", "sum_over_batch_size")
        )
    if params["target"] == "shares" or smoothing:  # the recipe smooths labels alone
        return keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=smoothing)
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def _weight(params: dict[str, Any], y: Any, weight: list[Any]) -> Any:
    """Return the weight of each example, with balanced classes as in scikit-learn; None without weights."""
    if params.get("class_weights") != "balanced":
        return weight[0] if weight else None
    labels = y.argmax(1) if y.ndim == 2 else y
    seen, counts = np.unique(labels, return_counts=True)
    each = (len(y) / (len(seen) * counts)).astype(np.float32)[np.searchsorted(seen, labels)]
    return each * weight[0] if weight else each


def _optimizer(params: dict[str, Any], model: Any) -> Any:
    names = ("learning_rate", "momentum", "clipnorm", "global_clipnorm", "clipvalue")
    given = {name: params[name] for name in names if name in params}
    given["weight_decay"] = params.get("weight_decay", 0.0)  # AdamW takes no None
    if params["optimizer"] == "muon":
        given["adam_weight_decay"] = given["weight_decay"]  # Keras's own is not 0
    optimizer = OPTIMIZERS[params["optimizer"]](**given)
    if params.get("weight_decay"):
        optimizer.exclude_from_weight_decay(
            [v for v in model.trainable_variables if len(v.shape) < 2]
        )
    optimizer.build(model.trainable_variables)
    return optimizer
