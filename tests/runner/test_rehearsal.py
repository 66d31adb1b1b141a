"""Rehearsals of sweeps: curves that cross, the method that will search, and prices near what sweeps take."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from sweep.runner import planning
from sweep.runner.rehearsal import Landscape, MadeUpTrial, agreement
from sweep.spec import Spec, parse_spec

SPACE = """
  batch_size: {min: 16, max: 512}
  learning_rate: {distribution: log_uniform_values, min: 1e-4, max: 1e-1}
  momentum: {min: 0.1, max: 0.99}
  weight_decay: {min: 1e-5, max: 1e-1}
  num_layers: {min: 1, max: 5}
  max_units: {min: 64, max: 1024}
  max_dropout: {min: 0.0, max: 1.0}
"""

MEASURED = {
    ("random", "type: asha, min_iter: 1"): 495,
    ("random", "type: asha, min_iter: 6"): 1548,
    ("random", "type: asha, min_iter: 1, brackets: 3"): 888,
    ("random", "type: asha_promotion, min_iter: 1"): 391,
    ("random", "type: asha_promotion, min_iter: 6"): 1544,
    ("random", "type: hyperband, min_iter: 6"): 1802,
    ("random", "type: median, min_iter: 1"): 1313,
    ("random", "type: median, min_iter: 6"): 1677,
    ("random", "type: pasha, min_iter: 1"): 342,
    ("random", "type: pasha, min_iter: 6"): 1536,
    ("random", "type: freeze_thaw, min_iter: 1"): 188,
    ("random", "type: freeze_thaw, min_iter: 6"): 890,
    ("tpe", "type: asha"): 3513,
    ("tpe", "type: asha, brackets: 2"): 3746,
    ("tpe", "type: asha_promotion"): 3296,
    ("tpe", "type: hyperband, min_iter: 6"): 3550,
    ("tpe", "type: median"): 4110,
    ("tpe", "type: pasha"): 2843,
    ("tpe", "type: freeze_thaw"): 1042,
}
"""Epochs of 100 trials of 52 epochs on LCBench, four at a time: means over eight data sets (``docs/search.md``)."""


def spec_of(method: str, rule: str, *, more: str = "run_cap: 100", parameters: str = SPACE) -> Spec:
    metric = "" if "metrics" in more else "metric: {name: loss}\n"
    text = (
        f"trainable: m:M\nmethod: {method}\n{metric}epochs: 52\nparameters:{parameters}\n{more}\n"
    )
    return parse_spec(f"{text}early_terminate: {{{rule}}}\n", "s.yaml")


def expected_epochs(spec: Spec, trials: int) -> float:
    course = planning.rehearse_course(spec, (), spec.epochs, trials, 4)
    assert course.epochs is not None
    return course.epochs


@pytest.mark.parametrize(
    ("method", "rule"),
    [
        pytest.param(
            *one, marks=[pytest.mark.exhaustive] if one[0] == "tpe" else [], id=" ".join(one)
        )
        for one in MEASURED
    ],
)
def test_prices_are_within_a_fifth_of_what_sweeps_take(method: str, rule: str) -> None:
    assert expected_epochs(spec_of(method, rule), 100) == pytest.approx(
        MEASURED[method, rule], rel=0.2
    )


def test_a_method_that_learns_takes_more_epochs_than_random_search() -> None:
    rule = "type: asha, min_iter: 6"
    learning, chance = (expected_epochs(spec_of(method, rule), 30) for method in ("tpe", "random"))
    assert 1.2 * chance < learning < 30 * 52


@pytest.mark.parametrize(
    ("epoch", "low", "high"), [(1, -0.1, 0.4), (3, 0.6, 0.85), (6, 0.8, 0.92), (18, 0.93, 0.99)]
)
def test_made_up_curves_rank_as_those_of_lcbench(epoch: int, low: float, high: float) -> None:
    numbers = random.Random(0)
    trials = [MadeUpTrial(*(numbers.gauss(0.0, 1.0) for _ in range(3))) for _ in range(2000)]
    early, last = ([one.loss(at, 52) for one in trials] for at in (epoch, 52))
    assert low < stats.spearmanr(early, last)[0] < high
    assert agreement(52, 52) == 1.0
    assert np.mean(early) > np.mean(last)


CONDITIONAL = """
  optimizer: {values: [adam, sgd]}
  momentum: {min: 0.1, max: 0.99, when: {optimizer: sgd}}
  units: {values: [16, 32, 64]}
  noise: {distribution: normal, mu: 0, sigma: 1}
  rate: {distribution: log_uniform_values, min: 1e-4, max: 1e-1}
