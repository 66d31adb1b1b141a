"""`tools/private_accesses.py`: which uses of private names it counts, and that tests of sweep hardly have any."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import private_accesses  # noqa: E402 - a tool, not part of the package

LIMITS = {
    "backends/test_nodes.py": (
        2,
        "the setup of a TrialWorker needs a Ray, which this test does without",
    ),
    "conftest.py": (1, "what a process reads is recorded to its end; only tests stop before"),
    "runner/test_coordinator.py": (
        7,
        "the trials that are open in the middle of a session, and its settings",
    ),
    "searchers/test_learning.py": (1, "a method of Optuna's sampler that ours overrides"),
    "trainables/loop/test_intake.py": (
        1,
        "the functions of TensorFlow's graphs, a name that sweep has as well",
    ),
}
"""How many private names of sweep and trainables a test file may use at most, and why; all others use none."""

SAMPLE = """
import sweep._hidden
from sweep.log import _parse, read
from unittest.mock import patch

class Fake:
    _own = 1
    def _method(self):
        self._inherited = self._own
        return cls._shared

def test(log, monkeypatch):
    log._lines, log.lines, log.__dict__, log._asdict()
    monkeypatch.setattr(log, "_size", 3)
    monkeypatch.setattr("sweep.log._NAME", 3)
    patch("sweep.log._read"), patch.object(log, "_write")
    getattr(log, "_end", None)
    Fake()._own, Fake()._method()
    print("_no_name", "sweep.log._no_path")
"""
USED = ["_hidden", "_parse", "_lines", "_size", "_NAME", "_read", "_write", "_end"]


def test_each_use_of_a_private_name_of_others_is_found() -> None:
    found = private_accesses.private_accesses(SAMPLE)
    assert [access.name for access in found] == USED
    assert found[0].line == 2


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "log.py").write_text(
        "_NAME = 'log'\n"
        "def _parse(): ...\n"
        "class Log:\n"
        "    def __init__(self): self._lines = []\n"
        "    def _read(self): _here = other._there\n"
    )
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_log.py").write_text(SAMPLE)
    (tmp_path / "tests" / "test_clean.py").write_text("def test(log): assert log.lines\n")
    return tmp_path


def test_names_that_the_packages_define_are_told_from_those_of_other_libraries(
    project: Path,
) -> None:
    own = private_accesses.own_private_names([project / "sweep"])
    assert own == {"_NAME", "_parse", "_lines", "_read", "_here"}
    found = private_accesses.accesses_by_file(project / "tests", own)
    assert {file: [access.name for access in accesses] for file, accesses in found.items()} == {
        "test_log.py": ["_parse", "_lines", "_NAME", "_read"]
    }
    others = private_accesses.count_others(project / "tests", own)
    assert sorted(others) == ["_end", "_hidden", "_size", "_write"]


def test_counts_are_printed_by_file_with_their_places(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(private_accesses, "ROOT", project)
    private_accesses.main(["-v"])
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "    4 tests/test_log.py"
    assert printed[1] == "        3: _parse"
    assert printed[-2:] == ["    4 in 1 files", "    4 of other libraries"]


def test_tests_use_public_names() -> None:
    own = private_accesses.own_private_names(
        ROOT / package for package in private_accesses.PACKAGES
    )
    found = private_accesses.accesses_by_file(ROOT / "tests", own)
    too_many = []
    for file, accesses in found.items():
        limit, _ = LIMITS.get(file, (0, ""))
        if len(accesses) > limit:
            names = ", ".join(f"{access.name} (line {access.line})" for access in accesses)
            too_many.append(f"tests/{file}: {len(accesses)}, at most {limit}: {names}")
    assert not too_many, "\n".join(
        [*too_many, "use what is public, or make a seam public; see CONTRIBUTING.md"]
    )
