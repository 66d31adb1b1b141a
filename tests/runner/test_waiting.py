"""What `wait` keeps of a sweep between two looks at its log."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.analysis import conditions
from sweep.analysis.conditions import parse_condition
from sweep.events import Event, Facts, Status, TrialEnded, TrialStarted
from sweep.runner import waiting
from sweep.runner.resuming import StoredSweep
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


def test_a_verdict_is_judged_again_after_further_trials_or_another_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = ResultsFolder.create(tmp_path, "judged", "", {"objectives": []})
    verdict = parse_condition("verdict", "--until")
    answers = iter([False, True])
    monkeypatch.setattr(conditions, "is_met", lambda *_: next(answers))
    watch = waiting._Watch(StoredSweep(folder, None))
    write(folder, one_ended_trial(seed=1))
    watch.read_on()
    assert not watch.holds(verdict)
    watch.read_on()
    assert not watch.holds(verdict)  # nothing has ended since, so it is not judged again
    write(folder, one_ended_trial(seed=2))  # as many trials, but others
    watch.read_on()
    assert watch.holds(verdict)
