"""A sweep in an object store: its copies, its one writer, and what becomes of both when something dies."""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from obstore.store import MemoryStore
from waiting import until

from sweep.errors import InputError, StoreAway, StoreError
from sweep.events import SessionStarted
from sweep.store import object_store, remote
from sweep.store.log import Log, read
from sweep.store.object_store import Lease, ObjectStore, find_valid_lease
from sweep.store.remote import Writer


@dataclasses.dataclass
class Flaky:
    """A store that can be away."""

    store: ObjectStore
    away: bool = False

    def __getattr__(self, name: str) -> object:
        if self.away and name != "url":
            raise StoreAway("memory://x: cannot be reached")
        return getattr(self.store, name)


@dataclasses.dataclass
class Deaf:
    """A store that does what is asked, and whose answers to writes are lost."""

    store: ObjectStore
    deaf: bool = False

    def swap(self, key: str, data: bytes, tag: str | None) -> str | None:
        found = self.store.swap(key, data, tag)
        if self.deaf:
            raise StoreAway("memory://x: cannot be reached")
        return found

    def __getattr__(self, name: str) -> object:
        return getattr(self.store, name)


def new_store() -> ObjectStore:
    return ObjectStore("memory://bucket/sweep", MemoryStore())


def made(folder: Path, store: ObjectStore) -> Path:
    """A new sweep in the store, and its copy."""
    folder.mkdir(parents=True)
    (folder / "sweep.json").write_text("{}")
    (folder / "spec.yaml").write_text("name: x")
    assert remote.claim(folder, store)
    return folder


def write(folder: Path, data: bytes) -> int:
    with (folder / "log.jsonl").open("ab") as file:
        file.write(data)
        return file.tell()


def log_of(folder: Path) -> bytes:
    path = folder / "log.jsonl"
    return path.read_bytes() if path.exists() else b""


def elsewhere(lease: Lease, **changes: object) -> Lease:
    """The lease of a process of another machine."""
    return dataclasses.replace(lease, host="other", space="other", token="other", **changes)


def test_a_name_is_taken_once(tmp_path: Path) -> None:
    store = new_store()
    made(tmp_path / "a", store)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "sweep.json").write_text('{"other": 1}')
    assert not remote.claim(tmp_path / "b", store)


def test_what_a_writer_sends_a_reader_has(tmp_path: Path) -> None:
    store = new_store()
    here, there = made(tmp_path / "here", store), tmp_path / "there"
    with Writer(here, store, sync_s=60).open() as writer:
        writer.appended(write(here, b"one\n"), wait=False)
        assert remote.pull(there, store)
        assert log_of(there) == b""  # not before its turn
        writer.appended(write(here, b"two\n"), wait=True)
        assert remote.pull(there, store)
        assert log_of(there) == b"one\ntwo\n"
        writer.appended(write(here, b"three\n"), wait=False)
        (here / "trials.parquet").write_bytes(b"table")
    assert remote.pull(there, store)
    assert log_of(there) == b"one\ntwo\nthree\n"
    assert (there / "trials.parquet").read_bytes() == b"table"
    assert not remote.pull(tmp_path / "none", store.below("none"))
    assert not (tmp_path / "none").exists()


def test_a_turn_sends_by_itself(tmp_path: Path) -> None:
    store = new_store()
    here, there = made(tmp_path / "here", store), tmp_path / "there"
    with Writer(here, store, sync_s=0.05).open() as writer:
        writer.appended(write(here, b"one\n"), wait=False)
        until = time.monotonic() + 10
        while log_of(there) != b"one\n" and time.monotonic() < until:
            remote.pull(there, store)
    assert log_of(there) == b"one\n"


