"""The loss and metrics that follow from the targets, for trainables that name none."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainables.live import LiveNumber


class SmoothedCrossentropy(keras.losses.Loss):
    """Crossentropy of integer labels, smoothed towards the uniform distribution.

    ``y_true``: labels of shape (examples, ...); ``y_pred``: (examples, ..., classes), logits or
    probabilities. Source: Szegedy et al., Rethinking the Inception Architecture, section 7.
    """

    def __init__(self, smoothing: LiveNumber, *, from_logits: bool) -> None:
        super().__init__(name="smoothed_crossentropy")
        self._smoothing = smoothing
        self._from_logits = from_logits

    def call(self, y_true: Any, y_pred: Any) -> tf.Tensor:
        """Loss per label."""
        if self._from_logits:
            log_p = tf.nn.log_softmax(y_pred)
        else:
            log_p = tf.math.log(tf.clip_by_value(y_pred, keras.config.epsilon(), 1.0))
        labels = tf.reshape(tf.cast(y_true, tf.int32), tf.shape(log_p)[:-1])
        right = tf.gather(log_p, labels, batch_dims=len(log_p.shape) - 1)
        smoothing = tf.convert_to_tensor(self._smoothing)
        return -(1 - smoothing) * right - smoothing * tf.reduce_mean(log_p, axis=-1)


def default_loss(targets: Any, model: keras.Model, smoothing: LiveNumber | None) -> keras.losses.Loss:
    """Crossentropy for integer targets, mean squared error for floats.

    Whether the model gives logits is read off its last activation. Raises ValueError where neither fits:
    then the trainable must say its loss.
    """
    if not hasattr(targets, "dtype"):
        raise ValueError("the targets are nested, expected a loss() method that says what to minimise")
    if np.issubdtype(targets.dtype, np.integer) or targets.dtype == bool:
        activation = getattr(_last_layer(model), "activation", None)
        classes = model.output_shape[-1]
        if classes == 1:
            return keras.losses.BinaryCrossentropy(from_logits=activation is not keras.activations.sigmoid)
        logits = activation is not keras.activations.softmax
        if smoothing is not None:
            return SmoothedCrossentropy(smoothing, from_logits=logits)
        return keras.losses.SparseCategoricalCrossentropy(from_logits=logits)
    if smoothing is not None:
        raise ValueError("label_smoothing is set, but the targets are no integer labels")
    return keras.losses.MeanSquaredError()


def default_metrics(targets: Any, model: keras.Model) -> list[keras.metrics.Metric]:
    """Accuracy for integer targets, mean absolute error for floats."""
    if not hasattr(targets, "dtype"):
        return []
    if np.issubdtype(targets.dtype, np.integer) or targets.dtype == bool:
        if model.output_shape[-1] == 1:
            logits = getattr(_last_layer(model), "activation", None) is not keras.activations.sigmoid
            return [keras.metrics.BinaryAccuracy(name="accuracy", threshold=0.0 if logits else 0.5)]
        return [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]
    return [keras.metrics.MeanAbsoluteError(name="mae")]


def _last_layer(model: keras.Model) -> keras.layers.Layer:
    """The layer that the output comes from; an activation that stands alone counts."""
    return model.layers[-1]
