"""The folders of sweeps, by their names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from living import make_sweep
from object_stores import Server
from obstore.store import MemoryStore

from sweep.errors import StoreAway, UnknownNameError
from sweep.store import remote
from sweep.store.object_store import ObjectStore
from sweep.ui.places import find_folder, list_names


@pytest.mark.slow
def test_a_sweep_in_a_store_is_found_where_it_has_no_copy_yet(
    s3_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = f"{s3_server.bucket}/places"
    monkeypatch.setenv("SWEEP_CACHE", str(tmp_path / "there"))
    make_sweep(remote.local(place), "one", [])
    monkeypatch.setenv("SWEEP_CACHE", str(tmp_path / "here"))
    results = remote.local(place)
    with pytest.raises(UnknownNameError, match=f"one: no such sweep in {place}"):
        find_folder(results, "one")
    assert find_folder(results, "one", update=True).info.is_file()
    for name in ("two", "../places/one"):
        with pytest.raises(UnknownNameError, match=f"no such sweep in {place}"):
            find_folder(results, name, update=True)


def keep_in_memory(results: Path, monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """The store of which ``results`` is made the copy, for the module that finds folders."""
    there = MemoryStore()
    store = ObjectStore("memory://bucket", there)
    monkeypatch.setattr("sweep.ui.places.store_of", lambda path: store if path == results else None)
    return there


def test_a_mistyped_name_gets_a_hint_from_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = keep_in_memory(tmp_path, monkeypatch)
    ObjectStore("memory://bucket", there).put("learning/sweep.json", b"{}")
    with pytest.raises(UnknownNameError, match=r"no such sweep in memory://.*'learning'"):
        find_folder(tmp_path, "laerning", update=True)


def test_a_sweep_that_has_a_copy_is_found_while_its_store_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_sweep(tmp_path, "one", [])
    keep_in_memory(tmp_path, monkeypatch)

    def fail(folder: Path, store: ObjectStore) -> bool:
        raise StoreAway(f"{store.url}: cannot be reached")

    monkeypatch.setattr("sweep.ui.places.update_copy", fail)
    assert find_folder(tmp_path, "one", update=True).name == "one"
    with pytest.raises(StoreAway, match="cannot be reached"):
        find_folder(tmp_path, "two", update=True)


def test_the_closed_sweep_of_another_user_is_not_found_and_hinders_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_sweep(tmp_path, "mine", [])
    (tmp_path / "theirs").mkdir()
    stat = Path.stat

    def refuse(path: Path, **given: bool) -> os.stat_result:
        if path.parent.name == "theirs":  # root may look into all
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, **given)

    monkeypatch.setattr(Path, "stat", refuse)
    assert list_names(tmp_path) == ["mine"]
    for name in ("theirs", "mien"):
        with pytest.raises(UnknownNameError, match=f"{name}: no such sweep in .*mine"):
            find_folder(tmp_path, name)
