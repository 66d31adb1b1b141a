"""Kill -9 of driver, worker, and all of it: what a resumed sweep ends with is what an undisturbed one does.

The long version is benchmarks/kills.py.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from killing import PATIENCE_S, Project, Tally, compare, disturbed

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def alone(path: Path, name: str) -> Project:
    """A run that nobody disturbs, in one process, whose walks do not pause."""
    project = Project.make(path, name)
    walk = path / "walk.py"
    walk.write_text(walk.read_text().replace("PAUSE_S = 0.02", "PAUSE_S = 0.0"))
    assert project.start("run", f"{name}.yaml", "--no-memo", "-q", "--inline").wait(PATIENCE_S) == 0
    return project


def test_nothing_is_lost_and_nothing_counted_twice(tmp_path: Path) -> None:
    name, victims, tally = "grid", ["worker", "raylet"], Tally()
    reference = alone(tmp_path / "alone", name)
    project = disturbed(tmp_path / "killed", name, victims, random.Random(name), tally)
    compare(project, reference, tally)
    assert tally.wrong() == 0, tally.remarks
    assert sum(tally.kills.values()) >= len(victims), tally
