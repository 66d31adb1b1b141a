"""The folders of sweeps, by their names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from living import make_sweep
from object_stores import Server

from sweep.errors import UnknownNameError
from sweep.store import remote
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
