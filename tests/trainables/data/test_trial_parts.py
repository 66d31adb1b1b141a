"""What a trial makes of the parts of `data`: folds, all of it, weighed classes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from small import Small, assignment, go_on, metrics, train

from sweep.contract import Fold
from sweep.hyperparameters import Hyperparameters
from trainables.data import trial_parts
from trainables.data.chunks import make_examples
from trainables.data.sources import BlockArray, Buckets, DataError, Extent, Stream, from_dataset
from trainables.data.trial_parts import join_data
from trainables.devices.replicas import Replicas
from trainables.keras_trainable import session_of
from trainables.recipe.refusals import Refused
from trainables.state.checkpoint import CheckpointError

ONE = Replicas(tf.distribute.OneDeviceStrategy("/cpu:0"))
X, Y = np.arange(20.0).reshape(10, 2), np.arange(10)


@given(
    size=st.integers(2, 60),
    count=st.integers(2, 7),
    seed=st.integers(0, 2**32 - 1),
    classes=st.integers(1, 4),
)
@settings(max_examples=80, deadline=None)
def test_each_row_validates_in_one_fold_and_classes_are_spread(
    size: int, count: int, seed: int, classes: int
) -> None:
    if size < count:
        return
    labels = np.arange(size) % classes
    parts = [trial_parts.fold_rows(labels, size, fold, count, seed) for fold in range(count)]
    assert sorted(row for _, held_out in parts for row in held_out) == list(range(size))
    for trained, held_out in parts:
        assert sorted([*trained, *held_out]) == list(range(size))
    sizes = [len(held_out) for _, held_out in parts]
    assert max(sizes) - min(sizes) <= 1
    for label in range(classes):
        found = [int((labels[held_out] == label).sum()) for _, held_out in parts]
        assert max(found) - min(found) <= 1


def test_the_cut_follows_the_seed_alone() -> None:
    one, same, other = (trial_parts.fold_rows(Y, 10, 0, 2, seed)[1].tolist() for seed in (1, 1, 2))
    assert one == same != other
    assert (
        trial_parts.fold_rows(None, 10, 0, 2, 1)[1].tolist()
        == trial_parts.fold_rows(X, 10, 0, 2, 1)[1].tolist()
    )


def test_training_and_validation_are_cut_as_one() -> None:
    x, y = trial_parts.concatenate_parts((X, Y), (X + 1, Y))
    assert x.shape == (20, 2)
    assert y.tolist() == [*range(10), *range(10)]
    whole = (X, Y)
    assert trial_parts.concatenate_parts(whole, None) is whole


@pytest.mark.parametrize(
    ("train_data", "held_out", "message"),
    [
        ((X, Y), (X[:, :1], Y), "not alike"),
        ((X, Y), (X, Y, Y), "not alike"),
        ([X, Y], None, "training data: list"),
    ],
)
def test_what_cannot_be_cut_is_refused(train_data: Any, held_out: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        trial_parts.concatenate_parts(train_data, held_out)


def test_fewer_rows_than_folds_are_refused() -> None:
    with pytest.raises(DataError, match="3 examples, expected at least one for each of 5 folds"):
        trial_parts.fold_rows(Y, 3, 0, 5, 0)


def _fold(number: int, epochs: int = 2, **params: Any) -> Any:
    return replace(assignment(epochs=epochs, **params), fold=Fold(number, 4, 7))


@pytest.mark.keras
def test_classes_of_a_fold_are_weighed_by_what_it_trains_on() -> None:
    class OneFold(Small):
        def data(self, hp: Any) -> Any:
            x, y = trial_parts.concatenate_parts(*super().data(hp))
            return tuple((x[rows], y[rows]) for rows in trial_parts.fold_rows(y, 90, 2, 4, 7))

    used = Small()
    for number in (0, 2):
        found = metrics(train(used, _fold(number, class_weights="balanced")))
    assert used.facts().structures == 1
    for mine, theirs in zip(
        found, metrics(train(OneFold(), assignment(class_weights="balanced"))), strict=True
    ):
        assert mine == pytest.approx(theirs, abs=1e-6)


@pytest.mark.keras
def test_a_fold_is_the_trial_on_its_rows(tmp_path: Path) -> None:
    class OneFold(Small):
        """The rows of one fold, handed over by themselves."""

        def data(self, hp: Any) -> Any:
            x, y = trial_parts.concatenate_parts(*super().data(hp))
            return tuple((x[rows], y[rows]) for rows in trial_parts.fold_rows(y, 90, 2, 4, 7))

    used = Small()
    for number in (0, 2):
        found = metrics(train(used, _fold(number)))
    program = session_of(used).trial.program
    assert used.facts().structures == 1  # both in one program, traced once
    assert program.train_chunk.experimental_get_tracing_count() == 1
    assert found == metrics(train(Small(), _fold(2)))  # as in a fresh worker
    for mine, theirs in zip(found, metrics(train(OneFold(), assignment())), strict=True):
        assert mine == pytest.approx(theirs, abs=1e-6)
    first, second = Small(), Small()
    first.begin(_fold(2))
    go_on(first, pause_after=1)
    first.save(tmp_path)()
    second.begin(_fold(2))
    second.restore(tmp_path)
    assert metrics(go_on(second)) == found[1:]


@pytest.mark.keras
def test_class_weights_weigh_what_is_trained_alone() -> None:
    class Uneven(Small):
        def data(self, hp: Any) -> Any:
            (x, y), (v, w) = super().data(hp)
            return (x, np.minimum(y, 1)), (v, np.minimum(w, 1))

        def class_weights(self, hp: Any, labels: Any) -> Any:
            return {0: 100.0, 1: 100.0} if hp.flag("weighed", default=False) else None

    one, other = (
        metrics(train(Uneven(), _fold(0, 1, weighed=weighed, learning_rate=0.0)))[0]
        for weighed in (True, False)
    )
    assert one["loss"] == pytest.approx(100 * other["loss"], rel=1e-5)
    assert one["val_loss"] == pytest.approx(other["val_loss"], rel=1e-5)


pytestmark = pytest.mark.keras


def arrays(first: int, count: int) -> Any:
    x = np.arange(first, first + count, dtype=np.float32)
    return {"a": x[:, None], "b": x}, x.astype(np.int32)


def test_arrays_and_what_holds_them() -> None:
    x, y = join_data(arrays(0, 3), arrays(3, 2))
    assert x["a"].shape == (5, 1)
    assert list(x["b"]) == list(y) == [0, 1, 2, 3, 4]
    assert list(join_data((tf.range(2), tf.range(2)), (tf.range(1), tf.range(1)))[0]) == [0, 1, 0]


def test_rows_in_files() -> None:
    def rows(*values: float) -> BlockArray:
        return BlockArray(
            (len(values),), np.dtype(np.float32), lambda: iter([np.array(values, np.float32)])
        )

    found = join_data((rows(1, 2), rows(0, 0)), (rows(3), rows(0)))[0]
    assert (len(found), [list(block) for block in found.blocks()]) == (3, [[1, 2], [3]])


def test_datasets_and_streams() -> None:
    one, other = (
        tf.data.Dataset.range(*ends).map(lambda n: (n, n)) for ends in ((0, 60), (60, 70))
    )
    assert [int(x) for x, _ in join_data(one, other)] == list(range(70))
    streams = [
        Stream(lambda seed, epoch, data=data: data, size) for data, size in ((one, 60), (other, 10))
    ]
    found = join_data(*streams)
    assert found.size == 70
    assert [int(x) for x, _ in found.ordered(None, 0)] == list(range(70))
    orders = [[int(x) for x, _ in found.ordered(seed, 1)] for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == list(range(70))


@pytest.mark.parametrize("endless", ["training", "validation"])
def test_an_endless_stream_is_named_when_it_is_joined(endless: str) -> None:
    part = tf.data.Dataset.range(8).map(lambda n: (tf.fill([2], tf.cast(n, tf.float32)), n))
    train, validation = (
        from_dataset(part.repeat() if name == endless else part)
        for name in ("training", "validation")
    )
    found = join_data(train, validation)
    assert found.endless  # otherwise its examples would be counted for ever
    with pytest.raises(DataError, match="training data: an endless dataset"):
        make_examples(found, ONE, "training data")
    assert not make_examples(found, ONE, "training data", extent=Extent(16)).counted


@pytest.mark.parametrize(
    ("validation", "message"),
    [
        (None, "data\\(\\) returns no validation data"),
        (tf.data.Dataset.range(3), "returns arrays and "),
        ((*arrays(0, 2), np.ones(2)), "only the validation data has sample weights"),
        ((np.zeros((2, 1)), np.zeros(2)), "cannot be joined"),
    ],
)
def test_what_cannot_be_joined(validation: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        join_data(arrays(0, 3), validation)


def test_a_trial_of_an_order_that_is_not_drawn_any_more_does_not_go_on(tmp_path: Path) -> None:
    class Streamed(Small):
        def data(self, hp: Any) -> Any:
            return tuple(
                from_dataset(tf.data.Dataset.from_tensor_slices(part)) for part in super().data(hp)
            )

    def trial(**more: Any) -> Small:
        trainable = Streamed()
        trainable.begin(replace(assignment(training={"all_data": True}), **more))
        return trainable

    trainable = trial()
    go_on(trainable, pause_after=1)
    trainable.save(tmp_path)()
    assert trial().restore(tmp_path) == 1
    about = json.loads((tmp_path / "state.json").read_text())
    assert about.pop("order") == "joined"
    (tmp_path / "state.json").write_text(json.dumps(about))
    with pytest.raises(
        CheckpointError, match="an order that is not drawn any more; it begins anew"
    ):
        trial().restore(tmp_path)
    assert trial(trains=False).restore(tmp_path) == 1  # to be looked at


def test_a_trial_on_all_data_has_no_validation() -> None:
    trainable = Small()
    both = train(trainable, assignment(epochs=1))
    alone = train(trainable, assignment(epochs=1, training={"all_data": True}))
    assert set(both[-1].metrics) == {"loss", "accuracy", "val_loss", "val_accuracy"}
    assert set(alone[-1].metrics) == {"loss", "accuracy"}
    assert session_of(trainable).trial.walk.data.size == 90
    assert train(trainable, assignment(epochs=1))[-1].metrics == both[-1].metrics
    with pytest.raises(Refused, match="lr_schedule plateau waits for the validation"):
        trainable.begin(assignment(training={"all_data": True}, lr_schedule="plateau"))


def test_buckets_are_joined_and_batches_are_not() -> None:
    part = (np.zeros((2, 3)), np.zeros(2))
    assert len(join_data(Buckets((part,)), Buckets((part, part))).parts) == 3
    batches = type("Batches", (), {})
    with pytest.raises(DataError, match="a Batches"):
        join_data(batches(), batches())


ROWS = np.zeros((6, 1), np.float32)
LABELS = np.array([0, 3, 3, 7, -1, 900], np.int32)
WEIGHTS = {0: 2.0, 3: 0.5, 7: 3.0}
EXPECTED = [2.0, 0.5, 0.5, 3.0, 1.0, 1.0]


@pytest.mark.parametrize("shape", [(6,), (6, 1)])
@pytest.mark.parametrize("dtype", [np.int32, np.float32])
@pytest.mark.parametrize("streamed", [False, True])
def test_a_label_without_weight_counts_one(
    shape: tuple[int, ...], dtype: Any, *, streamed: bool
) -> None:
    labels = LABELS.reshape(shape).astype(dtype)
    if streamed:
        stream = from_dataset(tf.data.Dataset.from_tensor_slices((ROWS, labels)))
        found = np.array(
            [
                w
                for *_, w in trial_parts.add_class_weights(stream, WEIGHTS)
                .read(None, 0)
                .as_numpy_iterator()
            ]
        )
    else:
        found = trial_parts.add_class_weights((ROWS, labels), WEIGHTS)[2]
    np.testing.assert_array_equal(found, np.reshape(EXPECTED, shape))


@pytest.mark.parametrize("shape", [(6,), (6, 1)])
@pytest.mark.parametrize("shape_of_weights", [(6,), (6, 1)])
@pytest.mark.parametrize("streamed", [False, True])
def test_they_multiply_the_weights_of_the_examples(
    shape: tuple[int, ...], shape_of_weights: tuple[int, ...], *, streamed: bool
) -> None:
    given = np.arange(6, dtype=np.float32)
    parts: Any = (ROWS, LABELS.reshape(shape), given.reshape(shape_of_weights))
    if streamed:
        stream = from_dataset(tf.data.Dataset.from_tensor_slices(parts))
        found = np.array(
            [
                w
                for *_, w in trial_parts.add_class_weights(stream, WEIGHTS)
                .read(None, 0)
                .as_numpy_iterator()
            ]
        )
    else:
        found = trial_parts.add_class_weights(parts, WEIGHTS)[2]
    np.testing.assert_array_equal(found.reshape(-1), given * EXPECTED)


class Binary(Small):
    """Labels of shape (N, 1) for one output, as `binary_crossentropy` takes them."""

    def __init__(self, dtype: Any) -> None:
        super().__init__()
        self.dtype = dtype

    def data(self, hp: Any) -> tuple[Any, Any]:
        (x, y), (v, w) = super().data(hp)
        return (x, (y[:, None] == 0).astype(self.dtype)), (v, (w[:, None] == 0).astype(self.dtype))

    def model(self, hp: Any) -> keras.Model:
        return keras.Sequential(
            [keras.Input((6,)), keras.layers.Dense(1, "sigmoid", kernel_initializer="zeros")]
        )

    def loss(self, hp: Any, model: keras.Model) -> Any:
        return "binary_crossentropy"

    def class_weights(self, hp: Any, labels: Any) -> Any:
        return {0: 0.5, 1: 3.0}


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
@pytest.mark.parametrize("how", ["whole", "micro-batches", "replicas", "fit"])
def test_labels_in_a_column_are_weighed_as_fit_does(dtype: Any, how: str) -> None:
    given = {
        "micro-batches": {"micro_batches": 2},
        "fit": {"training": {"loop": "fit"}},
        "replicas": {"gpus": 2},
    }
    ours = train(
        Binary(dtype),
        assignment(
            epochs=3, batch_size=70, optimizer="sgd", learning_rate=0.5, **given.get(how, {})
        ),
    )
    theirs = Binary(dtype)
    (x, y), held_out = theirs.data(None)
    model = theirs.model(None)
    model.compile(keras.optimizers.SGD(0.5), "binary_crossentropy")
    seen = model.fit(
        x, y, 70, 3, verbose=0, class_weight={0: 0.5, 1: 3.0}, validation_data=held_out
    ).history
    for name in ("loss", "val_loss"):
        np.testing.assert_allclose([epoch[name] for epoch in metrics(ours)], seen[name], rtol=1e-5)


def test_other_targets_have_no_classes() -> None:
    several = np.array([[1, 1, 0], [0, 1, 0]], np.float32)
    for targets in (
        np.zeros((6, 2), np.float32),
        np.full((6, 1), 0.5),
        np.full(6, 0.5, np.float32),
        several,
    ):
        arrays = np.zeros(len(targets)), targets
        for data in (arrays, tf.data.Dataset.from_tensor_slices(arrays), Buckets((arrays,))):
            with pytest.raises(
                DataError,
                match="class_weights are given, but the targets are no array of labels, who",
            ):
                trial_parts.add_class_weights(data, WEIGHTS)


@pytest.mark.parametrize(
    ("first", "later"),
    [
        (np.eye(3, dtype=np.float32)[0], [1, 1, 0]),
        (np.eye(3, dtype=np.int32)[0], [0, 0, 0]),
        (np.float32(2), 0.5),
    ],
)
def test_a_stream_whose_later_targets_are_of_another_kind_is_refused_as_it_is_read(
    first: Any, later: Any
) -> None:
    y = np.stack([first] * trial_parts.FIRST + [np.asarray(later, first.dtype)])
    stream = trial_parts.add_class_weights(
        tf.data.Dataset.from_tensor_slices((np.zeros(len(y)), y)), WEIGHTS
    )
    with pytest.raises(DataError, match=r"the first targets are [a-z -]+, and others are not"):
        list(make_examples(stream, ONE, "training data").chunks(16, None, 1))


def test_a_stream_without_examples_is_said_to_be_empty() -> None:
    empty = from_dataset(tf.data.Dataset.from_tensor_slices((ROWS[:0], LABELS[:0])))
    with pytest.raises(DataError, match="an empty dataset"):
        make_examples(trial_parts.add_class_weights(empty, WEIGHTS), ONE, "training data")


def test_buckets_have_targets_of_one_kind() -> None:
    """One of tags at two places, whose rows look like one-hot targets by themselves."""
    tags = np.array([[0, 1], [1, 0]]), np.array([[1, 1, 0], [0, 1, 0]])
    found = trial_parts.add_class_weights(
        Buckets(tuple((np.zeros((2, 1)), y) for y in tags)), {0: 2.0, 1: 3.0}
    )
    for part, y in zip(found.parts, tags, strict=True):
        np.testing.assert_array_equal(part[2], np.where(y == 0, 2.0, 3.0))


def test_classes_of_sequences_in_buckets_are_balanced() -> None:
    labels = np.array([0, 2, 2, 1, 0, 2])
    expected = labels.tolist()
    for y in (labels, labels[:, None], np.eye(3, dtype=np.float32)[labels]):
        data = Buckets(((np.zeros((4, 8)), y[:4]), (np.zeros((2, 16)), y[4:])))
        assert np.reshape(trial_parts.get_labels(data), -1).tolist() == expected
    tags = np.array([[0, 1], [1, 0]]), np.array([[1, 0, 0], [0, 1, 0]])  # of each element
    assert trial_parts.get_labels(Buckets(tuple((np.zeros((2, 1)), y) for y in tags))) is None
    assert trial_parts.get_labels(Buckets(((np.zeros((2, 3)), tags[1]),))) is None


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8])
@pytest.mark.parametrize("streamed", [False, True])
def test_targets_that_are_one_hot_are_weighed_as_labels(dtype: Any, *, streamed: bool) -> None:
    labels = np.array([0, 2, 2, 1, 0, 2])
    y = np.eye(3)[labels].astype(dtype)
    weights = trial_parts.compute_class_weights(
        Hyperparameters({"class_weights": "balanced"}), trial_parts.get_labels((ROWS, y))
    )
    assert weights == trial_parts.compute_class_weights(
        Hyperparameters({"class_weights": "balanced"}), labels
    )
    if streamed:
        stream = from_dataset(tf.data.Dataset.from_tensor_slices((ROWS, y)))
        found = [
            w
            for *_, w in trial_parts.add_class_weights(stream, weights)
            .read(None, 0)
            .as_numpy_iterator()
        ]
    else:
        found = trial_parts.add_class_weights((ROWS, y), weights)[2]
    expected = trial_parts.add_class_weights((ROWS, labels), weights)[2]
    np.testing.assert_array_equal(found, expected)
    assert found[0] == 1.0


@pytest.mark.parametrize(("kind", "error"), [("equal", ValueError), ("balanced", DataError)])
def test_what_cannot_be_balanced(kind: str, error: Any) -> None:
    with pytest.raises(error, match="class_weights is"):
        trial_parts.compute_class_weights(Hyperparameters({"class_weights": kind}), None)
