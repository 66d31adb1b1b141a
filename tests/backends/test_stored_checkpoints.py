"""Checkpoints of a worker in an object store: sent, kept, fetched elsewhere, and a store that is away."""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from counting import Counting
from object_stores import Server
from obstore.store import MemoryStore
from waiting import until

from sweep.backends import Continues, Ends, Job, Order, checkpoints, stored_checkpoints
from sweep.backends.worker import Worker
from sweep.contract import Assignment
from sweep.events import EpochReported, Status
from sweep.space.objectives import Objective
from sweep.store.object_store import ObjectStore, mark_as_copy

HERE = Path(__file__).parent
pytestmark = pytest.mark.usefixtures("light_collections")


@pytest.fixture
def store(server: Server, tmp_path: Path) -> ObjectStore:
    return ObjectStore(f"{server.bucket}/{tmp_path.name}")


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the folders of this machine are that stand for others."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def job(tmp_path: Path, store: ObjectStore, machine: str = "one", **more: object) -> Job:
    Counting.begun.clear()
    given = {"checkpoint_every_s": 1e-9, "store": store.url, "stand_in": machine} | more
    return Job(
        "s",
        "counting:Counting",
        (HERE,),
        tmp_path / "driver",
        Objective("score", "minimize"),
        **given,
    )


def order(events: str = "", epochs: int = 6, decisions: tuple[int, ...] = ()) -> Order:
    return Order(
        Assignment(trial=3, params={"events": events, "batch_size": 32}, seed=0, epochs=epochs),
        decisions,
    )


def there(store: ObjectStore) -> list[str]:
    return [*stored_checkpoints.list_checkpoints(store, 3)]


def test_the_last_one_is_there_when_the_end_is_told_and_nothing_stays_here(
    tmp_path: Path, store: ObjectStore
) -> None:
    worker = Worker(job(tmp_path, store))
    worker.take(order())
    while not isinstance(progress := worker.step(), Ends):
        pass
    assert progress.end.facts.checkpoint == "checkpoints/00003/epoch-000006"
    assert there(store)[0] == "epoch-000006"
    assert not list((tmp_path / "one").rglob("epoch-*"))
    worker.close()


