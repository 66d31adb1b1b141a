"""Every layer, loss and optimizer of Keras: our loop trains as `Model.fit` does, and several replicas as one.

``pytest -m exhaustive tests/trainables/test_surfaces.py``. A new class of Keras fails `test_the_tables_are_complete`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import pytest
import zoo_data
import zoo_together
from keras import layers
from small import assignment, metrics, train
from zoo import Animal, Entry, OnCurve, OnImages, OnSeries
from zoo_checks import by_fit, given

from trainables.keras_trainable import session_of
from trainables.recipe.refusals import Refused

pytestmark = [pytest.mark.keras, pytest.mark.exhaustive]

VECTOR: Mapping[str, Callable[[], Any]] = {
    "Activation": lambda: layers.Activation("tanh"),
    "ActivityRegularization": lambda: layers.ActivityRegularization(0.01, 0.01),
    "BatchNormalization": layers.BatchNormalization,
    "Dense": lambda: layers.Dense(4),
    "ELU": layers.ELU,
    "EinsumDense": lambda: layers.EinsumDense("ab,bc->ac", output_shape=(4,), bias_axes="c"),
    "Flatten": layers.Flatten,
    "Identity": layers.Identity,
    "Lambda": lambda: layers.Lambda(lambda x: x * 2),
    "LayerNormalization": layers.LayerNormalization,
    "LeakyReLU": layers.LeakyReLU,
    "Normalization": lambda: layers.Normalization(mean=0.1, variance=2.0),
    "PReLU": layers.PReLU,
    "RMSNormalization": layers.RMSNormalization,
    "ReLU": layers.ReLU,
    "RepeatVector": lambda: layers.RepeatVector(2),
    "Rescaling": lambda: layers.Rescaling(0.5),
    "Reshape": lambda: layers.Reshape((2, 3)),
    "Softmax": layers.Softmax,
    "SpectralNormalization": lambda: layers.SpectralNormalization(layers.Dense(4)),
    "UnitNormalization": layers.UnitNormalization,
}
SEQUENCE: Mapping[str, Callable[[], Any]] = {
    "AveragePooling1D": lambda: layers.AveragePooling1D(2),
    "AdaptiveAveragePooling1D": lambda: layers.AdaptiveAveragePooling1D(3),
    "AdaptiveMaxPooling1D": lambda: layers.AdaptiveMaxPooling1D(3),
    "Bidirectional": lambda: layers.Bidirectional(layers.LSTM(2)),
    "Conv1D": lambda: layers.Conv1D(3, 3),
    "Conv1DTranspose": lambda: layers.Conv1DTranspose(3, 3),
    "Cropping1D": lambda: layers.Cropping1D(1),
    "DepthwiseConv1D": lambda: layers.DepthwiseConv1D(3),
    "GRU": lambda: layers.GRU(3),
    "GlobalAveragePooling1D": layers.GlobalAveragePooling1D,
    "GlobalMaxPooling1D": layers.GlobalMaxPooling1D,
    "LSTM": lambda: layers.LSTM(3, return_sequences=True),
    "MaxPooling1D": layers.MaxPooling1D,
    "Permute": lambda: layers.Permute((2, 1)),
    "RNN": lambda: layers.RNN([layers.GRUCell(3), layers.LSTMCell(2)]),
    "SeparableConv1D": lambda: layers.SeparableConv1D(3, 3),
    "SimpleRNN": lambda: layers.SimpleRNN(3),
    "TimeDistributed": lambda: layers.TimeDistributed(layers.Dense(2)),
    "UpSampling1D": layers.UpSampling1D,
    "ZeroPadding1D": layers.ZeroPadding1D,
}
IMAGE: Mapping[str, Callable[[], Any]] = {
    "AveragePooling2D": lambda: layers.AveragePooling2D(2),
    "AdaptiveAveragePooling2D": lambda: layers.AdaptiveAveragePooling2D(3),
    "AdaptiveMaxPooling2D": lambda: layers.AdaptiveMaxPooling2D(3),
    "CenterCrop": lambda: layers.CenterCrop(5, 5),
    "Conv2D": lambda: layers.Conv2D(3, 3),
    "Conv2DTranspose": lambda: layers.Conv2DTranspose(3, 3),
    "Cropping2D": lambda: layers.Cropping2D(1),
    "DepthwiseConv2D": lambda: layers.DepthwiseConv2D(3),
    "GlobalAveragePooling2D": layers.GlobalAveragePooling2D,
    "GlobalMaxPooling2D": layers.GlobalMaxPooling2D,
    "GroupNormalization": lambda: layers.GroupNormalization(2),
    "MaxPooling2D": lambda: layers.MaxPooling2D(2),
    "Resizing": lambda: layers.Resizing(5, 5),
    "SeparableConv2D": lambda: layers.SeparableConv2D(3, 3),
    "UpSampling2D": layers.UpSampling2D,
    "ZeroPadding2D": layers.ZeroPadding2D,
}
VOLUME: Mapping[str, Callable[[], Any]] = {
    "AveragePooling3D": lambda: layers.AveragePooling3D(2),
    "AdaptiveAveragePooling3D": lambda: layers.AdaptiveAveragePooling3D(2),
    "AdaptiveMaxPooling3D": lambda: layers.AdaptiveMaxPooling3D(2),
    "Conv3D": lambda: layers.Conv3D(2, 2),
    "Conv3DTranspose": lambda: layers.Conv3DTranspose(2, 2),
    "ConvLSTM1D": lambda: layers.ConvLSTM1D(2, 2),
    "Cropping3D": lambda: layers.Cropping3D(1),
    "GlobalAveragePooling3D": layers.GlobalAveragePooling3D,
    "GlobalMaxPooling3D": layers.GlobalMaxPooling3D,
    "MaxPooling3D": lambda: layers.MaxPooling3D(2),
    "UpSampling3D": layers.UpSampling3D,
    "ZeroPadding3D": layers.ZeroPadding3D,
}
MERGED: Mapping[str, Callable[[Any, Any], Any]] = {
    name: lambda a, b, name=name: getattr(layers, name)()([a, b])
    for name in ("Add", "Average", "Concatenate", "Maximum", "Minimum", "Multiply", "Subtract")
} | {
    "AdditiveAttention": lambda a, b: layers.AdditiveAttention()([a, b]),
    "Attention": lambda a, b: layers.Attention()([a, b]),
    "Dot": lambda a, b: layers.Dot(2)([a, b]),
    "GroupQueryAttention": lambda a, b: layers.GroupQueryAttention(2, 4, 2)(a, b),
    "MultiHeadAttention": lambda a, b: layers.MultiHeadAttention(2, 3)(a, b),
}
RANDOM = (
    "AlphaDropout", "AugMix", "AutoContrast", "ContrastLimitedAdaptiveHistogramEqualization", "CutMix", "Dropout",
    "Equalization", "GaussianDropout", "GaussianNoise",
    "MixUp", "RandAugment", "RandomBrightness", "RandomColorDegeneration", "RandomColorJitter", "RandomContrast",
    "RandomCrop", "RandomElasticTransform", "RandomErasing", "RandomFlip", "RandomGaussianBlur", "RandomGrayscale",
    "RandomHeight", "RandomHue", "RandomInvert", "RandomPerspective", "RandomPosterization", "RandomRotation",
    "RandomSaturation", "RandomSharpness", "RandomShear", "RandomTranslation", "RandomWidth", "RandomZoom",
    "Solarization", "SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D",
)  # fmt: skip
"""Draw, or change images alone; the zoo has some of each kind."""
ELSEWHERE = (
    "CategoryEncoding", "ConvLSTM2D", "ConvLSTM3D", "Discretization", "Embedding", "FlaxLayer", "GRUCell", "Hashing",
    "HashedCrossing", "InputLayer", "IntegerLookup", "JaxLayer", "LSTMCell", "Layer", "Masking",
    "MaxNumBoundingBoxes",
    "MelSpectrogram", "Pipeline", "STFTSpectrogram", "SimpleRNNCell", "StackedRNNCells", "StringLookup", "TFSMLayer",
    "TextVectorization", "TorchModuleWrapper", "Wrapper", "ReversibleEmbedding",
)  # fmt: skip
"""No layers to train on numbers, of other frameworks, cells, or in the zoo with whole numbers."""


def vector(name: str) -> type[Animal]:
    class Found(Animal):
        def body(self) -> list[Any]:
            return [VECTOR[name](), layers.Flatten()]

    return Found


def sequence(name: str) -> type[Animal]:
    class Found(OnSeries):
        def body(self) -> list[Any]:
            return [SEQUENCE[name](), layers.Flatten()]

    return Found


def image(name: str) -> type[Animal]:
    class Found(OnImages):
        def body(self) -> list[Any]:
            return [IMAGE[name]()]

    return Found


def volume(name: str) -> type[Animal]:
    class Found(OnImages):
        def body(self) -> list[Any]:
            shape = (2, 8, 8) if name.startswith("ConvLSTM") else (4, 4, 4, 2)
            return [layers.Reshape(shape), VOLUME[name]()]

    return Found


def merged(name: str) -> type[Animal]:
    class Found(OnSeries):
        def model(self, hp: Any) -> keras.Model:
            inputs = keras.Input((7, 4))
            x = MERGED[name](layers.Dense(4)(inputs), inputs)
            return keras.Model(inputs, layers.Dense(3)(layers.Flatten()(x)))

    return Found


KINDS = [(vector, VECTOR), (sequence, SEQUENCE), (image, IMAGE), (volume, VOLUME), (merged, MERGED)]
APART: Mapping[str, str] = {
    "Conv3D": "Conv3D has no form for several trials",
    "Conv3DTranspose": "Conv3DBackpropInputV2 has no form for several trials",
    "SpectralNormalization": "is assigned while the loss is computed",
}
"""What is trained one trial at a time, and why."""
LAYERS = [
    pytest.param(kind, name, id=name)
    for kind, table in KINDS
    for name in table
    if name not in ELSEWHERE
]


def compare(kind: type[Animal], *, tolerance: float = 1e-6, **options: Any) -> None:
    """Ours, `fit`'s, and ours on two replicas."""
    found = Entry(kind, fast=False, tolerance=tolerance, **options)
    ours, together = kind(), kind()
    mine = metrics(train(ours, given(found)))
    expected, weights = by_fit(found, given(found))
    for a, b in zip(mine, expected, strict=True):
        for key, value in b.items():
            np.testing.assert_allclose(a[key], value, atol=tolerance, rtol=1e-6, err_msg=key)
    for variable, b in zip(session_of(ours).trial.program.model.variables, weights, strict=True):
        if variable.dtype.startswith("float"):
            np.testing.assert_allclose(
                variable.numpy(), b, atol=tolerance, rtol=0, err_msg=variable.path
            )
    for a, b in zip(mine, metrics(train(together, given(found, 2))), strict=True):
        assert b == pytest.approx(a, abs=tolerance, rel=1e-6)


