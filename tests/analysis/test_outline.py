from __future__ import annotations

from dataclasses import replace

from sweep.analysis.live_status import Standing
from sweep.analysis.outline import BudgetLimits, Outline
from sweep.events import EpochReported, Role, SessionStarted, TrialStarted
from sweep.space.early_terminate import Asha, NoTermination
from sweep.space.objectives import Objective
from sweep.spec import parse_spec

FILE = """
name: some
trainable: a:B
method: random
metric: {name: loss, goal: minimize}
parameters: {a: {min: 0.0, max: 1.0}, b: {value: 3}, "c.d": {values: [1, null]}, epochs: {values: [2, 9]}}
epochs: 9
run_cap: 4
repeats: 3
early_terminate: {type: asha, min_iter: 1, eta: 3}
budget: {hours: 2, epochs: 100, gpu_hours: 3}
resources: {gpus: 2}
"""


def test_a_sweep_file_in_few_words() -> None:
    outline = Outline.of(parse_spec(FILE, "f.yaml"))
    assert (outline.name, outline.metric, outline.objective) == (
        "some",
        "loss",
        Objective("loss", "minimize"),
    )
    assert (outline.total, outline.repeats, outline.epochs) == (12, 3, 9)
    assert outline.varying == ("a", "c.d", "epochs")
    assert outline.decisions == (1, 3)
    assert outline.rule == Asha(1, None, 3)
    assert (
        outline.limits.hours,
        outline.limits.epochs,
        outline.limits.gpu_hours,
        outline.limits.gpus,
    ) == (
        2,
        100,
        3,
        2,
    )
    assert [outline.epochs_of({"epochs": 2}), outline.epochs_of({})] == [2, 9]


def test_nobody_knows_how_many_trials_an_endless_one_has() -> None:
    assert Outline.of(parse_spec(FILE.replace("run_cap: 4", ""), "f.yaml")).total is None


def test_the_trials_of_the_baseline_count_before_they_begin() -> None:
    spec = parse_spec(f"{FILE}baseline: {{a: 0.5, b: 3, c.d: 1, epochs: 9}}\n", "f.yaml")
    standing = Standing(Outline.of(spec))
    assert (standing.total, standing.waiting(), spec.all_trials) == (15, 15, 15)
    for number, role in enumerate([Role.BASELINE, Role.SEARCH, Role.CONFIRM]):
        begun = TrialStarted(
            trial=number, trial_id="t", params={}, seed=0, repeat=0, time=0.0, role=role
        )
        standing.observe(begun)
    assert (standing.total, standing.waiting()) == (16, 13)


def test_the_time_left_counts_epochs_that_are_a_parameter() -> None:
    file = FILE.replace("epochs: 9\n", "").replace("values: [2, 9]", "value: 30")
    outline = Outline.of(parse_spec(file.replace("repeats: 3", ""), "f.yaml"))
    assert outline.decisions == (1, 3, 9, 27)
    # 3 of 4 trials have not begun, each with 30 epochs of 2 s; no rule stops them while all are alike
    standing = Standing(replace(outline, rule=NoTermination(), decisions=(), limits=BudgetLimits()))
    begun = TrialStarted(trial=0, trial_id="t", params={"epochs": 30}, seed=0, repeat=0, time=0.0)
    standing.observe(SessionStarted(time=0.0, resumed=False, version="1"))
    standing.observe(begun)
    standing.observe(EpochReported(trial=0, epoch=1, metrics={"loss": 1.0}, time=2.0, time_s=2.0))
    assert standing.left_s(2.0) == 29 * 2.0 + 3 * 30 * 2.0
