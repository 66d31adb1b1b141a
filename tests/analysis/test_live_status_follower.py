"""Following the log of a sweep: each event comes once, whatever becomes of the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.analysis.live_status import LogReader
from sweep.errors import StoreError
from sweep.events import EpochReported, SessionEnded, SessionStarted, encode
from sweep.store.folder import ResultsFolder
from sweep.store.log import Log

BEGIN = SessionStarted(time=1.0, resumed=False, version="1")
END = SessionEnded(time=2.0, reason="finished")


def epochs(count: int) -> list[EpochReported]:
    return [
        EpochReported(trial=0, epoch=n, metrics={"loss": n / 3}, time=1.0, time_s=0.1)
        for n in range(1, count + 1)
    ]


@pytest.fixture
def folder(tmp_path: Path) -> ResultsFolder:
    return ResultsFolder.create(tmp_path, "followed", "", {"objectives": []})


def test_each_event_comes_once_as_it_is_written(folder: ResultsFolder) -> None:
    follower = LogReader(folder)
    assert (follower.more(), follower.share) == ([], 1.0)
    with Log(folder.log) as log:
        log.append([BEGIN])
        assert follower.more() == [BEGIN]
        assert follower.more() == []
        log.append(epochs(3))
        assert follower.more() == epochs(3)
        log.append([END])
    assert follower.more() == [END]


def test_a_large_log_comes_in_parts(folder: ResultsFolder) -> None:
    with Log(folder.log, fsync=False) as log:
        log.append(epochs(20_000))
    follower = LogReader(folder)
    first = follower.more()
    assert first
    assert len(first) < 20_000
    assert 0 < follower.share < 1
    rest = []
    while events := follower.more():
        rest += events
    assert len(first) + len(rest) == 20_000
    assert follower.share == 1.0


def test_a_torn_record_waits_for_its_end(folder: ResultsFolder) -> None:
    with Log(folder.log) as log:
        log.append([BEGIN, END])
    whole = folder.log.read_bytes()
    folder.log.write_bytes(whole[:-5])
    follower = LogReader(folder)
    assert follower.more() == [BEGIN]
    folder.log.write_bytes(whole)
    assert follower.more() == [END]


def test_a_log_that_was_cut_is_read_anew(folder: ResultsFolder) -> None:
    with Log(folder.log) as log:
        log.append([BEGIN, *epochs(3)])
    follower = LogReader(folder)
    assert follower.more()
    folder.log.write_bytes(folder.log.read_bytes().splitlines(keepends=True)[0])
    assert follower.more() is None
    assert follower.more() == [BEGIN]


def test_a_longer_log_in_its_place_is_read_anew(folder: ResultsFolder) -> None:
    with Log(folder.log) as log:
        log.append([BEGIN])
    follower = LogReader(folder)
    assert follower.more() == [BEGIN]
    folder.log.unlink()
    later = SessionStarted(time=9.0, resumed=False, version="1")
    with Log(folder.log) as log:
        log.append([later, *epochs(3)])
    assert follower.more() is None
    assert follower.more() == [later, *epochs(3)]


def test_damage_after_what_was_read_is_said_to_be_so(folder: ResultsFolder) -> None:
    with Log(folder.log) as log:
        log.append([BEGIN])
    follower = LogReader(folder)
    assert follower.more() == [BEGIN]
    with folder.log.open("ab") as file:
        file.write(b"\0\0\n" + encode(epochs(1)[0]))
    for _ in range(2):
        with pytest.raises(StoreError, match=r"log.jsonl:2: damaged"):
            follower.more()


def test_a_damaged_log_is_said_to_be_so(folder: ResultsFolder) -> None:
    with Log(folder.log) as log:
        log.append([BEGIN, *epochs(3)])
    lines = folder.log.read_bytes().splitlines(keepends=True)
    folder.log.write_bytes(b"".join([lines[0], b"\0\0\n", *lines[2:]]))
    with pytest.raises(StoreError, match=r"log.jsonl:2: damaged"):
        LogReader(folder).more()
