"""Importance finds what matters, says how sure it is, and takes no longer for many trials."""

from __future__ import annotations

import random

from sweep.events import Params
from sweep.searchers.optuna_importance import importance


def trials(count: int, noise: float = 0.01) -> list[tuple[Params, float]]:
    draws = random.Random(1)
    found: list[tuple[Params, float]] = []
    for _ in range(count):
        params = {"rate": 10 ** draws.uniform(-4, -1), "kind": draws.choice([True, None, "x"]), "idle": draws.random()}
        if params["kind"] == "x":
            params["inner"] = draws.random()
        found.append((params, abs(params["rate"] - 0.01) + draws.gauss(0, noise)))
    return found


def test_what_matters_comes_first_with_shares_that_add_up() -> None:
    found = importance(trials(300), ["idle", "kind", "rate", "inner"])
    assert found[0].param == "rate"
    assert abs(sum(one.share for one in found) - 1) < 1e-9
    assert all(0 <= one.low <= one.share <= one.high <= 1 for one in found)


def test_few_trials_are_less_sure_and_fewer_than_ten_say_nothing() -> None:
    few, many = (importance(trials(count), ["rate", "idle"])[0] for count in (12, 900))
    assert few.high - few.low > many.high - many.low
    assert importance(trials(9), ["rate"]) == []
    assert importance(trials(20), []) == []


def test_the_same_trials_give_the_same_numbers() -> None:
    assert importance(trials(40), ["rate", "idle"]) == importance(trials(40), ["rate", "idle"])


def test_parameters_of_one_value_and_equal_losses() -> None:
    flat = [({"a": 1, "b": str(n)}, 0.5) for n in range(20)]
    found = importance(flat, ["a", "b"])
    assert {one.param for one in found} == {"a", "b"}
