"""Modules are found where Python would find them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.inspection.finding import Search


def write(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    return path


def test_the_folders_come_first_then_the_search_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path / "c")
    for folder, names in (("a", ["one"]), ("b", ["one", "two"]), ("c", ["one", "two", "three"])):
        for name in names:
            write(tmp_path / folder / f"{name}.py")
    search = Search([tmp_path / "a", tmp_path / "b"])
    assert [search.find(name) for name in ("one", "two", "three", "four")] == [
        tmp_path / "a" / "one.py",
        tmp_path / "b" / "two.py",
        tmp_path / "c" / "three.py",
        None,
    ]


def test_packages_with_and_without_a_file_of_their_own(tmp_path: Path) -> None:
    deep = write(tmp_path / "a" / "whole" / "deep" / "net.py")
    start = write(tmp_path / "a" / "whole" / "__init__.py")
    parts = [write(tmp_path / folder / "spread" / f"{folder}.py") for folder in ("a", "b")]
    hidden = write(tmp_path / "a" / "later" / "x.py")
    whole = write(tmp_path / "b" / "later" / "__init__.py")
    search = Search([tmp_path / "a", tmp_path / "b"])
    assert (search.find("whole"), search.find("whole.deep"), search.find("whole.deep.net")) == (start, None, deep)
    assert [search.find("spread.a"), search.find("spread.b")] == parts
    assert search.find("later") == whole  # a package with a file hides folders without, also earlier ones
    assert hidden.is_file()
    assert search.find("later.x") is None


def test_the_standard_library_is_what_nothing_hides(tmp_path: Path) -> None:
    write(tmp_path / "json.py")
    search = Search([tmp_path])
    assert [search.is_standard(name) for name in ("random", "sys", "json", "numpy")] == [True, True, False, False]


def test_a_package_that_an_editable_installation_knows() -> None:
    path = Search([]).find("sweep.inspection.finding")
    assert path is not None
    assert path.name == "finding.py"
