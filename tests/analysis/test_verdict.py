"""The answer claims no more than the ranking holds."""

from __future__ import annotations

import pytest

from sweep.analysis.ranking import rank
from sweep.analysis.trials import read
from sweep.analysis.verdict import sentence
from sweep.events import Status


def told(sweep_of, scores: dict[int, list[float]], status: Status = Status.COMPLETED, **kwargs) -> str:
    runs = [({"a": a}, status, [{"acc": score}]) for a, several in scores.items() for score in several]
    return sentence(rank([read(sweep_of(runs, status.value))]), **kwargs)


@pytest.mark.parametrize(
    ("scores", "parts"),
    [
        ({}, ["No trial has begun"]),
        ({1: [0.5]}, ["the only configuration (trial 0) with acc 0.5000", "No other configuration completed"]),
        (
            {1: [0.5], 2: [0.7]},
            ["a=2 (trial 1) with acc 0.7000", "a=1 (trial 0), is 0.2 behind", "cannot be told from luck"],
        ),
        ({1: [0.5], 2: [0.5]}, ["1 other configuration reached the same score", "cannot be told from luck"]),
        (
            {1: [0.5, 0.51, 0.52], 2: [0.9, 0.91, 0.92]},
            [
                "a=2 (trials 3 to 5) with acc 0.9100 on average over 3 repeats (95 % interval 0.8852 to",
                "do not overlap",
            ],
        ),
        (
            {1: [0.5, 0.9], 2: [0.7, 0.75]},
            ["Its interval overlaps that of the best: the repeats do not tell them apart"],
        ),
    ],
)
def test_one_objective(sweep_of, scores: dict[int, list[float]], parts: list[str]) -> None:
    answer = told(sweep_of, scores)
    assert [part for part in parts if part not in answer] == [], answer


def test_what_has_not_completed_is_no_answer(sweep_of) -> None:
    assert told(sweep_of, {1: [0.5]}, Status.PRUNED) == "No trial has completed, so there is no answer."
    assert (
        told(sweep_of, {1: [0.5]}, Status.RUNNING, running=True) == "No trial has completed yet, so there is no answer."
    )


def test_a_running_sweep_says_so(sweep_of) -> None:
    assert told(sweep_of, {1: [0.5]}, running=True).startswith("It still runs, and this may change. The best was")


def test_a_front_is_named_by_its_ends(sweep_of) -> None:
    both = (("acc", "maximize"), ("cost", "minimize"))
    points = [(0.9, 3.0), (0.8, 2.0), (0.7, 1.0), (0.6, 2.5)]
    runs = [({"a": a}, Status.COMPLETED, [{"acc": acc, "cost": cost}]) for a, (acc, cost) in enumerate(points)]
    answer = sentence(rank([read(sweep_of(runs, objectives=both))]))
    assert answer.startswith("3 of the 4 configurations that completed are on the Pareto front of acc and cost")
    assert answer.endswith("acc 0.9000 with a=0 (trial 0); cost 1.000 with a=2 (trial 2).")
    alone = sentence(rank([read(sweep_of(runs[3:], "other", objectives=both))]))
    assert "is best in acc and cost at once" in alone


def test_names_cannot_turn_the_sentence_round(sweep_of) -> None:
    runs = [({"a": "x\u202e" + end}, Status.COMPLETED, [{"acc": 0.5}]) for end in "yz"]
    assert "\u202e" not in sentence(rank([read(sweep_of(runs))]))


def test_of_many_parameters_some_are_named(sweep_of) -> None:
    runs = [({f"p{k}": k * n for k in range(1, 30)}, Status.COMPLETED, [{"acc": n / 2}]) for n in (0, 1)]
    answer = sentence(rank([read(sweep_of(runs))]))
    assert "p8=8 and 21 more parameters (trial 1)" in answer
    assert "p9=" not in answer
