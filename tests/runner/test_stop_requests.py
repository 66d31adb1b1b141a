"""Sweeps that are stopped from elsewhere."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from curves import FILE, Watcher, ends, resume, run
from waiting import until

import sweep
from sweep.errors import InputError
from sweep.events import EpochReported, Event
from sweep.runner import stop_requests
from sweep.store.folder import ResultsFolder

RULE = "early_terminate: {type: median, min_iter: 1, min_trials: 99}\n"  # decides after each epoch, prunes nothing
LONG = FILE.replace("epochs: 4", "epochs: 400") + RULE


class Asks(Watcher):
    """Once trial 1 has reported, calls a function in another thread, and trains on when that has asked."""

    def __init__(self, project: Path, ask: Callable[[], str]) -> None:
        super().__init__()
        self.requests = ResultsFolder(project / "results" / "curves").requests
        self.answers: list[str] = []
        self.thread = threading.Thread(target=lambda: self.answers.append(ask()))

    def is_asked(self) -> bool:
        return self.requests.is_dir() and any(self.requests.iterdir())

    def on(self, event: Event) -> None:
        super().on(event)
        if isinstance(event, EpochReported) and event.trial == 1 and self.thread.ident is None:
            self.thread.start()
            until(self.is_asked)
        elif self.thread.ident is not None and self.is_asked():
            time.sleep(0.01)  # the sweep looks for requests now and then


def test_a_sweep_is_stopped_and_goes_on(project: Path) -> None:
    results = project / "results"
    watcher = Asks(project, lambda: stop_requests.stop_sweep(results, "curves", None, now=False))
    outcome = run(project, LONG, watcher)
    watcher.thread.join(300)
    assert (outcome.interrupted, outcome.stopped) == (True, "stopped on request")
    assert watcher.answers == [
        f"curves is stopped; go on with: python -m sweep resume {results / 'curves'}"
    ]
    assert ends(outcome.folder) == {0: "completed", 1: "interrupted"}
    again = resume(project)
    assert (again.completed, again.stopped) == (3, None)


class Interrupts(Watcher):
    """Sends Ctrl-C once trial 1 has reported."""

    def on(self, event: Event) -> None:
        super().on(event)
        if isinstance(event, EpochReported) and (event.trial, event.epoch) == (1, 1):
            os.kill(os.getpid(), signal.SIGINT)


def test_a_sweep_whose_folder_cannot_be_written_is_stopped_and_goes_on(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touch = Path.touch

    def refuse(path: Path, **how: Any) -> None:
        if path.name.startswith(".stop-"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        touch(path, **how)

    monkeypatch.setattr(Path, "touch", refuse)
    watcher = Interrupts()
    outcome = run(project, LONG, watcher)
    assert (outcome.interrupted, outcome.stopped) == (True, "interrupted")
    assert ends(outcome.folder) == {0: "completed", 1: "interrupted"}
    assert sweep.load(outcome.folder.path).trials["epochs"][1] < 400
    assert sorted(watcher.said) == [
        f"{outcome.folder.path} cannot be written (Permission denied): "
        "running trials stop without being saved, and go on later from their last checkpoints",
        "stopping after the running epochs; once more to stop at once",
    ]
    again = resume(project)
    assert (again.completed, again.stopped) == (3, None)
    assert sweep.load(outcome.folder.path).trials["epochs"].tolist() == [400] * 3


def test_one_trial_is_stopped_for_good(project: Path) -> None:
    watcher = Asks(
        project, lambda: stop_requests.stop_sweep(project / "results", "curves", 1, now=False)
    )
    outcome = run(project, LONG, watcher)
    watcher.thread.join(300)
    assert watcher.answers == ["trial 1 is pruned: stopped on request"]
    assert (outcome.completed, outcome.interrupted) == (2, False)
    assert ends(outcome.folder) == {0: "completed", 1: "pruned", 2: "completed"}
    trials = sweep.load(outcome.folder.path).trials
    assert trials["status_reason"].tolist() == ["", "stopped on request", ""]
    assert 0 < trials["epochs"][1] < 400


class Stray(Watcher):
    """Leaves files in the results folder that look like a driver's own."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def on(self, event: Event) -> None:
        super().on(event)
        for name in ("stop", ".stop-", ".stop-0123456789ab"):
            (self.folder / name).touch()


def test_a_stop_that_nobody_asked_for_does_no_harm(project: Path) -> None:
    outcome = run(project, watcher=Stray(project / "results" / "curves"))
    assert (outcome.completed, ends(outcome.folder)) == (3, dict.fromkeys(range(3), "completed"))


def test_there_must_be_something_to_stop(project: Path) -> None:
    outcome = run(project)
    with pytest.raises(
        InputError,
        match="curves: is not running, there is nothing to stop; see python -m sweep status",
    ):
        stop_requests.stop_sweep(project / "results", "curves", None, now=False)
    with outcome.folder.lock():
        for trial, words in (
            (9, "curves: has no trial 9; it has trials 0 to 2"),
            (1, "trial 1 has ended already"),
        ):
            with pytest.raises(InputError, match=words):
                stop_requests.stop_sweep(project / "results", "curves", trial, now=False)


def test_a_trial_whose_turn_comes_after_that_of_later_ones_may_be_stopped_before_it_starts(
    project: Path,
) -> None:
    folder = run(project).folder
    lines = [
        line
        for line in folder.log.read_text().splitlines(keepends=True)
        if "session_ended" not in line
    ]
    folder.log.write_text("".join(line for line in lines if '"trial":1' not in line))
    said: list[str] = []
    with folder.lock():
        stopping = threading.Thread(
            target=lambda: said.append(
                stop_requests.stop_sweep(project / "results", "curves", 1, now=False)
            ),
            daemon=True,
        )
        stopping.start()
        until(lambda: (folder.requests / "stop-trial-1").exists())
        with folder.log.open("a") as log:
            log.writelines(line for line in lines if '"trial":1' in line)
        stopping.join(60)
    assert said == ["trial 1 is completed"]


def test_what_was_asked_of_an_earlier_session_is_forgotten(project: Path) -> None:
    outcome = run(project, FILE + "run_cap: 1\n")
    folder = ResultsFolder(outcome.folder.path)
    folder.requests.mkdir()
    (folder.requests / "stop").touch()
    assert resume(project, "run_cap=3").completed == 3


def test_a_trial_that_pauses_meanwhile_is_still_to_be_stopped(project: Path) -> None:
    rule = "early_terminate: {type: asha_promotion, min_iter: 2, eta: 2}\n"
    folder = run(project, FILE.replace("[3, 1, 2]", "[3]") + rule).folder
    lines = [
        line
        for line in folder.log.read_text().splitlines(keepends=True)
        if "session_ended" not in line
    ]
    (paused,) = (at for at, line in enumerate(lines) if '"interrupted"' in line)
    folder.log.write_text("".join(lines[:paused]))
    said: list[str] = []
    with folder.lock():
        stopping = threading.Thread(
            target=lambda: said.append(
                stop_requests.stop_sweep(project / "results", "curves", 0, now=False)
            ),
            daemon=True,
        )
        stopping.start()
        until(lambda: (folder.requests / "stop-trial-0").exists())
        with folder.log.open("a") as log:
            log.write(lines[paused])
        stopping.join(1)
        assert said == []
        with folder.log.open("a") as log:
            log.writelines(lines[paused + 1 :])
        stopping.join(60)
    assert said == ["trial 0 is completed"]
