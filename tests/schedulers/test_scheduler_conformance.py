"""What every scheduler keeps, whatever its rule."""

from __future__ import annotations

import math
import pkgutil
import random
import sys
from collections.abc import Callable

import pytest

from sweep.conformance.schedulers import (
    EPOCHS,
    PausingConformance,
    SchedulerConformance,
    pruned,
    report,
    run,
    search,
)
from sweep.events import Params, Status, TrialEnded, TrialStarted
from sweep.schedulers import Pausing, Scheduler
from sweep.schedulers.early_termination import build_scheduler
from sweep.space import early_terminate
from sweep.space.early_terminate import (
    Asha,
    AshaPromotion,
    EarlyTermination,
    FreezeThaw,
    Hyperband,
    Median,
    NoTermination,
    Pasha,
    Rule,
)
from sweep.space.objectives import Objective

RULES: dict[str, Rule] = {
    "none": NoTermination(),
    "asha": Asha(min_iter=1, eta=3),
    "asha fine": Asha(min_iter=1, eta=1.3),
    "asha brackets": Asha(min_iter=2, eta=2, brackets=2),
    "median": Median(min_iter=2, min_trials=3),
    "hyperband": Hyperband(min_iter=2, eta=3),
    "hyperband strict": Hyperband(max_iter=12, s=2, eta=2, strict=True),
}
PAUSING: dict[str, Rule] = {
    "asha_promotion": AshaPromotion(min_iter=1, eta=3),
    "asha_promotion fine": AshaPromotion(min_iter=1, eta=1.3),
    "asha_promotion late": AshaPromotion(min_iter=2, max_iter=4, eta=2),
    "pasha": Pasha(min_iter=1, eta=2),
    "pasha strict": Pasha(min_iter=1, eta=2, epsilon=0.0),
    "pasha lax": Pasha(min_iter=1, eta=2, epsilon=9.0),
    "freeze_thaw": FreezeThaw(min_iter=1, eta=3),
    "freeze_thaw later": FreezeThaw(min_iter=2, eta=2, share=0.0),
}
every_pausing = pytest.mark.parametrize("rule", PAUSING.values(), ids=PAUSING)
every_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
every_active = pytest.mark.parametrize("rule", list(RULES.values())[1:], ids=list(RULES)[1:])
every_goal = pytest.mark.parametrize("goal", ["minimize", "maximize"])


def test_every_rule_is_tested() -> None:
    assert {rule.type for rule in RULES.values()} == {
        kind for kind, r in early_terminate.RULES.items() if not r.pauses
    }
    assert {rule.type for rule in PAUSING.values()} == {
        kind for kind, r in early_terminate.RULES.items() if r.pauses
    }


@pytest.mark.parametrize("rule", early_terminate.RULES.values(), ids=early_terminate.RULES)
def test_each_scheduler_is_found(rule: type[Rule]) -> None:
    for target in filter(None, (rule.scheduler, rule.scheduler_of_several)):
        assert target.startswith("sweep.schedulers.")
        assert callable(pkgutil.resolve_name(target))


@pytest.mark.parametrize("rule", [*RULES.values(), *PAUSING.values()], ids=[*RULES, *PAUSING])
def test_a_rule_pauses_if_the_table_says_so(rule: Rule) -> None:
    assert isinstance(build_one(rule), Pausing) == rule.pauses


@pytest.mark.parametrize("rule", [*RULES.values(), *PAUSING.values()], ids=[*RULES, *PAUSING])
def test_several_objectives_are_refused_by_rules_for_one(rule: Rule) -> None:
    both = Objective("m", "minimize", others=(Objective("n", "minimize"),))
    if rule.scheduler_of_several:
        assert build_scheduler(rule, both, EPOCHS).decision_epochs(EPOCHS) == build_one(
            rule
        ).decision_epochs(EPOCHS)
    else:
        with pytest.raises(ValueError, match=f"{rule.type} compares trials by one objective"):
            build_scheduler(rule, both, EPOCHS)


