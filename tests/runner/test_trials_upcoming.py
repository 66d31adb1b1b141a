"""Who is given which trial: structures that are compiled already come first, and nothing else changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.backends import Continues, Ends
from sweep.contract import Devices
from sweep.events import EpochReported, Event, Facts, Params, Status, TrialEnded, TrialStarted
from sweep.hyperparameters import ReadMark, to_json
from sweep.runner.coordinator import Coordinator
from sweep.runner.methods import build_searcher
from sweep.runner.trials import LOOK_AHEAD, Upcoming
from sweep.schedulers.early_termination import NoScheduler
from sweep.spec import Spec, parse_spec
from sweep.store import log as store_log
from sweep.store.log import Log

FILE = """
name: grid
trainable: none:None
method: {method}
metric: {{name: score, goal: minimize}}
parameters:
  rate: {{values: [1, 2, 3]}}
  decay: {{values: [1, 2, 3]}}
  units: {{values: [8, 16, 32]}}
epochs: 1
{more}
"""


def spec(method: str = "grid", more: str = "") -> Spec:
    return parse_spec(FILE.format(method=method, more=more), "f.yaml")


def structure(params: Params) -> str:
    return to_json({"units": params["units"], "dropout": ReadMark.ABSENT})


def run(
    given: Spec, path: Path, workers: int, most: int = 999, *, told: bool = True
) -> tuple[list[Event], int]:
    """Let workers take turns, for at most so many trials; the log, and how often one met a new structure."""
    compiled: dict[str, set[str]] = {f"w{number}": set() for number in range(workers)}
    history = list(store_log.read(path)) if path.exists() else []
    with Log(path) as log:
        searcher = build_searcher(
            given.method, given.space, given.objectives, given.seed, given.repeats
        )
        driver = Coordinator(given, Devices(), searcher, NoScheduler(), log)
        driver.open(history)
        orders = {name: driver.next(name) for name in compiled}
        while most and any(orders.values()):
            for name, order in orders.items():
                if order is None or not most:
                    continue
                most -= 1
                trial, params = order.assignment.trial, order.assignment.params
                compiled[name].add(structure(params))
                score = float(sum(map(float, params.values())))
                epoch = EpochReported(
                    trial=trial, epoch=1, metrics={"score": score}, time=1.0, time_s=1.0
                )
                facts = Facts(structure=structure(params) if told else None)
                end = TrialEnded(
                    trial=trial, status=Status.COMPLETED, reason="", time=1.0, facts=facts
                )
                assert not driver.take(
                    trial, Ends(epochs=(epoch,), end=end, facts=facts, worker=name)
                )
                orders[name] = driver.next(name) if most else None
        driver.close()
    return list(store_log.read(path)), sum(map(len, compiled.values()))


def results(log: list[Event]) -> dict[int, tuple[Params, float]]:
    params = {event.trial: event.params for event in log if isinstance(event, TrialStarted)}
    scores = {
        event.trial: event.metrics["score"] for event in log if isinstance(event, EpochReported)
    }
    return {trial: (params[trial], scores[trial]) for trial in sorted(params)}


@pytest.mark.parametrize("method", ["grid", "random", "sobol"])
def test_structures_are_compiled_once_as_far_as_no_worker_would_wait(
    method: str, tmp_path: Path
) -> None:
    given = spec(method, "" if method == "grid" else "run_cap: 27")
    log, compiled = run(given, tmp_path / "near", workers=2)
    plain, everywhere = run(given, tmp_path / "plain", workers=2, told=False)
    assert (compiled, everywhere) == (4, 6)  # three at two workers: the last one is shared
    assert results(log) == results(plain)
    assert [*results(log)] == list(range(27))


def test_one_worker_compiles_each_structure_once_and_goes_by_number_within_it(
    tmp_path: Path,
) -> None:
    log, compiled = run(spec(), tmp_path / "log", workers=1)
    started = [event.trial for event in log if isinstance(event, TrialStarted)]
    assert compiled == 3
    assert started == [*range(0, 27, 3), *range(1, 27, 3), *range(2, 27, 3)]


def test_a_method_that_learns_is_asked_in_order(tmp_path: Path) -> None:
    log, _ = run(spec("tpe", "run_cap: 12"), tmp_path / "log", workers=2)
    assert [event.trial for event in log if isinstance(event, TrialStarted)] == list(range(12))


@pytest.mark.parametrize("repeats", [1, 2])
def test_a_sweep_that_is_resumed_starts_each_trial_once_and_the_same(
    repeats: int, tmp_path: Path
) -> None:
    given = spec("grid", f"repeats: {repeats}")
    run(given, tmp_path / "log", workers=2, most=11)
    log, _ = run(given, tmp_path / "log", workers=2)
    whole, _ = run(given, tmp_path / "whole", workers=1, told=False)
    numbers = [event.trial for event in log if isinstance(event, TrialStarted)]
    assert sorted(numbers) == list(range(27 * repeats))
    assert results(log) == results(whole)


class Squares:
    """Every tenth trial has another structure than the rest."""

    foresees = True

    def suggest(self, number: int) -> Params:
        return {"units": 16 if number % 10 else 8}


def heard(
    upcoming: Upcoming, trial: int, worker: str, params: Params, spoilt: str | None = None
) -> None:
    end = TrialEnded(trial=trial, status=Status.COMPLETED, reason="", time=1.0)
    facts = Facts(structure=structure(params))
    upcoming.record_structures(trial, Ends(end=end, facts=facts, spoilt=spoilt, worker=worker))


def start(upcoming: Upcoming, worker: str) -> int:
    trial, params = upcoming.choose(worker) or (-1, {})
    upcoming.record_start(trial)
    heard(upcoming, trial, worker, params)
    upcoming.record_end(trial)
    return trial


def test_no_trial_waits_for_more_than_a_bounded_number_of_later_ones() -> None:
    upcoming = Upcoming(Squares(), None)
    assert [start(upcoming, "a") for _ in range(3)] == [0, 10, 20]
    numbers = [start(upcoming, "a") for _ in range(60)]
    assert numbers[:5] == [30, 40, 50, 60, 1]  # from 1 on, 70 is too far away
    assert max(numbers) <= 1 + 60 + LOOK_AHEAD


def test_a_worker_that_is_gone_holds_nothing() -> None:
    upcoming = Upcoming(Squares(), None)
    assert start(upcoming, "a") == 0
    trial, params = upcoming.choose("b") or (-1, {})
    assert trial == 1  # the first that is not worker a's structure
    upcoming.record_start(trial)
    heard(upcoming, trial, "b", params, spoilt="it is full")
    assert (upcoming.choose("c") or (-1,))[0] == 2
    upcoming.record_start(2)
    upcoming.record_structures(
        2, Continues(facts=Facts(structure=structure({"units": 16})), worker="c")
    )
    upcoming.forget_lost_worker(2)
    assert (upcoming.choose("a") or (-1,))[0] == 10
    assert (upcoming.choose("d") or (-1,))[0] == 3


def test_the_cap_ends_it() -> None:
    upcoming = Upcoming(Squares(), 3)
    assert sorted(start(upcoming, "a") for _ in range(3)) == [0, 1, 2]
    assert upcoming.choose("a") is None


def test_what_a_trial_read_later_takes_the_place_of_what_it_read_first() -> None:
    upcoming = Upcoming(Squares(), None)
    upcoming.record_start(0)
    for reads in ({}, {"units": 8}):  # the first fits every trial
        facts = Facts(structure=to_json(reads))
        upcoming.record_structures(0, Continues(facts=facts, worker="a"))
    assert (upcoming.choose("a") or (-1,))[0] == 10


@pytest.mark.parametrize(("holds", "expected"), [(1, 11), (12, 0), (None, 0)])
def test_a_worker_is_known_to_hold_as_many_structures_as_it_says(
    holds: int | None, expected: int
) -> None:
    class Twelve:
        foresees = True

        def suggest(self, number: int) -> Params:
            return {"units": number % 12}

    upcoming = Upcoming(Twelve(), None)
    for trial in range(12):  # the last one is of structure 11
        params: Params = {"units": trial}
        upcoming.record_start(trial)
        end = TrialEnded(trial=trial, status=Status.COMPLETED, reason="", time=1.0)
        facts = Facts(structure=structure(params), structures=holds)
        upcoming.record_structures(trial, Ends(end=end, facts=facts, worker="a"))
        upcoming.record_end(trial)
    chosen = upcoming.choose("a")
    assert chosen is not None
    assert chosen[1]["units"] == expected
