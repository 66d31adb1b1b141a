"""Tables that lag behind their log come out as if all of the log had been read, whatever comes later."""

from __future__ import annotations

import json
import random
import tempfile
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sweep.errors import StoreError
from sweep.events import (
    EpochReported,
    Event,
    Facts,
    SessionEnded,
    SessionStarted,
    Status,
    TrialEnded,
    TrialStarted,
)
from sweep.store import reading
from sweep.store.folder import ResultsFolder
from sweep.store.log import Log
from sweep.store.reading import TableWriter, count_bytes_behind, update_tables
from sweep.store.tables import METADATA, History, Tables, build_tables, write

INFO = {"objectives": [{"name": "acc", "goal": "maximize"}], "resources": {"co2_g_per_kwh": 400.0}}
USUAL = (
    lambda rng: {"rate": rng.random(), "units": rng.choice([8, 16]), "kind": rng.choice("ab")},
)
ODD = (
    lambda rng: {"x": rng.choice([1, 2.5, "a", None, True, [1], 2**60])},
    lambda rng: {"x": 1, "late": rng.choice([1, 0.5])},
)


def story(seed: int, length: int, kinds: tuple) -> list[Event]:
    """Sessions with pauses, trials in parallel, interruptions, trials that answer, and columns that come late."""
    rng, now, count = random.Random(seed), 1000.0, 0
    rare = random.Random(seed + 1)  # for columns that only some sweeps have
    is_timed = rng.random() < 0.7  # by a driver's own clock; else as earlier versions were
    events: list[Event] = [SessionStarted(time=now, resumed=False, version="1")]
    open_: dict[int, int] = {}
    for _ in range(length):
        now += rng.random()
        match rng.choice(["start", "report", "report", "report", "end", "interrupt", "session"]):
            case "start":
                params = rng.choice(kinds)(rng)
                trial_id = f"t{count}"
                event = TrialStarted(
                    trial=count, trial_id=trial_id, params=params, seed=1, repeat=0, time=now
                )
                is_copy = count > 0 and rare.random() < 0.1
                events.append(replace(event, parent=0, parent_epoch=1) if is_copy else event)
                open_[count] = 0
                count += 1
            case "report" if open_:
                trial = rng.choice(list(open_))
                open_[trial] += 1
                more = {"late": rng.random()} if rng.random() < 0.2 else {}
                metrics = {
                    "acc": rng.choice([rng.random(), float("nan")]),
                    **{f"{n}_loss": v for n, v in more.items()},
                }
                more |= {name: 1.0 for name in ("cost", "energy_j") if rare.random() < 0.1}
                memo = "other/1" if rng.random() < 0.2 else None
                events.append(
                    EpochReported(
                        trial=trial,
                        epoch=open_[trial],
                        metrics=metrics,
                        time=now,
                        time_s=0.5,
                        measures=more,
                        memo=memo,
                    )
                )
            case "end" | "interrupt" as how if open_:
                trial = rng.choice(list(open_))
                status = (
                    Status.INTERRUPTED
                    if how == "interrupt"
                    else rng.choice([Status.COMPLETED, Status.FAILED])
                )
                if how == "end":
                    del open_[trial]
                facts = Facts(
                    started=now - 1, node="here", train_s=0.7, overhead_s={rng.choice("ab"): 0.1}
                )
                if rare.random() < 0.1:
                    facts = replace(facts, data_reads="{}")
                events.append(
                    TrialEnded(trial=trial, status=status, reason=how, time=now, facts=facts)
                )
            case "session":
                events.append(SessionEnded(time=now, reason="interrupted"))
                now += 100 * rng.random()
                events.append(SessionStarted(time=now, resumed=True, version="1"))
            case _:
                pass
    return timed(events) if is_timed else events


def timed(events: list[Event]) -> list[Event]:
    """The same, with the driver's own clock."""
    found, began = list[Event](), 0.0
    for event in events:
        began = event.time if isinstance(event, SessionStarted) else began
        found.append(
            event
            if isinstance(event, SessionStarted)
            else replace(event, driven_s=event.time - began)
        )
    return found


def make(folder: Path, events: list[Event], cut: int) -> ResultsFolder:
    """A sweep of which the tables were written after ``cut`` events."""
    sweep = ResultsFolder.create(folder / "results", "first", "", INFO)
    with Log(sweep.log) as log:
        log.append(events[:cut])
        write(sweep, build_tables(sweep))
        log.append(events[cut:])
    return sweep


def told(tables: Tables) -> list[str]:
    """Everything that tables say, with their types; NaN is equal to itself."""
    history = (
        tables.history.started,
        tables.history.last,
        tables.history.active_s,
        tables.history.ended,
    )
    schemas = [
        str(table.schema.to_string(show_field_metadata=True))
        for table in (tables.trials, tables.metrics)
    ]
    rows = [json.dumps(table.to_pylist(), default=str) for table in (tables.trials, tables.metrics)]
    return [*schemas, *rows, str(history), str(tables.history.log_bytes)]


def whole(sweep: ResultsFolder) -> Tables:
    return build_tables(sweep)


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10**6), length=st.integers(1, 60), cut=st.floats(0, 1), odd=st.booleans()
)
def test_any_cut_comes_out_as_the_whole(seed: int, length: int, cut: float, odd: bool) -> None:
    events = story(seed, length, ODD if odd else USUAL)
    with tempfile.TemporaryDirectory() as folder:
        sweep = make(Path(folder), events, int(cut * len(events)))
        assert told(reading.read_tables(sweep)) == told(whole(sweep))
        some = reading.read_tables(sweep, ("epoch",)).metrics
        assert some.to_pylist() == whole(sweep).metrics.select(["epoch"]).to_pylist()
        assert reading.read_tables(sweep, ()).trials.num_rows == whole(sweep).trials.num_rows


