"""What ends a whole sweep: budgets by the driver's own clock, over all sessions, and no improvement."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import simulated
from curves import run

from sweep.backends import Continues, Ends
from sweep.events import (
    EpochReported,
    SessionEnded,
    SessionStarted,
    Status,
    TrialEnded,
    TrialStarted,
)
from sweep.runner.limits import Limits, Timeouts
from sweep.spec import parse_spec
from sweep.spec.blocks import Resources
from sweep.store import log as store_log
from sweep.store.ledger import Ledger, SessionChange
from sweep.store.log import Log


def test_a_budget_ends_without_an_event(tmp_path: Path) -> None:
    clock = simulated.Clock()
    driver, log = simulated.begin(tmp_path, "budget: {hours: 1}", clock=clock)
    driver.open()
    driver.next()
    driver.begun(0)
    clock.now += 3599
    assert (driver.tick(), driver.stopping) == ([], None)
    clock.now += 2
    assert (driver.tick(), driver.stopping) == ([], "budget of 1 hours")
    log.close()


def test_gpu_hours_count_what_is_under_way() -> None:
    text = simulated.FILE.format(method="random", rule="{type: none}", seed=0, repeats=1, count="")
    limits = Limits(parse_spec(text + "budget: {gpu_hours: 3}\nresources: {gpus: 2}\n", "f.yaml"))
    limits.set_times(3600, 3600)
    assert limits.reached is None
    limits.set_times(5400, 5400)
    assert limits.reached == "budget of 3 GPU hours"


def test_gpu_hours_of_a_shared_gpu_are_of_the_part_that_each_epoch_had() -> None:
    text = simulated.FILE.format(method="random", rule="{type: none}", seed=0, repeats=1, count="")
    spec = parse_spec(text + "budget: {gpu_hours: 1}\nresources: {gpus: auto}\n", "f.yaml")
    limits, ledger = Limits(spec), Ledger()
    ledger.observe(TrialStarted(trial=0, trial_id="", params={}, seed=0, repeat=0, time=0.0))
    for number in range(1, 5):
        assert limits.reached is None
        spent = {
            "metrics": {"score": 1.0},
            "time": 1.0,
            "time_s": 3600.0,
            "measures": {"gpus": 0.25},
        }
        limits.observe(ledger.observe(EpochReported(trial=0, epoch=number, **spent)))
    assert limits.reached == "budget of 1 GPU hours"


def test_a_nodes_clock_spends_no_budget_and_killed_sessions_do(tmp_path: Path) -> None:
    clock = simulated.Clock()
    for killed in range(3):
        driver, log = simulated.begin(tmp_path, "budget: {hours: 1}", clock=clock)
        driver.open(list(store_log.read(log.path)))
        assert driver.stopping is None
        driver.next()
        ahead = EpochReported(
            trial=0, epoch=killed + 1, metrics={"score": 1.0}, time=time.time() + 7200, time_s=0.1
        )
        clock.now += 1500
        assert driver.take(0, Continues(epochs=(ahead,)))
        log.close()
    driver, log = simulated.begin(tmp_path, "budget: {hours: 1}", clock=clock)
    driver.open(list(store_log.read(log.path)))
    assert driver.stopping == "budget of 1 hours"
    log.close()


def test_a_log_of_the_last_release_keeps_its_hours(tmp_path: Path) -> None:
    driver, log = simulated.begin(tmp_path, "budget: {hours: 1}")
    begun = SessionStarted(time=1.0, resumed=False, version="0.1.0")
    trial = TrialStarted(
        trial=0, trial_id="t0", params={"a": 0.1, "b": 1}, seed=0, repeat=0, time=1.0
    )
    driver.open([begun, trial, SessionEnded(time=3700.0, reason="interrupted")])
    assert driver.stopping == "budget of 1 hours"
    log.close()


@pytest.mark.parametrize(
    ("limit", "larger", "reason"),
    [
        ("budget: {epochs: 4}", "budget: {epochs: 8}", "budget of 4 epochs"),
        (
            "stop_when: {no_improvement: 1}",
            "stop_when: {no_improvement: 9}",
            "no improvement in 1 trials",
        ),
    ],
)
def test_a_limit_interrupts_and_a_larger_one_goes_on(
    tmp_path: Path, limit: str, larger: str, reason: str
) -> None:
    driver, log = simulated.begin(tmp_path, limit)
    driver.open()
    driver.next(), driver.next()
    for trial, last in ((0, 2), (1, 2)) if "budget" in limit else ((0, 9), (1, 9)):
        for epoch in range(1, last + 1):
            score = float(trial) + 0.1
            report = EpochReported(
                trial=trial, epoch=epoch, metrics={"score": score}, time=1.0, time_s=0.1
            )
            done = TrialEnded(trial=trial, status=Status.COMPLETED, reason="", time=1.0)
            driver.take(
                trial,
                Ends(epochs=(report,), end=done) if epoch == 9 else Continues(epochs=(report,)),
            )
    assert driver.stopping == reason
    driver.close()
    log.close()
    events = list(store_log.read(log.path))
    same, log = simulated.begin(tmp_path, limit)
    same.open(events)
    assert (same.stopping, same.next()) == (reason, None)
    log.close()
    more, log = simulated.begin(tmp_path, larger)
    more.open(events)
    assert more.stopping is None
    assert more.next().assignment.trial == (0 if "budget" in limit else 2)
    log.close()


def _failed(trial: int, reason: str, *, regardless: bool) -> list[TrialStarted | TrialEnded]:
    params = {"a": trial / 10, "b": 1}
    return [
        TrialStarted(trial=trial, trial_id=f"t{trial}", params=params, seed=0, repeat=0, time=1.0),
        TrialEnded(
            trial=trial, status=Status.FAILED, reason=reason, time=2.0, regardless=regardless
        ),
    ]


@pytest.mark.parametrize(
    ("reasons", "regardless", "ends"),
    [
        (("no such file", "no such file"), True, True),
        (("no such file", "no such file"), False, False),
        (("no such file: a", "no such file: b"), True, False),
        (("no such file",), True, False),
    ],
)
def test_what_no_parameter_can_change_ends_a_sweep_after_two_trials(
    reasons: tuple[str, ...], regardless: bool, ends: bool
) -> None:
    text = simulated.FILE.format(method="random", rule="{type: none}", seed=0, repeats=1, count="")
    limits, ledger = Limits(parse_spec(text, "f.yaml")), Ledger()
    for trial, reason in enumerate(reasons):
        for event in _failed(trial, reason, regardless=regardless):
            limits.observe(ledger.observe(event))
    what = "2 trials failed in the same way, before reading any searched parameter: no such file"
    assert limits.reached == (what if ends else None)
    limits.observe(SessionChange(SessionStarted(time=3.0, resumed=True, version="1")))
    assert limits.reached is None


@pytest.mark.parametrize("price", [2.0, {"A100": {"on_demand": 2.0, "spot": 1.0}}])
def test_a_budget_of_money_ends_before_it_is_overdrawn(tmp_path: Path, price: object) -> None:
    clock = simulated.Clock()
    more = f"budget: {{money: 10}}\nresources: {{gpus: 1, price_per_gpu_hour: {json.dumps(price)}}}"
    driver, log = simulated.begin(tmp_path, more, clock=clock)
    driver.open()
    for trial in range(3):
        driver.next()
        driver.begun(trial)
    epochs, epoch_s, price_per_s = [0, 0, 0], 1200.0, 2.0 / 3600
    while driver.stopping is None and clock.now < 10_000:
        clock.now += 1.0  # the driver looks several times a second
        driver.tick()
        for trial in range(3):
            if driver.stopping is None and clock.now == (epochs[trial] + 1) * epoch_s:
                epochs[trial] += 1
                one = EpochReported(
                    trial=trial,
                    epoch=epochs[trial],
                    metrics={"score": 1.0},
                    time=1.0,
                    time_s=1000.0,
                    measures={"cost": epoch_s * price_per_s},
                )
                driver.take(trial, Continues(epochs=(one,)))
    log.close()
    assert driver.stopping == "budget of 10 in money"
    assert 0.98 * 10 < clock.now * 3 * price_per_s < 1.02 * 10


def test_time_under_way_is_that_of_workers_however_many_trials_they_train() -> None:
    now = 0.0
    watch = Timeouts(Resources(), lambda: now)
    for trial in (1, 2, 3):
        watch.begin(trial)
        watch.record_step(trial, 1, 1.0 if trial == 3 else 2.0)  # the first two at once
    now = 10.0
    assert watch.under_way_s == 20.0


COUNTED = """
def train(hp, report):
    a = hp.number("a")
    while report(loss=a):
        pass
