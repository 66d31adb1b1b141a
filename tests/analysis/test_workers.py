"""Lanes of trials that followed each other, out of what the log knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.analysis import workers
from sweep.events import Event, Facts, SessionEnded, SessionStarted, Status, TrialEnded, TrialStarted
from sweep.store import reading
from sweep.store.folder import ResultsFolder
from sweep.store.log import Log


def ran(number: int, begin: float, end: float | None, node: str | None = "n", devices: str = "cpu:0") -> list[Event]:
    events: list[Event] = [TrialStarted(trial=number, trial_id=f"t{number}", params={}, seed=0, repeat=0, time=begin)]
    if end is not None:
        facts = Facts(started=begin, node=node, devices=devices)
        events.append(TrialEnded(trial=number, status=Status.COMPLETED, reason="", time=end, facts=facts))
    return events


def timeline(tmp_path: Path, events: list[Event]) -> workers.Timeline:
    folder = ResultsFolder.create(tmp_path, "s", "", {"objectives": [{"name": "acc", "goal": "maximize"}]})
    with Log(folder.log) as log:
        log.append(sorted(events, key=lambda event: event.time))
    return workers.of_tables(folder.log, reading.read(folder))


def test_trials_side_by_side_have_lanes_of_their_own(tmp_path: Path) -> None:
    start = SessionStarted(time=0.0, resumed=False, version="1")
    events = [*ran(0, 0.0, 4.0), *ran(1, 1.0, 3.0), *ran(2, 2.99, 8.0), *ran(3, 5.0, 7.0)]
    found = timeline(tmp_path, [start, *events, SessionEnded(time=10.0, reason="finished")])
    assert found.lanes == ("n · 1", "n · 2")
    assert [(span.row, span.lane) for span in found.spans] == [(0, 0), (1, 1), (2, 1), (3, 0)]
    assert found.busy_s == pytest.approx(4 + 2 + 5.01 + 2)
    assert found.idle_s == pytest.approx(2 * 10 - found.busy_s)


def test_lanes_are_of_nodes_and_gpus_and_of_what_nobody_knows(tmp_path: Path) -> None:
    start = SessionStarted(time=0.0, resumed=False, version="1")
    gpus = [*ran(0, 0.0, 4.0, "a", "gpu:0"), *ran(1, 5.0, 6.0, "a", "gpu:1")]
    found = timeline(tmp_path, [start, *gpus, *ran(2, 1.0, 2.0, None), *ran(3, 3.0, None)])
    assert found.lanes == ("a gpu:0", "a gpu:1", "not known")
    assert found.spans[-1].end == 6.0  # it runs: to the last event


def test_a_pause_is_nobodys_work(tmp_path: Path) -> None:
    first, second = (SessionStarted(time=at, resumed=at > 0, version="1") for at in (0.0, 100.0))
    events = [first, *ran(0, 1.0, 104.0), *ran(1, 2.0, 6.0), *ran(2, 101.0, 106.0), second]
    found = timeline(tmp_path, events)
    assert found.pauses == ((6.0, 100.0),)
    assert [(span.row, span.begin, span.end) for span in found.spans if span.row == 0] == [
        (0, 1.0, 6.0),
        (0, 100.0, 104.0),
    ]
    assert found.idle_s == pytest.approx(2 * 12 - found.busy_s)


def test_a_sweep_that_has_not_begun(tmp_path: Path) -> None:
    assert timeline(tmp_path, []) == workers.Timeline((), (), (), 0.0, 0.0)
