"""The zoo: ways to write a model, and normalisation."""

from __future__ import annotations

from typing import Any

import keras
import zoo_data
from keras import layers
from zoo import Animal, OnCurve, OnImages, entry

from trainables.keras_trainable import KerasTrainable

ops = keras.ops


# ---- ways to write a model


@entry(fast=True)
class Plain(Animal):
    pass


@entry(fast=True, skip_metrics=("kind_loss", "size_loss"))
class SeveralInputsAndOutputs(Animal):
    def data(self, hp: Any) -> Any:
        return tuple(
            ({"a": x[:, :3], "b": x[:, 3:]}, {"kind": y, "size": x.sum(1, keepdims=True)})
            for x, y in zoo_data.points()
        )

    def model(self, hp: Any) -> keras.Model:
        inputs = {"a": keras.Input((3,), name="a"), "b": keras.Input((3,), name="b")}
        x = layers.Concatenate()([layers.Dense(4, activation="tanh")(inputs["a"]), inputs["b"]])
        outputs = {"kind": layers.Dense(3, name="kind")(x), "size": layers.Dense(1, name="size")(x)}
        return keras.Model(inputs, outputs)

    def loss(self, hp: Any, model: Any) -> Any:
        return {"kind": keras.losses.SparseCategoricalCrossentropy(from_logits=True), "size": "mse"}

    def metrics(self, hp: Any, model: Any) -> Any:
        return {"kind": ["accuracy"], "size": ["mae"]}


class TwoLayers(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = layers.Dense(8, activation="tanh")
        self.norm = layers.BatchNormalization()
        self.head = layers.Dense(3)

    def call(self, x: Any, training: bool = False) -> Any:
        return self.head(self.norm(self.hidden(x), training=training))


@entry(fast=True)
class Subclassed(Animal):
    def model(self, hp: Any) -> keras.Model:
        return TwoLayers()

    def loss(self, hp: Any, model: Any) -> Any:
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def metrics(self, hp: Any, model: Any) -> Any:
        return ["accuracy"]


@entry()
class Nested(Animal):
    def body(self) -> list[Any]:
        inner = keras.Sequential(
            [keras.Input((6,)), layers.Dense(5, activation="relu"), layers.BatchNormalization()]
        )
        return [inner, layers.Dense(4, activation="tanh")]


@entry()
class Residual(Animal):
    def model(self, hp: Any) -> keras.Model:
        x = inputs = keras.Input((6,))
        for _ in range(2):
            x = layers.Add()(
                [x, layers.Dense(6, activation="tanh")(layers.LayerNormalization()(x))]
            )
        return keras.Model(inputs, layers.Dense(3)(x))


@entry()
class SharedLayer(Animal):
    def model(self, hp: Any) -> keras.Model:
        inputs = keras.Input((6,))
        shared = layers.Dense(6, activation="tanh")
        return keras.Model(inputs, layers.Dense(3)(shared(shared(inputs))))


@entry(fast=True)
class CompiledInModel(Animal):
    def model(self, hp: Any) -> keras.Model:
        model = super().model(hp)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(
            keras.optimizers.Adam(0.02), loss, metrics=["accuracy"], weighted_metrics=["accuracy"]
        )
        return model

    optimizer = KerasTrainable.optimizer


@entry()
class OwnComputeLoss(OnCurve):
    class Smooth(keras.Model):
        def compute_loss(
            self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None, training: bool = True
        ) -> Any:
            return super().compute_loss(x, y, y_pred, sample_weight, training) + 0.1 * ops.mean(
                ops.square(y_pred)
            )

    def model(self, hp: Any) -> keras.Model:
        inputs = keras.Input((6,))
        return self.Smooth(inputs, layers.Dense(2)(layers.Dense(8, activation="tanh")(inputs)))


# ---- normalisation


@entry(fast=True)
class BatchNorm(Animal):
    def body(self) -> list[Any]:
        return [
            layers.Dense(8, use_bias=False),
            layers.BatchNormalization(momentum=0.9),
            layers.Activation("tanh"),
        ]


@entry()
class LayerNorm(Animal):
    def body(self) -> list[Any]:
        return [layers.Dense(8), layers.LayerNormalization(), layers.Activation("tanh")]


@entry()
class GroupNorm(OnImages):
    def body(self) -> list[Any]:
        return [layers.Conv2D(4, 3), layers.GroupNormalization(2), layers.ReLU()]


@entry()
class UnitNorm(Animal):
    def body(self) -> list[Any]:
        return [layers.Dense(8), layers.UnitNormalization(), layers.PReLU()]


@entry()
class RMSNorm(Animal):
    def body(self) -> list[Any]:
        return [layers.Dense(8), layers.RMSNormalization()]


@entry(fast=True)
class SpectralNorm(Animal):
    def body(self) -> list[Any]:
        return [layers.SpectralNormalization(layers.Dense(8, activation="tanh"))]
