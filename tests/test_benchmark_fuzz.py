"""The fuzz of random trials runs, on one; its recipes say what they are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))


def test_a_recipe_is_a_function_of_its_number() -> None:
    import fuzz_recipes

    recipes = [fuzz_recipes.draw(number) for number in range(400)]
    assert recipes == [fuzz_recipes.draw(number) for number in range(400)]
    assert {recipe.params["optimizer"] for recipe in recipes} == set(fuzz_recipes.RATES)
    assert {layer for recipe in recipes for layer in recipe.params["layers"].split("+")} == set(
        fuzz_recipes.BODIES
    )
    assert {recipe.replicas for recipe in recipes} == set(range(9))


def test_what_is_off_is_said() -> None:
    import fuzz
    import fuzz_recipes

    recipe = next(
        r for r in map(fuzz_recipes.draw, range(99)) if r.exact and r.precision == "float32"
    )
    ours = {"loss": 2.0, "kernel": np.array([1.0, np.nan]), "seed": np.array([3])}
    assert fuzz._off(ours, ours, recipe) == (0.0, "nothing")
    assert fuzz._off(ours, {"loss": 2.5}, recipe) == (0.25, "loss")
    assert fuzz._off(ours, {"seed": np.array([4])}, recipe) == (1 / 3, "seed")
    assert fuzz._off(ours, {"kernel": np.array([1.0, 2.0])}, recipe)[0] == np.inf
    assert fuzz._off({}, ours, recipe)[0] == np.inf


@pytest.mark.exhaustive
@pytest.mark.keras
def test_a_trial() -> None:
    command = [sys.executable, str(BENCHMARKS / "fuzz.py"), "--trials", "1", "--seed", "12"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=280, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    assert last.startswith("1 trials, 0 different, "), done.stdout
