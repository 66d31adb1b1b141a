"""Prices: what the real schedulers do on average, what budgets leave, and where times come from."""

from __future__ import annotations

import json
import random
from pathlib import Path
from statistics import fmean

import pytest

from sweep.contract import Devices
from sweep.errors import TrainableError
from sweep.events import EpochReported, Event
from sweep.runner import pricing
from sweep.runner.pricing import Course, ExpectedRung, Machine, Timing
from sweep.runner.rehearsal import MadeUpTrial
from sweep.schedulers.early_termination import build_scheduler
from sweep.space.early_terminate import (
    Asha,
    AshaPromotion,
    EarlyTermination,
    FreezeThaw,
    Hyperband,
    Median,
    NoTermination,
    Pasha,
)
from sweep.space.objectives import Objective
from sweep.spec import Spec, parse_spec

LOSS = Objective("loss", "minimize")
TIMING = Timing(epoch_s=2.0, trial_s=10.0, start_s=100.0, source="made up")


def spec(more: str = "run_cap: 9") -> Spec:
    file = "trainable: timed:Model\nmethod: random\nmetric: {name: loss}\nparameters: {a: {min: 0.0, max: 1.0}}\n"
    return parse_spec(file + more, "s.yaml")


def course(rule: EarlyTermination, epochs: int, trials: int | None) -> Course:
    return pricing.rehearse_scheduler(
        lambda: build_scheduler(rule, LOSS, epochs), LOSS, epochs, trials
    )


def reaching(rule: EarlyTermination, epochs: int, trials: int, seed: int) -> dict[int, int]:
    """How many trials reach each epoch, one after the other, with curves that cross."""
    scheduler = build_scheduler(rule, LOSS, epochs)
    numbers = random.Random(seed)
    counts = dict.fromkeys(range(1, epochs + 1), 0)
    for trial in range(trials):
        one = MadeUpTrial(*(numbers.gauss(0.0, 1.0) for _ in range(3)))
        for epoch in counts:
            counts[epoch] += 1
            metrics = {"loss": one.loss(epoch, epochs)}
            report = EpochReported(trial=trial, epoch=epoch, metrics=metrics, time=0.0, time_s=0.0)
            if scheduler.observe(report):
                break
    return counts


@pytest.mark.parametrize(
    "rule",
    [
        Asha(min_iter=1, eta=3),
        Asha(min_iter=2, eta=2),
        Asha(min_iter=1, eta=3, brackets=2),
        Hyperband(min_iter=3, eta=3),
        Hyperband(max_iter=12, s=2, eta=2),
        Median(min_iter=2),
    ],
    ids=str,
)
def test_expectations_are_what_the_schedulers_do_on_average(rule: EarlyTermination) -> None:
    trials, epochs = 60, 12
    runs = [reaching(rule, epochs, trials, seed) for seed in range(50)]
    found = course(rule, epochs, trials)
    assert found.rungs
    for rung in found.rungs:
        assert rung.trials == pytest.approx(
            fmean(run[rung.epoch] for run in runs), rel=0.1, abs=1.5
        )
    assert found.epochs == pytest.approx(fmean(sum(run.values()) for run in runs), rel=0.1)


@pytest.mark.parametrize(
    ("rule", "shares"),
    [
        (AshaPromotion(min_iter=1, eta=3), (1, 1 / 3, 1 / 9)),
        (Pasha(min_iter=1, eta=3), (1, 1 / 3, 1 / 9)),
        # some that are predicted to end best do not
        (
            FreezeThaw(min_iter=1, eta=3, share=0.0),
            (1, 1 / 20, 1 / 30),
        ),
    ],
    ids=str,
)
def test_trials_that_pause_go_on_in_rehearsals(
    rule: EarlyTermination, shares: tuple[float, ...]
) -> None:
    found = course(rule, 20, 60)
    assert [rung.epoch for rung in found.rungs] == [1, 3, 9]
    for rung, share in zip(found.rungs, shares, strict=True):
        # more are among the best while few are there
        assert rung.trials == pytest.approx(60 * share, rel=0.6, abs=0.5)
    assert found.epochs is not None
    assert found.epochs < course(Asha(min_iter=1, eta=3), 20, 60).epochs


def test_without_early_termination_or_an_end_nothing_is_rehearsed() -> None:
    assert course(NoTermination(), 5, 9) == Course((), 45)
    assert course(Asha(), 9, None) == Course((ExpectedRung(1, None), ExpectedRung(3, None)), None)


class Plateau:
    """Stops at epoch 4 what has not improved since epoch 2, so that it must hear of all epochs."""

    def __init__(self) -> None:
        self.losses: dict[tuple[int, int], float] = {}

    def decision_epochs(self, epochs: int) -> tuple[int, ...]:
        return (4,)

    def observe(self, event: Event) -> str | None:
        if not isinstance(event, EpochReported):
            return None
        self.losses[event.trial, event.epoch] = event.metrics["loss"]
        if event.epoch != 4 or event.metrics["loss"] < self.losses[event.trial, 2]:
            return None
        return "plateau"


