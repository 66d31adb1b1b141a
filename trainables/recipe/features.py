"""A frozen model in front of the trained one, applied to the data once, or in the graph if inputs change."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from sweep.hyperparameters import Hyperparameters
from trainables import keras_private
from trainables.data import residence, sources
from trainables.data.sources import DataError
from trainables.numbers.seeds import seeding_python_and_numpy
from trainables.recipe.author import Author, has_mixing
from trainables.recipe.refusals import Refused, check_inputs, list_overridden_methods
from trainables.state import weights

BATCH = 256
AUGMENTING = tuple(
    getattr(keras.layers, name)
    for name in dir(keras.layers)
    if name.startswith("Rand") or name in ("AugMix", "CutMix", "MixUp")
)


def are_cached(author: Author, hp: Hyperparameters) -> bool:
    """Return whether the features of all examples are computed once and are the inputs of the trained model.

    False if the author does not override `features`. Otherwise ``cache_features`` decides; by default, features are
    cached unless `augment` is overridden or the trial has mixup, cutmix or random_erasing. `features` may still return
    None. Raises TypeError if ``cache_features`` is not a bool.
    """
    if type(author).features is Author.features:
        return False
    inputs_change = has_mixing(hp) or type(author).augment is not Author.augment
    return hp.flag("cache_features", default=not inputs_change)


def make_front_model(author: Author, hp: Hyperparameters) -> keras.Model | None:
    """Return the author's model from `features`, frozen, with the same weights in every trial; None if it returns None.

    `features` runs with Python's and NumPy's generators seeded by 0, whatever the trial's seed is.
    Raises: TypeError: if `features` returns anything else. Refused: if the model has layers that augment.
    """
    with seeding_python_and_numpy(0), weights.caching_weights():
        model = author.features(hp)
    if model is None:
        return None
    if not isinstance(model, keras.Model):
        raise TypeError(
            f"features() returned {type(model).__name__}, expected a keras.Model or None"
        )
    model.trainable = False
    for layer in keras_private.flatten_layers(model):
        if isinstance(layer, AUGMENTING):
            raise Refused(
                f"features() holds {type(layer).__name__} {layer.name!r}, which does nothing outside of training; "
                "draw in augment() instead"
            )
    return model


def replace_inputs(model: keras.Model, data: Any, device: str) -> Any:
    """Return a data set whose inputs are replaced by the outputs of the frozen ``model``, as float32 arrays in memory.

    ``data`` is a tuple that begins with the inputs; its other entries are kept. ``device`` is the name of the device
    that computes. Returns None if ``data`` is None.
    Raises: DataError: if the data is not a tuple, or the inputs are not arrays of at least one example. Refused: if the
    first examples get other outputs when they are computed again, or a dictionary of inputs has names that the model
    lacks.
    """
    if data is None:
        return None
    if type(data) is not tuple:
        raise DataError(
            f"a {type(data).__name__}, whose features cannot be kept; hand over arrays, or cache_features: false"
        )
    x, *others = data
    check_inputs(model, x)
    (x,) = residence.map_block_arrays(sources.convert_arrays((x,)))
    size = len(tf.nest.flatten(x)[0])

    @tf.function(autograph=False, reduce_retracing=True)  # type: ignore[untyped-decorator]  # TensorFlow has no types
    def compute_features(batch: Any) -> Any:
        return tf.nest.map_structure(
            lambda part: tf.cast(part, tf.float32), model(batch, training=False)
        )

    kept: Any = None  # the features of all examples; created when the shapes of outputs are known
    for start in range(0, size, BATCH):
        batch = tf.nest.map_structure(lambda leaf: np.asarray(leaf[start : start + BATCH]), x)  # noqa: B023 - at once
        with tf.device(device):
            outputs = tf.nest.map_structure(lambda part: part.numpy(), compute_features(batch))
            # the first batch, which is computed twice, to find out whether features are random
            if kept is None:
                again = tf.nest.map_structure(lambda part: part.numpy(), compute_features(batch))
                if not all(map(np.array_equal, tf.nest.flatten(outputs), tf.nest.flatten(again))):
                    raise Refused(
                        "features() are random: the same inputs give others when they are computed again"
                    )
                kept = tf.nest.map_structure(
                    lambda part: np.empty((size, *part.shape[1:]), np.float32), outputs
                )
        for target, part in zip(tf.nest.flatten(kept), tf.nest.flatten(outputs), strict=True):
            target[start : start + BATCH] = part
    return (kept, *others)


def join_models(front: keras.Model, model: keras.Model, example: Any) -> keras.Model:
    """Return one new model of the raw inputs that applies the frozen model ``front`` and then the trained ``model``.

    ``front`` always runs in inference mode. ``example`` is a batch of raw inputs.
    Raises: Refused: if ``model`` is compiled, or has training methods of its own, or if a dictionary of inputs has
    names that ``front`` lacks.
    """
    check_inputs(front, example)
    if model.compiled:
        raise Refused(
            "features() stand before a model that is compiled in model(); leave out one, or cache_features: true"
        )
    if own := list_overridden_methods(
        model, "train_step", "test_step", "compute_loss", "compute_metrics", "compile"
    ):
        raise Refused(
            f"features() stand before {type(model).__name__}, whose own {' and '.join(own)}() would not be called with "
            "raw inputs, which are given where inputs are augmented or cache_features is false; leave out features(), "
            "or what changes the inputs",
            about=("cache_features", "mixup", "cutmix", "random_erasing"),
        )
    return chain_models(_Frozen(front), model, example)


def chain_models(front: keras.Layer, model: keras.Model, example: Any) -> keras.Model:
    """Return one functional model that applies ``front`` and then ``model``, with the name of ``model``.

    It consists of the layers of both and shares their weights. Keras can load it if it can load both. It is for
    predictions only, unless ``front`` ignores the argument ``training``. ``example`` is a batch of raw inputs.
    """
    inputs = tf.nest.map_structure(
        lambda leaf: keras.Input(
            tuple(leaf.shape[1:]), dtype=keras.backend.standardize_dtype(leaf.dtype)
        ),
        example,
    )
    return keras.Model(inputs, model(front(inputs)), name=model.name)


class _Frozen(keras.layers.Layer):
    """Calls a model in inference mode, even if an outer functional model is called with ``training=True``."""

    def __init__(self, front: keras.Model) -> None:
        super().__init__(trainable=False)
        self.front = front

    def call(self, inputs: Any) -> Any:
        """Return the outputs of the frozen model for a batch."""
        return self.front(inputs, training=False)
