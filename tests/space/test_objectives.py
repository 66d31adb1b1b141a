"""Objectives: a metric and its direction."""

from __future__ import annotations

import math

import pytest

from sweep.events import EpochReported
from sweep.space.expressions import Expression
from sweep.space.objectives import Goal, Impute, Objective


def test_the_sign_makes_lower_better() -> None:
    assert Objective("loss", "minimize").sign * 2 < Objective("loss", "minimize").sign * 3
    assert Objective("acc", "maximize").sign * 3 < Objective("acc", "maximize").sign * 2


@pytest.mark.parametrize(
    ("metrics", "value"),
    [
        ({"loss": 0.5}, 0.5),
        ({"loss": 0}, 0),
        ({}, None),
        ({"loss": math.nan}, None),
        ({"loss": -math.inf}, None),
    ],
)
def test_only_a_finite_number_is_a_value(metrics: dict[str, float], value: float | None) -> None:
    assert Objective("loss", "minimize").value(metrics) == value


@pytest.mark.parametrize(
    "text", ["size == 1", "size != 1", "size in [1, 2]", "size not in [1, 2]", "not size == 1"]
)
@pytest.mark.parametrize("size", [math.nan, math.inf, -math.inf])
def test_a_metric_that_is_not_finite_meets_no_constraint(text: str, size: float) -> None:
    limited = Objective("loss", "minimize", constraints=(Expression.parse(text),))
    assert limited.list_violated({"loss": 0.5, "size": size}) == [text]
    assert limited.ranking_loss({"loss": 0.5, "size": size}) > limited.ranking_loss(
        {"loss": 99.0, "size": 3.0}
    )


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["loss", "acc", "size"])
@pytest.mark.parametrize(("first", "others"), [("acc", ("size",)), ("size", ("acc",))])
def test_a_trial_diverges_by_whichever_objective_is_not_finite(
    first: str, others: tuple[str, ...], name: str, bad: float
) -> None:
    metrics = {"loss": 1.0, "acc": 0.5, "size": 3.0, "extra": math.nan}
    objective = Objective(
        first, "minimize", others=tuple(Objective(other, "minimize") for other in others)
    )
    assert (
        objective.explain_divergence(
            EpochReported(trial=0, epoch=2, metrics=metrics, time=0.0, time_s=0.0)
        )
        == ""
    )
    epoch = EpochReported(trial=0, epoch=2, metrics=metrics | {name: bad}, time=0.0, time_s=0.0)
    assert objective.explain_divergence(epoch) == f"{name} is {bad} in epoch 2"


@pytest.mark.parametrize(
    ("value", "reached"), [(0.4, True), (0.5, True), (0.6, False), (math.nan, False)]
)
def test_a_target_is_reached_from_its_good_side(value: float, reached: bool) -> None:
    assert (
        Objective("loss", "minimize").describe_reached(0.5, {"loss": value}) is not None
    ) is reached
    assert (
        Objective("acc", "maximize").describe_reached(-0.5, {"acc": -value}) is not None
    ) is reached
    assert Objective("loss", "minimize").describe_reached(None, {"loss": value}) is None


LIMITED = Objective(
    "loss",
    "minimize",
    None,
    (Expression.parse("latency_ms <= 5"), Expression.parse("recall > 0.9")),
)


def metrics(loss: float, latency_ms: float, recall: float = 1.0) -> dict[str, float]:
    return {"loss": loss, "latency_ms": latency_ms, "recall": recall}


def test_constraints_say_which_metrics_count() -> None:
    assert LIMITED.list_violated(metrics(0.5, 5.0)) == []
    assert LIMITED.list_violated(metrics(0.5, 6.0, 0.5)) == ["latency_ms <= 5", "recall > 0.9"]
    assert LIMITED.list_violated(metrics(0.5, math.nan)) == ["latency_ms <= 5"]
    assert LIMITED.list_violated({"loss": 0.5, "latency_ms": 1.0}) == ["recall > 0.9"]
    assert Objective("loss", "minimize").list_violated({}) == []


@pytest.mark.parametrize("goal", ["minimize", "maximize"])
def test_who_meets_the_constraints_stands_before_all_others_and_these_by_their_violation(
    goal: Goal,
) -> None:
    limited = Objective("loss", goal, None, LIMITED.constraints)
    of = [
        limited.constrained_loss(metrics(*one))
        for one in ((0.1, 1.0), (1e6, 5.0), (-1e6, 5.1), (0.0, 6.0), (0.1, 60.0))
    ]
    standings = [one for one in of if one is not None]
    assert len(standings) == len(of)
    assert max(standings[:2]) < min(standings[2:])
    assert standings[2:] == sorted(standings[2:])
    assert limited.constrained_loss(metrics(math.nan, 1.0)) is None


def test_what_has_no_standing_ranks_behind_all() -> None:
    limited = Objective("loss", "maximize", None, LIMITED.constraints)
    ranks = [
        limited.ranking_loss(metrics(*one))
        for one in ((0.3, 1.0), (0.1, 1.0), (0.9, 9.0), (math.nan, 1.0))
    ]
    assert ranks == sorted(ranks)
    assert ranks[0] == limited.constrained_loss(metrics(0.3, 1.0)) == -0.3
    assert ranks[-1] == limited.ranking_loss({}) == math.inf


@pytest.mark.parametrize(
    ("impute", "loss"), [("latest", -0.2), ("best", -0.5), ("worst", None), (None, None)]
)
def test_an_unfinished_trial_counts_by_its_imputed_loss(
    impute: Impute | None, loss: float | None
) -> None:
    epochs = [{"acc": 0.5}, {"acc": 0.2}, {"acc": math.nan}, {}]
    objective = Objective("acc", "maximize", impute)
    assert objective.impute_loss(epochs) == loss
    assert objective.impute_loss([{}, {"acc": math.inf}]) is None


def test_no_target_is_reached_against_the_constraints() -> None:
    assert LIMITED.describe_reached(0.5, metrics(0.4, 1.0)) == "target reached: loss 0.4"
    assert LIMITED.describe_reached(0.5, metrics(0.4, 9.0)) is None