def test_a_second_writer_is_told_who_is_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = new_store()
    here = made(tmp_path / "here", store)
    lease = elsewhere(Lease.own("x"))
    renewing = threading.Event()

    def renew() -> None:
        number = 0
        while not renewing.wait(0.05):
            number += 1
            store.put("lease", dataclasses.replace(lease, once=str(number)).encode())

    store.put("lease", lease.encode())
    thread = threading.Thread(target=renew)
    thread.start()
    try:
        told = f"is being run by process {lease.process} on other; stop that one first"
        with pytest.raises(InputError, match=told), Writer(here, store).open():
            pass
        assert find_valid_lease(store) is not None
    finally:
        renewing.set()
        thread.join()
    monkeypatch.setattr(remote, "LEASE_S", 0.5)  # nobody renews it any more
    with Writer(here, store).open():
        found = find_valid_lease(store)
        assert found is not None
        assert found.host != "other"
    assert find_valid_lease(store) is None


def test_the_lease_of_a_dead_process_of_this_machine_is_taken_at_once(tmp_path: Path) -> None:
    store = new_store()
    here = made(tmp_path / "here", store)
    dead = dataclasses.replace(Lease.own("x"), process=2**22 + 1, token="other")  # beyond all ids
    store.put("lease", dead.encode())
    assert find_valid_lease(store) is None
    began = time.monotonic()
    with Writer(here, store).open():
        assert time.monotonic() - began < 5


def test_a_writer_that_was_thought_dead_writes_nothing_more(tmp_path: Path) -> None:
    store = new_store()
    here = made(tmp_path / "here", store)
    with Writer(here, store, sync_s=60).open() as old:
        old.appended(write(here, b"one\n"), wait=True)
        there = tmp_path / "there"
        store.put("lease", elsewhere(Lease.own("x"), released=True).encode())
        with Writer(there, store, sync_s=60).open() as new:
            new.appended(write(there, b"two\n"), wait=True)
            with pytest.raises(StoreError, match="has taken the sweep over"):
                old.appended(write(here, b"late\n"), wait=True)
        with pytest.raises(StoreError, match="has taken the sweep over"):  # its number stays taken
            old.appended(write(here, b"later\n"), wait=True)
    assert remote.pull(tmp_path / "third", store)
    assert log_of(tmp_path / "third") == b"one\ntwo\n"
    assert remote.pull(here, store)
    assert log_of(here) == b"one\ntwo\n"


def test_what_was_not_sent_goes_along_with_the_machine(tmp_path: Path) -> None:
    store = new_store()
    here, there = made(tmp_path / "here", store), tmp_path / "there"
    with Writer(here, store, sync_s=60).open() as writer:
        writer.appended(write(here, b"one\n"), wait=True)
    write(here, b"two\n")  # and the driver dies
    assert remote.pull(here, store)
    assert log_of(here) == b"one\ntwo\n"
    with Writer(here, store, sync_s=60).open() as writer:
        writer.appended(len(log_of(here)), wait=False)
    assert remote.pull(there, store)
    assert log_of(there) == b"one\ntwo\n"
    write(here, b"three\n")
    with Writer(there, store, sync_s=60).open() as writer:  # another machine goes on without it
        writer.appended(write(there, b"other\n"), wait=True)
    assert remote.pull(here, store)
    assert log_of(here) == b"one\ntwo\nother\n"


def test_a_name_that_is_not_in_the_store_leaves_nothing_behind(tmp_path: Path) -> None:
    assert not remote.pull(tmp_path / "typo", new_store())
    assert list(tmp_path.iterdir()) == []


def test_a_store_may_be_away_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = new_store()
    flaky = Flaky(store)
    here = made(tmp_path / "here", store)
    with Writer(here, flaky, sync_s=0.02).open() as writer:
        flaky.away = True
        for number in range(5):
            writer.appended(write(here, b"%d\n" % number), wait=False)
            writer.check()
            time.sleep(0.05)
        flaky.away = False
    assert remote.pull(tmp_path / "there", store)
    assert log_of(tmp_path / "there") == log_of(here)


def test_a_store_that_stays_away_ends_the_session_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "AWAY_S", 0.2)
    store = new_store()
    flaky = Flaky(store)
    here = made(tmp_path / "here", store)
    with Writer(here, flaky, sync_s=0.02).open() as writer:
        writer.appended(write(here, b"one\n"), wait=True)
        flaky.away = True
        writer.appended(write(here, b"two\n"), wait=False)
        with pytest.raises(StoreError, match="cannot be reached; nothing could be stored for"):
            until(writer.check)
    assert remote.pull(here, store)
    assert log_of(here) == b"one\ntwo\n"