"""


def test_a_landscape_has_a_height_for_each_configuration_and_always_the_same() -> None:
    space = spec_of("random", "type: asha", parameters=CONDITIONAL).space
    sgd = {"optimizer": "sgd", "momentum": 0.9, "units": 16, "noise": -3.0, "rate": 1e-3}
    adam = {"optimizer": "adam", "units": 64, "noise": 0.5, "rate": 1e-2}
    one, again, other = (Landscape(space, name) for name in ("a", "a", "b"))
    assert one.trial(sgd) == again.trial(sgd) != one.trial(adam)
    assert one.trial(sgd) != other.trial(sgd)


def test_few_configurations_and_repeats_are_priced() -> None:
    few = spec_of("tpe", "type: asha", more="repeats: 2", parameters="\n  a: {values: [1, 2, 3]}")
    assert few.all_trials == 6
    assert 6 * 6 <= expected_epochs(few, 6) <= 6 * 52


@pytest.mark.parametrize("method", ["random", "tpe"])
def test_constraints_over_metrics_and_several_objectives_are_priced(method: str) -> None:
    plain = expected_epochs(spec_of(method, "type: asha, min_iter: 6"), 30)
    constrained = spec_of(
        method, "type: asha, min_iter: 6", more='run_cap: 30\nconstraints: ["latency <= 5"]'
    )
    assert expected_epochs(constrained, 30) == plain
    several = spec_of(
        method, "type: asha, min_iter: 6", more="run_cap: 30\nmetrics: [{name: loss}, {name: size}]"
    )
    assert 30 * 6 < expected_epochs(several, 30) < 30 * 52


SLOW_STOPPED = """
class SlowStopped:
    def __init__(self, *given): pass
    def decision_epochs(self, epochs): return (1,)
    def observe(self, event):
        return "slow" if getattr(event, "time_s", 0.0) > 10 else None
"""


def test_a_rule_of_ones_own_that_decides_by_times_gets_them_or_the_plan_says_that_there_are_none(
    tmp_path: Path,
) -> None:
    (tmp_path / "slow_stopping.py").write_text(SLOW_STOPPED)
    text = "trainable: m:M\nmethod: random\nmetric: {name: loss}\nrun_cap: 8\nepochs: 5\n"
    spec = parse_spec(
        f"{text}early_terminate: slow_stopping:SlowStopped\nparameters: {{a: {{min: 0.0, max: 1.0}}}}\n",
        "s.yaml",
    )
    slow, fast, unknown = (
        planning.rehearse_course(spec, [tmp_path], 5, 8, 2, epoch_s)
        for epoch_s in (60.0, 1.0, None)
    )
    assert (slow.epochs, slow.lacks_times) == (8, False)
    assert (fast.epochs, fast.lacks_times) == (40, False)
    assert (unknown.epochs, unknown.lacks_times) == (40, True)
    assert [rung.trials for rung in unknown.rungs] == [None]


def test_made_up_trials_are_as_long_as_a_parameter_epochs_says() -> None:
    rule = "type: hyperband, max_iter: 52, s: 2"
    spec = spec_of("random", rule)
    longer = spec_of("random", rule, parameters=f"{SPACE}  epochs: {{value: 52}}\n")
    as_parameter = replace(longer, epochs=5)
    assert as_parameter.length == 5
    expected = planning.rehearse_course(spec, (), 52, 60, 4).epochs
    assert planning.rehearse_course(as_parameter, (), 52, 60, 4).epochs == expected
