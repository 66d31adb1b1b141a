from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from small import assignment, go_on, metrics, train
from zoo_sources import Batches, InBatches

from sweep.hyperparameters import Hyperparameters
from trainables.data import batches, chunks
from trainables.data.batches import BatchSplit
from trainables.data.chunks import DataError, make_examples
from trainables.data.share import Share
from trainables.data.sources import Visits, permutation
from trainables.devices.replicas import Replicas
from trainables.loop import building
from trainables.numbers.live import Live

ONE = Replicas(tf.distribute.OneDeviceStrategy("/cpu:0"))
X, Y = np.arange(20.0, dtype=np.float32).reshape(10, 2), np.arange(10)


class Still(Batches):
    def on_epoch_end(self) -> None:
        pass


class Plain(keras.utils.PyDataset):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        return X[index * 4 : index * 4 + 4], Y[index * 4 : index * 4 + 4]


class Drawn(Plain):
    def __getitem__(self, index: int) -> Any:
        return np.random.normal(size=(4, 2)), np.zeros(4)


class Processes(Batches):
    """Tells by its targets which process has made a batch."""

    def __getitem__(self, index: int) -> Any:
        x, y = super().__getitem__(index)
        return x, np.full_like(y, os.getpid())


class Alone(Plain):
    def __getitem__(self, index: int) -> Any:
        return "x"


class Endless(Plain):
    @property
    def num_batches(self) -> None:
        return None


