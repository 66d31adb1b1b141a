"""The columns of what a person does: notes, stars, and configurations that were added."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest
from msgspec.structs import replace
from tales import STORY, ended, reported, started, written

from sweep.errors import StoreError
from sweep.events import (
    STEERED_COLUMNS,
    ConfigurationsEnqueued,
    Event,
    NoteWritten,
    SessionStarted,
    SweepChanged,
    TrialStarred,
)
from sweep.store import reading
from sweep.store.ledger import Ledger
from sweep.store.log import Log
from sweep.store.tables import build_tables

PARAMS = {"learning_rate": 0.1, "layers": [1]}
ACTS: list[Event] = [
    NoteWritten(trial=0, text="the first", request="a", time=200.0),
    TrialStarred(trial=0, request="b", time=201.0),
    NoteWritten(text="all", request="c", time=202.0),
    ConfigurationsEnqueued(
        configurations=(PARAMS, {"learning_rate": 0.2}), request="d", by="ada", time=203.0
    ),
    SweepChanged(settings={"run_cap": 9, "stop_when": None}, request="e", time=204.0),
]


def test_a_sweep_that_nobody_has_steered_has_none_of_the_columns(tmp_path: Path) -> None:
    found = reading.read_tables(written(tmp_path, "plain", STORY))
    assert not {*STEERED_COLUMNS} & {*found.trials.column_names}


def test_notes_and_stars_are_columns_also_of_trials_that_ended_long_ago(tmp_path: Path) -> None:
    folder = written(tmp_path, "steered", STORY)
    with Log(folder.log) as log:
        log.append(ACTS)
    found = reading.read_tables(folder)
    assert found.trials["note"].to_pylist() == ["the first", None]
    assert found.trials["starred"].to_pylist() == [True, None]
    assert "enqueued_by" not in found.trials.column_names
    assert found.trials.column_names[-3:] == ["starred", "note", "error"]


def test_tables_that_catch_up_are_those_of_the_whole_log(tmp_path: Path) -> None:
    folder = written(tmp_path, "steered", [*STORY, *ACTS])
    more: list[Event] = [
        SessionStarted(time=300.0, resumed=True, version="1"),
        replace(started(2, PARAMS, time=301.0), enqueued_by="ada", space_version=1),
        NoteWritten(trial=2, text="mine", request="f", time=302.0),
        reported(2, 1, val_accuracy=0.5),
        SweepChanged(
            settings={"parameters": {"a": {"max": 1.0}}},
            dropped=({"learning_rate": 0.2},),
            request="g",
            time=303.0,
        ),
        ended(2, time=304.0),
    ]
    with Log(folder.log) as log:
        log.append(more)
    caught_up, whole = reading.read_tables(folder), build_tables(folder)
    assert repr(caught_up.trials.to_pylist()) == repr(whole.trials.to_pylist())  # with NaN
    assert asdict(caught_up.history).keys() == asdict(whole.history).keys()
    assert caught_up.history.log_bytes == whole.history.log_bytes
    assert caught_up.trials["enqueued_by"].to_pylist() == [None, None, "ada"]
    assert caught_up.trials["space_version"].to_pylist() == [None, None, 1]
    assert caught_up.history.note == "all"
    assert caught_up.history.queue == []
    assert caught_up.history.changes == [
        {"run_cap": 9, "stop_when": None},
        {"parameters": {"a": {"max": 1.0}}},
    ]


def test_the_time_of_a_sweep_does_not_go_on_when_it_is_steered(tmp_path: Path) -> None:
    plain, steered = (
        build_tables(written(tmp_path, "one", STORY)),
        build_tables(written(tmp_path, "other", [*STORY, *ACTS])),
    )
    assert (plain.history.last, plain.history.active_s) == (
        steered.history.last,
        steered.history.active_s,
    )


@pytest.mark.parametrize("act", ACTS, ids=lambda act: type(act).__name__)
def test_no_request_is_carried_out_twice(act: Event) -> None:
    ledger = Ledger()
    for event in (*STORY, act):
        ledger.observe(event)
    with pytest.raises(StoreError, match=r"request \w was carried out before"):
        ledger.observe(act)


def test_a_note_on_a_trial_that_never_started_is_impossible() -> None:
    with pytest.raises(StoreError, match="trial 7 was never started"):
        Ledger().observe(NoteWritten(trial=7, text="", request="a", time=1.0))
