"""What a person does with a sweep from another process, while it runs and when it does not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from curves import FILE, Watcher, resume, run
from waiting import until

import sweep
from sweep.errors import InputError, StoreError, UnknownNameError
from sweep.events import EpochReported, Event, NoteWritten, SteeringEvent, TrialStarred
from sweep.runner import steering_requests
from sweep.runner.steering import Note, Request, Star, make_request
from sweep.store import log as store_log
from sweep.store import object_store
from sweep.store.folder import ResultsFolder
from sweep.store.object_store import ObjectStore

RULE = "early_terminate: {type: median, min_iter: 1, min_trials: 99}\n"  # decides after each epoch, prunes nothing
LONG = FILE.replace("epochs: 4", "epochs: 100") + RULE


def steered(folder: ResultsFolder) -> list[SteeringEvent]:
    return [event for event in store_log.read(folder.log) if isinstance(event, SteeringEvent)]


class Steers(Watcher):
    """Once trial 1 has reported, calls a function in another thread, and trains on when it has returned."""

    def __init__(self, project: Path, act: Callable[[ResultsFolder], Any]) -> None:
        super().__init__()
        self.folder = ResultsFolder(project / "results" / "curves")
        self.found: list[Any] = []
        self.thread = threading.Thread(target=self.call, args=(act,), daemon=True)

    def call(self, act: Callable[[ResultsFolder], Any]) -> None:
        try:
            self.found.append(act(self.folder))
        except InputError as error:
            self.found.append(error)

    def on(self, event: Event) -> None:
        super().on(event)
        if isinstance(event, EpochReported) and event.trial == 1 and self.thread.ident is None:
            self.thread.start()
            until(lambda: self.folder.requests.is_dir() and any(self.folder.requests.iterdir()))


def test_the_process_that_runs_a_sweep_carries_out_what_others_ask(project: Path) -> None:
    watcher = Steers(project, lambda folder: steering_requests.steer(folder, Note("slow", 1)))
    outcome = run(project, LONG, watcher)
    watcher.thread.join(60)
    (event,) = steered(outcome.folder)
    assert watcher.found == [event]
    assert isinstance(event, NoteWritten)
    assert (event.trial, event.text) == (1, "slow")
    assert event.driven_s is not None  # the process that ran it has written it
    assert event in watcher.seen
    assert not [*outcome.folder.requests.iterdir()]


def test_whoever_asks_hears_why_it_is_refused(project: Path) -> None:
    watcher = Steers(project, lambda folder: steering_requests.steer(folder, Star(7)))
    outcome = run(project, LONG, watcher)
    watcher.thread.join(60)
    (error,) = watcher.found
    assert isinstance(error, UnknownNameError)
    assert str(error).startswith("curves: has no trial 7; it has trials 0 to ")
    assert steered(outcome.folder) == []
    assert not [*outcome.folder.requests.iterdir()]


def test_where_no_process_runs_the_sweep_the_command_writes_the_event(project: Path) -> None:
    folder = run(project).folder
    steering_requests.steer(folder, Note("all of it"))
    steering_requests.steer(folder, Note("the first", 0))
    steering_requests.steer(folder, Note("the best", 0))
    steering_requests.steer(folder, Star(2))
    steering_requests.steer(folder, Star(0))
    steering_requests.steer(folder, Star(2, starred=False))
    loaded = sweep.load(folder.path)
    assert loaded.trials["note"].fillna("").tolist() == ["the best", "", ""]
    assert loaded.trials["starred"].fillna(False).tolist() == [True, False, False]
    assert loaded.sweeps[0].history.note == "all of it"
    with pytest.raises(UnknownNameError, match="curves: has no trial 3; it has trials 0 to 2"):
        steering_requests.steer(folder, Star(3))
    assert len(steered(folder)) == 6


def test_what_a_person_does_takes_no_time_of_the_sweep(project: Path) -> None:
    folder = run(project, FILE + "run_cap: 1\n").folder
    before = sweep.load(folder.path).sweeps[0].history
    steering_requests.steer(folder, Note("later"))
    after = sweep.load(folder.path).sweeps[0].history
    assert (after.active_s, after.last, after.ended) == (before.active_s, before.last, before.ended)
    assert resume(project, "run_cap=3").completed == 3


def test_a_request_that_was_logged_before_the_kill_is_not_carried_out_again(project: Path) -> None:
    folder = run(project, FILE + "run_cap: 1\n").folder
    request = make_request(Note("once"))
    event = NoteWritten(text="once", request=request.id, by=request.by, time=1.0)
    with folder.lock(), store_log.Log(folder.log) as log:
        log.append([event])
    steering_requests.leave_request(folder, request)
    other = make_request(Note("left behind"))
    steering_requests.leave_request(folder, other)
    resume(project, "run_cap=3")
    assert [one.text for one in steered(folder) if isinstance(one, NoteWritten)] == [
        "once",
        "left behind",
    ]
    assert not [*folder.requests.iterdir()]


def test_a_request_stays_as_long_as_it_cannot_be_logged(project: Path) -> None:
    folder = run(project).folder
    request = make_request(Note("kept"))
    steering_requests.leave_request(folder, request)
    steering_requests.carry_out_requests(folder, lambda request: False)
    taken: list[Request] = []

    def take(request: Request) -> bool:
        taken.append(request)
        return True

    steering_requests.carry_out_requests(folder, take)
    steering_requests.carry_out_requests(folder, take)
    assert taken == [request]


def test_whoever_waits_carries_it_out_if_the_process_has_died(project: Path) -> None:
    folder = run(project).folder
    found: list[SteeringEvent] = []
    with folder.lock():
        asking = threading.Thread(
            target=lambda: found.append(steering_requests.steer(folder, Star(1))), daemon=True
        )
        asking.start()
        until(lambda: folder.requests.is_dir() and any(folder.requests.iterdir()))
    asking.join(60)
    (event,) = steered(folder)
    assert found == [event]
    assert isinstance(event, TrialStarred)
    assert not [*folder.requests.iterdir()]


def test_files_that_are_no_requests_are_removed(project: Path) -> None:
    folder = run(project, FILE + "run_cap: 1\n").folder
    folder.requests.mkdir()
    (folder.requests / "steer-broken.json").write_text("{")
    (folder.requests / "answer-old.json").write_text("{}")
    assert resume(project, "run_cap=3").completed == 3
    assert not [*folder.requests.iterdir()]


def test_a_driver_waits_for_a_command_that_writes_one_event(project: Path) -> None:
    folder = run(project, FILE + "run_cap: 1\n").folder
    begun = threading.Event()
    go_on = threading.Event()

    def hold() -> None:
        with folder.lock(brief=True):
            begun.set()
            go_on.wait(60)

    holder = threading.Thread(target=hold, daemon=True)
    holder.start()
    begun.wait(60)
    threading.Timer(0.5, go_on.set).start()
    assert resume(project, "run_cap=3").completed == 3
    holder.join(60)


def test_a_damaged_log_is_named(project: Path) -> None:
    folder = run(project).folder
    folder.log.write_bytes(b"nonsense\n" + folder.log.read_bytes())
    with pytest.raises(StoreError, match=r"log.jsonl:1: damaged record"):
        steering_requests.steer(folder, Star(1))


def _stand_for(results: Path) -> Path:
    results.mkdir(parents=True)
    object_store.mark_as_copy(results, ObjectStore("memory:///steered"))
    return results


@pytest.mark.slow
def test_a_sweep_in_an_object_store_is_steered_from_another_machine(
    project: Path, tmp_path: Path
) -> None:
    """Two folders stand for the same place in a store, as on two machines."""
    _stand_for(project / "results")
    there = _stand_for(tmp_path / "there")
    found: list[object] = []

    def ask(_: ResultsFolder) -> None:
        folder = ResultsFolder.open(there, "curves")
        found.append(steering_requests.steer(folder, Note("from afar", 1)))
        try:
            steering_requests.steer(folder, Star(9))
        except UnknownNameError as error:
            found.append(error)

    class Waits(Steers):
        """Goes on until both acts have been answered."""

        def on(self, event: Event) -> None:
            super().on(event)
            if self.thread.ident is not None and len(found) < 2:
                time.sleep(0.05)

    watcher = Waits(project, ask)
    outcome = run(project, LONG.replace("epochs: 100", "epochs: 400"), watcher)
    watcher.thread.join(60)
    (event,) = steered(outcome.folder)
    assert found[0] == event
    assert str(found[1]).startswith("curves: has no trial 9")
    afar = ResultsFolder.open(there, "curves")
    assert steered(afar) == [event]
    steering_requests.steer(afar, Note("afterwards"))
    assert [one.text for one in steered(ResultsFolder.open(project / "results", "curves"))] == [  # type: ignore[union-attr]  # notes
        "from afar",
        "afterwards",
    ]
