"""The zoo: sequences, images, preprocessing."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import zoo_data
from keras import layers
from zoo import Animal, OnImages, OnSeries, OnTokens, entry

ops = keras.ops


# ---- sequences


@entry(fast=True)
class MaskedLSTM(OnSeries):
    def body(self) -> list[Any]:
        return [layers.Masking(), layers.LSTM(5)]


@entry()
class BidirectionalGRU(OnSeries):
    def body(self) -> list[Any]:
        return [layers.Bidirectional(layers.GRU(3))]


@entry()
class SimpleRNN(OnSeries):
    def body(self) -> list[Any]:
        return [layers.SimpleRNN(5)]


@entry()
class TimeDistributed(OnSeries):
    def body(self) -> list[Any]:
        return [layers.TimeDistributed(layers.Dense(3, activation="tanh")), layers.Flatten()]


@entry(fast=True)
class MaskedEmbedding(OnTokens):
    def body(self) -> list[Any]:
        return [layers.GlobalAveragePooling1D()]


@entry(fast=True)
class AdaptedEmbedding(OnTokens):
    """Adam has a rule of its own for the rows of a table that a batch has touched."""

    def body(self) -> list[Any]:
        return [layers.GlobalAveragePooling1D()]

    def optimizer(self, hp: Any) -> keras.optimizers.Optimizer:
        return keras.optimizers.Adam(0.01)


@entry(fast=True)
class Positions(OnTokens):
    """Rows of a table that do not come from the examples: each part of a batch has a gradient of all of them."""

    def data(self, hp: Any) -> Any:
        (x, _), (v, _) = zoo_data.tags()
        return (x, x % 3), (v, v % 3)

    def model(self, hp: Any) -> keras.Model:
        words = keras.Input((7,), dtype="int32")
        x = layers.Embedding(12, 5)(words) + layers.Embedding(7, 5)(keras.ops.arange(7))
        return keras.Model(words, layers.Dense(3, activation="softmax")(x))

    def optimizer(self, hp: Any) -> keras.optimizers.Optimizer:
        return keras.optimizers.Adam(0.01)


@entry()
class EmbeddedLSTM(OnTokens):
    def body(self) -> list[Any]:
        return [layers.LSTM(4)]


@entry(fast=True)
class Attention(OnSeries):
    def model(self, hp: Any) -> keras.Model:
        inputs = keras.Input((7, 4))
        x = layers.MultiHeadAttention(2, 3)(inputs, inputs)
        return keras.Model(
            inputs, layers.Dense(3)(layers.GlobalMaxPooling1D()(layers.LayerNormalization()(x)))
        )


@entry()
class AdditiveAttention(OnSeries):
    def model(self, hp: Any) -> keras.Model:
        inputs = keras.Input((7, 4))
        x = layers.AdditiveAttention()([layers.Dense(4)(inputs), inputs])
        return keras.Model(inputs, layers.Dense(3)(layers.Flatten()(x)))


@entry(fast=True)
class Tagger(OnTokens):
    """A label for each word; some count for nothing."""

    def data(self, hp: Any) -> Any:
        return zoo_data.tags()

    def model(self, hp: Any) -> keras.Model:
        return keras.Sequential(
            [keras.Input((7,), dtype="int32"), layers.Embedding(12, 5), layers.Dense(3)]
        )

    def loss(self, hp: Any, model: Any) -> Any:
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1)

    def metrics(self, hp: Any, model: Any) -> Any:
        return []


@entry()
class MaskedTagger(OnTokens):
    """The mask of the embedding reaches the loss, beside a weight for each word."""

    def data(self, hp: Any) -> Any:
        weight = np.random.default_rng(5).uniform(0.5, 2.0, (90, 7)).astype(np.float32)
        (x, y), (v, w) = zoo_data.tags()
        return (x, np.abs(y), weight[:70]), (v, np.abs(w), weight[70:])

    def model(self, hp: Any) -> keras.Model:
        embedding = layers.Embedding(12, 5, mask_zero=True)
        return keras.Sequential([keras.Input((7,), dtype="int32"), embedding, layers.Dense(3)])

    def metrics(self, hp: Any, model: Any) -> Any:
        return []


# ---- images


@entry()
class Conv1D(OnSeries):
    def body(self) -> list[Any]:
        return [
            layers.Conv1D(4, 3, activation="relu", padding="causal"),
            layers.GlobalAveragePooling1D(),
        ]


@entry(fast=True)
class Conv2D(OnImages):
    def body(self) -> list[Any]:
        return [
            layers.Conv2D(4, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(4, 2, strides=2),
        ]


@entry()
class Transposed(OnImages):
    def body(self) -> list[Any]:
        return [
            layers.AveragePooling2D(2),
            layers.Conv2DTranspose(3, 3, strides=2),
            layers.UpSampling2D(),
        ]


@entry()
class Separable(OnImages):
    def body(self) -> list[Any]:
        return [
            layers.SeparableConv2D(4, 3),
            layers.DepthwiseConv2D(3, activation="relu"),
            layers.BatchNormalization(),
        ]


@entry()
class ConvolutionalLSTM(Animal):
    def data(self, hp: Any) -> Any:
        return tuple((x.reshape(-1, 2, 8, 8, 1), y) for x, y in zoo_data.images())

    def model(self, hp: Any) -> keras.Model:
        body = [layers.ConvLSTM1D(2, 3), layers.Flatten()]
        return keras.Sequential(
            [keras.Input((2, 8, 8, 1)), layers.Reshape((2, 8, 8)), *body, layers.Dense(3)]
        )


# ---- preprocessing


@entry()
class Lambdas(Animal):
    def body(self) -> list[Any]:
        return [
            layers.Lambda(lambda x: ops.concatenate([x, ops.square(x)], -1)),
            layers.Dense(4, activation="gelu"),
        ]


@entry()
class Rescaled(OnImages):
    def body(self) -> list[Any]:
        return [
            layers.Rescaling(0.5, 0.1),
            layers.CenterCrop(6, 6),
            layers.Resizing(4, 4),
            layers.Conv2D(3, 2),
        ]


@entry(fast=True)
class Adapted(Animal):
    """Normalisation with the statistics of the part of the data that a parameter chose."""

    def data(self, hp: Any) -> Any:
        (x, y), held_out = zoo_data.points()
        scale = hp.number("scale", 1.0)
        self.x = x * scale + scale
        return (self.x, y), held_out

    def body(self) -> list[Any]:
        normalise = layers.Normalization()
        normalise.adapt(self.x)
        return [normalise, layers.Dense(8, activation="tanh")]


@entry()
class Categories(OnTokens):
    def model(self, hp: Any) -> keras.Model:
        inputs = keras.Input((7,), dtype="int32")
        encoded = layers.CategoryEncoding(12, "count")(inputs)
        hashed = layers.Embedding(4, 2)(layers.Hashing(4)(inputs))
        x = layers.Concatenate()([encoded, layers.Flatten()(hashed)])
        return keras.Model(inputs, layers.Dense(2)(x))
