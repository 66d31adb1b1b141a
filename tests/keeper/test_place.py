"""Where a keeper listens and what must be the same for it to be of use."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest

from sweep.keeper import place as places


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = tempfile.mkdtemp(prefix="k-")  # paths of sockets must be short
    monkeypatch.setattr(tempfile, "tempdir", short)


def test_each_folder_has_a_place_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to("a")
    place = places.find_place(tmp_path / "a")
    assert place is not None
    assert place == places.find_place(tmp_path / "link")
    assert place != places.find_place(tmp_path)
    assert place.parent.stat().st_mode & 0o777 == 0o700


def test_in_a_folder_that_was_deleted_there_is_no_keeper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert places.find_place() is None


def test_a_place_that_others_can_enter_is_not_used(tmp_path: Path) -> None:
    home = Path(tempfile.gettempdir()) / f"sweep-keepers-{os.getuid()}"
    home.mkdir(mode=0o755)
    home.chmod(0o755)
    assert places.find_place(tmp_path) is None


def test_a_link_of_somebody_else_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir(mode=0o700)
    (Path(tempfile.gettempdir()) / f"sweep-keepers-{os.getuid()}").symlink_to(tmp_path / "theirs")
    assert places.find_place(tmp_path) is None


def test_a_path_that_is_too_long_for_a_socket_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    assert places.find_place(tmp_path) is None


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ({}, {}, ""),
        ({"A": "1"}, {"A": "1", "COLUMNS": "80", "TERM": "xterm"}, ""),
        ({"A": "1"}, {"A": "2"}, "A"),
        ({"A": "1"}, {}, "A"),
        ({}, {"TF_X": "1", "B": ""}, "B"),
    ],
)
def test_the_environment_must_be_the_same_but_for_the_terminal(
    before: dict[str, str], now: dict[str, str], expected: str
) -> None:
    assert places.find_difference(before, now) == expected


def test_an_installation_changes_its_description(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.setattr(sys, "path", [sys.path[0], str(site), *sys.path[1:]])
    before = places.describe_installation()
    assert before == places.describe_installation()
    os.utime(site, ns=(1, 1))
    changed = {
        path for path, when in places.describe_installation().items() if before[path] != when
    }
    assert changed == {str(site)}
    assert any(path.endswith("sweep/keeper/place.py") for path in before)


def test_a_page_is_open_inside_the_block(tmp_path: Path) -> None:
    place = places.find_place(tmp_path)
    assert place is not None
    assert not places.is_page_open(place)
    with places.opening_page(tmp_path), places.opening_page(tmp_path):
        assert places.is_page_open(place)
    assert not places.is_page_open(place)


def test_where_no_folder_can_have_a_keeper_a_page_opens_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Windows, Python has no `fcntl`."""
    monkeypatch.setattr(places, "find_place", lambda folder: None)
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with places.opening_page(tmp_path):
        pass
