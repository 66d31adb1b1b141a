"""A trial that goes on with another share of a GPU: saved where it is, and begun elsewhere from there."""

from __future__ import annotations

import json
import pickle
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from sweep import backends
from sweep.backends import (
    Continues,
    Crowded,
    Ends,
    Job,
    Moves,
    Order,
    Outgrown,
    Progress,
    SameData,
    is_released,
)
from sweep.backends.worker import Worker
from sweep.contract import Assignment, Devices
from sweep.events import EpochReported, Status, TrialEnded
from sweep.space.objectives import Objective


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setattr("sweep.backends.gpu_shares.MOVE_S", 0.1)
    shutil.copy(Path(__file__).with_name("packed.py"), tmp_path)
    return Job(
        "s", "packed:Packed", (tmp_path,), tmp_path, Objective("loss", "minimize"), session="abc"
    )


def order(share: float, gb: float = 1.0, *, shares: bool = True) -> Order:
    given = Assignment(
        trial=3,
        params={"gb": gb, "a": 1, "batch_size": 2},
        seed=0,
        epochs=6,
        devices=Devices(gpus=share),
    )
    return Order(given, decision_epochs=(2, 4), shares=shares)


def step(job: Job, given: Order) -> tuple[Worker, Progress]:
    worker = Worker(job)
    worker.take(given)
    return worker, worker.step()


def test_it_goes_on_where_it_was(job: Job) -> None:
    worker, before = step(job, order(1.0))
    assert (type(before), [epoch.epoch for epoch in before.epochs]) == (Continues, [1, 2])
    backends.write_shares(job, {3: 0.5, 4: 0.25})
    moved = worker.step()
    assert (type(moved), [epoch.epoch for epoch in moved.epochs]) == (Moves, [3])
    _, after = step(job, order(0.5))
    assert [epoch.epoch for epoch in after.epochs] == [3], (
        "what the checkpoint tells is told once more, for the driver"
    )
    assert not isinstance(after, Moves)


def test_a_trial_that_is_as_it_should_be_stays(job: Job) -> None:
    backends.write_shares(job, {3: 0.5, 4: 0.25})
    assert not isinstance(step(job, order(0.5))[1], Moves)
    assert not isinstance(step(job, order(1.0, shares=False))[1], Moves)


def test_what_another_process_writes_at_the_same_time_stays_its_own(job: Job) -> None:
    backends.write_shares(job, {3: 0.5})
    others = job.share_file.with_suffix(".new")
    others.write_text("hal")
    backends.write_shares(job, {3: 0.25})
    assert (others.read_text(), json.loads(job.share_file.read_text())) == ("hal", {"3": 0.25})


def test_one_that_soon_ends_is_not_moved(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweep.backends.gpu_shares.MOVE_S", 10.0)
    backends.write_shares(job, {3: 0.5})
    assert not isinstance(step(job, order(1.0))[1], Moves)


def test_what_nobody_could_write_is_no_word(job: Job) -> None:
    job.share_file.write_text("{")
    assert not isinstance(step(job, order(1.0))[1], Moves)


def test_out_of_memory_beside_others_is_no_end(job: Job) -> None:
    _, crowded = step(job, order(0.25, gb=4.0))
    assert (type(crowded), crowded.spoilt) == (Crowded, "its trial needs more of a GPU")
    _, alone = step(job, order(1.0, gb=40.0))
    assert isinstance(alone, Ends)
    assert alone.end.status == "oom"
    _, fixed = step(job, order(0.25, gb=4.0, shares=False))
    assert isinstance(fixed, Ends)


def test_what_a_worker_says_is_the_same_when_it_arrives() -> None:
    """Ray pickles it, and backends replace fields of it."""
    end = TrialEnded(trial=3, status=Status.INTERRUPTED, reason="full", time=1.0)
    epoch = EpochReported(
        trial=3, epoch=1, metrics={"loss": 1.0}, time=1.0, time_s=0.1, measures={"together": 4.0}
    )
    said: list[Progress] = [
        Continues(epochs=(epoch,), worker="w"),
        SameData(epochs=(epoch,)),
        Moves(epochs=(epoch,), spoilt="its node is taken away"),
        Outgrown(spoilt="does not fit", accumulate=2),
        Crowded(spoilt="needs more of a GPU"),
        Ends(epochs=(epoch,), notices=("a",), end=end, fault="full"),
    ]
    for one in said:
        arrived = pickle.loads(pickle.dumps(one))
        assert arrived == one
        assert replace(arrived, worker="x", notices=("b",)) == replace(
            one, worker="x", notices=("b",)
        )
    assert [one.together for one in said] == [4.0, 4.0, 4.0, 1.0, 1.0, 4.0]
    assert [is_released(one) for one in said] == [False, False, True, True, True, True]