"""


@pytest.mark.parametrize(("epochs", "trials"), [(10, 2), (20, 2), (30, 3), (40, 4)])
def test_a_baseline_counts_towards_the_budget(project: Path, epochs: int, trials: int) -> None:
    """Two trials of ten epochs each, before those of the search."""
    (project / "counted.py").write_text(COUNTED)
    text = f"""
name: counted
trainable: counted:train
method: random
metric: {{name: loss, goal: minimize}}
parameters: {{a: {{min: 0.0, max: 1.0}}}}
baseline: {{a: 0.5}}
repeats: 2
epochs: 10
run_cap: 100
budget: {{epochs: {epochs}}}
"""
    folder = run(project, text).folder
    events = [*store_log.read(folder.log)]
    assert sum(isinstance(event, EpochReported) for event in events) == epochs
    started = [event.trial for event in events if isinstance(event, TrialStarted)]
    assert len(started) <= trials
    ended = [event for event in events if isinstance(event, SessionEnded)]
    assert ended[-1].reason == f"budget of {epochs} epochs"


def test_an_epoch_in_which_a_trial_diverged_reaches_no_target() -> None:
    text = simulated.FILE.format(method="random", rule="{type: none}", seed=0, repeats=1, count="")
    text = text.replace("goal: minimize", "goal: minimize, target: 0.5")
    limits, ledger = Limits(parse_spec(text, "f.yaml")), Ledger()
    for number in range(2):
        start = TrialStarted(trial=number, trial_id="", params={}, seed=0, repeat=0, time=0.0)
        ledger.observe(start)
    reports = [{"score": 0.1, "loss": float("nan")}, {"score": 0.4, "loss": 1.0}]
    reached = []
    for number, metrics in enumerate(reports):
        report = EpochReported(trial=number, epoch=1, metrics=metrics, time=1.0, time_s=1.0)
        limits.observe(ledger.observe(report))
        reached.append(limits.reached)
    assert reached == [None, "target reached: score 0.4 in trial 1"]


@pytest.mark.parametrize("killed", [False, True])
def test_a_confirmation_takes_no_hours_of_the_budget(tmp_path: Path, killed: bool) -> None:
    clock = simulated.Clock()
    text = simulated.FILE.format(method="random", rule="{type: none}", seed=0, repeats=1, count="")
    text = text.replace("run_cap: 9", "run_cap: 2")
    text += "budget: {hours: 2}\nconfirm: {seeds: 2, finalists: 2, budget: null}\n"
    path = tmp_path / "log.jsonl"
    with Log(path) as log:
        driver = simulated.coordinator(parse_spec(text, "f.yaml"), log, clock)
        driver.open()
        while (order := driver.next()) is not None:
            for epoch in range(1, 10):
                clock.now += 180
                driver.tick()
                driver.take(order.assignment.trial, simulated.progress(order.assignment, epoch, 9))
        assert clock.now > 2 * 3600
        assert driver.confirmed
        driver.close()
    events = list(store_log.read(path))
    assert isinstance(events[-1], SessionEnded)
    if killed:
        del events[-1]
    with Log(tmp_path / "again.jsonl") as log:
        driver = simulated.coordinator(
            parse_spec(text.replace("run_cap: 2", "run_cap: 9"), "f.yaml"), log, clock
        )
        log.append(events)
        driver.open(events)
        assert driver.stopping is None
        # the search has taken 0.9 hours
        clock.now += 1.0 * 3600
        driver.tick()
        assert driver.stopping is None
        clock.now += 0.2 * 3600
        driver.tick()
        assert driver.stopping == "budget of 2 hours"
