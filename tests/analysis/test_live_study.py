"""A sweep looked at again and again shows what its log has come to, and reads only what is new."""

from __future__ import annotations

import math

import pytest
from optuna.trial import FrozenTrial, TrialState

from sweep.analysis import studies
from sweep.analysis.live_study import FollowedSweep
from sweep.errors import InputError
from sweep.events import EpochReported, Event, SessionStarted, Status, TrialEnded, TrialStarted
from sweep.store.folder import ResultsFolder
from sweep.store.log import Log

BEGAN = 1_700_000_000.0


def append(folder: ResultsFolder, *events: Event) -> None:
    with Log(folder.log) as log:
        log.append(events)


def started(number: int, **params: float) -> TrialStarted:
    return TrialStarted(trial=number, trial_id=f"t{number}", params=params, seed=number, repeat=0, time=BEGAN)


def epoch(trial: int, number: int, value: float) -> EpochReported:
    return EpochReported(trial=trial, epoch=number, metrics={"acc": value}, time=BEGAN + number, time_s=1.0)


def ended(trial: int, status: Status, *, again: bool = False) -> TrialEnded:
    return TrialEnded(trial=trial, status=status, reason="why", time=BEGAN + 9, again=again)


def told(trials: list[FrozenTrial]) -> list[tuple[object, ...]]:
    return [
        (one.state, one.value, one.params, one.distributions, one.intermediate_values, one.user_attrs)
        for one in sorted(trials, key=lambda one: one.user_attrs["trial"])
    ]


def look(folder: ResultsFolder) -> FollowedSweep:
    return FollowedSweep(folder, pytest.fail)


def test_each_look_shows_what_a_fresh_reading_would(sweep_of) -> None:
    folder = sweep_of([], ended=None)
    sweep = look(folder)
    assert sweep.trials() == []
    for events in (
        [SessionStarted(time=BEGAN, resumed=False, version="1"), started(1, x=0.1, y=1.0), epoch(1, 1, 0.5)],
        [started(0, x=0.9, y=1.0)],  # they need not begin in their order
        [epoch(1, 2, 0.6), epoch(0, 1, math.nan)],
        [ended(1, Status.INTERRUPTED), ended(0, Status.DIVERGED)],
        [SessionStarted(time=BEGAN + 9, resumed=True, version="1"), epoch(1, 3, 0.8)],
        [ended(1, Status.COMPLETED)],
        [started(2, x=-5.0, y=2.0), epoch(2, 1, 0.1), ended(2, Status.FAILED)],
        [ended(2, Status.INTERRUPTED, again=True)],
        [epoch(2, 2, 0.9), ended(2, Status.PRUNED)],
    ):
        append(folder, *events)
        found, fresh = sweep.trials(), studies.of(folder).trials
        assert repr(told(found)) == repr(told(fresh))  # NaN is not equal to itself
    assert [trial.number for trial in sweep.trials()] == [1, 0, 2]  # new ones last
    assert [trial.state for trial in sweep.trials()] == [TrialState.COMPLETE, TrialState.FAIL, TrialState.PRUNED]


def test_it_sees_whether_somebody_drives_the_sweep(sweep_of) -> None:
    folder = sweep_of([({"x": 0.1}, Status.RUNNING, [{"acc": 0.5}])], ended=None)
    sweep = look(folder)
    assert (sweep.trials()[0].state, sweep.notes["state"]) == (TrialState.WAITING, "not running")
    with folder.lock():
        assert (sweep.trials()[0].state, sweep.notes["state"]) == (TrialState.RUNNING, "running")
    assert sweep.trials()[0].state is TrialState.WAITING


def test_another_log_of_the_name_is_read_from_its_beginning(sweep_of) -> None:
    folder = sweep_of([({"x": 0.1}, Status.COMPLETED, [{"acc": 0.5}])], ended=None)
    sweep = look(folder)
    folder.log.unlink()
    assert len(sweep.trials()) == 1
    append(folder, started(0, x=0.7), *(epoch(0, number, 0.1) for number in range(1, 20)))
    assert sweep.trials()[0].params == {"x": 0.7} or sweep.trials()[0].params == {}


def test_a_log_that_becomes_damaged_is_told_once_and_shown_as_it_was(sweep_of) -> None:
    folder = sweep_of([({"x": 0.1}, Status.COMPLETED, [{"acc": 0.5}])], ended=None)
    said: list[str] = []
    sweep = FollowedSweep(folder, said.append)
    whole = folder.log.read_bytes()
    folder.log.write_bytes(whole + b"torn\nand more\n")
    assert [len(sweep.trials()) for _ in range(3)] == [1, 1, 1]
    (line,) = said
    assert "repair" in line
    folder.log.write_bytes(whole)
    append(folder, started(1, x=0.2))
    assert len(sweep.trials()) == 2


def test_without_an_objective_there_is_no_study(sweep_of) -> None:
    with pytest.raises(InputError, match="names no objective"):
        look(sweep_of([], objectives=()))
