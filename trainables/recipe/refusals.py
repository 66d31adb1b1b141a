"""What an author wrote that a loop cannot honour, refused by name instead of dropped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras

from sweep.hyperparameters import Hyperparameters
from trainables.recipe.schedules import SHAPING

FIT = "set `training: {loop: fit}` in the sweep file"


class Refused(Exception):
    """The author's code asks for what this loop would silently leave out."""


def check_model(model: keras.Model, *, fit: bool) -> None:
    """Steps and a `compile` of the model's own, a fixed batch size, a state from batch to batch."""
    kind = type(model)
    if not fit:
        for step in ("train_step", "test_step"):
            if getattr(kind, step) is not getattr(keras.Model, step):
                raise Refused(f"{kind.__name__} has its own {step}, which only Model.fit calls; {FIT}")
    if kind.compile is not keras.Model.compile and not (fit and model.compiled):
        raise Refused(
            f"{kind.__name__}.compile() takes arguments of its own; call it inside model(), "
            f"which sweep then leaves as it is, and {FIT}"
        )
    for tensor in keras.tree.flatten(getattr(model, "inputs", None) or []):
        if tensor.shape and tensor.shape[0] is not None:
            raise Refused(
                f"input {tensor.name!r} has a fixed batch of {tensor.shape[0]}, but batch_size cuts the batches and "
                "the last of an epoch is smaller; leave out batch_size and batch_shape in keras.Input"
            )
    for layer in model._flatten_layers():
        if getattr(layer, "stateful", False):
            raise Refused(
                f"layer {layer.name!r} is stateful: it carries its state from one batch to the next, "
                "and examples are shuffled; set stateful=False"
            )


def check_fit(model: keras.Model, replicas: int, *, validates: bool) -> None:
    """Steps of a model's own in `fit`: on several replicas nobody knows whether they scale their loss by them."""
    kind = type(model)
    own = [
        name for name in ("train_step", "test_step", "compile") if getattr(kind, name) is not getattr(keras.Model, name)
    ]
    if own and replicas > 1:
        raise Refused(
            f"{kind.__name__} has its own {' and '.join(own)}, and there are {replicas} replicas: whether losses and "
            "gradients are those of the whole batch cannot be known; give its trials one GPU"
        )
    if validates and kind.call is keras.Model.call and kind.test_step is keras.Model.test_step:
        raise Refused(
            f"{kind.__name__} has neither call() nor test_step(), so nothing can validate it; define one of them, or "
            "return None as validation data"
        )


def check_optimizer(optimizer: keras.optimizers.Optimizer) -> None:
    """What Keras's optimizers do inside `fit` alone, or not under a strategy."""
    name = type(optimizer).__name__
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        raise Refused(f"optimizer() returned a {name}; `training: {{precision: mixed_float16}}` scales the loss")
    for option, instead in (
        ("gradient_accumulation_steps", "the parameter micro_batches"),
        ("loss_scale_factor", "`training: {precision: mixed_float16}`, which scales the loss"),
    ):
        if getattr(optimizer, option, None):
            raise Refused(f"optimizer() returned a {name} with {option}, expected {instead} instead")
    if optimizer.use_ema and optimizer.ema_overwrite_frequency:
        raise Refused(
            f"optimizer() returned a {name} with ema_overwrite_frequency, which fails under a strategy; leave it out: "
            "use_ema alone validates with the averaged weights"
        )


def check_rates(hp: Hyperparameters, *, read: bool) -> None:
    """Parameters that cannot reach an optimizer with a schedule, or a model with a `compile`, of its own.

    ``read``: they read the learning rate themselves.
    """
    both = [name for name in (*SHAPING, *(() if read else ("learning_rate",))) if name in hp]
    if both:
        raise Refused(
            f"there is a learning-rate schedule or a compile() of its own, and the trial has {', '.join(both)}, which "
            "would have no effect; leave out one of them, or read it there"
        )


def overrides_call(loss: keras.losses.Loss) -> bool:
    """Whether a loss has its own way from targets and outputs to one number."""
    return type(loss).__call__ is not keras.losses.Loss.__call__


def check_losses(losses: Mapping[str, keras.losses.Loss]) -> None:
    """A loss that overrides `__call__`: its mean cannot be taken over the parts of a batch."""
    for name, loss in losses.items():
        if overrides_call(loss):
            raise Refused(
                f"loss {name!r} ({type(loss).__name__}) overrides __call__, so that a batch in parts (replicas, "
                "micro-batches) would train another model; override call(), which gives a loss for each example"
            )


def check_metrics(model: keras.Model, returned: Mapping[str, Any]) -> None:
    """Keys of `compute_metrics` that no metric object holds."""
    extra = sorted(set(returned) - set(model.get_metrics_result()))
    if extra:
        raise Refused(
            f"compute_metrics() of {type(model).__name__} returns {', '.join(extra)}, which no metric object holds; "
            f"make it a keras.metrics.Metric, or {FIT}"
        )


def check_unjudged(hp: Hyperparameters) -> None:
    """With all data trained on, nothing is held out for a schedule to look at."""
    if hp.get("lr_schedule", "") == "plateau":
        raise Refused(
            "lr_schedule plateau waits for the validation to get no better, and training.all_data holds nothing out; "
            "use a schedule that follows the number of epochs, as cosine"
        )