def build_one(rule: EarlyTermination, goal: str = "minimize", epochs: int = EPOCHS) -> Scheduler:
    return build_scheduler(rule, Objective("m", goal), epochs)


@every_rule
def test_decision_epochs_are_those_of_the_rule_and_before_the_last(rule: EarlyTermination) -> None:
    epochs = build_one(rule).decision_epochs(EPOCHS)
    assert epochs == early_terminate.compute_decision_epochs(rule, EPOCHS)
    assert all(0 < epoch < EPOCHS for epoch in epochs)
    assert bool(epochs) == (rule != NoTermination())


@every_active
def test_replaying_restores_what_comes_next(rule: EarlyTermination) -> None:
    values = {trial: random.Random(trial).random() for trial in range(20)}
    scheduler, resumed = build_one(rule), build_one(rule)
    for trial, value in values.items():
        for epoch in range(1, 5):
            event = report(trial, epoch, value)
            assert scheduler.observe(event) == resumed.observe(event)
    assert run(scheduler, {99: 0.99}) == run(resumed, {99: 0.99})
    assert pruned(run(build_one(rule), {**values, 99: 2.0})).get(99)


@every_active
@every_goal
def test_the_worst_is_pruned_at_the_first_rung_and_the_best_never(
    rule: EarlyTermination, goal: str
) -> None:
    sign = Objective("m", goal).sign
    values = {trial: sign * trial for trial in range(20)}  # from best to worst
    scheduler = build_one(rule, goal)
    verdicts = run(scheduler, values)
    first = {bracket[0] for bracket in early_terminate.list_brackets(rule, EPOCHS)}
    assert pruned(verdicts)[19] in first
    assert 0 not in pruned(verdicts)
    assert all(verdicts[0, epoch] is None for epoch in range(1, EPOCHS + 1))


@every_active
def test_maximizing_is_minimizing_the_negative(rule: EarlyTermination) -> None:
    values = {trial: random.Random(trial).random() for trial in range(20)}
    down = pruned(run(build_one(rule, "minimize"), values))
    up = pruned(
        run(build_one(rule, "maximize"), {trial: -value for trial, value in values.items()})
    )
    assert down == up != {}


@every_rule
@every_goal
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_enters_no_rung(rule: EarlyTermination, goal: str, bad: float) -> None:
    sign = Objective("m", goal).sign
    clean = {trial: sign * random.Random(trial).random() for trial in range(20)}
    poisoned = dict.fromkeys(range(100, 140), bad) | clean
    verdicts = run(build_one(rule, goal), poisoned)
    assert not any(trial >= 100 for trial in pruned(verdicts))
    assert pruned(verdicts) == pruned(run(build_one(rule, goal), clean))


@every_active
@pytest.mark.parametrize("epochs", [4, EPOCHS])
def test_a_rung_that_was_missed_is_not_made_up_for(rule: EarlyTermination, epochs: int) -> None:
    scheduler = build_one(rule, epochs=epochs)
    run(scheduler, {trial: float(trial) for trial in range(9)}, epochs)
    rungs = scheduler.decision_epochs(epochs)
    for epoch in range(1, epochs):
        verdict = scheduler.observe(report(99, epoch, math.nan if epoch in rungs else 100.0))
        assert verdict is None


@every_active
def test_the_reason_is_one_line_that_names_metric_epoch_and_cutoff(rule: EarlyTermination) -> None:
    verdicts = run(build_one(rule), {trial: float(trial) for trial in range(20)})
    trial, epoch = next(iter(pruned(verdicts).items()))
    reason = verdicts[trial, epoch]
    assert reason is not None
    assert f": m {trial} at epoch {epoch} above the cutoff " in reason
    assert float(reason.rsplit(" ", 1)[1]) < trial
    assert "\n" not in reason


