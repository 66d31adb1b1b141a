"""Default loss and metrics, derived from the targets and the output if these leave no doubt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from sweep.contract import Incompatible
from trainables import keras_private
from trainables.data.sources import is_one_hot
from trainables.numbers.live import LiveNumber

ONE_LINE = "say it in one line: def loss(self, hp, model): return keras.losses..."


class Undecided(Incompatible, ValueError):
    """Raised if the targets and the output fit no default loss, or more than one."""


class SmoothedCrossentropy(keras.losses.Loss):
    """Crossentropy of integer labels, smoothed towards the uniform distribution.

    ``y_true`` has labels of shape (examples, ...); ``y_pred`` has logits or probabilities of shape (examples, ...,
    classes). Source: Szegedy et al., Rethinking the Inception Architecture, section 7.
    """

    def __init__(self, smoothing: LiveNumber, *, from_logits: bool) -> None:
        super().__init__(name="smoothed_crossentropy")
        self._smoothing = smoothing
        self._from_logits = from_logits

    def call(self, y_true: Any, y_pred: Any) -> tf.Tensor:
        """Return the loss of each label, of the shape of ``y_pred`` without its last axis.

        ``y_true`` may have an additional last axis of size 1. Probabilities are clipped to at least Keras's epsilon.
        """
        if self._from_logits:
            log_p = tf.nn.log_softmax(y_pred)
        else:
            log_p = tf.math.log(tf.clip_by_value(y_pred, keras.config.epsilon(), 1.0))
        labels = tf.reshape(tf.cast(y_true, tf.int32), tf.shape(log_p)[:-1])
        # The share ``smoothing`` of a target is spread evenly over all classes.
        right = tf.gather(log_p, labels, batch_dims=len(log_p.shape) - 1)
        smoothing = tf.convert_to_tensor(self._smoothing)
        return -(1 - smoothing) * right - smoothing * tf.reduce_mean(log_p, axis=-1)


@dataclass(frozen=True)
class Targets:
    """The properties of targets from which the default loss is chosen."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]  # shape of one example's targets
    one_hot: bool
    shares: bool  # whether targets are shares of the classes, which sum up to 1
    zero_one: bool

    @classmethod
    def of(cls, targets: Any) -> Targets | None:
        """Return the properties of the targets of some examples; None if the targets are nested or missing.

        ``targets`` is an array with an axis of examples.
        """
        if not hasattr(targets, "dtype"):
            return None
        rows = np.asarray(targets)
        # neither whole numbers, with or without sign, nor bools
        has_floats = rows.dtype.kind not in "iub"
        shares = has_floats and rows.ndim > 0 and bool((rows >= 0).all())
        return cls(
            dtype=rows.dtype,
            shape=tuple(rows.shape[1:]),
            one_hot=is_one_hot(rows),
            shares=shares and np.allclose(rows.astype(np.float64).sum(-1), 1, atol=1e-3),
            zero_one=not has_floats and bool(np.isin(rows, (0, 1)).all()),
        )


@dataclass(frozen=True)
class _Task:
    """The task that follows from targets and output: sparse or one-hot classes, binary, or regression."""

    kind: str  # sparse, one_hot, binary or numbers
    from_logits: bool = False


def default_loss(
    targets: Any, model: keras.Model, smoothing: LiveNumber | None
) -> keras.losses.Loss:
    """Return crossentropy for labels (whole-number, one-hot or 0 and 1), mean squared error for numbers.

    ``targets`` are the targets of some examples, or their properties (None counts as nested); ``smoothing`` is the
    label smoothing, or None. The loss takes logits if the last activation of ``model`` is linear.
    Raises: Undecided: if the targets and the last activation fit several losses or none, as for nested targets, several
    outputs and subclassed models; the trainable must then define its loss. ValueError: if ``smoothing`` is set for
    numbers.
    """
    task = _find_task(targets, model)
    match task.kind:
        case "sparse" if smoothing is not None:
            return SmoothedCrossentropy(smoothing, from_logits=task.from_logits)
        case "sparse":
            return keras.losses.SparseCategoricalCrossentropy(from_logits=task.from_logits)
        case "one_hot":  # only after softmax, so there are no logits
            return keras.losses.CategoricalCrossentropy(
                label_smoothing=0.0 if smoothing is None else smoothing
            )
        case "binary":
            return keras.losses.BinaryCrossentropy(
                from_logits=task.from_logits,
                label_smoothing=0.0 if smoothing is None else smoothing,
            )
        case _:
            if smoothing is not None:
                raise ValueError("label_smoothing is set, but the targets are no labels")
            return keras.losses.MeanSquaredError()


def default_metrics(targets: Any, model: keras.Model) -> list[keras.metrics.Metric]:
    """Return accuracy for labels, mean absolute error for numbers, as a list of one metric, ``accuracy`` or ``mae``.

    ``targets`` are as in `default_loss`. The list is empty if no default loss, or more than one, fits targets and
    model.
    """
    try:
        task = _find_task(targets, model)
    except Undecided:
        return []
    match task.kind:
        case "sparse":
            return [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]
        case "one_hot":
            return [keras.metrics.CategoricalAccuracy(name="accuracy")]
        case "binary":
            return [
                keras.metrics.BinaryAccuracy(
                    name="accuracy", threshold=0.0 if task.from_logits else 0.5
                )
            ]
        case _:
            return [keras.metrics.MeanAbsoluteError(name="mae")]


