from __future__ import annotations

import weakref
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from small import assignment, metrics, train
from zoo_sources import InBuckets

from sweep.hyperparameters import Hyperparameters
from trainables.data import chunks, residence, sequences
from trainables.data.chunks import BucketSplit, DataError, make_examples
from trainables.data.passes import Pass
from trainables.data.sources import Buckets
from trainables.devices.replicas import Replicas
from trainables.keras_trainable import session_of
from trainables.loop import building
from trainables.loop.graph_program import find_common_types
from trainables.numbers.live import Live
from trainables.recipe.author import Author

ONE = Replicas(tf.distribute.OneDeviceStrategy("/cpu:0"))
ROWS = [[1, 2], [3], [4, 5, 6, 7, 8, 9, 1, 2, 3], [4, 4, 4]]
LABELS = np.arange(4)


@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=4),
    batch_size=st.integers(1, 9),
    seed=st.none() | st.integers(0, 2**32 - 1),
    epoch=st.integers(1, 9),
)
@settings(max_examples=60, deadline=None)
def test_each_row_is_visited_once_in_batches_of_one_bucket(
    sizes: list[int], batch_size: int, seed: int | None, epoch: int
) -> None:
    found = list(chunks.list_bucket_runs(sizes, Pass(batch_size, seed, epoch)))
    for bucket, size in enumerate(sizes):
        assert sorted(row for b, rows in found if b == bucket for row in rows) == list(range(size))
    batches = sum(-(-len(rows) // batch_size) for _, rows in found)
    assert batches == sum(-(-size // batch_size) for size in sizes)
    again = chunks.list_bucket_runs(sizes, Pass(batch_size, seed, epoch))
    assert [(b, rows.tolist()) for b, rows in again] == [(b, rows.tolist()) for b, rows in found]


def test_sequences_are_padded_to_the_shortest_length_that_holds_them() -> None:
    (short, y), (long, z) = sequences.buckets(ROWS, LABELS, lengths=[3, 10], padding=-1).parts
    np.testing.assert_array_equal(short, [[1, 2, -1], [3, -1, -1], [4, 4, 4]])
    assert y.tolist() == [0, 1, 3]
    assert long.shape == (1, 10)
    assert z.tolist() == [2]
    (only,) = sequences.buckets(ROWS, LABELS).parts[1:]
    assert only[0].shape == (1, 16)  # multiples of 8


@pytest.mark.parametrize(
    "rows",
    [
        tf.ragged.constant(ROWS, dtype=tf.int32),
        np.array([np.array(row) for row in ROWS], object),
        [np.array(row, np.int64) for row in ROWS],
    ],
)
def test_rows_may_come_in_any_form(rows: Any) -> None:
    expected = sequences.buckets(ROWS, LABELS).parts
    for part, other in zip(sequences.buckets(rows, LABELS).parts, expected, strict=True):
        for a, b in zip(part, other, strict=True):
            np.testing.assert_array_equal(a, b)
            assert a.dtype == b.dtype


def test_whole_numbers_beyond_32_bits_are_kept() -> None:
    times = [[1_700_000_000_000, 1_700_000_000_001], [1_700_000_000_002]]
    (part,) = sequences.buckets(times, LABELS[:2], lengths=[2]).parts
    np.testing.assert_array_equal(part[0], [times[0], [*times[1], 0]])


def test_whole_numbers_of_several_types_stay_whole() -> None:
    large = 2**53 + 1  # which no float holds
    rows = [np.array([large, 1], np.uint64), np.array([-1], np.int64), np.array([], np.float64)]
    (part,) = sequences.buckets(rows, LABELS[:3], lengths=[2]).parts
    assert part[0].dtype == np.int64
    assert part[0].tolist() == [[large, 1], [-1, 0], [0, 0]]
    small = [np.array([7], np.uint64), np.array([-1], np.int8)]
    (part,) = sequences.buckets(small, LABELS[:2], lengths=[1]).parts
    assert part[0].dtype == np.int32


def test_the_range_of_integers_is_computed_once_for_all_buckets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    joined = []
    concatenate = np.concatenate

    def count(parts: Any, *others: Any, **named: Any) -> Any:
        joined.append(len(parts))
        return concatenate(parts, *others, **named)

    monkeypatch.setattr(np, "concatenate", count)
    rows = [np.arange(i % 7 + 1) for i in range(100)]
    made = sequences.buckets(rows, np.arange(100), lengths=[1, 3, 5, 7])
    assert (len(made.parts), joined) == (4, [100])


def test_targets_and_weights_of_each_element_are_padded_too() -> None:
    x = [np.ones((2, 3)), np.ones((1, 3))]
    inputs = {"series": x, "fixed": np.zeros((2, 5))}
    ((found, y, weights),) = sequences.buckets(
        inputs, [[1, 2], [3]], [[1.0, 2.0], [3.0]], lengths=[4], y_padding=-1
    ).parts
    assert (found["series"].shape, found["fixed"].shape) == ((2, 4, 3), (2, 5))
    assert y.tolist() == [[1, 2, -1, -1], [3, -1, -1, -1]]
    assert weights.tolist() == [[1, 2, 0, 0], [3, 0, 0, 0]]


@pytest.mark.parametrize(
    ("given_as", "options", "message"),
    [
        ((ROWS, LABELS), {"lengths": [3, 8]}, "row 2 has 9 elements, the longest bucket 8"),
        ((ROWS, LABELS[:3]), {}, "4 sequences and 3 targets"),
        ((ROWS, ROWS), {}, "y_padding"),
        ((ROWS, [*ROWS[:3], [1]]), {"y_padding": 0}, "targets of row 3 are 1, its sequence has 3"),
        ((ROWS, LABELS), {"lengths": []}, "bucket lengths"),
        ((ROWS, LABELS), {"count": 0}, "0 buckets"),
        (([], LABELS), {}, "no rows"),
        ((np.zeros((4, 2)), LABELS), {}, "rows of one length"),
        (
            ({"a": ROWS, "b": np.zeros((5, 2))}, LABELS),
            {},
            "inputs with different numbers of rows: {'a': 4, 'b': 5}",
        ),
        (
            ({"a": ROWS, "b": ROWS[:1]}, LABELS),
            {},
            "inputs with different numbers of rows: {'a': 4, 'b': 1}",
        ),
        (([["a"], ["b", "c"]], LABELS[:2]), {}, "rows of texts"),
        (([[], ["b", "c"]], LABELS[:2]), {}, "rows of texts"),
        (([[[1, 2], [3]], [[4]]], LABELS[:2]), {}, "differ in their first axis alone"),
        (
            ([[2**63 + 5], [1, 2]], LABELS[:2]),
            {},
            "9223372036854775813, which does not fit into int64",
        ),
        (([np.ones((2, 3)), np.ones((2, 4))], LABELS[:2]), {}, "differ in their first axis alone"),
    ],
)
def test_what_is_no_set_of_sequences_is_refused(given_as: Any, options: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        sequences.buckets(*given_as, **options)


def test_buckets_are_of_one_kind() -> None:
    other = Buckets(((np.zeros((2, 3)), np.zeros(2)), (np.zeros((2, 4), np.int32), np.zeros(2))))
    with pytest.raises(DataError, match="expected one kind"):
        make_examples(other, ONE, "training data")
    with pytest.raises(DataError, match="no bucket"):
        make_examples(Buckets(()), ONE, "training data")


def test_workers_of_a_node_share_buckets(tmp_path: Any) -> None:
    calls: list[int] = []

    def load() -> Any:
        calls.append(1)
        return sequences.buckets(ROWS, LABELS), None

    for _ in range(2):
        (found, _), _ = residence.load_shared(tmp_path / "node", Hyperparameters({}), load)
        assert isinstance(found, Buckets)
        assert all(isinstance(leaf, np.memmap) for leaf in tf.nest.flatten(found))
    assert len(calls) == 1


def _chunks(found: BucketSplit) -> list[Any]:
    return [
        (
            tf.gather(chunk.tensors[0], chunk.order).numpy().tolist(),
            tf.gather(chunk.tensors[1], chunk.order).numpy().tolist(),
        )
        for chunk in found.chunks(2, 3, 1)
    ]


def test_it_does_not_matter_where_they_lie() -> None:
    random = np.random.default_rng(0)
    rows = [random.integers(1, 9, length) for length in random.integers(1, 30, 40)]
    data = sequences.buckets(rows, np.arange(40), count=3)
    resident, gathered = BucketSplit(data, ONE), BucketSplit(data, ONE, resident_bytes=0)
    assert _chunks(resident) == _chunks(gathered)


@pytest.mark.parametrize("resident_bytes", [9000, 5000, 3000, 0])
def test_buckets_are_placed_once_and_stay_only_if_all_of_them_fit(
    resident_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [(np.ones((count, 5), np.float32), np.ones(count)) for count in (100, 50, 150)]
    size = sum(leaf.nbytes for part in parts for leaf in part)
    assert size == 8400  # above most of the limits, though some buckets are below them
    tensors: list[weakref.ref[Any]] = []
    put = residence.put_on_devices

    def put_and_note(*arguments: Any, **options: Any) -> Any:
        placed = put(*arguments, **options)
        tensors.extend(map(weakref.ref, tf.nest.flatten(placed)))
        return placed

    def count_bytes() -> int:
        alive = [tensor for tensor in (reference() for reference in tensors) if tensor is not None]
        return sum(tensor.shape.num_elements() * tensor.dtype.size for tensor in alive)

    monkeypatch.setattr(residence, "put_on_devices", put_and_note)
    found = BucketSplit(Buckets(tuple(parts)), ONE, resident_bytes)
    for _ in range(2):
        kinds = found.list_chunk_kinds()
        assert [kind.tensors[0].shape[1:] for kind in kinds[:3]] == 3 * [(5,)]
        assert find_common_types([kind.tensors for kind in kinds])[0].shape == (None, 5)
        del kinds
        assert sum(len(chunk.order) for chunk in found.chunks(10, None, 1)) == 300
        assert count_bytes() == (size if size <= resident_bytes else 0)


@pytest.mark.keras
def test_training_is_what_keras_does_with_the_same_batches() -> None:
    class Plain(InBuckets):
        augment = Author.augment  # that of the zoo makes a number live while it is traced

        def model(self, hp: Any) -> keras.Model:
            parts = [
                keras.layers.Embedding(12, 5, mask_zero=True),
                keras.layers.GlobalAveragePooling1D(),
                keras.layers.Dense(2),
            ]
            return keras.Sequential([keras.Input((None,), dtype="int32"), *parts])

    given_as = assignment(epochs=2)
    object.__setattr__(given_as, "params", {"batch_size": 16})
    ours = Plain()
    found = metrics(train(ours, given_as))
    assert session_of(ours).trial.program.train_chunk.experimental_get_tracing_count() == 1
    author, hp = Plain(), Hyperparameters(given_as.params)
    author.live = Live(hp)
    data, held_out = author.data(hp)
    author.first_example = tuple(leaf[:1] for leaf in data.parts[0])
    model = building.build_model(author, hp, given_as.seed)
    model.compile(
        author.optimizer(hp),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    sizes = [len(part[1]) for part in data.parts]
    for epoch in (1, 2):
        losses = []
        for bucket, rows in chunks.list_bucket_runs(sizes, Pass(16, given_as.seed, epoch)):
            for start in range(0, len(rows), 16):
                some = rows[start : start + 16]
                x, y = (leaf[some] for leaf in data.parts[bucket])
                model.reset_metrics()
                losses.append((len(some), model.train_on_batch(x, y)[0]))
        mean = sum(count * loss for count, loss in losses) / sum(sizes)
        assert found[epoch - 1]["loss"] == pytest.approx(mean, abs=2e-6)
    right = sum((model.predict(x, verbose=0).argmax(1) == y).sum() for x, y in held_out.parts)
    assert found[-1]["val_accuracy"] == pytest.approx(right / 20, abs=1e-6)
