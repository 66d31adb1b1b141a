"""`make compat`: what is lifted, what is newer, what is told."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import compat  # noqa: E402 - a tool, not part of the package


def test_dependencies_lose_their_upper_bounds_alone(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[project]\ndependencies = ["a>=2.1,<3", "b[x,y]>=1, !=1.5,<2", "c==4", "d~=1.0", "e>=1;x<\'4\'"]\n'
        '[project.optional-dependencies]\ntest = ["f>=9"]\nother = ["g"]\n'
    )
    found = compat.requirements(tmp_path / "pyproject.toml")
    assert found == ["a>=2.1", "b[x,y]>=1", "c", "d", "e>=1;x<'4'", "f>=9"]


def test_our_own_dependencies_all_have_lower_bounds() -> None:
    for line in compat.requirements(ROOT / "pyproject.toml"):
        assert ">=" in line
        assert "<" not in line


def test_what_is_newer_or_older_than_its_pin_or_has_none(tmp_path: Path) -> None:
    (tmp_path / "constraints.txt").write_text("# exact\nA_b==2.9\nc==1.0  # why\nd==3\ngone==1\n")
    pins = compat.pins(tmp_path / "constraints.txt")
    assert compat.changes(pins, {"a-b": "2.10", "c": "0.9", "d": "3", "new": "1"}) == {
        "newer": {"a-b": "2.9 -> 2.10"},
        "older": {"c": "1.0 -> 0.9"},
        "not pinned": {"new": "1"},
    }


@pytest.mark.exhaustive
def test_what_broke_is_told_by_file_and_what_fails_with_the_pins_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "constraints.txt").write_text("pytest==1.0\nnumpy==1.0\n")
    (tmp_path / "test_good.py").write_text("def test_it(): pass\n")
    (tmp_path / "test_unimportable.py").write_text("import nowhere_at_all\n")
    (tmp_path / "test_bad.py").write_text(
        "import numpy, sys\ndef test_always(): assert False\n"
        "def test_numpy(): numpy.zeros(-1)\nclass TestIt:\n"
        "    def test_within(self): numpy.ones((1, 2)) @ numpy.ones(3)\n"
    )
    monkeypatch.setattr(compat, "ROOT", tmp_path)
    arguments = [
        "-n0",
        "-m",
        "",
        "-p",
        "no:randomly",
        "--rootdir",
        str(tmp_path),
        "-c",
        "/dev/null",
    ]
    assert compat.compare(arguments, tmp_path / "no python") == 1
    said = capfd.readouterr().out
    assert "5 tests ran, 4 failed, 4 of them only with these releases" in said
    assert "test_bad.py: 3 failed" in said
    assert "    test_within: ValueError: matmul" in said
    assert "test_unimportable.py: 1 failed" in said
    assert "there is no .venv with the pins" in said
    assert compat.compare(arguments, Path(sys.executable)) == 0  # all fails here as well
    assert compat.compare(["--no-such-option"], tmp_path) == 2