def _find_task(given: Any, model: keras.Model) -> _Task:
    # ``given`` are the targets of some examples, or their properties. Raises Undecided if no task, or no single one,
    # follows from them and the model's output.
    targets = given if isinstance(given, Targets) else Targets.of(given)
    if targets is None:
        raise Undecided(f"the targets are nested, which no default loss fits; {ONE_LINE}")
    outputs = keras.tree.flatten(getattr(model, "outputs", None) or [])
    if not outputs:
        raise Undecided(
            f"{type(model).__name__} is a subclassed model, whose last activation nothing tells; {ONE_LINE}"
        )
    if len(outputs) > 1:
        raise Undecided(
            f"{len(outputs)} outputs for one array of targets, which no default loss fits; {ONE_LINE}"
        )
    activation = _find_activation(outputs[0])
    shape = tuple(outputs[0].shape[1:])
    units = outputs[0].shape[-1]
    if targets.dtype.kind in "iub":  # whole numbers, with or without sign, and bools
        return _find_label_task(targets, shape, units, activation)
    return _find_number_task(targets, shape, activation)


def _find_label_task(targets: Targets, shape: Any, units: Any, activation: str | None) -> _Task:
    # For whole numbers and bools. ``shape`` is that of an example's output, ``units`` its last size, and ``activation``
    # the name of the last activation (None: unknown). Raises Undecided.
    target_shape = targets.shape
    # One label for each vector of the output, with or without an axis of size 1.
    per_label = _matches_shape(target_shape, shape[:-1]) or _matches_shape(
        target_shape, (*shape[:-1], 1)
    )
    if units != 1 and per_label and activation in ("softmax", "linear"):
        return _Task("sparse", from_logits=activation == "linear")
    if activation == "softmax" and _matches_shape(target_shape, shape) and targets.one_hot:
        return _Task("one_hot")
    if activation == "sigmoid" and (
        (units == 1 and per_label) or _matches_shape(target_shape, shape)
    ):
        if targets.zero_one:  # other whole numbers are no probabilities
            return _Task("binary")
    elif units == 1 and per_label and activation == "linear" and targets.dtype == bool:
        # 0 and 1 as whole numbers are refused here: a linear output may also predict numbers.
        return _Task("binary", from_logits=True)
    output = f"an output of shape {shape}{_describe_activation(activation)}"
    raise Undecided(
        f"{targets.dtype} targets of shape {target_shape} with {output} fit more than one loss (classes, or numbers?); "
        f"{ONE_LINE}"
    )


def _find_number_task(targets: Targets, shape: Any, activation: str | None) -> _Task:
    # For floating-point targets, which may also be shares of classes. ``shape`` is that of an example's output, and
    # ``activation`` the name of the last activation (None: unknown). Raises Undecided.
    target_shape = targets.shape
    # A number for each output; an output of one unit may have targets without its last axis.
    one_number_each = _matches_shape(target_shape, shape) or (
        shape[-1:] == (1,) and _matches_shape(target_shape, shape[:-1])
    )
    if activation == "softmax" and _matches_shape(target_shape, shape) and targets.shares:
        return _Task("one_hot")
    # One-hot targets may also be classes, and outputs of softmax and sigmoid probabilities.
    if one_number_each and not targets.one_hot and activation not in ("softmax", "sigmoid", None):
        return _Task("numbers")
    output = f"an output of shape {shape}{_describe_activation(activation)}"
    raise Undecided(
        f"{targets.dtype} targets of shape {target_shape} with {output} fit more than one loss; {ONE_LINE}"
    )


def _matches_shape(wanted: Any, shape: Any) -> bool:
    """Return whether targets of shape ``wanted`` have the shape ``shape``, in which None matches any size."""
    if len(wanted) != len(shape):
        return False
    return all(b is None or a == b for a, b in zip(wanted, shape, strict=True))


def _describe_activation(activation: str | None) -> str:
    if activation is None:
        return ""
    return f" after {activation}"


def _find_activation(output: Any) -> str | None:
    """Return the name of the last activation before an output, also inside a nested model; None if it is unknown.

    Reshape, Flatten and Dropout layers are skipped. The layers ReLU, LeakyReLU, PReLU and ELU all count as ``"relu"``.
    It is unknown after a nested model with several outputs, after softmax over another axis than the last, and after
    any other layer without an attribute ``activation``.
    """
    layer = keras_private.producer_of(output)
    if isinstance(layer, keras.Model):
        inner = keras.tree.flatten(getattr(layer, "outputs", None) or [])
        return _find_activation(inner[0]) if len(inner) == 1 else None
    if isinstance(layer, keras.layers.Softmax):
        if layer.axis in (-1, len(output.shape) - 1):
            return "softmax"
        return None
    if isinstance(
        layer, keras.layers.ReLU | keras.layers.LeakyReLU | keras.layers.PReLU | keras.layers.ELU
    ):
        return "relu"  # in place of all that fit numbers alone
    if isinstance(layer, keras.layers.Reshape | keras.layers.Flatten | keras.layers.Dropout):
        return _find_activation(keras.tree.flatten(layer.input)[0])
    function = getattr(layer, "activation", None)
    return getattr(function, "__name__", None)