def test_requests_reach_the_folder_of_the_writer(tmp_path: Path) -> None:
    store = new_store()
    here = made(tmp_path / "here", store)
    remote.ask(store, "stop")  # of an earlier session: nobody means this one
    with Writer(here, store).open():
        remote.ask(store, "stop-trial-3")
        until = time.monotonic() + 10
        while not (here / "requests" / "stop-trial-3").exists() and time.monotonic() < until:
            time.sleep(0.02)
    assert [path.name for path in (here / "requests").iterdir()] == ["stop-trial-3"]
    assert not store.entries("requests")


def test_requests_that_last_are_for_the_next_writer_and_have_a_content(tmp_path: Path) -> None:
    store = new_store()
    here = made(tmp_path / "here", store)
    remote.ask(store, "steer-1.json", b"what")  # of an earlier session: the next one takes it
    assert remote.is_asked(store, "steer-1.json")
    with Writer(here, store).open():
        until = time.monotonic() + 10
        while not (here / "requests" / "steer-1.json").exists() and time.monotonic() < until:
            time.sleep(0.02)
    assert (here / "requests" / "steer-1.json").read_bytes() == b"what"
    assert not remote.is_asked(store, "steer-1.json")


def test_an_answer_is_taken_once(tmp_path: Path) -> None:
    store = new_store()
    remote.answer(store, "answer-1.json", b"no")
    assert remote.take_answer(store, "answer-1.json") == b"no"
    assert remote.take_answer(store, "answer-1.json") is None


def test_a_sweep_of_the_same_name_is_another_one(tmp_path: Path) -> None:
    store = new_store()
    here, there = made(tmp_path / "here", store), tmp_path / "there"
    with Writer(here, store).open() as writer:
        writer.appended(write(here, b"one\n"), wait=False)
    assert remote.pull(there, store)
    store.delete(entry.key for entry in store.entries())
    again = made(tmp_path / "again", store)
    with Writer(again, store).open() as writer:
        writer.appended(write(again, b"other\n"), wait=False)
    assert remote.pull(there, store)
    assert log_of(there) == b"other\n"
    assert any(path.name.startswith(".gone-there-") for path in tmp_path.iterdir())


def test_a_disk_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    (tmp_path / "copy").mkdir()
    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(
        StoreError, match=r"\.copy\.pull: this file system keeps no locks: Function"
    ):
        remote.pull(tmp_path / "copy", new_store())


@dataclasses.dataclass
class Late:
    """A store that another process of this machine makes a sweep in just after it was listed."""

    store: ObjectStore
    results: Path

    def folder(self) -> tuple[list[str], list[object]]:
        names, _ = self.store.folder()
        (self.results / ".new").mkdir()
        (self.results / ".new" / "sweep.json").write_text("{}")
        (self.results / ".new" / "spec.yaml").write_text("name: new")
        remote.publish_sweep(self.results / ".new", self.results / "new", self.store.below("new"))
        return names, []

    def __getattr__(self, name: str) -> object:
        return getattr(self.store, name)


def test_a_sweep_that_is_made_while_all_are_brought_keeps_its_copy(tmp_path: Path) -> None:
    root = ObjectStore("memory://bucket/results", MemoryStore())
    gone = made(tmp_path / "gone", root.below("gone"))
    root.below("gone").delete(["sweep.json", "spec.yaml"])
    remote.pull_all(tmp_path, Late(root, tmp_path))
    assert (tmp_path / "new" / "sweep.json").exists()
    assert not gone.exists()  # of what the store does not have
    aside = [*tmp_path.glob(".gone-*")]
    remote.pull_all(tmp_path, root)
    assert [*tmp_path.glob(".gone-*")] == aside


