"""Plans: epochs, rungs, samples and histograms, without training anything."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from sweep.errors import InputError
from sweep.render.plans import as_dict, show_plan
from sweep.runner import planning, sweep_files
from sweep.runner.earlier_times import Timing
from sweep.runner.planning import Plan
from sweep.spec import parse_spec

TPE = "method: tpe\nmetric: {name: loss}\n"


def planned(text: str, timing: Timing | None = None) -> Plan:
    return planning.make_plan(
        parse_spec(f"trainable: m:M\n{text}", "s.yaml"),
        None,
        planning.Basis(timing=lambda sample: timing),
    )


def counts(plan: Plan, name: str) -> dict[str, int]:
    (found,) = [one for one in plan.histograms if one.name == name]
    return {json.dumps(bin.low): bin.count for bin in found.bins}


def test_a_grid_is_counted_value_by_value() -> None:
    plan = planned(
        "method: grid\nrepeats: 2\nparameters:\n"
        "  a: {values: [x, y, z]}\n  b: {min: 1, max: 2, when: {a: [x, y]}}\n  c: {value: 1}\n"
    )
    assert (plan.trials, plan.epochs, plan.lengths) == (10, 100, (10, 10))
    assert counts(plan, "a") == {'"x"': 2, '"y"': 2, '"z"': 1}
    assert counts(plan, "b") == {"1": 2, "2": 2}
    assert [one.name for one in plan.histograms] == ["a", "b"]
    assert (plan.histograms[1].present, plan.histograms[1].of) == (4, 5)
    assert plan.looked_at == "all 5 configurations"


def test_epochs_that_vary_are_added_up_or_estimated() -> None:
    text = "parameters: {epochs: {values: [2, 4]}, a: {values: [1, 2, 3]}}\n"
    assert planned(f"method: grid\n{text}").epochs == 18
    plan = planned(f"{TPE}{text}run_cap: 6\n")
    assert (plan.epochs, plan.lengths) == (None, (2, 4))
    assert plan.price.epochs == pytest.approx(18, rel=0.15)


def test_epochs_of_configurations_that_are_not_known_yet_are_no_sum() -> None:
    # as many draws are looked at as there are configurations
    looked_at = planning.LOOKED_AT
    text = f"parameters: {{epochs: {{values: [2, 4]}}, a: {{min: 0.0, max: 1.0}}}}\nrun_cap: {looked_at}\n"
    assert planned(f"{TPE}{text}").epochs is None
    assert planned(f"method: random\n{text}").epochs is not None


def test_a_baseline_may_have_more_epochs_than_any_configuration() -> None:
    text = "method: grid\nparameters: {epochs: {values: [2, 4]}, a: {values: [1, 2, 3]}}\n"
    plan = planned(f"{text}baseline: {{a: 1, epochs: 50}}\nrepeats: 2\n")
    assert (plan.trials, plan.epochs, plan.lengths) == (14, 2 * 18 + 2 * 50, (2, 50))
    assert plan.price.epochs == pytest.approx(136)


@pytest.mark.parametrize("method", ["random", "sobol"])
def test_methods_that_need_no_results_show_their_own_configurations(method: str) -> None:
    plan = planned(f"method: {method}\nparameters: {{a: {{min: 0.0, max: 1.0}}}}\nrun_cap: 50\n")
    assert plan.looked_at == "all 50 configurations"
    assert sum(counts(plan, "a").values()) == 50
    many = planned(f"method: {method}\nparameters: {{a: {{min: 0.0, max: 1.0}}}}\nrun_cap: 5000\n")
    assert many.looked_at == "the first 200 configurations"


def test_a_searcher_of_ones_own_that_foresees_shows_its_own_configurations(tmp_path: Path) -> None:
    (tmp_path / "foreseeing_search.py").write_text(
        "class Up:\n    foresees = True\n    def __init__(self, *given): pass\n    def learn(self, past): return 0\n"
        "    def suggest(self, number): return {'a': number / 50}\n    def observe(self, event): pass\n"
    )
    text = "trainable: m:M\nmethod: foreseeing_search:Up\nmetric: {name: loss}\nparameters: {a: {min: 0.0, max: 1.0}}\n"
    plan = planning.make_plan(
        parse_spec(f"{text}run_cap: 50\n", "s.yaml"), None, planning.Basis(folders=[tmp_path])
    )
    assert plan.looked_at == "all 50 configurations"
    assert plan.histograms[0].bins[-1].high == 49 / 50


def test_a_logarithmic_parameter_has_logarithmic_bins_and_a_tied_one_follows() -> None:
    plan = planned(
        f"{TPE}run_cap: 9\nparameters:\n  lr: {{distribution: log_uniform_values, min: 1e-5, max: 1e-1}}\n"
        '  wd: {value: "= lr / 10"}\n'
    )
    for one in plan.histograms:
        ratios = [bin.high / bin.low for bin in one.bins]
        assert ratios == pytest.approx([ratios[0]] * len(ratios), rel=1e-3)
        assert one.present == 200
        assert min(bin.count for bin in one.bins) > 0
    assert [one.name for one in plan.histograms] == ["lr", "wd"]


def test_what_follows_from_an_even_parameter_has_even_bins() -> None:
    plan = planned(
        f'{TPE}run_cap: 9\nparameters: {{a: {{min: 0.001, max: 1.0}}, b: {{value: "= a * 2"}}}}\n'
    )
    widths = [bin.high - bin.low for bin in plan.histograms[1].bins]
    assert widths == pytest.approx([widths[0]] * len(widths))


def test_only_possible_points_are_looked_at() -> None:
    plan = planned(
        f'{TPE}run_cap: 9\nparameters: {{a: {{min: 0.0, max: 1.0}}}}\nconstraints: ["a < 0.25"]\n'
    )
    (one,) = plan.histograms
    assert one.bins[-1].high < 0.25
    assert one.present == 200


@pytest.mark.parametrize("method", ["method: random\n", TPE])
def test_thin_constraints_are_priced(method: str) -> None:
    space = "run_cap: 9\nparameters: {a: {min: 0.0, max: 1.0}, b: {min: 0.0, max: 1.0}}\n"
    plan = planned(f'{method}{space}constraints: ["abs(a - b) < 1e-5"]\n')
    assert len(plan.sample) == 5
    assert (plan.trials, plan.histograms[0].present) == (9, 20 if method == TPE else 9)
    assert plan.allowed == 0
    assert plan.choosing_s > 0
    console = Console(file=StringIO(), width=120)
    show_plan(plan, console)
    assert (
        "constraints  met by hardly a random point of 4,000; a configuration takes"
        in console.file.getvalue()
    )
    assert planned(f'{method}{space}constraints: ["a < 0.25"]\n').allowed == pytest.approx(
        0.25, abs=0.05
    )


RANDOM = "method: random\nparameters: {a: {min: 0.0, max: 1.0}}\nrun_cap: 20\nepochs: 300\n"


def test_a_plan_says_what_the_fresh_seeds_that_its_budget_allows_can_tell() -> None:
    console = Console(file=StringIO(), width=400)
    show_plan(
        planned(
            f"{RANDOM}metric: {{name: loss}}\nconfirm: {{seeds: 5, finalists: 4, budget: 5%}}\n"
        ),
        console,
    )
    show_plan(
        planned(
            f"{RANDOM}metric: {{name: loss}}\nconfirm: {{seeds: 5, finalists: 4, budget: 50%}}\n"
        ),
        console,
    )
    none, some = (
        line for line in console.file.getvalue().splitlines() if line.startswith("  tells")
    )
    assert none.endswith(
        "no difference: to tell one from luck, 2 configurations need 2 seeds each, and have 0 seeds"
    )
    assert "by up to 3 fresh seeds of each finalist" in some


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            f"{RANDOM}metric: {{name: loss, target: 0.25}}\nbudget: {{hours: 2}}\nstop_when: {{no_improvement: 7}}\n",
            "after 2 hours or when loss reaches 0.25 or after 7 trials without a better one",
        ),
        (
            f"{RANDOM}metric: {{name: loss}}\nearly_terminate: {{type: asha, min_iter: 1, eta: 2}}\n",
            "trials can be pruned at 9 epochs from 1 to 256",
        ),
        (
            f"{RANDOM}metric: {{name: loss}}\nbaseline: {{a: 0.5}}\nrepeats: 2\n",
            "a=0.5: 2 trials of its own",
        ),
        (
            f"{RANDOM}metric: {{name: loss}}\nconfirm: {{seeds: 5, finalists: 4, budget: 5%}}\n",
            "nothing: 5% of the search allows 0 fresh seeds for 2 finalists",
        ),
        (
            f"{RANDOM}metric: {{name: loss}}\nconfirm: {{seeds: 5, finalists: 4, budget: 50%}}\n",
            "at most 9 trials and 2700 epochs more: 3 finalists, 3 fresh seeds each, for 50% of the search allows no "
            "more",
        ),
        (
            "method: pbt\nparameters: {a: {min: 0.0, max: 1.0}}\nepochs: 8\nmetric: {name: loss}\n"
            "population: {size: 4, interval: 2}\n",
            "4 members, and up to 3 copies",
        ),
        (
            f"{RANDOM}metric: {{name: loss}}\ntraining: {{strategy: parameter_server}}\n"
            "resources: {workers: 2, servers: 1}\n",
            "2 workers of 1 CPU, 1 server and a coordinator of 1 CPU",
        ),
    ],
)
def test_what_a_plan_says(text: str, said: str) -> None:
    console = Console(file=StringIO(), width=400)
    show_plan(planned(text), console)
    assert said in console.file.getvalue()


def test_rungs_and_hours() -> None:
    text = "method: random\nmetric: {name: loss}\nparameters: {a: {min: 0.0, max: 1.0}}\nrun_cap: 40\nepochs: 27\n"
    plan = planned(
        text + "early_terminate: {type: hyperband, min_iter: 3}\n", Timing(1.0, 0.0, 0.0, "made up")
    )
    assert [(rung.epoch, round(rung.trials or 0)) for rung in plan.rungs] == [(3, 40), (9, 16)]
    assert plan.epochs == 27 * 40
    assert plan.price.epochs is not None
    assert plan.price.epochs < plan.epochs / 2
    assert plan.price.hours == pytest.approx(plan.price.epochs / (plan.concurrent or 1) / 3600)


def test_a_parameter_that_no_configuration_has_is_said() -> None:
    plan = planned(
        "method: random\nmetric: {name: loss}\nrun_cap: 2\nparameters:\n  width: {min: 0.0, max: 1.0}\n"
        "  kind: {values: [a, b], probabilities: [0.999, 0.001]}\n"
        "  rate: {min: 0.0, max: 1.0, when: {kind: b}}\n"
        "  size: {values: [1, 2], when: {kind: b}}\n"
    )
    assert [(one.name, one.present) for one in plan.histograms] == [
        ("width", 2),
        ("kind", 2),
        ("rate", 0),
        ("size", 0),
    ]
    console = Console(file=StringIO(), width=400)
    show_plan(plan, console)
    shown = console.file.getvalue()
    assert shown.endswith("kind   a 100 %, b 0 %\nrate   in none of them\nsize   in none of them\n")


def test_everything_is_in_the_data() -> None:
    text = "method: grid\nmetric: {name: loss}\nparameters: {a: {values: [1, 2]}}\nearly_terminate: {type: asha}\n"
    plan = planned(text, Timing(1.0, 2.0, 3.0, "made up"))
    data = as_dict(plan)
    json.dumps(data, allow_nan=False)
    assert data["rungs"] == [
        {"epoch": 1, "expected_trials": 2},
        {"epoch": 3, "expected_trials": pytest.approx(1.5, abs=0.1)},
        {"epoch": 9, "expected_trials": pytest.approx(1.5, abs=0.1)},
    ]
    assert data["timing"] == {"epoch_s": 1.0, "trial_s": 2.0, "start_s": 3.0, "source": "made up"}
    assert data["histograms"]["a"]["bins"] == [{"value": 1, "count": 1}, {"value": 2, "count": 1}]
    assert data["expected"]["hours"] > 0


def test_mistakes_of_a_file_and_of_its_trainable_are_found_together(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(
        "trainable: nowhere:Thing\nmethod: random\nrun_cap: 2\nepochs: zero\nparameters: {a: {value: 1}}\n"
    )
    with pytest.raises(InputError) as caught:
        sweep_files.load_file(file, ["metod=grid"])
    told = [problem.where for problem in caught.value.problems]
    assert told[0].endswith("wrong.yaml:4:9")
    assert [where for where in told if where.startswith("--set metod")]
    assert told[-1] == f"{file}: trainable"
    with pytest.raises(InputError) as caught:
        sweep_files.load_file(file, ["trainable=other:Thing"])
    assert "other" in caught.value.problems[-1].what
