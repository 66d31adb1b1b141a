"""How the suite is spread over workers, and what it says of its time."""

from __future__ import annotations

from types import SimpleNamespace

import spreading


def item(nodeid: str, *marks: str) -> SimpleNamespace:
    return SimpleNamespace(
        nodeid=nodeid, iter_markers=lambda: [SimpleNamespace(name=mark) for mark in marks]
    )


def test_files_stay_together_and_the_heaviest_come_first() -> None:
    light = [item("tests/a/test_a.py::one"), item("tests/a/test_a.py::two")]
    slow = item("tests/b/test_b.py::one", "keras", "slow")
    zoo = [
        item(f"tests/trainables/test_zoo_{name}.py::one", "slow") for name in ("fit", "replicas")
    ]
    assert spreading.heaviest_first([light[0], zoo[0], slow, light[1], zoo[1]]) == [
        *zoo,
        slow,
        *light,
    ]


def test_time_is_added_up_by_folder() -> None:
    reports = [
        SimpleNamespace(nodeid="tests/store/test_log.py::one", duration=0.5),
        SimpleNamespace(nodeid="tests/store/test_log.py::one", duration=0.25),
        SimpleNamespace(nodeid="tests/trainables/data/test_words.py::one", duration=2.0),
        SimpleNamespace(nodeid="tests/test_main.py::one"),  # a warning takes no time
    ]
    assert list(spreading.by_folder(reports)) == [
        "     2.0 s      1 tests  tests/trainables/data",
        "     0.8 s      1 tests  tests/store",
    ]
