import os
import resource
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.errors import StoreError
from sweep.events import (
    EpochReported,
    SessionEnded,
    SessionStarted,
    Status,
    SweepChanged,
    TrialEnded,
    TrialStarted,
    encode,
)
from sweep.store.log import Log, is_steered, is_steered_after_end, read, read_changes, read_from


def started(trial: int) -> TrialStarted:
    return TrialStarted(
        trial=trial, trial_id=f"t{trial}", params={"x": trial}, seed=0, repeat=0, time=1.0
    )


def reported(trial: int, epoch: int) -> EpochReported:
    return EpochReported(trial=trial, epoch=epoch, metrics={"loss": 0.5}, time=2.0, time_s=0.1)


@contextmanager
def full_disk(size_bytes: int):
    """No file can grow beyond this size: a real short write, then a real error."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


def test_what_was_appended_is_read_in_order(tmp_path):
    path = tmp_path / "log.jsonl"
    events = [
        SessionStarted(time=0.0, resumed=False, version="1"),
        started(0),
        reported(0, 1),
        reported(0, 2),
    ]
    with Log(path) as log:
        log.append(events[:1])
        assert list(read(path)) == events[:1]  # no buffer in between
        log.append(events[1:])
        log.append([])
    with Log(path) as log:
        log.append([reported(0, 3)])
    assert list(read(path)) == [*events, reported(0, 3)]


def test_changes_are_found_where_records_begin(tmp_path):
    """A parameter's value may be a mapping that looks like the beginning of a record."""
    path = tmp_path / "log.jsonl"
    looks_alike = TrialStarted(
        trial=0, trial_id="t0", params={"x": {"event": "sweep_changed"}}, seed=0, repeat=0, time=1.0
    )
    change = SweepChanged(settings={}, request="a", by="ann", time=3.0)
    assert b'{"event":"sweep_changed"' in encode(looks_alike)
    with Log(path) as log:
        log.append([looks_alike, SessionEnded(reason="finished", time=2.0)])
        assert not is_steered(path)
        assert not is_steered_after_end(path)
        assert list(read_changes(path)) == []
        log.append([change, looks_alike])
    assert is_steered(path)
    assert list(read_changes(path)) == [change]


def test_with_fsync_the_log_is_the_same(tmp_path):
    ended = TrialEnded(trial=0, status=Status.COMPLETED, reason="", time=3.0)
    with Log(tmp_path / "log.jsonl", fsync=True) as log:
        log.append([started(0), ended])
    assert list(read(tmp_path / "log.jsonl")) == [started(0), ended]


@given(cut=st.integers(0), padding=st.sampled_from([b"", b"\0" * 9, b'{"eve\n', b"\0\0\n"]))
def test_a_torn_record_is_ignored_by_readers_and_removed_by_the_next_writer(
    tmp_path_factory, cut, padding
):
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    events = [started(0), reported(0, 1), reported(0, 2)]
    whole = b"".join(map(encode, events))
    left = whole[: cut % (len(whole) + 1)]
    before = left + padding if left[-1:] in (b"", b"\n") else left
    kept = events[: left.count(b"\n")]
    path.write_bytes(before)
    assert list(read(path)) == kept
    assert path.read_bytes() == before  # reading repairs nothing
    with Log(path) as log:
        log.append([started(7)])
    assert path.read_bytes() == b"".join(map(encode, [*kept, started(7)]))


def test_damage_in_the_middle_is_told_with_its_line(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(encode(started(0)) + b'{"event":"epo\n' + encode(started(1)))
    events = read(path)
    assert next(events) == started(0)
    with pytest.raises(StoreError, match=r"log.jsonl:2: damaged record"):
        next(events)
    _, offset = read_from(path, 0, max_bytes=1)
    with pytest.raises(StoreError, match=r"log.jsonl:2: damaged record"):
        read_from(path, offset)


def test_a_foreign_last_record_is_an_error_and_not_torn(tmp_path):
    path = tmp_path / "log.jsonl"
    content = encode(started(0)) + b'{"event":"trial_paused","trial":0}\n'
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"log.jsonl:2: unknown event 'trial_paused'"):
        list(read(path))
    with pytest.raises(StoreError, match="unknown event"):
        Log(path)
    assert path.read_bytes() == content


def test_following_a_log_gives_every_event_once(tmp_path):
    path = tmp_path / "log.jsonl"
    events = [started(trial) for trial in range(20)]
    seen, offset = [], 0
    with Log(path) as log:
        for start in range(0, 20, 5):
            log.append(events[start : start + 5])
            with path.open("ab") as torn:
                torn.write(b'{"event"')
            while new := read_from(path, offset, max_bytes=150):
                if not new[0]:
                    break
                seen, offset = seen + new[0], new[1]
            os.truncate(path, offset)
    assert seen == events
    assert offset == path.stat().st_size
    os.truncate(path, 10)
    with pytest.raises(StoreError, match="shorter than"):
        read_from(path, offset)


def test_a_full_disk_keeps_all_or_none_of_a_batch_and_can_be_emptied(tmp_path):
    path = tmp_path / "log.jsonl"
    first, second = [started(0)], [reported(0, epoch) for epoch in range(1, 9)]
    with Log(path) as log:
        log.append(first)
        with full_disk(path.stat().st_size + len(encode(second[0])) + 20):
            with pytest.raises(
                StoreError, match=r"log.jsonl: File too large \(the disk mounted at /.* MB free"
            ):
                log.append(second)
            assert list(read(path)) == first
        assert path.read_bytes() == encode(first[0])
        log.append(second)
    assert list(read(path)) == first + second


def test_a_log_that_cannot_be_opened_names_its_path(tmp_path):
    with pytest.raises(StoreError, match=r"nowhere/log.jsonl: No such file"):
        Log(tmp_path / "nowhere" / "log.jsonl")
    with pytest.raises(StoreError, match=r"log.jsonl: No such file"):
        list(read(tmp_path / "log.jsonl"))


WRITER = """
import sys
from pathlib import Path
from sweep.events import EpochReported
from sweep.store.log import Log
log = Log(Path(sys.argv[1]))
for epoch in range(1, 10**9):
    log.append([EpochReported(trial=0, epoch=epoch, metrics={"loss": 0.5}, time=0.0, time_s=0.0)])
    sys.stdout.write(f"{epoch}\\n")
    sys.stdout.flush()
"""


def test_what_was_acknowledged_survives_kill_9(tmp_path):
    path = tmp_path / "log.jsonl"
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        for _ in range(200):
            writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
        acknowledged = 200 + len(writer.stdout.read().split("\n")) - 1
    with Log(path) as log:
        log.append([SessionEnded(time=0.0, reason="resumed")])
    epochs = [event.epoch for event in read(path) if isinstance(event, EpochReported)]
    assert epochs == list(range(1, len(epochs) + 1))
    assert len(epochs) in (acknowledged, acknowledged + 1)  # the last one may be written, not told
