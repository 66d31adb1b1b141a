"""The zoo: where examples come from, and in which order."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
import zoo_data
from keras import layers
from zoo import Animal, OnImages, entry
from zoo_models import BatchNorm

from trainables.data import sequences

WORDS = ["red", "green", "blue", "ochre", "teal"]


@entry(fast=True, params={"shuffle": False})
class Unshuffled(Animal):
    pass


@entry(params={"shuffle": False, "steps_per_epoch": 3})
class UnshuffledLong(Animal):
    pass


@entry(fast=True, params={"steps_per_epoch": 7, "validation_steps": 2, "validation_batch_size": 8})
class Across(Animal):
    """Epochs of 7 updates over passes of 5 or 3, with a momentum, and part of the validation."""


@entry(params={"steps_per_epoch": 2, "swa_from": 2}, fit="fit does not validate with averages")
class AveragedWithin(BatchNorm):
    pass


@entry(
    params={"steps_per_epoch": 2, "batch_size": 13},
    training={"loop": "fit"},
    replicas="cannot weigh their parts of a batch of (13|5) examples",
)
class AcrossInFit(Animal):
    pass


@entry(fast=True)
class WithWeightedMetrics(Animal):
    """Metrics that take the weights beside some that do not, in a last batch of 6."""

    def data(self, hp: Any) -> Any:
        return tuple((x, y, (1 + y).astype(np.float32)) for x, y in super().data(hp))

    def metrics(self, hp: Any, model: keras.Model) -> Any:
        return ["accuracy"]

    def weighted_metrics(self, hp: Any, model: keras.Model) -> Any:
        return [
            keras.metrics.SparseCategoricalAccuracy(name="weighed"),
            keras.metrics.SparseTopKCategoricalAccuracy(2),
        ]


def sentences() -> tuple[Any, Any]:
    """90 rows of 1 to 40 numbers of words, and whether one of them is a 3."""
    random = np.random.default_rng(5)
    rows = [random.integers(1, 12, length) for length in random.integers(1, 41, 90)]
    return rows, np.array([(row == 3).any() for row in rows]).astype(np.int32)


@entry(
    fast=True,
    fit="its batches are of one bucket each; tests/trainables/data/test_buckets.py compares them",
)
class InBuckets(Animal):
    def data(self, hp: Any) -> Any:
        x, y = sentences()
        return sequences.buckets(x[:70], y[:70], count=3), sequences.buckets(
            x[70:], y[70:], count=2
        )

    def model(self, hp: Any) -> keras.Model:
        embedding = layers.Embedding(12, 5, mask_zero=True)
        body = [embedding, layers.LSTM(6), layers.Dropout(0.2)]
        return keras.Sequential([keras.Input((None,), dtype="int32"), *body, layers.Dense(2)])


@entry(fit="its batches are of one bucket each")
class TaggedInBuckets(Animal):
    """A label for each word, and none where the sentence has ended; two inputs."""

    def data(self, hp: Any) -> Any:
        x, _ = sentences()
        tags, weights = [row % 3 for row in x], [np.where(row == 3, 2.0, 1.0) for row in x]
        lengths = np.array([[len(row)] for row in x], np.float32)

        def part(a: int, b: int) -> Any:
            inputs = {"words": x[a:b], "length": lengths[a:b] / 40}
            return sequences.buckets(
                inputs, tags[a:b], weights[a:b], lengths=[8, 16, 40], y_padding=-1
            )

        return part(0, 70), part(70, 90)

    def model(self, hp: Any) -> keras.Model:
        words, length = (
            keras.Input((None,), dtype="int32", name="words"),
            keras.Input((1,), name="length"),
        )
        x = layers.Embedding(12, 5)(words) * layers.Dense(5)(length)[:, None, :]
        return keras.Model({"words": words, "length": length}, layers.Dense(3)(x))

    def loss(self, hp: Any, model: keras.Model) -> Any:
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1)

    def metrics(self, hp: Any, model: keras.Model) -> Any:
        return None


def texts() -> tuple[Any, Any]:
    random = np.random.default_rng(6)
    x = np.array([" ".join(random.choice(WORDS, random.integers(2, 7))) for _ in range(90)])
    y = np.array(["red" in text for text in x]).astype(np.int32)
    return (x[:70], y[:70]), (x[70:], y[70:])


class OnTexts(Animal):
    def data(self, hp: Any) -> Any:
        return texts()

    def model(self, hp: Any) -> keras.Model:
        numbers = [
            self.words(),
            layers.Embedding(12, 5, mask_zero=True),
            layers.GlobalAveragePooling1D(),
        ]
        return keras.Sequential([keras.Input((), dtype="string"), *numbers, layers.Dense(2)])

    def words(self) -> Any:
        return layers.TextVectorization(vocabulary=WORDS, output_sequence_length=6)


@entry(
    fast=True,
    fit="fit takes no array of texts; tests/trainables/data/test_sources.py compares it with numbers",
)
class OfTexts(OnTexts):
    pass


@entry(fit="fit takes no array of texts")
class OfTextsAdapted(OnTexts):
    """The words are looked for in `data`, whose attributes `model` sees."""

    def data(self, hp: Any) -> Any:
        found = layers.TextVectorization()
        found.adapt(texts()[0][0])
        self.vocabulary = found.get_vocabulary()
        return texts()

    def words(self) -> Any:
        return layers.TextVectorization(vocabulary=self.vocabulary, output_sequence_length=6)


@entry(fit="fit takes no array of texts")
class OfTextsAdaptedInTheModel(OnTexts):
    def words(self) -> Any:
        found = layers.TextVectorization(output_sequence_length=6)
        found.adapt(texts()[0][0])
        return found


class Batches(keras.utils.PyDataset):
    """Batches that are cut anew after each epoch."""

    def __init__(self, x: Any, y: Any, size: int, **options: Any) -> None:
        super().__init__(**options)
        self.x, self.y, self.size, self.rows = x, y, size, np.arange(len(x))

    def __len__(self) -> int:
        return -(-len(self.x) // self.size)

    def __getitem__(self, index: int) -> Any:
        rows = self.rows[index * self.size : (index + 1) * self.size]
        return self.x[rows], self.y[rows]

    def on_epoch_end(self) -> None:
        np.random.shuffle(self.rows)


class Streamed(Animal):
    """Datasets, mapped; shuffled in a buffer."""

    def data(self, hp: Any) -> Any:
        return tuple(
            tf.data.Dataset.from_tensor_slices(part).map(lambda x, y: (x * 2, y))
            for part in super().data(hp)
        )


@entry(
    fast=True,
    params={"steps_per_epoch": 3},
    fit="it takes no datasets of examples; test_long_epochs.py compares it",
)
class AcrossStreams(Streamed):
    pass


@entry(
    fast=True,
    fit="fit lets it draw from the process; tests/trainables/data/test_batches.py compares it",
)
class InBatches(Animal):
    def data(self, hp: Any) -> Any:
        (x, y), held_out = zoo_data.points()
        return Batches(x, y, hp.integer("batch_size", 32), workers=2), Batches(*held_out, 7)


@entry(params={"steps_per_epoch": 2}, fit="fit lets it draw from the process")
class AcrossBatches(InBatches):
    pass


@entry(params={"steps_per_epoch": 4}, fit="its batches are of one bucket each")
class AcrossBuckets(InBuckets):
    pass


class OnFeatures(OnImages):
    """A head on a frozen convolution with batch normalisation and dropout, which do nothing there."""

    def features(self, hp: Any) -> keras.Model:
        body = [
            layers.Conv2D(4, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.Dropout(0.5),
        ]
        return keras.Sequential([keras.Input((8, 8, 2)), *body, layers.GlobalAveragePooling2D()])

    def model(self, hp: Any) -> keras.Model:
        return keras.Sequential(
            [keras.Input((4,)), layers.Dense(8, activation="tanh"), layers.Dense(3)]
        )


@entry(
    fast=True,
    params={"cache_features": True},
    fit="the model begins with the features; tests/trainables/recipe/test_features.py compares it",
)
class OfFeatures(OnFeatures):
    pass


@entry(fit="the model begins with the features")
class WithFeaturesInTheGraph(OnFeatures):
    pass
