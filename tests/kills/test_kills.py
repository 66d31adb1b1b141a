"""Kill -9 of driver, worker, and all of it: what a resumed sweep ends with is what an undisturbed one does.

The long version is benchmarks/kills.py.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from killing import Tally, alone, compare, disturbed

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def test_nothing_is_lost_and_nothing_counted_twice(tmp_path: Path) -> None:
    name, victims, tally = "grid", ["worker", "raylet"], Tally()
    reference = alone(tmp_path / "alone", name)
    project = disturbed(tmp_path / "killed", name, victims, random.Random(name), tally)
    compare(project, reference, tally)
    assert tally.wrong() == 0, tally.remarks
    assert sum(tally.kills.values()) >= len(victims), tally
