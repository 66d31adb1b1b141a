"""The zoo: augmentation that changes targets and weights, mixed and erased examples, masks and boxes that move."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers
from zoo import Animal, OnCurve, OnImages, entry

from trainables.recipe.movement import Movement

ops = keras.ops
MIXED = "fit sees the data as they are"


@entry(
    fast=True,
    params={"mixup": 0.4, "cutmix": 1.0, "random_erasing": 0.3, "label_smoothing": 0.1},
    fit=MIXED,
)
class MixedImages(OnImages):
    def body(self) -> list[Any]:
        return [
            layers.Conv2D(4, 3),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.Dropout(0.2),
        ]


@entry(params={"mixup": 0.8, "micro_batches": 3}, fit=MIXED)
class MixedWeights(Animal):
    """Weights of the data and of `augment`, and a mean that they divide, whose divisor micro-batches count first."""

    def data(self, hp: Any) -> Any:
        (x, y), held_out = super().data(hp)
        return (x, y, np.linspace(0.5, 2.0, len(x)).astype("float32")), held_out

    def loss(self, hp: Any, model: keras.Model) -> Any:
        return keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction="mean_with_sample_weight"
        )

    def weighted_metrics(self, hp: Any, model: keras.Model) -> Any:
        return ["accuracy"]

    def augment(self, x: Any, y: Any, sample_weight: Any, hp: Any, draws: Any) -> Any:
        x = super().augment(x, hp, draws)
        other = tf.where(draws.uniform() < 0.1, 0, y)
        return x + draws.normal((6,), 0.1), other, sample_weight * draws.uniform((), 0.5, 1.5)


@entry(params={"micro_batches": 2}, fit=MIXED)
class NewWeights(Animal):
    """Weights that only `augment` gives."""

    def loss(self, hp: Any, model: keras.Model) -> Any:
        return keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction="mean_with_sample_weight"
        )

    def augment(self, x: Any, y: Any, sample_weight: Any, hp: Any, draws: Any) -> Any:
        return super().augment(x, hp, draws), y, draws.uniform((), 0.1, 2.0)


@entry(params={"mixup": 0.4, "sam_rho": 0.05, "swa_from": 2}, fit=MIXED)
class MixedNumbers(OnCurve):
    def loss(self, hp: Any, model: keras.Model) -> Any:
        return "mse"

    def body(self) -> list[Any]:
        return [layers.Dense(8), layers.BatchNormalization(), layers.Activation("tanh")]


@entry(params={"mixup": 0.4}, training={"precision": "mixed_bfloat16"}, tolerance=2e-3, fit=MIXED)
class MixedHalf(OnImages):
    def body(self) -> list[Any]:
        return [layers.Conv2D(4, 3, activation="tanh")]


@entry(params={"mixup": 0.4, "cutmix": 1.0}, fit=MIXED)
class MixedStep(OnImages):
    """One-hot targets in a training step of its own."""

    def data(self, hp: Any) -> Any:
        return tuple(
            (x, keras.utils.to_categorical(y, 3).astype("float32")) for x, y in super().data(hp)
        )

    def loss(self, hp: Any, model: keras.Model) -> Any:
        return keras.losses.CategoricalCrossentropy(from_logits=True)

    def train_step(self, model: keras.Model, batch: Any, hp: Any) -> Any:
        predicted = model(batch.x, training=True)
        return {"loss": keras.losses.categorical_crossentropy(batch.y, predicted, from_logits=True)}


class OnShapes(Animal):
    """Bright rectangles before noise: `shapes` gives the pictures and where the rectangles are."""

    def shapes(self) -> tuple[Any, Any, Any]:
        random = np.random.default_rng(4)
        low, sides = random.integers(1, 7, (90, 2)), random.integers(4, 8, (90, 2))
        # left, top, right, bottom of 16 x 16
        boxes = np.concatenate([low, low + sides], 1).astype("float32")
        at = np.arange(16) + 0.5
        across = (at >= boxes[:, :1]) & (at < boxes[:, 2:3])
        down = (at >= boxes[:, 1:2]) & (at < boxes[:, 3:4])
        masks = down[:, :, None] & across[:, None, :]
        kinds = random.integers(0, 2, 90).astype("int32")
        x = (
            random.normal(0, 0.3, (90, 16, 16, 1))
            + masks[..., None] * np.where(kinds, 1.0, -1.0)[:, None, None, None]
        )
        return x.astype("float32"), masks.astype("int32") * (kinds + 1)[:, None, None], boxes

    def moved(self, x: Any, draws: Any) -> Movement:
        return Movement(x, draws).flip().affine(0.3).crop(2)


@entry(params={"cutmix": 1.0}, fit=MIXED, tolerance=2e-6)
class Segmented(OnShapes):
    """A small U-Net; masks move with the pictures, and are pasted with them."""

    def data(self, hp: Any) -> Any:
        x, masks, _ = self.shapes()
        return (x[:70], masks[:70]), (x[70:], masks[70:])

    def model(self, hp: Any) -> keras.Model:
        def block(x: Any, filters: int) -> Any:
            return layers.Conv2D(filters, 3, padding="same", activation="relu")(x)

        inputs = keras.Input((16, 16, 1))
        fine = block(inputs, 6)
        coarse = block(layers.MaxPooling2D()(fine), 12)
        up = layers.Concatenate()([fine, layers.UpSampling2D()(coarse)])
        return keras.Model(inputs, layers.Conv2D(3, 1)(block(up, 6)))

    def loss(self, hp: Any, model: keras.Model) -> Any:
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1)

    def metrics(self, hp: Any, model: keras.Model) -> Any:
        return [keras.metrics.MeanIoU(3, ignore_class=-1, sparse_y_pred=False, name="iou")]

    def augment(self, x: Any, y: Any, hp: Any, draws: Any) -> Any:
        move = self.moved(super().augment(x, hp, draws), draws)
        return move.images(x), move.masks(y, fill=-1)


@entry(fit=MIXED)
class Detected(OnShapes):
    """Where the rectangle is, and what it is; a box that has left the picture counts for nothing."""

    def data(self, hp: Any) -> Any:
        x, masks, boxes = self.shapes()
        kinds = masks.max(axis=(1, 2), keepdims=False)[:, None] - 1
        y = {"boxes": boxes[:, None] / 16, "labels": kinds}
        parts = (slice(0, 70), slice(70, None))
        train, held_out = (
            (x[part], {name: values[part] for name, values in y.items()}) for part in parts
        )
        return train, held_out

    def model(self, hp: Any) -> keras.Model:
        inputs = keras.Input((16, 16, 1))
        x = layers.Conv2D(8, 3, padding="same", activation="relu")(inputs)
        edges = []
        for axis in (1, 2):  # where along the width, and along the height, it begins and ends
            profile = layers.Conv1D(8, 5, padding="same", activation="relu")(ops.mean(x, axis=axis))
            share = layers.Softmax(axis=1)(layers.Dense(2)(profile))
            edges.append(
                ops.sum(share * (ops.arange(16, dtype="float32")[:, None] + 0.5) / 16, axis=1)
            )
        boxes = layers.Reshape((1, 4), name="boxes")(ops.reshape(ops.stack(edges, axis=2), (-1, 4)))
        labels = layers.Reshape((1, 2), name="labels")(layers.Dense(2)(ops.mean(x, axis=(1, 2))))
        return keras.Model(inputs, {"boxes": boxes, "labels": labels})

    def loss(self, hp: Any, model: keras.Model) -> Any:
        return {
            "boxes": "huber",
            "labels": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        }

    def loss_weights(self, hp: Any) -> Any:
        return {"boxes": 10.0}

    def metrics(self, hp: Any, model: keras.Model) -> Any:
        return {"labels": "accuracy", "boxes": "mae"}

    def augment(self, x: Any, y: Any, sample_weight: Any, hp: Any, draws: Any) -> Any:
        move = self.moved(super().augment(x, hp, draws), draws)
        boxes, labels = move.boxes(y["boxes"], y["labels"], "rel_xyxy", least=0.3)
        seen = tf.cast(labels >= 0, tf.float32)
        there = {"boxes": boxes, "labels": tf.maximum(labels, 0)}
        return move.images(x), there, {"boxes": seen, "labels": seen}
