"""Which tests `make test` runs."""

from __future__ import annotations

import ast
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))

from choose_tests import SLOW_TESTS, choose, read_branches, read_times  # noqa: E402  # a script, not a module of a package

TIMES = {
    "tests/test_a.py::one[x]": 3.0,
    "tests/test_a.py::one[y]": 2.0,
    "tests/test_a.py::two": 4.0,
    "tests/test_b.py::three": 5.0,
}
REACHED = {
    "tests/test_a.py::one[x]": 0b0111,
    "tests/test_a.py::one[y]": 0b0011,
    "tests/test_a.py::two": 0b1100,
    "tests/test_b.py::three": 0b0001,
}


@pytest.mark.parametrize(
    ("seconds", "chosen"),
    [
        (0.0, []),
        (7.0, ["one[y]", "three"]),  # the fastest of each file
        (11.0, ["one[y]", "three", "two"]),  # two new branches in four seconds
        (10.0, ["one[y]", "three", "one[x]"]),  # one new branch, for there is no time for two
        (14.0, ["one[y]", "three", "two", "one[x]"]),  # no new branch, but time
    ],
)
def test_a_file_has_a_test_and_then_branches_count(seconds: float, chosen: list[str]) -> None:
    assert [test.partition("::")[2] for test in choose(TIMES, REACHED, seconds)] == chosen


def test_tests_of_the_source_come_before_the_fastest_of_other_files() -> None:
    source = {"tests/test_core.py::one": 6.0, "tests/test_core.py::two": 7.0}
    assert choose(TIMES | source, REACHED, 14.0) == [*source]


def test_of_two_tests_that_reach_the_same_one_is_chosen() -> None:
    times = {
        "tests/test_a.py::one": 1.0,
        "tests/test_a.py::two": 2.0,
        "tests/test_a.py::three": 3.0,
    }
    reached = {
        "tests/test_a.py::one": 0b1,
        "tests/test_a.py::two": 0b1,
        "tests/test_a.py::three": 0b10,
    }
    assert choose(times, reached, 4.0) == ["tests/test_a.py::one", "tests/test_a.py::three"]


def test_quick_tests_come_before_all_others() -> None:
    times = {
        "tests/test_a.py::one": 0.05,
        "tests/test_a.py::two": 0.1,
        "tests/test_b.py::three": 1.0,
    }
    assert choose(times, {"tests/test_b.py::three": 0b1}, 1.1) == [
        "tests/test_a.py::one",
        "tests/test_a.py::two",
    ]


def test_a_test_that_takes_longer_than_there_is_time_is_left_out() -> None:
    assert choose({"tests/test_a.py::one": 20.0}, {"tests/test_a.py::one": 0b1}, 15.0) == []


def test_branches_are_read_by_test_of_all_phases(tmp_path: Path) -> None:
    """The tables are those of coverage.py 7."""
    with closing(sqlite3.connect(tmp_path / "coverage")) as connection, connection:
        connection.execute("create table context (id integer, context text)")
        connection.execute(
            "create table arc (file_id integer, context_id integer, fromno integer, tono integer)"
        )
        contexts = [
            (1, ""),
            (2, "test_a.py::one|setup"),
            (3, "test_a.py::one|run"),
            (4, "test_a.py::two[a|b]|run"),
        ]
        connection.executemany("insert into context values (?, ?)", contexts)
        arcs = [(1, 1, 1, 2), (1, 2, 3, 4), (1, 3, 3, 4), (2, 3, 3, 4), (2, 4, 3, 4)]
        connection.executemany("insert into arc values (?, ?, ?, ?)", arcs)
    reached = read_branches(tmp_path / "coverage")
    counts = {test: mask.bit_count() for test, mask in reached.items()}
    assert counts == {"": 1, "test_a.py::one": 2, "test_a.py::two[a|b]": 1}
    assert (
        reached["test_a.py::one"] & reached["test_a.py::two[a|b]"] == reached["test_a.py::two[a|b]"]
    )


def test_times_of_a_test_are_added_up() -> None:
    lines = ["0.500 tests/test_a.py::one[a b]", "1.250 tests/test_a.py::one[a b]"]
    assert read_times(lines) == {"tests/test_a.py::one[a b]": 1.75}


def test_what_is_listed_as_slow_exists() -> None:
    # imported by tests
    shared = [_function_names(path) for path in (ROOT / "sweep" / "conformance").glob("*.py")]
    defined: dict[str, set[str]] = {}
    for line in SLOW_TESTS.read_text().splitlines():
        file, _, test = line.partition("::")
        if file not in defined:
            defined[file] = _function_names(ROOT / file).union(*shared)
        assert test.partition("[")[0].rpartition("::")[2] in defined[file], line


def _function_names(path: Path) -> set[str]:
    return {
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    }