@every_rule
class TestRules(SchedulerConformance):
    @pytest.fixture(autouse=True)
    def _choose(self, rule: EarlyTermination) -> None:
        self.rule = rule

    def make(self, objective: Objective, epochs: int) -> Scheduler:
        return build_scheduler(self.rule, objective, epochs)


@every_pausing
class TestPausing(PausingConformance):
    @pytest.fixture(autouse=True)
    def _choose(self, rule: EarlyTermination) -> None:
        self.rule = rule

    def make(self, objective: Objective, epochs: int) -> Scheduler:
        return build_scheduler(self.rule, objective, epochs)


@every_pausing
def test_maximizing_is_minimizing_the_negative_where_trials_pause(rule: EarlyTermination) -> None:
    def value(trial: int, epoch: int) -> float:
        return random.Random(trial).random() + 1 / epoch

    down = search(build_one(rule, "minimize"), 20, value)
    up = search(build_one(rule, "maximize"), 20, lambda trial, epoch: -value(trial, epoch))
    assert [type(event) for event in up] == [type(event) for event in down]
    assert [getattr(event, "trial", None) for event in up] == [
        getattr(event, "trial", None) for event in down
    ]


@pytest.mark.parametrize("rule", [AshaPromotion(), FreezeThaw()], ids=str)
def test_a_report_costs_no_more_when_many_trials_pause(rule: EarlyTermination) -> None:
    scheduler, draws = build_one(rule), random.Random(0)
    taken: list[float] = []
    for first in range(0, 2000, 500):
        events = [report(first + t, 1, draws.random()) for t in range(500)]
        taken.append(
            lines_of(lambda events=events: [scheduler.observe(event) for event in events])
            / len(events)
        )
    assert taken[-1] < 2 * taken[0], taken


@every_active
def test_a_report_costs_no_more_when_there_are_many_trials(rule: EarlyTermination) -> None:
    """Lines of Python are counted: they are the same on a busy machine, as seconds are not."""
    scheduler, draws = build_one(rule), random.Random(0)
    taken: list[float] = []
    for first in range(0, 2000, 500):
        events = [
            report(first + t, e, draws.random()) for t in range(500) for e in range(1, EPOCHS)
        ]
        taken.append(
            lines_of(lambda events=events: [scheduler.observe(event) for event in events])
            / len(events)
        )
    assert taken[-1] < 2 * taken[0], taken


def lines_of(run: Callable[[], object]) -> int:
    """Return how many lines of Python a call runs; each round of a loop or a comprehension counts."""
    count = 0

    def trace(frame: object, event: str, argument: object) -> object:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("rule", [*RULES.values(), *PAUSING.values()], ids=[*RULES, *PAUSING])
@pytest.mark.parametrize("is_usual", [False, True])
def test_the_last_epoch_of_a_shorter_trial_is_no_rung(
    rule: EarlyTermination, is_usual: bool
) -> None:
    """Its training is complete, so that it would keep longer trials, which are under way there, from going on."""
    length = max(build_one(rule).decision_epochs(EPOCHS), default=4)
    params = {} if is_usual else {"epochs": length}
    answers = []
    for reported in (True, False):
        scheduler = build_scheduler(rule, Objective("m", "minimize"), EPOCHS, default_epochs=length)
        for trial in range(9):
            scheduler.observe(started(trial, params))
            if reported:
                assert scheduler.observe(report(trial, length, -1.0 - trial)) is None
            scheduler.observe(TrialEnded(trial=trial, status=Status.COMPLETED, reason="", time=0.0))
        for trial in range(9, 18):
            scheduler.observe(started(trial, {"epochs": EPOCHS}))
        verdicts = run(scheduler, {trial: float(trial) for trial in range(9, 18)}, length)
        held = []
        if isinstance(scheduler, Pausing):
            held = [scheduler.holds(trial) for trial in range(18)]
        answers.append((verdicts, held))
    assert answers[0] == answers[1]


def started(trial: int, params: Params) -> TrialStarted:
    return TrialStarted(trial=trial, trial_id="", params=params, seed=0, repeat=0, time=0.0)
