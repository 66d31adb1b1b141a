"""Where trials of a worker are, and what they write to: as the first one found it."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path

import pytest
from counting import Counting

from sweep.backends import Ends, Job, Order, WorkerNode
from sweep.backends.worker import Worker
from sweep.contract import Assignment
from sweep.events import Status
from sweep.space.objectives import Objective


@pytest.fixture
def job(tmp_path: Path) -> Job:
    folder = Path(__file__).parent
    objective = Objective("score", "minimize")
    return Job("s", "counting:Counting", (folder,), tmp_path, objective, checkpoint_every_s=1e-9)


def order(
    events: str = "", epochs: int = 6, decisions: tuple[int, ...] = (), trial: int = 3
) -> Order:
    return Order(
        Assignment(trial=trial, params={"events": events}, seed=0, epochs=epochs), decisions
    )


@pytest.mark.parametrize("ends", ["completed", "failed", "let go"])
def test_each_trial_finds_the_folder_and_the_output_of_the_first(job: Job, ends: str) -> None:
    folder, output = Path.cwd(), os.dup(1)
    worker = Worker(job)
    try:
        worker.take(
            order("1 leaves, 2 closes" + (", 3 fails" if ends == "failed" else ""), decisions=(2,))
        )
        worker.step()
        if ends == "let go":
            worker.release()
        else:
            last = worker.step()
            assert isinstance(last, Ends)
            assert last.end.status == ends
        assert Path.cwd() == folder
        assert os.path.sameopenfile(1, output)
    finally:
        os.chdir(folder)
        os.dup2(output, 1)
        os.close(output)


@pytest.mark.parametrize("node", [None, WorkerNode()], ids=["with its driver", "alone"])
@pytest.mark.parametrize("does", ["wraps", "shuts"])
def test_what_a_trial_does_to_python_s_output_is_not_seen_by_others(
    job: Job, does: str, node: WorkerNode | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, first = Path.cwd(), os.fdopen(os.dup(1), "w")
    monkeypatch.setattr(sys, "stdout", first)
    worker = Worker(job, node=node)
    try:
        worker.take(order(f"1 {does}", epochs=3, decisions=(1, 2)))
        worker.step()
        sys.stdout.flush()
        worker.step()
        assert (Counting.outputs[-1] is sys.stdout) == (does == "shuts")
        worker.step()
        worker.take(order(epochs=1, trial=4))
        worker.step()
        assert Counting.outputs[-1] is sys.stdout
        assert (sys.stdout is first) == (does == "wraps")
        sys.stdout.flush()
    finally:
        os.chdir(here)
        first.close()


@pytest.mark.parametrize("where", ["before it begins", "on the way", "with its caller in it"])
def test_a_trial_whose_folder_is_deleted_fails_and_its_reason_names_it(
    job: Job, tmp_path: Path, where: str
) -> None:
    here, working = Path.cwd(), tmp_path / "working"
    working.mkdir()
    worker = Worker(dataclasses.replace(job, working_folder=working))
    try:
        worker.take(order(epochs=4, decisions=(1, 2, 3)))
        if where != "before it begins":
            assert not isinstance(worker.step(), Ends)
        if where == "with its caller in it":
            os.chdir(working)
        working.rmdir()
        last = worker.step()
        assert isinstance(last, Ends)
        assert (last.end.status, last.end.reason) == (
            Status.FAILED,
            f"FileNotFoundError: {working}, in which trials begin, is no longer there",
        )
        working.mkdir()
        worker.take(order(epochs=1, trial=4))
        last = worker.step()
        assert isinstance(last, Ends)
        assert last.end.status is Status.COMPLETED
        worker.close()
    finally:
        os.chdir(here)


def test_a_trial_stays_in_its_folder_and_its_caller_in_another(job: Job, tmp_path: Path) -> None:
    here = Path.cwd()
    worker = Worker(dataclasses.replace(job, working_folder=tmp_path))
    worker.take(order("2 enters", epochs=4, decisions=(1, 2, 3)))
    places = []
    for _ in range(4):
        worker.step()
        assert Path.cwd() == here
        places.append(Counting.places[-1])
    assert places == [tmp_path, tmp_path, tmp_path / "entered", tmp_path / "entered"]
    worker.take(order(epochs=1, trial=4))
    worker.step()
    assert Counting.places[-1] == tmp_path


def test_a_worker_alone_in_its_process_stays_in_the_trial_s_folder_for_threads_that_read_ahead(
    job: Job, tmp_path: Path
) -> None:
    here = Path.cwd()
    worker = Worker(dataclasses.replace(job, working_folder=tmp_path), node=WorkerNode())
    try:
        worker.take(order("2 enters", epochs=4, decisions=(1, 2, 3)))
        for place in (tmp_path, tmp_path / "entered", tmp_path / "entered"):
            worker.step()
            assert Path.cwd() == place
        worker.take(order(epochs=2, decisions=(1,), trial=4))
        worker.step()
        assert Path.cwd() == tmp_path
    finally:
        os.chdir(here)


@pytest.mark.parametrize("ends", ["completed", "let go"])
def test_a_worker_alone_in_its_process_leaves_a_deleted_folder_when_the_trial_ends(
    job: Job, tmp_path: Path, ends: str
) -> None:
    # Tune asks for the current folder before it hands out the next trial.
    here = Path.cwd()
    worker = Worker(dataclasses.replace(job, working_folder=tmp_path), node=WorkerNode())
    try:
        worker.take(order("1 leaves", epochs=1 if ends == "completed" else 3, decisions=(1,)))
        assert isinstance(worker.step(), Ends) == (ends == "completed")
        worker.release()
        assert Path.cwd() == tmp_path
    finally:
        os.chdir(here)
