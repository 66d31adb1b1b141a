"""What `wait` keeps of a sweep between two looks at its log."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sweep.analysis import conditions
from sweep.analysis.conditions import parse_condition
from sweep.events import Event, Facts, Status, TrialEnded, TrialStarted
from sweep.runner.resuming import StoredSweep
from sweep.runner.waiting import wait_until
from sweep.store.folder import ResultsFolder
from sweep.store.log import Log


def one_ended_trial(seed: int) -> list[Event]:
    return [
        TrialStarted(trial=0, trial_id="0", params={}, seed=seed, repeat=0, time=1.0),
        TrialEnded(trial=0, status=Status.FAILED, reason="", time=2.0, facts=Facts()),
    ]


def write(folder: ResultsFolder, events: list[Event]) -> None:
    folder.log.unlink(missing_ok=True)
    with Log(folder.log, fsync=False) as log:
        log.append(events)


def test_a_verdict_is_judged_again_if_the_log_was_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = ResultsFolder.create(tmp_path, "judged", "", {"objectives": []})
    write(folder, one_ended_trial(seed=1))
    judged = [False, True]
    monkeypatch.setattr(conditions, "is_met", lambda *_: judged.pop(0))
    # between the two looks: as many trials have ended as before, but they are others
    monkeypatch.setattr(time, "sleep", lambda _: write(folder, one_ended_trial(seed=2)))
    verdict = parse_condition("verdict", "--until")
    found = wait_until(StoredSweep(folder, None), verdict, timeout_s=None, interval_s=1.0)
    assert found.reached