def test_parts_take_the_place_of_segments(tmp_path: Path) -> None:
    store = new_store()
    here, early, late = made(tmp_path / "here", store), tmp_path / "early", tmp_path / "late"
    with Writer(here, store, sync_s=60).open() as writer:
        for number in range(200):
            writer.appended(write(here, b"line %d\n" % number), wait=True)
            if number == 40:
                assert remote.pull(early, store)
        assert len(store.entries("log")) < 80
    assert len(store.entries("log")) <= 6
    assert remote.pull(early, store)
    assert remote.pull(late, store)
    assert log_of(early) == log_of(late) == log_of(here)


def test_a_torn_record_is_never_sent(tmp_path: Path) -> None:
    store = new_store()
    here, there = made(tmp_path / "here", store), tmp_path / "there"
    session = SessionStarted(time=1.0, resumed=False, version="1")
    with (
        Writer(here, store, sync_s=0.02).open() as writer,
        Log(here / "log.jsonl", copy=writer) as log,
    ):
        log.append([session])
    write(here, b'{"event":"session_st')  # and the driver dies
    with Writer(here, store, sync_s=0.02).open() as writer:
        time.sleep(0.2)  # Ray starts
        with Log(here / "log.jsonl", copy=writer) as log:
            log.append([session, session])
    assert remote.pull(there, store)
    assert list(read(there / "log.jsonl")) == [session] * 3


def test_a_segment_whose_writer_did_not_hear_of_it_takes_nothing_away(tmp_path: Path) -> None:
    store = new_store()
    here = made(tmp_path / "here", store)
    with Writer(here, store, sync_s=60).open() as writer:
        known = (here / ".known.json").read_bytes()
        writer.appended(write(here, b"one\n"), wait=True)
        write(here, b"two\n")
    (here / ".known.json").write_bytes(known)  # the driver died before it had noted that
    assert remote.pull(here, store)
    assert log_of(here) == b"one\ntwo\n"


def test_an_answer_that_is_lost_is_no_takeover(tmp_path: Path) -> None:
    store = new_store()
    here = made(tmp_path / "here", store)
    deaf = Deaf(store)
    with Writer(here, deaf, sync_s=60).open() as writer:
        deaf.deaf = True
        writer.appended(write(here, b"one\n"), wait=False)
        with pytest.raises(StoreAway):
            writer.send()
        with pytest.raises(StoreAway):
            writer.renew_lease()
        deaf.deaf = False
        writer.renew_lease()
        writer.appended(write(here, b"two\n"), wait=True)
        writer.check()
    assert remote.pull(tmp_path / "there", store)
    assert log_of(tmp_path / "there") == b"one\ntwo\n"


def test_a_writer_that_has_slept_looks_before_it_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = new_store()
    here = made(tmp_path / "here", store)
    with Writer(here, store, sync_s=60).open() as writer:
        store.put("lease", elsewhere(Lease.own("x")).encode())
        writer.check()
        monkeypatch.setattr(remote, "now", lambda: object_store.now() + remote.LEASE_S + 1)
        with pytest.raises(StoreError, match=r"process \d+ on other has taken the sweep over"):
            writer.check()


def test_nobody_takes_a_sweep_away_that_others_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "LEASE_S", 0.3)
    store = new_store()
    here, there = made(tmp_path / "here", store), tmp_path / "there"
    with Writer(there, store, sync_s=60).open() as writer:
        writer.appended(write(there, b"one\n"), wait=True)
    remote.withdraw(here, store)  # an older process that has trained nothing
    assert remote.pull(tmp_path / "third", store)
    assert log_of(tmp_path / "third") == b"one\n"
    empty = ObjectStore("memory://bucket/empty", MemoryStore())
    remote.withdraw(made(tmp_path / "empty", empty), empty)
    assert empty.entries() == []


def test_what_is_joined_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = new_store()
    here, there = made(tmp_path / "here", store), tmp_path / "there"
    with Writer(here, store, sync_s=60).open() as writer:
        for number in range(5):
            writer.appended(write(here, b"line %d\n" % number), wait=True)
        listing = store.entries("log")
        monkeypatch.setattr(remote, "SEGMENTS_PER_PART", 5)
        writer.appended(write(here, b"the line that joins them\n"), wait=True)
        assert not {entry.key for entry in store.entries("log")} & {
            entry.key for entry in listing[1:]
        }
        late = Flaky(store)
        listings = iter([listing])
        monkeypatch.setattr(
            Flaky,
            "entries",
            lambda self, prefix: next(listings, None) or store.entries(prefix),
            raising=False,
        )
        assert remote.pull(there, late)
    assert log_of(there) == log_of(here)


