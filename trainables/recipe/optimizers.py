"""Optimizers from the standard hyperparameters, with numbers that change without a new graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import keras
import tensorflow as tf

from sweep.hyperparameters import Hyperparameters
from trainables.numbers.live import Live

_NAMES: dict[str, Callable[..., keras.optimizers.Optimizer]] = {
    "sgd": keras.optimizers.SGD,
    "adam": keras.optimizers.Adam,
    "adamw": keras.optimizers.AdamW,
    "lamb": keras.optimizers.Lamb,
    "lion": keras.optimizers.Lion,
}
OPTIMIZERS = tuple(_NAMES)
CLIPPING = ("clipnorm", "global_clipnorm", "clipvalue")
READS = ("beta_1", "beta_2", "clipnorm", "global_clipnorm", "clipvalue")


def build(hp: Hyperparameters, live: Live) -> keras.optimizers.Optimizer:
    """The optimizer that the hyperparameters name (``optimizer``, default adam).

    Reads ``weight_decay`` (decoupled and multiplied by the learning rate, as Keras does for every
    optimizer), ``momentum`` and ``nesterov`` for sgd, ``beta_1``, ``beta_2`` for the others. Biases and
    normalisation parameters do not decay. The learning rate is set by the loop before each update.
    """
    name = hp.text("optimizer", "adam").lower()
    if name not in _NAMES:
        raise ValueError(f"optimizer is {name!r}, expected one of {', '.join(OPTIMIZERS)}")
    optimizer = _NAMES[name](learning_rate=1.0)
    if "weight_decay" in hp:
        optimizer.weight_decay = live.number("weight_decay")
    elif name == "adamw":
        optimizer.weight_decay = None  # Keras's default of 0.004 would be a hidden hyperparameter
    if name == "sgd":
        optimizer.nesterov = hp.flag("nesterov", default=False)
        if "momentum" in hp:
            optimizer.momentum = live.number("momentum")
    else:
        for beta in ("beta_1", "beta_2"):
            if beta in hp:
                setattr(optimizer, beta, live.number(beta))
    return optimizer


def exclude_from_decay(optimizer: keras.optimizers.Optimizer, model: keras.Model) -> None:
    """Let weight decay act on kernels and embeddings alone: variables of one axis or none are left out."""
    if optimizer.weight_decay is not None:
        flat = [v for v in model.trainable_variables if len(v.shape) <= 1]
        optimizer.exclude_from_weight_decay(var_list=flat)


def own_rate(optimizer: keras.optimizers.Optimizer) -> float | None:
    """The learning rate that an optimizer was made with; None where it has a schedule of its own."""
    rate = optimizer._learning_rate
    return float(rate.numpy()) if isinstance(rate, keras.Variable) else None


def scheduled_rate(optimizer: keras.optimizers.Optimizer, update: int) -> float:
    """The learning rate of an update (from 0) by the schedule that an optimizer was made with."""
    rate = optimizer._learning_rate
    value = rate(update) if isinstance(rate, keras.optimizers.schedules.LearningRateSchedule) else rate()
    return float(tf.convert_to_tensor(value).numpy())


def take_average(optimizer: keras.optimizers.Optimizer) -> float | None:
    """The momentum of an optimizer that averages the weights itself; the loop does it in its place.

    Keras averages the same way, but evaluates with the averages only where `fit` has ended.
    """
    if not optimizer.use_ema:
        return None
    optimizer.use_ema = False
    return float(optimizer.ema_momentum)


def clip(gradients: list[tf.Tensor], bounds: Mapping[str, tf.Tensor]) -> list[tf.Tensor]:
    """Clip the gradients of the global batch, as Keras defines the three kinds; ``bounds`` by kind."""
    if "clipnorm" in bounds:
        return [tf.clip_by_norm(g, tf.cast(bounds["clipnorm"], g.dtype)) for g in gradients]
    if "global_clipnorm" in bounds:
        return list(tf.clip_by_global_norm(gradients, bounds["global_clipnorm"])[0])
    if "clipvalue" in bounds:
        bound = bounds["clipvalue"]
        return [tf.clip_by_value(g, -tf.cast(bound, g.dtype), tf.cast(bound, g.dtype)) for g in gradients]
    return gradients


def clipping(hp: Hyperparameters) -> tuple[str, ...]:
    """Which clipping a trial asks for; raises ValueError for more than one kind."""
    kinds = tuple(kind for kind in CLIPPING if kind in hp)
    if len(kinds) > 1:
        raise ValueError(f"{' and '.join(kinds)} are set, expected at most one kind of clipping")
    return kinds
