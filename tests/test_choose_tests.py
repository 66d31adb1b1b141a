"""Which tests `make test` runs."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))

from choose_tests import SLOW_TESTS, read_times, slow_tests  # noqa: E402  # a script, not a module of a package

TIMES = {
    "tests/test_a.py::one[x]": 3.0,
    "tests/test_a.py::one[y]": 2.0,
    "tests/test_a.py::two": 4.0,
    "tests/test_b.py::three": 5.0,
}


@pytest.mark.parametrize(
    ("seconds", "slow"),
    [
        (0.0, [*TIMES]),
        (7.0, ["tests/test_a.py::one[x]", "tests/test_a.py::two"]),  # each file has a test
        (11.0, ["tests/test_a.py::one[x]"]),  # each function has one
        (14.0, []),
    ],
)
def test_the_fastest_of_each_file_and_function_come_first(seconds: float, slow: list[str]) -> None:
    assert slow_tests(TIMES, seconds) == slow


def test_quick_tests_come_before_all_others() -> None:
    times = {"tests/test_a.py::one": 0.1, "tests/test_a.py::two": 0.2, "tests/test_b.py::three": 1.0}
    assert slow_tests(times, 1.1) == ["tests/test_b.py::three"]


def test_a_test_that_takes_long_is_left_out() -> None:
    assert slow_tests({"tests/test_a.py::one": 20.0}, 100.0) == ["tests/test_a.py::one"]


def test_times_of_a_test_are_added_up() -> None:
    lines = ["0.500 tests/test_a.py::one[a b]", "1.250 tests/test_a.py::one[a b]"]
    assert read_times(lines) == {"tests/test_a.py::one[a b]": 1.75}


def test_what_is_listed_as_slow_exists() -> None:
    shared = [_function_names(path) for path in (ROOT / "sweep" / "conformance").glob("*.py")]  # imported by tests
    defined: dict[str, set[str]] = {}
    for line in SLOW_TESTS.read_text().splitlines():
        file, _, test = line.partition("::")
        if file not in defined:
            defined[file] = _function_names(ROOT / file).union(*shared)
        assert test.partition("[")[0].rpartition("::")[2] in defined[file], line


def _function_names(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}
