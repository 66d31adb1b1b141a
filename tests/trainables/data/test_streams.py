"""The order of a stream is that of the trial's seed, whatever else the process has seeded."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from sweep.contract import NotBegun
from trainables.data import chunks, sources, trial_parts
from trainables.data.passes import Pass, Walk
from trainables.data.sources import Extent, Stream, Visits
from trainables.data.streams import StreamSplit, find_nondeterminism
from trainables.devices.replicas import Replicas

pytestmark = pytest.mark.keras

ONE = Replicas(tf.distribute.OneDeviceStrategy("/cpu:0"))
DATASETS: dict[str, Any] = {
    "numbers": lambda: tf.data.Dataset.range(12),
    "pairs": lambda: tf.data.Dataset.from_tensor_slices(
        ({"a": np.arange(12), "b": np.eye(12)}, np.arange(12))
    ),
    "ragged": lambda: tf.data.Dataset.from_tensor_slices(tf.ragged.range(tf.range(1, 13))),
}


@pytest.fixture
def global_seed() -> Iterator[None]:
    """None at first, whatever tests of the same process have set, and afterwards."""
    tf.random.set_seed(None)
    yield
    tf.random.set_seed(None)


def order(dataset: tf.data.Dataset) -> list[list[Any]]:
    return [
        [np.asarray(leaf).tolist() for leaf in tf.nest.flatten(one, expand_composites=True)]
        for one in dataset
    ]


@pytest.mark.parametrize("kind", DATASETS)
def test_a_seed_of_the_process_does_not_change_it(kind: str, global_seed: None) -> None:
    """`keras.utils.set_random_seed` in one worker, and not in another, had them train in different orders."""
    dataset = DATASETS[kind]()
    theirs = order(dataset.shuffle(5, seed=sources.mix_seeds(3, 1)))
    stream = sources.from_dataset(dataset, 5)
    assert order(stream.ordered(3, 1)) == theirs  # as it always was
    tf.random.set_seed(7)
    assert order(dataset.shuffle(5, seed=sources.mix_seeds(3, 1))) != theirs
    assert order(stream.ordered(3, 1)) == theirs
    assert stream.ordered(3, 1).element_spec == dataset.element_spec
    assert stream.ordered(None, 1) is dataset


def boxed(n: tf.Tensor) -> tf.Tensor:
    none = tf.zeros([1, 0, 4])
    return tf.image.sample_distorted_bounding_box(
        [8, 8, 3], none, use_image_if_no_bounding_boxes=True
    )[0]


def sampled_candidates(n: tf.Tensor) -> tf.Tensor:
    return tf.random.log_uniform_candidate_sampler(n[None, None], 1, 4, unique=True, range_max=50)[
        0
    ]


@pytest.mark.parametrize(
    ("drawn", "draws"),
    [
        (boxed, True),
        (sampled_candidates, True),
        (lambda n: tf.random.uniform([3]), True),
        (lambda n: n + 1, False),
    ],
)
def test_a_map_in_parallel_that_draws_is_known(drawn: Any, draws: bool) -> None:
    found = find_nondeterminism(tf.data.Dataset.range(8).map(drawn, num_parallel_calls=4))
    assert ("draws in a map" in found) == draws


def joined(one: int, other: int | None, unknown: int = 20) -> Stream:
    """Streams of numbers, joined; ``unknown``: how long one is whose size is not known."""
    parts = (
        Stream(lambda *_, n=size or unknown: tf.data.Dataset.range(n), size)
        for size in (one, other)
    )
    found = trial_parts.join_data(*parts)
    assert isinstance(found, Stream)
    return found


@pytest.mark.parametrize("other", [20, None])
def test_nor_that_of_streams_which_are_joined(other: int | None, global_seed: None) -> None:
    theirs = order(joined(60, other).ordered(3, 1))
    assert sorted(theirs) == sorted([[n] for n in (*range(60), *range(20))])
    tf.random.set_seed(7)
    assert order(joined(60, other).ordered(3, 1)) == theirs
    # of one sum
    assert len({str(order(joined(60, other).ordered(seed, 4 - seed))) for seed in range(4)}) == 4


def test_joined_streams_end_at_about_the_same_time() -> None:
    found = np.array([int(n) for n in joined(3000, 1000).ordered(3, 1)])
    assert len(found) == 4000
    # nowhere is there one alone
    assert (np.diff(np.flatnonzero(found < np.maximum.accumulate(found))) < 50).all()


def test_buckets_of_two_seeds_have_no_order_in_common() -> None:
    """The second bucket of one seed came as the first of the next."""

    def orders(seed: int) -> list[list[int]]:
        found: dict[int, list[int]] = {0: [], 1: []}
        for bucket, rows in chunks.list_bucket_runs([40, 40], Pass(40, seed, 1)):
            found[bucket] += rows.tolist()
        return [*found.values()]

    every = [str(part) for seed in range(5) for part in orders(seed)]
    assert len(set(every)) == len(every)


def forever() -> Iterator[int]:
    yield from itertools.count()


ENDLESS = {
    "generator": lambda: tf.data.Dataset.from_generator(
        forever, output_signature=tf.TensorSpec((), tf.int64)
    ),
    "repeat": lambda: tf.data.Dataset.range(10).repeat(),
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_an_endless_stream_is_read_as_far_as_its_trials_go(kind: str) -> None:
    data = StreamSplit(
        sources.from_dataset(ENDLESS[kind]().map(lambda x: (x,))), ONE, Extent(24, 8)
    )
    assert not data.counted
    data.visit(Visits(shuffle=False))
    walk = Walk(data, 4, seed=0, steps=2)
    seen = [
        chunk.tensors[0].numpy()[chunk.order].tolist()
        for epoch in (1, 2, 3)
        for chunk in walk.epoch(epoch)
    ]
    expected = [place if kind == "generator" else place % 10 for place in range(24)]
    assert [number for chunk in seen for number in chunk] == expected
    later = [
        chunk.tensors[0].numpy()[chunk.order].tolist()
        for chunk in Walk(data, 4, seed=0, steps=2).epoch(3)
    ]
    # as a resumed trial reads them
    assert [number for chunk in later for number in chunk] == expected[16:]


def test_a_stream_that_ends_is_counted_though_a_trial_reads_less_of_it() -> None:
    dataset = tf.data.Dataset.range(30).filter(lambda x: x < 20).map(lambda x: (x,))
    data = StreamSplit(sources.from_dataset(dataset), ONE, Extent(12, 4))
    assert not data.counted
    data.count(Extent(16, 4))
    assert not data.counted
    data.count(Extent(21, 7))  # of another trial
    assert (data.counted, data.size) == (True, 20)


def test_examples_of_different_shapes_are_named_when_they_are_asked_for() -> None:
    dataset = tf.data.Dataset.range(1, 4).map(lambda n: (tf.zeros(n), n))
    data = StreamSplit(sources.from_dataset(dataset), ONE)
    assert data.examples(1)[0].shape == (1, 1)
    with pytest.raises(sources.DataError, match="cannot be read or batched"):
        data.examples(2)


def test_an_endless_stream_without_a_number_of_steps_is_named() -> None:
    with pytest.raises(
        sources.DataError,
        match=r"an endless dataset, .* use take\(n\), or say with steps_per_epoch",
    ):
        StreamSplit(sources.from_dataset(ENDLESS["repeat"]().map(lambda x: (x,))), ONE)


def test_counting_ends_with_the_sweep(tmp_path: Path) -> None:
    stream, stop_file = (
        sources.from_dataset(ENDLESS["generator"]().map(lambda x: (x,))),
        tmp_path / "stop",
    )
    stop_file.touch()
    with pytest.raises(NotBegun, match="are being counted"):
        StreamSplit(stream, ONE, Extent(stop_file=stop_file))


def pictures() -> Iterator[Any]:
    for i in range(20):
        yield np.full((600, 600, 3), i, np.float32), i


def long_texts() -> Iterator[Any]:
    for i in range(20):
        yield b"x" * 2**22, i


@pytest.mark.parametrize(
    ("examples", "types"), [(pictures, (tf.float32, tf.int32)), (long_texts, (tf.string, tf.int32))]
)
def test_chunks_have_the_usual_size_if_shapes_are_unknown_or_there_are_texts(
    examples: Any, types: Any
) -> None:
    """Their size is measured: neither unknown shapes nor the type of texts give it."""
    dataset = tf.data.Dataset.from_generator(examples, output_types=types)
    data = chunks.make_examples(dataset, ONE, "training data")
    assert [len(chunk.order) for chunk in data.chunks(4, None, 1)] == [12, 8]