def test_a_trial_that_may_pause_is_there_before_it_is_told(
    tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker may continue it at once, and this one drops it without waiting for uploads."""
    upload = ObjectStore.upload

    def upload_slowly(store: ObjectStore, *given: Any) -> Any:
        time.sleep(0.1)
        return upload(store, *given)

    monkeypatch.setattr(ObjectStore, "upload", upload_slowly)
    worker = Worker(job(tmp_path, store))
    worker.take(replace(order(decisions=(2,)), waits=True))
    progress = worker.step()
    assert isinstance(progress, Continues)
    assert progress.epochs[-1].epoch == 2
    assert there(store)[0] == "epoch-000002"
    worker.release()
    assert there(store)[0] == "epoch-000002"
    worker.close()


def test_another_machine_goes_on_and_tells_all_epochs_that_led_there(
    tmp_path: Path, store: ObjectStore
) -> None:
    worker = Worker(job(tmp_path, store))
    worker.take(order(decisions=(1, 2, 3)))
    before = [epoch for _ in range(3) for epoch in worker.step().epochs]
    # and the machine is gone, with its log
    until(lambda: there(store)[:1] == ["epoch-000003"], lambda: there(store))
    other = Worker(job(tmp_path, store, "two"))
    other.take(order())
    heard: list[EpochReported] = []
    while not isinstance(progress := other.step(), Ends):
        heard += progress.epochs
    heard += progress.epochs
    assert [epoch.epoch for epoch in heard] == [1, 2, 3, 4, 5, 6]
    assert progress.end.status is Status.COMPLETED
    assert heard[:3] == before  # they were not trained again
    for one in (worker, other):
        one.close()


def test_the_best_and_the_newest_stay_though_workers_change(
    tmp_path: Path, store: ObjectStore
) -> None:
    folder = tmp_path / "copy"
    mark_as_copy(folder, store)
    for epoch, loss in ((1, 0.5), (2, 0.1), (3, 0.4), (4, 0.3)):
        place = tmp_path / f"machine{epoch}"
        manifest = checkpoints.Manifest(epoch, loss=loss)
        checkpoints.begin_checkpoint(
            place, manifest, lambda aside: (aside / "state").write_bytes(b"x" * 100) and None, 9
        )()
        sender = stored_checkpoints.Sender(
            store, place, 3, lambda: stored_checkpoints.trim_in_store(store, 3, 2)
        )
        sender.send()
        sender.settle()
        sender.close()
    assert there(store) == ["epoch-000004", "epoch-000003", "epoch-000002"]
    assert checkpoints.keep_best(folder, 3) > 200
    assert there(store) == ["epoch-000004", "epoch-000002"]
    assert checkpoints.find_epoch_checkpoint(folder, 3, 2) == "checkpoints/00003/epoch-000002"
    assert checkpoints.list_trials(folder) == {3}
    checkpoints.delete_checkpoints(folder, 3)
    assert checkpoints.list_trials_with_files(folder) == set()


def test_the_first_one_sent_replaces_those_that_could_not_be_restored(tmp_path: Path) -> None:
    store = ObjectStore("memory://bucket/sweep", MemoryStore())
    unusable = {"epoch-000004", "epoch-000001"}
    stored = []
    for epoch, loss, names in ((4, 0.1, set()), (5, 0.2, set()), (1, 0.9, unusable)):
        place = tmp_path / f"machine{epoch}"
        manifest = checkpoints.Manifest(epoch, loss=loss)
        checkpoints.begin_checkpoint(
            place, manifest, lambda aside: (aside / "state").write_bytes(b"x") and None, 1
        )()
        sender = stored_checkpoints.Sender(
            store, place, 3, lambda: stored_checkpoints.trim_in_store(store, 3, 9), names
        )
        sender.send()
        sender.settle()
        sender.close()
        stored.append(there(store))
    assert stored[1:] == [["epoch-000005", "epoch-000004"], ["epoch-000005", "epoch-000001"]]


def test_a_worker_replaces_those_in_the_store_that_it_could_not_restore(
    tmp_path: Path, store: ObjectStore
) -> None:
    for epoch in (8, 9):
        for name in ("state.json", checkpoints.MANIFEST):
            store.put(f"checkpoints/00003/epoch-{epoch:06d}/{name}", b"{}")
    worker = Worker(job(tmp_path, store))
    worker.take(order())
    progress = worker.step()
    while not isinstance(progress, Ends):
        progress = worker.step()
    worker.close()
    assert progress.end.facts.checkpoint == "checkpoints/00003/epoch-000006"
    assert there(store)[0] == "epoch-000006"


def test_a_local_copy_that_is_damaged_is_fetched_again(tmp_path: Path) -> None:
    store = ObjectStore("memory://bucket/sweep", MemoryStore())
    checkpoints.begin_checkpoint(
        tmp_path / "elsewhere",
        checkpoints.Manifest(4),
        lambda aside: (aside / "state").write_bytes(b"x" * 100) and None,
        1,
    )()
    stored = stored_checkpoints.StoredCheckpoints(store)
    stored.upload(tmp_path / "elsewhere", 3)
    (path,) = stored.fetch(tmp_path / "here", 3, 0)
    (path / "state").write_bytes(b"x")  # as of a full disk
    (again,) = stored.fetch(tmp_path / "here", 3, 0)
    assert checkpoints.read_verified_manifest(again).epoch == 4


def test_a_rank_on_a_machine_with_another_temporary_folder_finds_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ObjectStore("memory://bucket/sweep", MemoryStore())
    for name in ("state", checkpoints.MANIFEST):
        store.put(f"checkpoints/00003/epoch-000002/{name}", name.encode())
    stored = stored_checkpoints.StoredCheckpoints(store)
    monkeypatch.setattr("sweep.backends.features.find_stored_checkpoints", lambda folder: stored)
    named = Path("/elsewhere/tmp/sweep-data/checkpoints/00003/epoch-000002")  # by rank 0
    for _ in range(2):
        found = checkpoints.ensure_local(tmp_path / "here", named)
        assert (found / "state").read_text() == "state"


def test_a_checkpoint_without_its_manifest_is_none(tmp_path: Path, store: ObjectStore) -> None:
    store.put("checkpoints/00003/epoch-000001/state", b"x")  # its machine died while it was sent
    assert there(store) == []
    assert [*checkpoints.fetch_checkpoints(tmp_path, 3)] == []


def test_what_else_lies_beside_the_checkpoints_is_no_trial() -> None:
    store = ObjectStore("memory://bucket/sweep", MemoryStore())
    for key in ("00003/epoch-000001/state", "00003-old/epoch-000001/state", ".DS_Store", "7"):
        store.put(f"checkpoints/{key}", b"x")
    assert stored_checkpoints.StoredCheckpoints(store).list_trials() == {3}


def test_a_store_that_is_away_is_no_failure_of_a_trial(
    server: Server, tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweep.backends.worker.AWAY_S", 0.1)
    worker = Worker(job(tmp_path, store))
    server.kill()
    try:
        worker.take(order())
        progress = worker.step()
    finally:
        server.start()
    assert isinstance(progress, Ends)
    assert progress.end.status is Status.INTERRUPTED
    assert progress.fault is not None
    assert "cannot be reached" in progress.fault
    worker.take(order())
    while not isinstance(progress := worker.step(), Ends):
        pass
    assert progress.end.status is Status.COMPLETED
    worker.close()