@pytest.mark.keras
@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_puts_its_slices_of_each_batch_on_its_devices(rank: int) -> None:
    data, share = BatchSplit(Plain(), ONE), Share(replicas=2, local=1, rank=rank)
    whole, mine = (list(data.chunks(4, 3, 1, share=part)) for part in (None, share))
    assert [len(chunk.order) for chunk in mine] == [len(chunk.order) for chunk in whole]
    for ours, all_rows in zip(mine, whole, strict=True):
        size = len(ours.order)
        assert len(ours.tensors[1]) == size // 2
        needed = slice(0, size // 2) if rank == 0 else slice(size // 2, size)
        for part, full in zip(ours.tensors, all_rows.tensors, strict=True):
            np.testing.assert_array_equal(part.numpy()[ours.order[needed]], full.numpy()[needed])


def seen(data: BatchSplit, seed: int | None, epoch: int) -> list[list[int]]:
    return [chunk.tensors[1].numpy().tolist() for chunk in data.chunks(4, seed, epoch)]


def test_batches_stay_whole_and_their_order_is_drawn_from_seed_and_epoch() -> None:
    data = BatchSplit(Plain(), ONE)
    assert (data.size, data.updates(4), data.updates(2)) == (10, 3, 5)
    straight = [Y[:4].tolist(), Y[4:8].tolist(), Y[8:].tolist()]
    assert seen(data, None, 0) == straight
    assert seen(data, 3, 2) == [straight[i] for i in permutation(3, 3, 2)]
    data.visit(Visits(shuffle=False))
    assert seen(data, 3, 2) == straight


def test_an_epoch_is_the_same_whichever_came_before() -> None:
    data, other = (BatchSplit(Batches(X, Y, 4), ONE) for _ in range(2))
    for epoch in (1, 2, 3):
        expected = seen(data, 5, epoch)
    assert seen(other, 5, 3) == expected
    assert seen(other, 6, 3) != expected
    assert seen(other, 5, 3) == expected
    assert seen(data, None, 0) == seen(BatchSplit(Batches(X, Y, 4), ONE), None, 0)


class Begins(Still):
    """Cuts its batches anew as an epoch begins, and notes all calls."""

    calls: tuple[str, ...] = ()

    def on_epoch_begin(self) -> None:
        np.random.shuffle(self.rows)
        self.calls = (*self.calls, "begin")

    def on_epoch_end(self) -> None:
        self.calls = (*self.calls, "end")


def test_an_epoch_of_a_dataset_begins_as_in_fit() -> None:
    given = Begins(X, Y, 4)
    data, other = BatchSplit(given, ONE), BatchSplit(Begins(X, Y, 4), ONE)
    straight = seen(BatchSplit(Still(X, Y, 4), ONE), None, 0)
    found = [seen(data, 5, epoch) for epoch in (1, 2, 3)]
    for cut in found:
        assert sorted(row for batch in cut for row in batch) == Y.tolist()
        assert sorted(cut) != sorted(straight)
    assert len({str(sorted(cut)) for cut in found}) == 3
    assert seen(other, 5, 3) == found[2]
    assert seen(other, 5, 2) == found[1]
    assert seen(data, None, 0) == straight  # validation
    turning = batches.RepeatableDataset(given)
    assert turning.advance_to(5, 3).calls == ("begin", "end", "begin", "end", "begin")
    assert given.calls == ()


@pytest.mark.parametrize("workers", [3, 1])
def test_threads_read_what_the_trial_would(workers: int) -> None:
    assert seen(BatchSplit(Plain(workers=workers), ONE), 3, 1) == seen(
        BatchSplit(Plain(), ONE), 3, 1
    )


@pytest.mark.slow
def test_processes_read_what_the_trial_would() -> None:
    data = BatchSplit(Batches(X, Y, 4, workers=1, use_multiprocessing=True), ONE)
    expected = BatchSplit(Batches(X, Y, 4), ONE)
    for epoch in (1, 2):
        assert seen(data, 3, epoch) == seen(expected, 3, epoch)


def test_processes_live_for_all_passes() -> None:
    dataset = Processes(X, Y, 4, workers=1, use_multiprocessing=True)
    reader = batches.BatchReader(dataset)
    found = {int(y[0]) for epoch in (1, 2, 3) for _, y in reader.batches(range(3), 3, epoch)}
    assert len(found) == 1
    assert os.getpid() not in found


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (Drawn(), "another one when it is asked again"),
        (Alone(), r"a PyDataset of str, expected batches \(x,\), \(x, y\)"),
        (Endless(), "endless"),
        (Still(X[:0], Y[:0], 4), "no batches"),
    ],
)
def test_what_cannot_be_trained_on_is_refused(dataset: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        make_examples(dataset, ONE, "training data")


def test_other_content_has_another_fingerprint() -> None:
    one, same, other = (
        chunks.compute_fingerprint(BatchSplit(Still(x, Y, 4), ONE)) for x in (X, X.copy(), X + 1)
    )
    assert one == same != other


@pytest.mark.parametrize("batch_size", [3, 8])
def test_another_batch_size_is_refused(batch_size: int) -> None:
    with pytest.raises(DataError, match=f"batches of 4, the batch size is {batch_size}"):
        BatchSplit(Plain(), ONE).check_batch_size(batch_size)


def test_torch_and_generators_are_refused_with_the_way_out() -> None:
    loader = type("DataLoader", (), {"__module__": "torch.utils.data.dataloader"})()
    with pytest.raises(DataError, match=r"a torch DataLoader, .*PyDataset"):
        make_examples(loader, ONE, "training data")
    with pytest.raises(DataError, match=r"read once .*from_generator"):
        make_examples((i for i in range(3)), ONE, "training data")


@pytest.mark.keras
def test_a_resumed_trial_is_a_straight_one(tmp_path: Path) -> None:
    straight = metrics(train(InBatches(), assignment(epochs=3)))
    first, second = InBatches(), InBatches()
    first.begin(assignment(epochs=3))
    go_on(first, pause_after=1)
    first.save(tmp_path)()
    second.begin(assignment(epochs=3))
    assert second.restore(tmp_path) == 1
    assert metrics(go_on(second)) == straight[1:]


@pytest.mark.keras
def test_training_is_what_keras_does_with_the_same_batches() -> None:
    class Whole(InBatches):
        def data(self, hp: Any) -> Any:
            (train_data, held_out) = super().data(hp)
            return Still(train_data.x, train_data.y, 16), held_out

    ours = Whole()
    found = metrics(train(ours, assignment(epochs=1)))
    author, hp = Whole(), Hyperparameters({"batch_size": 16})
    author.live = Live(hp)
    data, _ = author.data(hp)
    model = building.build_model(author, hp, 0)
    model.compile(
        author.optimizer(hp), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    losses = []
    for number in permutation(5, 0, 1):
        x, y = data[int(number)]
        model.reset_metrics()
        losses.append(len(y) * float(model.train_on_batch(x, y)))
    assert found[0]["loss"] == pytest.approx(sum(losses) / 70, abs=1e-6)