def test_a_copy_of_what_is_gone_blocks_no_name(tmp_path: Path) -> None:
    store = new_store()
    here = made(tmp_path / "here", store)
    store.delete(entry.key for entry in store.entries())
    assert not remote.pull(here, store)
    assert not here.exists()


def test_a_missing_segment_is_told(tmp_path: Path) -> None:
    store = new_store()
    here = made(tmp_path / "here", store)
    with Writer(here, store, sync_s=60).open() as writer:
        for number in range(3):
            writer.appended(write(here, b"line %d\n" % number), wait=True)
        store.delete(["log/00000002"])
        with pytest.raises(StoreError, match="bytes 7 to 14 are missing"):
            remote.pull(tmp_path / "there", store)


def test_a_damaged_segment_is_told(tmp_path: Path) -> None:
    store = new_store()
    here = made(tmp_path / "here", store)
    with Writer(here, store, sync_s=60).open() as writer:
        writer.appended(write(here, b"line\n"), wait=True)
        store.put("log/00000001", b"not JSON\nline\n")
        with pytest.raises(StoreError, match="/log: damaged, a part of it has no place"):
            remote.pull(tmp_path / "there", store)


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("write"), st.binary(max_size=5).map(lambda data: data.hex().encode() + b"\n")
        ),
        st.tuples(st.sampled_from(["send", "read", "crash", "away", "back", "move"]), st.just(b"")),
    ),
    max_size=60,
)


@given(steps=STEPS)
@settings(max_examples=60, deadline=None)
def test_whatever_happens_a_reader_has_the_beginning_of_what_the_writer_has(
    steps: list[tuple[str, bytes]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("steps")
    store = new_store()
    flaky = Flaky(store)
    machine, reader = made(root / "m0", store), root / "reader"
    moves, opened, sent = 0, None, b""

    def begin() -> tuple[Iterator[Writer], Writer]:
        context = Writer(machine, flaky, sync_s=3600).open()
        writer = context.__enter__()
        # as the log does once it has looked at its last record
        writer.appended(len(log_of(machine)), wait=False)
        return context, writer

    def crash() -> None:
        """Die without a word, as far as others can see."""
        writer = opened[1]
        writer.stop_threads()
        store.put("lease", elsewhere(Lease.own("x"), released=True).encode())

    opened = begin()
    for step, data in steps:
        writer = opened[1]
        if step == "write":
            writer.appended(write(machine, data), wait=False)
        elif step == "send" and not flaky.away:
            writer.appended(len(log_of(machine)), wait=True)
            sent = log_of(machine)
        elif step == "away":
            flaky.away = True
        elif step == "back":
            flaky.away = False
        elif step == "read":
            assert remote.pull(reader, store)
            assert log_of(reader).startswith(sent)
            assert log_of(machine).startswith(log_of(reader))
        elif step in ("crash", "move") and not flaky.away:
            crash()
            if step == "move":
                moves += 1
                machine = root / f"m{moves}"
            opened = begin()
            assert log_of(machine).startswith(sent)
    flaky.away = False
    opened[0].__exit__(None, None, None)
    assert remote.pull(reader, store)
    assert log_of(reader) == log_of(machine)
    assert log_of(machine).startswith(sent)


def test_results_may_be_a_folder_or_a_place_in_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWEEP_CACHE", str(tmp_path))
    assert remote.local("results") == Path("results")
    one, other = remote.local("s3://bucket/a"), remote.local("s3://bucket/b")
    assert one != other
    assert one.parent == tmp_path
    assert remote.local("S3://bucket/a/") == one
    assert (one / ".store").read_text() == "s3://bucket/a"
    assert json.loads(Lease.own("t").encode())["token"] == "t"
