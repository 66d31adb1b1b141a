"""Times of earlier sweeps, and the price of a sweep at their pace."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sweep.events import EpochReported, Facts, Params, Status, TrialEnded, TrialStarted
from sweep.runner import earlier_times
from sweep.runner.earlier_times import Price, Timing
from sweep.spec import Spec, parse_spec
from sweep.store.folder import ResultsFolder
from sweep.store.log import Log

TIMING = Timing(epoch_s=2.0, trial_s=10.0, start_s=100.0, source="made up")


def spec(more: str = "run_cap: 9") -> Spec:
    file = "trainable: timed:Model\nmethod: random\nmetric: {name: loss}\nparameters: {a: {min: 0.0, max: 1.0}}\n"
    return parse_spec(file + more, "s.yaml")


@pytest.mark.parametrize(
    ("more", "trials", "expected"),
    [
        ("run_cap: 9", 9, Price(9, 90, (100 + 9 * 30 / 2) / 3600)),
        ("run_cap: 1", 1, Price(1, 10, (100 + 30) / 3600)),
        ("run_cap: 9\nbudget: {epochs: 40}", 9, Price(4, 40, (100 + 4 * 30 / 2) / 3600)),
        ("budget: {epochs: 40}", None, Price(4, 40, (100 + 4 * 30 / 2) / 3600)),
        ("budget: {hours: 1}", None, Price(3500 * 2 / 30, 3500 * 2 / 3, 1)),
        ("run_cap: 9\nbudget: {hours: 1}", 9, Price(9, 90, (100 + 9 * 30 / 2) / 3600)),
        # one trial, although two could run
        (
            "run_cap: 1\nbudget: {hours: 0.03}",
            1,
            Price(8 / 30, 80 / 30, 0.03),
        ),
        (
            "run_cap: 1\nbudget: {gpu_hours: 0.015}\nresources: {gpus: 0.5}",
            1,
            Price(8 / 30, 80 / 30, 0.03),
        ),
        (
            "budget: {gpu_hours: 1}\nresources: {gpus: 0.5}",
            None,
            Price(3500 * 2 / 30, 3500 * 2 / 3, 1),
        ),
    ],
)
def test_price(more: str, trials: int | None, expected: Price) -> None:
    found = earlier_times.price(spec(more), trials, 10, TIMING, 2)
    assert (found.trials, found.epochs) == pytest.approx((expected.trials, expected.epochs))
    assert found.hours == pytest.approx(expected.hours)
    assert earlier_times.price(spec(more), trials, 10, None, 2).hours is None


def past(
    results: Path,
    name: str,
    trainable: str,
    *,
    when: float,
    epoch_s: float,
    simulated: int | None = None,
    params: Params | None = None,
) -> None:
    info = {"spec": {"trainable": trainable}, "simulated_gpus": simulated}
    folder = ResultsFolder.create(results, name, "", info)
    epochs = [
        EpochReported(trial=0, epoch=n, metrics={}, time=0.0, time_s=epoch_s) for n in range(1, 4)
    ]
    ends = [
        TrialEnded(
            trial=n,
            status=Status.COMPLETED,
            reason="",
            time=0.0,
            facts=Facts(overhead_s={"build": s, "x": 1}),
        )
        for n, s in enumerate([9.0, 1.0, 1.0])
    ]
    began = TrialStarted(trial=0, trial_id="a", params=params or {}, seed=0, repeat=0, time=0.0)
    with Log(folder.log) as log:
        log.append([began, *epochs, *ends])
    os.utime(folder.log, (when, when))


def test_times_of_the_latest_sweep_of_the_same_trainable(tmp_path: Path) -> None:
    past(tmp_path, "old", "timed:Model", when=1e9, epoch_s=5.0)
    past(tmp_path, "new", "timed:Model", when=2e9, epoch_s=0.5)
    past(tmp_path, "other", "timed:Other", when=3e9, epoch_s=7.0)
    past(tmp_path, "rehearsal", "timed:Model", when=3e9, epoch_s=8.0, simulated=4)
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "sweep.json").write_text("{")
    (tmp_path / "damaged" / "log.jsonl").write_text("")
    assert earlier_times.find_earlier_times(tmp_path, "timed:Model", None, [{}]) == Timing(
        0.5, 2.0, 8.0, "sweep new"
    )
    assert earlier_times.find_earlier_times(tmp_path, "timed:Model", 4, [{}]) == Timing(
        8.0, 2.0, 8.0, "sweep rehearsal"
    )
    assert earlier_times.find_earlier_times(tmp_path, "timed:Nobody", None, [{}]) is None
    assert earlier_times.find_earlier_times(tmp_path / "absent", "timed:Model", None, [{}]) is None


def test_epochs_of_another_length_are_no_measure(tmp_path: Path) -> None:
    past(tmp_path, "passes", "timed:Model", when=1e9, epoch_s=60.0)
    past(tmp_path, "parts", "timed:Model", when=2e9, epoch_s=0.5, params={"steps_per_epoch": 100})
    assert earlier_times.find_earlier_times(tmp_path, "timed:Model", None, [{}]) == Timing(
        60.0, 2.0, 8.0, "sweep passes"
    )
    found = earlier_times.find_earlier_times(
        tmp_path, "timed:Model", None, [{"steps_per_epoch": 100}]
    )
    assert found == Timing(0.5, 2.0, 8.0, "sweep parts")
    assert (
        earlier_times.find_earlier_times(tmp_path, "timed:Model", None, [{"steps_per_epoch": 7}])
        is None
    )


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ("{cpus: 1}", 8),
        ("{cpus: 1, max_share: 0.5}", 4),
        ("{cpus: 1, max_share: 0.01}", 1),
        ("{cpus: 1, max_share: 0.5, max_concurrent: 3}", 3),
        ("{cpus: 16, max_share: 0.5}", 0),
    ],
)
def test_a_sweep_trains_its_share_of_the_trials_that_fit(
    resources: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(earlier_times, "cpus", lambda: 8)
    asked = spec(f"run_cap: 9\nresources: {resources}")
    assert earlier_times.count_concurrent_trials(asked, 1) == expected
    if expected:
        assert (
            earlier_times.count_concurrent_trials(asked, 1, room=2) == 2
        )  # of a cluster, counted there
