"""Damaged logs: what can be read is kept, what cannot is told, and the sweep goes on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sweep.errors import StoreError
from sweep.events import (
    EpochReported,
    Event,
    SessionEnded,
    SessionStarted,
    Status,
    TrialEnded,
    TrialStarted,
    encode,
)
from sweep.store import log as store_log
from sweep.store import reading
from sweep.store.folder import ResultsFolder
from sweep.store.log import Log
from sweep.store.repair import repair_log


def started(trial: int) -> TrialStarted:
    return TrialStarted(
        trial=trial, trial_id=f"t{trial}", params={"x": trial}, seed=0, repeat=0, time=1.0
    )


def reported(trial: int, epoch: int) -> EpochReported:
    return EpochReported(trial=trial, epoch=epoch, metrics={"loss": 0.5}, time=2.0, time_s=0.1)


def ended(trial: int, status: Status = Status.COMPLETED, *, again: bool = False) -> TrialEnded:
    return TrialEnded(trial=trial, status=status, reason="", time=3.0, again=again)


WHOLE: list[Event] = [
    SessionStarted(time=0.0, resumed=False, version="1"),
    *(started(0), reported(0, 1), reported(0, 2), ended(0)),
    *(
        started(1),
        reported(1, 1),
        ended(1, Status.INTERRUPTED),
        reported(1, 2),
        ended(1, Status.FAILED),
    ),
    *(ended(1, Status.INTERRUPTED, again=True), reported(1, 3), ended(1)),
    SessionEnded(time=9.0, reason="finished"),
]


@pytest.fixture
def folder(tmp_path: Path) -> ResultsFolder:
    info = {"objectives": [{"name": "loss", "goal": "minimize"}]}
    return ResultsFolder.create(tmp_path, "damaged", "", info)


def lines(events: list[Event]) -> list[bytes]:
    return [encode(event) for event in events]


def test_a_whole_log_is_left_alone(folder: ResultsFolder) -> None:
    folder.log.write_bytes(b"".join(lines(WHOLE)))
    before = folder.log.stat()
    done = repair_log(folder)
    assert (done.kept, done.losses, done.original) == (len(WHOLE), (), None)
    assert folder.log.stat() == before


def test_a_hole_is_told_with_its_line_and_what_is_left_is_kept(folder: ResultsFolder) -> None:
    content = b"".join(lines(WHOLE))
    begin, end = content.index(b'"epoch":2') - 30, content.index(b'"trial":1,"epoch":1') + 5
    hole = content[:begin] + bytes(end - begin) + content[end:]
    folder.log.write_bytes(hole)
    way_out = rf"log.jsonl:4: damaged record.*; keep what can be read with: python -m sweep repair {folder.path}"
    with pytest.raises(StoreError, match=way_out):
        list(store_log.read(folder.log))
    done = repair_log(folder)
    assert done.original is not None
    assert done.original.read_bytes() == hole
    kept = list(store_log.read(folder.log))
    # what is told of trial 1 cannot follow: its beginning is lost
    assert kept == [
        *WHOLE[:3],
        WHOLE[-1],
    ]
    assert len(kept) == done.kept
    assert [re.sub(r"\d+ bytes", "some bytes", loss) for loss in done.losses[:2]] == [
        "line 4: some bytes are no record"
    ] * 2
    assert done.losses[2:] == tuple(f"line {n}: trial 1 was never started" for n in range(5, 11))
    read = reading.read_tables(folder)
    assert (read.trials.num_rows, read.metrics.num_rows) == (1, 1)
    assert repair_log(folder).losses == ()


def test_records_that_zeros_have_joined_are_parted(folder: ResultsFolder) -> None:
    content = b"".join(
        [*lines(WHOLE[:3])[:2], bytes(100), *lines(WHOLE)[2:4], bytes(50), b"\n", *lines(WHOLE)[4:]]
    )
    folder.log.write_bytes(content)
    done = repair_log(folder)
    assert list(store_log.read(folder.log)) == WHOLE
    assert done.losses == (
        "line 3: 100 bytes are NUL, perhaps in place of records",
        "line 5: 50 bytes are no record",
    )


def test_zeros_in_place_of_a_record_that_nothing_misses_are_removed(folder: ResultsFolder) -> None:
    records = lines(WHOLE)
    interrupted = WHOLE.index(ended(1, Status.INTERRUPTED))
    size = len(records[interrupted])  # with its line feed
    records[interrupted] = bytes(size)
    folder.log.write_bytes(b"".join(records))
    done = repair_log(folder)
    assert done.losses == (
        f"line {interrupted + 1}: {size} bytes are NUL, perhaps in place of records",
    )
    assert list(store_log.read(folder.log)) == [
        event for index, event in enumerate(WHOLE) if index != interrupted
    ]


def test_lost_epochs_and_trials_are_told(folder: ResultsFolder) -> None:
    left = [
        WHOLE[0],
        started(0),
        reported(0, 1),
        reported(0, 4),
        ended(0),
        ended(0),
        started(3),
        started(3),
    ]
    folder.log.write_bytes(b"".join(lines(left)) + b'{"event":"epoch')
    assert repair_log(folder).losses == (
        "line 4: before it, epochs 2 to 3 of trial 0 are missing",
        "line 6: trial 0 has ended before",
        "line 8: trial 3 was started before",
        "line 9: 15 bytes are the beginning of a record",
        "trial 1 is missing, `resume` trains it",
        "trial 2 is missing, `resume` trains it",
    )
    assert list(store_log.read(folder.log)) == [*left[:5], left[6]]


def test_a_log_of_another_version_is_refused_and_left_alone(folder: ResultsFolder) -> None:
    content = b"".join(lines(WHOLE[:2])) + b"\n" + b'{"event":"trial_paused","trial":0}\n'
    folder.log.write_bytes(content)
    with pytest.raises(StoreError, match=r"log.jsonl:4: unknown event 'trial_paused'"):
        repair_log(folder)
    assert folder.log.read_bytes() == content
    assert not list(folder.path.glob("*.damaged-*"))


def test_a_log_in_use_is_not_repaired(folder: ResultsFolder) -> None:
    with Log(folder.log), folder.lock(), pytest.raises(Exception, match="is being run by"):
        repair_log(folder)
