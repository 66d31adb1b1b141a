"""What a sweep file leaves to sweep: the method and the rule."""

from __future__ import annotations

import json

import pytest

from sweep.space.early_terminate import Asha, AshaPromotion, NoTermination, compute_decision_epochs
from sweep.spec import Spec, parse_spec

BASE = "trainable: m:M\nrun_cap: 30\nparameters: {a: {min: 0.0, max: 1.0}}\n"


def sweep(text: str, base: str = BASE) -> Spec:
    return parse_spec(base + text, "s.yaml")


@pytest.mark.parametrize("method", ["", "method: auto\n"])
@pytest.mark.parametrize(
    ("epochs", "rungs"),
    [
        (4, (1,)),
        (5, (1, 3)),
        (9, (1, 3)),
        (10, (2, 6)),
        (27, (3, 9)),
        (52, (6, 18)),
        (100, (12, 36)),
    ],
)
def test_one_metric_is_searched_by_gp_with_rungs_that_rank(
    method: str, epochs: int, rungs: tuple[int, ...]
) -> None:
    spec = sweep(f"{method}metric: {{name: loss}}\nepochs: {epochs}")
    assert spec.method == "gp"
    rule = spec.early_terminate
    assert isinstance(rule, AshaPromotion)
    assert (rule.capped, rule.min_completed, rule.eta) == (True, 3, 3)
    assert compute_decision_epochs(rule, epochs) == rungs
    assert [line.partition(",")[0] for line in spec.chosen] == ["gp", "asha_promotion"]
    assert " and ".join(map(str, rungs)) in spec.chosen[1]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("epochs: 3", "3 epochs a trial leave nothing to save"),
        ("epochs: 1", "1 epoch a trial leave nothing to save"),
        (
            "parameters: {a: {min: 0.0, max: 1.0}, epochs: {values: [5, 20]}}",
            "trials differ in their epochs",
        ),
    ],
)
def test_trials_that_cannot_be_compared_before_they_end_are_not_stopped(
    text: str, why: str
) -> None:
    base = "trainable: m:M\nrun_cap: 30\nmetric: {name: loss}\n"
    spec = sweep(
        text, base if "parameters" in text else base + "parameters: {a: {min: 0.0, max: 1.0}}\n"
    )
    assert (spec.method, spec.early_terminate) == ("gp", NoTermination())
    assert why in spec.chosen[1]


@pytest.mark.parametrize("epochs", ["value: 27", "values: [27]"])
def test_one_value_of_a_parameter_epochs_is_as_the_key(epochs: str) -> None:
    parameters = f"parameters: {{a: {{min: 0.0, max: 1.0}}, epochs: {{{epochs}}}}}"
    spec = sweep(f"trainable: m:M\nrun_cap: 30\nmetric: {{name: loss}}\n{parameters}", "")
    expected = sweep("metric: {name: loss}\nepochs: 27")
    assert spec.early_terminate == expected.early_terminate
    assert spec.chosen == expected.chosen


def test_a_small_budget_lowers_the_first_rung() -> None:
    first_rungs = {}
    for budget in (300, 330, 800, 820):  # of 54 epochs each, 5.6, 6.1, 14.8 and 15.2 trainings
        spec = sweep(f"metric: {{name: loss}}\nepochs: 54\nbudget: {{epochs: {budget}}}")
        first_rungs[budget] = compute_decision_epochs(spec.early_terminate, 54)[0]
    assert first_rungs == {300: 2, 330: 3, 800: 3, 820: 6}


def test_several_metrics_are_searched_by_tpe() -> None:
    spec = sweep("metrics: [{name: loss}, {name: size}]")
    assert (spec.method, spec.early_terminate) == ("tpe", NoTermination())
    assert spec.chosen[0] == "tpe, chosen by auto: 2 metrics, and gp optimizes one"


def test_a_rule_of_the_file_stays() -> None:
    spec = sweep("metric: {name: loss}\nearly_terminate: {type: asha, min_iter: 2}")
    assert (spec.method, spec.early_terminate) == ("gp", Asha(min_iter=2))
    assert spec.chosen[1] == ""
    none = sweep("metric: {name: loss}\nearly_terminate: {type: none}")
    assert (none.method, none.early_terminate) == ("gp", NoTermination())


def test_a_method_of_the_file_stays_and_nothing_is_chosen() -> None:
    spec = sweep("method: random\nepochs: 27")
    assert (spec.method, spec.early_terminate, spec.chosen) == ("random", NoTermination(), ())


def test_the_resolved_sweep_names_what_was_chosen() -> None:
    spec = sweep("metric: {name: loss}\nepochs: 27")
    again = parse_spec(json.dumps(spec.to_json_dict()), "results/s/sweep.json")
    assert again == spec
    assert again.chosen == ()


def test_a_prior_is_named_in_the_reason() -> None:
    spec = sweep("metric: {name: loss}\nepochs: 27\nprior: {a: 0.5}")
    assert spec.method == "gp"
    assert "begins with draws by the prior" in spec.chosen[0]
    assert "prior" not in sweep("metric: {name: loss}\nepochs: 27").chosen[0]


def test_rungs_of_minutes_are_hundredths() -> None:
    spec = sweep("metric: {name: loss}\nminutes: 5")
    assert compute_decision_epochs(spec.early_terminate, spec.length) == (12, 36)
    assert (
        "a third of the trials goes on from 12 and 36 hundredths of the 5 minutes" in spec.chosen[1]
    )
