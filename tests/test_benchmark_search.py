"""The benchmark of the search, on the table of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "benchmarks" / "search.py"


def table(tmp_path: Path, *arguments: str) -> dict[str, list[float]]:
    """Run the benchmark; return the regrets of each method by budget."""
    command = [sys.executable, str(PROGRAM), "--out", str(tmp_path), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500, check=True, env=dict(os.environ))
    _, *lines = done.stdout.splitlines()
    cells = [line.replace("[", " ").replace("]", " ").replace(",", " ").split() for line in lines]
    return {name: [float(number) for number in numbers[:-3:3]] for name, *numbers in cells}


@pytest.mark.slow
def test_auto_is_better_than_random_search_where_quick_starters_do_not_end_best(tmp_path: Path) -> None:
    methods = "auto,random"
    found = table(tmp_path, "--methods", methods, "--seeds", "2", "--budgets", "2,8")
    assert list(found) == methods.split(",")
    assert found["auto"][1] < found["random"][1]
    assert all(regrets[0] >= regrets[1] >= 0 for regrets in found.values())
    assert table(tmp_path, "--methods", methods, "--seeds", "2", "--budgets", "2,8") == found  # out of its files