@settings(deadline=None, max_examples=60)
@example(seed=1, cuts=[12], odd=True)  # a parameter that comes after `null_params`
@given(seed=st.integers(0, 10**6), cuts=st.lists(st.integers(0, 60), max_size=4), odd=st.booleans())
def test_files_of_several_sessions_come_out_as_the_whole(
    seed: int, cuts: list[int], odd: bool
) -> None:
    events = story(seed, 60, ODD if odd else USUAL)
    with tempfile.TemporaryDirectory() as folder:
        sweep = make(Path(folder), [], 0)
        places = [0, *sorted(cuts), len(events)]
        for start, end in pairwise(places):
            with Log(sweep.log) as log:
                log.append(events[start:end])
            TableWriter(sweep).close()
            assert told(_stored(sweep)) == told(whole(sweep))


@pytest.mark.parametrize("stale", [True, False])
def test_a_session_that_goes_on_reads_only_what_may_change(
    tmp_path: Path, stale: bool, monkeypatch
) -> None:
    sweep = make(tmp_path, story(7, 400, USUAL), 300)
    if stale:
        monkeypatch.setattr(reading, "VERSION", "next")  # which may make columns otherwise
    expected, start = (
        told(whole(sweep)),
        min(place for _, place in _stored(sweep).history.unfinished or ()),
    )
    log = sweep.log.read_bytes()
    first = log.index(b"\n") + 1
    sweep.log.write_bytes(log[:first] + b"#" * (start - first) + log[start:])
    if stale:
        with pytest.raises(StoreError, match="damaged record"):
            TableWriter(sweep).close()
    else:
        TableWriter(sweep).close()
        assert told(_stored(sweep)) == expected


def test_damaged_files_take_the_whole_log(tmp_path: Path) -> None:
    sweep = make(tmp_path, story(7, 200, USUAL), 200)
    expected, content = told(whole(sweep)), bytearray(sweep.trials.read_bytes())
    content[4:400] = bytes(396)
    sweep.trials.write_bytes(content)
    TableWriter(sweep).close()
    assert told(_stored(sweep)) == expected


def test_the_beginning_of_a_log_is_not_read_again(tmp_path: Path) -> None:
    events = story(7, 400, USUAL)
    sweep = make(tmp_path, events, 300)
    stored = _stored(sweep)
    start = min(place for _, place in stored.history.unfinished or ())
    assert start > 0
    log = sweep.log.read_bytes()
    first = log.index(b"\n") + 1  # what is read is found by its places: the rest may be anything
    expected = told(whole(sweep))
    sweep.log.write_bytes(log[:first] + b"#" * (start - first) + log[start:])
    found = update_tables(sweep, stored)
    assert found is not None
    assert told(found) == expected


FAILED_AND_TRIED_AGAIN = [
    TrialStarted(trial=0, trial_id="t0", params={}, seed=0, repeat=0, time=1.0),
    TrialEnded(trial=0, status=Status.FAILED, reason="", time=2.0),
    TrialEnded(trial=0, status=Status.INTERRUPTED, reason="tried again", time=3.0, again=True),
    EpochReported(trial=0, epoch=1, metrics={"acc": 1.0}, time=4.0, time_s=1.0),
    TrialEnded(trial=0, status=Status.COMPLETED, reason="", time=5.0),
]


def test_a_trial_that_had_ended_and_goes_on_takes_the_whole_log(tmp_path: Path) -> None:
    sweep = make(tmp_path, FAILED_AND_TRIED_AGAIN, 2)
    assert update_tables(sweep, _stored(sweep)) is None
    assert told(reading.read_tables(sweep)) == told(whole(sweep))


@pytest.mark.parametrize("cut", [3, 4])
def test_a_trial_that_is_tried_again_is_unfinished(tmp_path: Path, cut: int) -> None:
    sweep = make(tmp_path, FAILED_AND_TRIED_AGAIN, cut)
    found = update_tables(sweep, _stored(sweep))
    assert found is not None
    assert told(found) == told(whole(sweep))


@pytest.mark.parametrize(
    ("change", "behind"),
    [
        (lambda log: log, True),
        (lambda log: log.replace(b'"t0"', b'"t9"'), False),
        (lambda log: log[: len(log) // 4], False),
    ],
)
def test_tables_go_on_only_in_the_log_that_they_were_made_of(
    tmp_path: Path, change, behind: bool
) -> None:
    sweep = make(tmp_path, story(1, 40, USUAL), 20)
    history = _stored(sweep).history
    sweep.log.write_bytes(change(sweep.log.read_bytes()))
    assert bool(count_bytes_behind(history, sweep.log)) is behind


def _stored(sweep: ResultsFolder) -> Tables:
    """What is in the files."""
    trials, metrics = pq.read_table(sweep.trials), pq.read_table(sweep.metrics)
    history = trials.schema.metadata[METADATA]
    assert metrics.schema.metadata[METADATA] == history
    return Tables(
        trials.replace_schema_metadata(),
        metrics.replace_schema_metadata(),
        History(**json.loads(history)),
    )