def test_a_rule_of_ones_own_hears_of_all_epochs() -> None:
    found = pricing.rehearse_scheduler(Plateau, LOSS, 10, 7, whole=True)
    assert found.rungs == (ExpectedRung(4, 7.0),)
    assert 28 <= (found.epochs or 0) < 70  # most curves fall from epoch 2 to epoch 4


def test_long_trials_of_many_decisions_are_rehearsed_within_a_bound() -> None:
    found = course(Median(), 1000, 5000)
    assert len(found.rungs) == 999
    first, second, *_ = found.rungs
    assert first.trials == 5000
    assert second.trials == pytest.approx(2500, rel=0.2)  # the worse half stops at once


def test_many_trials_are_scaled_up() -> None:
    first, second, *_ = course(Asha(min_iter=1, eta=4), 20, 1_000_000).rungs
    assert first.trials == 1_000_000
    assert second.trials == pytest.approx(250_000, rel=0.1)


MODEL = """
import json, time
from sweep.contract import EpochReported, Facts

class Model:
    def begin(self, assignment):
        self.epochs, self.params = assignment.epochs, assignment.params
        with open("begun.txt", "a") as file:
            file.write(json.dumps(dict(assignment.params)) + chr(10))
        time.sleep(0.05)

    def train(self, report):
        if self.params["a"] == 0.5:
            raise ValueError("no such a")
        for epoch in range(1, self.epochs + 1):
            time.sleep(0.02)
            if not report(EpochReported(trial=0, epoch=epoch, metrics={"loss": 1.0}, time=0.0, time_s=0.02)):
                return

    def save(self, folder): raise AssertionError
    def restore(self, folder): raise AssertionError
    def facts(self): return Facts()
"""


def test_a_share_of_a_gpu_lies_within_one_gpu_of_a_machine() -> None:
    asked = spec("run_cap: 9\nepochs: 5\nresources: {gpus: 0.6}\n")
    (offer,) = pricing.list_offers(asked, 9, 5.0, TIMING, [Machine("large", gpus=4, price=1.0)])
    assert offer.at_once == 4


def test_measuring_trains_two_epochs_of_two_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "timed.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    sample = [{"a": 0.1}, {"a": 0.2}, {"a": 0.3}]
    timing = pricing.measure_epoch_times(spec(), Devices(), [tmp_path], sample)
    assert timing.epoch_s == 0.02
    assert timing.trial_s > 0.04
    assert timing.source == "timed now"
    begun = (tmp_path / "begun.txt").read_text().splitlines()
    assert [json.loads(line) for line in begun] == sample[:2]
    with pytest.raises(TrainableError, match="the timed trial failed: ValueError: no such a"):
        pricing.measure_epoch_times(spec(), Devices(), [tmp_path], [{"a": 0.5}])


PHASED = """
from sweep.contract import EpochReported

class Phased:
    def begin(self, assignment):
        self.epochs, self.took_s, self.trained = assignment.epochs, 0.0, []

    def try_phases(self):
        for length, took_s in ((1, 1.0), (3, 5.0)):
            self.took_s = took_s
            yield length

    def train(self, report):
        for epoch in range(1, 4):
            self.trained.append(self.took_s)
            if not report(EpochReported(trial=0, epoch=epoch, metrics={}, time=0.0, time_s=self.took_s)):
                return
        raise AssertionError("trained on")

    def save(self, folder): raise AssertionError
    def restore(self, folder): raise AssertionError
    def facts(self): raise AssertionError
"""


def test_an_epoch_is_the_mean_over_the_phases_of_a_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "phased.py").write_text(PHASED)
    monkeypatch.syspath_prepend(str(tmp_path))
    text = "trainable: phased:Phased\nmethod: grid\nmetric: {name: loss}\nparameters: {a: {value: 0.1}}\n"
    phased = parse_spec(text, "s.yaml")
    assert pricing.measure_epoch_times(
        phased, Devices(), [tmp_path], [{"a": 0.1}]
    ).epoch_s == pytest.approx((1 + 3 * 5) / 4)


def test_a_budget_of_money_is_spent_at_the_price_of_each_machine() -> None:
    file = spec(
        "run_cap: 99\nresources: {gpus: 1, price_per_gpu_hour: 10}\nbudget: {money: 20, hours: 500}"
    )
    timing = Timing(epoch_s=3600.0, trial_s=0.0, start_s=0.0, source="made up")
    machines = [
        pricing.Machine("here", 1, 10.0),
        pricing.Machine("cheap", 1, 2.0),
        pricing.Machine("mine", 1, 0.0),
    ]
    offers = pricing.list_offers(file, 99, 1.0, timing, machines)
    assert [(offer.hours, offer.cost) for offer in offers] == [
        (2.0, 20.0),
        (10.0, 20.0),
        (99.0, 0.0),
    ]
