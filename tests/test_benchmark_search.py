"""The benchmark of the search, on the table of its own."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from numpy.typing import NDArray

from sweep.events import Params
from sweep.space import Parameter, Space
from sweep.space.domains import IntUniform

PROGRAM = Path(__file__).parents[1] / "benchmarks" / "search.py"


def table(tmp_path: Path, *arguments: str) -> dict[str, list[float]]:
    """Run the benchmark; return the regrets of each method by budget."""
    command = [sys.executable, str(PROGRAM), "--out", str(tmp_path), *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=1500, check=True, env=dict(os.environ)
    )
    _, *lines = done.stdout.splitlines()
    cells = [line.replace("[", " ").replace("]", " ").replace(",", " ").split() for line in lines]
    return {name: [float(number) for number in numbers[:-5:3]] for name, *numbers in cells}


@pytest.mark.slow
def test_auto_is_better_than_random_search_where_quick_starters_do_not_end_best(
    tmp_path: Path,
) -> None:
    methods = "auto,random"
    found = table(tmp_path, "--methods", methods, "--seeds", "2", "--budgets", "2,8")
    assert list(found) == methods.split(",")
    assert found["auto"][1] < found["random"][1]
    assert all(regrets[0] >= regrets[1] >= 0 for regrets in found.values())
    # out of its files
    assert table(tmp_path, "--methods", methods, "--seeds", "2", "--budgets", "2,8") == found


class Line:
    """Ten configurations, whose loss is their only parameter; the first epoch shows nothing of it."""

    name = "line"
    epochs = 2
    space = Space((Parameter("x", IntUniform(0, 9)),))

    def curve(self, params: Params, seed: int) -> NDArray[np.float64]:
        return np.array([20.0, float(str(params["x"]))])

    def final(self, params: Params, seen: float) -> float:
        return seen

    def seconds(self, params: Params) -> float:
        return 1.0

    def regret(self, loss: float) -> float:
        return loss / 10


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program as a module. What it sets when it is imported is undone."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    monkeypatch.syspath_prepend(str(PROGRAM.parent))
    return importlib.import_module("search")


def test_the_best_configuration_that_was_started_counts_as_if_it_had_been_trained_whole(
    search: ModuleType,
) -> None:
    run = search.Run("random", "line", 0, 2)
    search.simulate(search.build_method("random", Line(), 0, 2, 4), Line(), run, 0, 4)
    assert (run.trials, run.completed, run.losses) == (4, 0, [20.0])
    assert run.best_started < 10


def test_methods_are_compared_over_the_runs_that_both_have(search: ModuleType) -> None:
    def make_run(method: str, seed: int, *losses: float) -> object:
        epochs = [2 * (place + 1) for place in range(len(losses))]
        return search.Run(method, "line", seed, 2, epochs, list(losses), trials=1)

    runs = [
        make_run("a", 0, 6.0, 4.0),
        make_run("a", 1, 2.0),
        make_run("b", 0, 5.0),
        make_run("b", 2, 0.0),
    ]
    (line,) = search.compare(runs, [Line()], [1, 2])
    assert line == "b - a: -0.100 [-0.100, -0.100] 1, +0.100 [+0.100, +0.100] 0 better of 1"


@pytest.mark.slow
def test_the_product_searches_a_task_by_auto_and_at_random() -> None:
    program = PROGRAM.with_name("search_product.py")
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, check=True
    )
    regrets, difference = done.stdout.splitlines()
    auto, random = map(float, re.findall(r"\d\.\d{3}", regrets))
    assert auto != random
    assert f"{auto - random:+.2f}" in difference
