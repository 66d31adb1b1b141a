"""The time that a sweep has left, against what it took: recorded sweeps, and made-up ones with long epochs."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.analysis import Outline
from sweep.analysis.live_status import Standing
from sweep.events import EpochReported, Facts, SessionStarted, Status, TrialEnded, TrialStarted
from sweep.spec import parse_spec
from sweep.store import log

RECORDED = Path(__file__).parent / "recorded_times"
FILE = (
    "trainable: m:T\nmethod: random\nmetric: {name: score}\nparameters: {a: {min: 1.0, max: 3.0}}\n"
)


def make_standing(more: str) -> Standing:
    return Standing(Outline.of(parse_spec(FILE + more, "s.yaml")))


@pytest.mark.parametrize(
    ("name", "more", "most"),
    [
        ("one_process", "run_cap: 5\nepochs: 3\n", 0.08),  # epochs of 1.5 s, one after the other
        # on Ray, which reports several epochs at once
        (
            "two_workers",
            "run_cap: 9\nepochs: 6\n",
            0.08,
        ),
        (
            "asha",
            "run_cap: 16\nepochs: 9\nearly_terminate: {type: asha, min_iter: 1, eta: 3}\n",
            0.35,
        ),
    ],
)
def test_the_time_left_of_recorded_sweeps(name: str, more: str, most: float) -> None:
    events = list(log.read(RECORDED / f"{name}.jsonl"))
    began, ended = events[0].time, events[-1].time
    whole_s = ended - began
    standing = make_standing(more)
    now = began
    errors = []
    for event in events[:-1]:
        standing.observe(event)
        now = max(now, event.time)
        left_s = standing.left_s(now)
        if left_s is not None and standing.finished:
            errors.append(abs(left_s - (ended - now)) / whole_s)
    assert len(errors) > 10
    assert max(errors) < most


def test_what_a_worker_has_trained_since_its_last_report_counts() -> None:
    standing = make_standing("run_cap: 2\nepochs: 4\n")
    standing.observe(SessionStarted(time=0.0, resumed=False, version="1"))
    for trial in range(2):
        standing.observe(
            TrialStarted(
                trial=trial, trial_id=str(trial), params={"a": 1.0}, seed=0, repeat=0, time=0.0
            )
        )
        standing.observe(
            EpochReported(trial=trial, epoch=1, metrics={"score": 1.0}, time=60.0, time_s=60.0)
        )
    assert standing.left_s(60.0) == pytest.approx(180.0)
    assert standing.left_s(90.0) == pytest.approx(150.0)
    assert standing.left_s(120.0) == pytest.approx(120.0)
    # more than an epoch without a report is no progress
    assert standing.left_s(500.0) == pytest.approx(120.0)
    assert standing.trained_trials == pytest.approx(0.5)


def test_trials_of_a_killed_driver_do_not_tell_how_long_a_start_takes() -> None:
    standing = make_standing("run_cap: 3\nepochs: 4\n")

    def observe_trial(trial: int, began: float, epochs: range) -> None:
        for number, epoch in enumerate(epochs, 1):
            standing.observe(
                EpochReported(
                    trial=trial,
                    epoch=epoch,
                    metrics={"score": 1.0},
                    time=began + 30.0 + 10.0 * number,
                    time_s=10.0,
                )
            )

    def start(trial: int, time: float) -> TrialStarted:
        return TrialStarted(
            trial=trial, trial_id=str(trial), params={"a": 1.0}, seed=0, repeat=0, time=time
        )

    def end(trial: int, time: float, lived_s: float) -> TrialEnded:
        facts = Facts(started=time - lived_s, lived_s=lived_s)
        return TrialEnded(trial=trial, status=Status.COMPLETED, reason="", time=time, facts=facts)

    standing.observe(SessionStarted(time=0.0, resumed=False, version="1"))
    standing.observe(start(0, 0.0))
    observe_trial(0, 0.0, range(1, 4))
    standing.observe(SessionStarted(time=1000.0, resumed=True, version="1"))
    observe_trial(0, 1000.0, range(4, 5))
    standing.observe(end(0, 1040.0, 40.0))  # since it was resumed
    standing.observe(start(1, 1040.0))
    observe_trial(1, 1040.0, range(1, 5))
    standing.observe(end(1, 1110.0, 70.0))
    # the start of the last one takes 30 s, like that of the second
    assert standing.left_s(1110.0) == pytest.approx(70.0)


def test_running_trials_count_by_their_epochs() -> None:
    standing = make_standing("run_cap: 4\nepochs: 10\n")
    standing.observe(SessionStarted(time=0.0, resumed=False, version="1"))
    for trial, epochs in enumerate((10, 5, 0)):
        standing.observe(
            TrialStarted(
                trial=trial, trial_id=str(trial), params={"a": 1.0}, seed=0, repeat=0, time=0.0
            )
        )
        for epoch in range(1, epochs + 1):
            standing.observe(
                EpochReported(
                    trial=trial, epoch=epoch, metrics={"score": 1.0}, time=1.0, time_s=1.0
                )
            )
    standing.observe(TrialEnded(trial=0, status=Status.COMPLETED, reason="", time=1.0))
    assert standing.trained_trials == pytest.approx(1.5)
