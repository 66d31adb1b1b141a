"""What a trainable's `data` may hand over beside arrays: rows that are read once, and streams of examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sweep.hyperparameters import Hyperparameters

SHUFFLE_BUFFER = 10_000
FETCHED = 128  # examples that are read at once by their places


class DataError(Exception):
    """What a trainable's ``data`` returned, or the files it names, cannot be trained on."""


@dataclass(frozen=True)
class Rows:
    """An array that lies in files of another format; it is written down once, block by block, and then mapped."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    blocks: Callable[[], Iterator[np.ndarray[Any, Any]]]  # in order, along the first axis

    def __len__(self) -> int:
        return self.shape[0]


class Buckets(NamedTuple):
    """Examples of different shapes in parts of one shape each: no batch is of more than one part."""

    parts: tuple[Any, ...]  # (x,), (x, y) or (x, y, sample_weight) each


@dataclass(frozen=True)
class Stream:
    """Examples that can only be read one after the other.

    ``ordered(seed, number)`` is one pass over single examples: shuffled as far as the source allows from
    (seed, number), or as they lie where the seed is None. ``size`` None: not known without counting. ``maps``: what
    each example then goes through, so that those that are only passed over need not. ``places`` is the same pass as
    numbers, which ``fetched`` makes examples of, some at a time: where that is known, those that are passed over need
    not even be read.
    """

    ordered: Callable[[int | None, int], tf.data.Dataset]
    size: int | None = None
    buffered: Callable[[int], Stream] | None = None  # the same with a shuffle buffer of so many examples
    maps: tuple[Callable[..., Any], ...] = ()
    places: Callable[[int | None, int], tf.data.Dataset] | None = None
    fetched: Callable[[tf.Tensor], tf.Tensor] | None = None

    def read(
        self,
        seed: int | None,
        number: int,
        skipped: int = 0,
        wanted: Callable[[tf.Tensor], tf.Tensor] | None = None,
    ) -> tf.data.Dataset:
        """One pass without its first ``skipped`` examples, and of the others those whose places are ``wanted``."""
        by_place = self.places is not None and wanted is not None
        dataset = self.places(seed, number) if self.places and by_place else self.ordered(seed, number)
        dataset = dataset.skip(skipped) if skipped else dataset
        if wanted is not None:
            numbered = dataset.enumerate(skipped).filter(lambda place, _: wanted(place))
            dataset = numbered.map(lambda _, example: example)
        if self.fetched is not None and by_place:
            dataset = dataset.batch(FETCHED).map(self.fetched).unbatch()
        for function in self.maps:
            dataset = dataset.map(function, tf.data.AUTOTUNE, deterministic=True)
        return dataset

    def map(self, function: Callable[..., Any]) -> Stream:
        """The same examples, each changed by ``function(x, y, ...)``."""
        again = self.buffered
        buffered = None if again is None else lambda buffer: again(buffer).map(function)
        return replace(self, buffered=buffered, maps=(*self.maps, function))


@dataclass(frozen=True)
class Visits:
    """In which order a trial visits its training examples, pass after pass."""

    shuffle: bool = True  # False: as they were given, in each pass
    buffer: int | None = None  # of a stream's shuffle; None: its own

    @classmethod
    def of(cls, hp: Hyperparameters) -> Visits:
        """As ``shuffle`` and ``shuffle_buffer`` say; raises ValueError or TypeError."""
        shuffle = hp.flag("shuffle", default=True)
        if "shuffle_buffer" not in hp:
            return cls(shuffle)
        buffer = hp.integer("shuffle_buffer", standard=True)
        if not shuffle:
            raise ValueError(
                "shuffle is false and there is a shuffle_buffer, which would have no effect; leave out one"
            )
        return cls(shuffle, buffer)


def from_dataset(dataset: tf.data.Dataset, buffer: int = SHUFFLE_BUFFER) -> Stream:
    """A `tf.data.Dataset` of single examples, shuffled in a buffer of so many; raises DataError if it is endless."""
    size = int(dataset.cardinality())
    if size == tf.data.INFINITE_CARDINALITY:
        raise DataError("an endless dataset, expected one pass over its examples; use take(n)")
    if _is_batched(dataset) or (_has_unknown_lengths(dataset) and not _is_of_examples(dataset)):
        raise DataError(_unbatched(dataset))
    known = None if size == tf.data.UNKNOWN_CARDINALITY else size

    def ordered(seed: int | None, number: int) -> tf.data.Dataset:
        if seed is None:
            return dataset
        return shuffled(dataset, min(known or buffer, buffer), mixed(seed, number))

    return Stream(ordered, known, lambda buffer: from_dataset(dataset, buffer))


def _has_unknown_lengths(dataset: tf.data.Dataset) -> bool:
    """Whether the first axis of all parts of an element has no known length, as that of batches."""
    specs = [spec for spec in tf.nest.flatten(dataset.element_spec) if isinstance(spec, tf.TensorSpec)]
    return bool(specs) and all(spec.shape.rank and spec.shape[0] is None for spec in specs)


def _is_of_examples(dataset: tf.data.Dataset) -> bool:
    """Whether nothing that its elements come from could have made batches: no `batch`, no Python, no inner dataset."""
    kind = type(dataset).__name__.lower()
    if any(name in kind for name in ("batch", "flatmap", "interleave", "generator", "window", "numpy_function")):
        return False
    return all(map(_is_of_examples, dataset._inputs()))


def _unbatched(dataset: tf.data.Dataset) -> str:
    what = "a dataset of batches, expected single examples; leave out batch(), batch_size cuts them"
    first = next(iter(dataset.take(1)), None)
    if first is None or _is_batched(dataset):
        return what
    shapes = ", ".join(str(tuple(leaf.shape)) for leaf in tf.nest.flatten(first))
    return (
        f"{what}. Where {shapes}, of the first element, are the shapes of one example, say so: "
        "dataset.map(lambda x, y: (tf.ensure_shape(x, [...]), tf.ensure_shape(y, [...])))"
    )


def _is_batched(dataset: tf.data.Dataset) -> bool:
    """Whether a `batch` made its elements and nothing took them apart again."""
    present = dataset
    while present is not None:
        kind = type(present).__name__.lower()
        if "batchdataset" in kind and "unbatch" not in kind:
            return True
        inputs = present._inputs()
        keeps = ("prefetch", "cache", "map", "take", "skip", "shuffle", "options", "repeat", "filter", "shard")
        present = (
            inputs[0] if len(inputs) == 1 and any(name in kind for name in keeps) and "flatmap" not in kind else None
        )
    return False


_WITHOUT_GLOBAL_SEED, _SEEDS = 87654321, 2**31 - 1  # what `Dataset.shuffle` takes then, and how many it knows


def shuffled(dataset: tf.data.Dataset, buffer: int, seed: int) -> tf.data.Dataset:
    """Shuffle as `Dataset.shuffle` does, by this seed alone.

    That method mixes in TensorFlow's global seed, which anybody's code may have set in this process
    (`keras.utils.set_random_seed`) and not in another: two ranks, or two workers, would train in other orders.
    """
    specs = tf.nest.flatten(dataset.element_spec)
    plain = [isinstance(spec, tf.TensorSpec) for spec in specs]
    variant = tf.raw_ops.ShuffleDatasetV3(
        input_dataset=tf.data.experimental.to_variant(dataset),
        buffer_size=tf.constant(buffer, tf.int64),
        seed=tf.constant(_WITHOUT_GLOBAL_SEED, tf.int64),
        seed2=tf.constant(seed % _SEEDS, tf.int64),
        seed_generator=tf.raw_ops.DummySeedGenerator(),
        output_types=[spec.dtype if known else tf.variant for spec, known in zip(specs, plain, strict=True)],
        output_shapes=[spec.shape if known else None for spec, known in zip(specs, plain, strict=True)],
    )
    return tf.data.experimental.from_variant(variant, dataset.element_spec)


def mixed(seed: int, number: int) -> int:
    """One number from both, for generators that take one."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])


def permutation(size: int, seed: int | None, number: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """The order of a pass, the same on every machine; as it is without a seed."""
    if seed is None:
        return np.arange(size, dtype=np.int32)
    return np.random.Generator(np.random.Philox(mixed(seed, number))).permutation(size).astype(np.int32)