@pytest.mark.parametrize(("kind", "name"), LAYERS)
def test_every_layer(kind: Callable[[str], type[Animal]], name: str) -> None:
    compare(kind(name))


@pytest.mark.parametrize(("kind", "name"), LAYERS)
def test_every_layer_of_trials_that_are_trained_together(
    kind: Callable[[str], type[Animal]], name: str
) -> None:
    why = zoo_together.compare(Entry(kind(name), fast=False), 2e-6)
    assert re.search(APART[name], why) if name in APART else not why, why


OPTIMIZERS: Mapping[str, float] = {
    "SGD": 0.05, "Adam": 0.01, "AdamW": 0.01, "RMSprop": 0.003, "Adadelta": 0.5, "Adagrad": 0.05, "Adamax": 0.01,
    "Adafactor": 0.01, "Nadam": 0.01, "Ftrl": 0.05, "Lion": 0.003, "Lamb": 0.01, "Muon": 0.01,
    "ScheduleFreeAdamW": 0.01,
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer(name: str) -> None:
    class Found(Animal):
        def optimizer(self, hp: Any) -> keras.optimizers.Optimizer:
            return getattr(keras.optimizers, name)(OPTIMIZERS[name])

    compare(Found, tolerance=2e-6)
    used, fresh = Found(), {}
    for seed in (0, 1, 0):
        trial = assignment(seed=seed, learning_rate=OPTIMIZERS[name] / 2)
        if seed not in fresh:
            fresh[seed] = metrics(train(Found(), trial))
        assert metrics(train(used, trial)) == fresh[seed]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_of_trials_that_are_trained_together(name: str) -> None:
    class Found(Animal):
        def optimizer(self, hp: Any) -> keras.optimizers.Optimizer:
            return getattr(keras.optimizers, name)(OPTIMIZERS[name])

    why = zoo_together.compare(Entry(Found, fast=False, tolerance=2e-6), 2e-6)
    # It reads its momentum again once that was assigned.
    assert "they are not what they are alone" in why if name == "ScheduleFreeAdamW" else not why, (
        why
    )


LABELS = ("SparseCategoricalCrossentropy", "CategoricalGeneralizedCrossEntropy", "Circle")
WHOLE = ("Circle",)  # of a batch; Dice and Tversky of probabilities are means
PROBABILITIES = (
    "BinaryCrossentropy", "BinaryFocalCrossentropy", "CategoricalCrossentropy", "CategoricalFocalCrossentropy", "Dice",
    "KLDivergence", "Poisson", "Tversky", *LABELS,
)  # fmt: skip


def classes(module: Any, kind: type) -> set[str]:
    return {
        name
        for name, value in vars(module).items()
        if inspect.isclass(value) and issubclass(value, kind)
    }


LOSSES = sorted(classes(keras.losses, keras.losses.Loss) - {"Loss", "CTC"})


def with_loss(name: str) -> type[Animal]:
    class Found(OnCurve):
        def data(self, hp: Any) -> Any:
            if name in LABELS:
                return zoo_data.points()
            if name in PROBABILITIES:
                return tuple((x, np.eye(2, dtype=np.float32)[y % 2]) for x, y in zoo_data.points())
            return tuple((x, y + 4) for x, y in super().data(hp))

        def model(self, hp: Any) -> keras.Model:
            last = layers.Dense(
                3 if name in LABELS else 2, activation="softmax" if name in PROBABILITIES else None
            )
            return keras.Sequential([keras.Input((6,)), *self.body(), last])

        def loss(self, hp: Any, model: Any) -> Any:
            return getattr(keras.losses, name)()

        def metrics(self, hp: Any, model: Any) -> Any:
            return []

    return Found


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss(name: str) -> None:
    if name not in WHOLE:
        compare(with_loss(name), tolerance=2e-6)
        return
    with pytest.raises(Refused, match="not the mean over its examples"):
        compare(with_loss(name), tolerance=2e-6)


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_of_trials_that_are_trained_together(name: str) -> None:
    # which multiplies similarities, and their rounding, by 80
    tolerance = 1e-5 if name == "Circle" else 2e-6
    why = zoo_together.compare(Entry(with_loss(name), fast=False), tolerance)
    assert not why, why


def test_the_tables_are_complete() -> None:
    known = {*ELSEWHERE, *RANDOM, *(name for _, table in KINDS for name in table)}
    aliases = re.compile("Convolution|Pool[123]D$|AvgPool|MaxPool")
    assert {
        name for name in classes(layers, layers.Layer) - known if not aliases.search(name)
    } == set()
    bases = {"Optimizer", "LossScaleOptimizer", "MultiOptimizer"}
    assert classes(keras.optimizers, keras.optimizers.Optimizer) - bases == set(OPTIMIZERS)
