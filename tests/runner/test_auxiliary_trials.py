"""Baseline and fresh seeds: beside the search, decided by the log alone, the same after every kill."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import simulated

from sweep.backends import Continues, Ends
from sweep.contract import Assignment
from sweep.events import EpochReported, Event, Role, Status, TrialEnded, TrialStarted
from sweep.runner.coordinator import Coordinator
from sweep.spec import Spec, parse_spec
from sweep.store import log as store_log
from sweep.store.log import Log

FILE = """
name: s
trainable: none:None
method: {method}
metric: {{name: score, goal: maximize, target: 99.0}}
parameters: {{a: {{min: 0, max: 9}}, c: {{value: 1}}}}
epochs: 4
run_cap: {cap}
early_terminate: {{type: median, min_iter: 2}}
baseline: {{a: -3}}
"""


def spec(*more: str, method: str = "random", cap: int = 8) -> Spec:
    return parse_spec(FILE.format(method=method, cap=cap) + "\n".join(more), "f.yaml")


def score(given: Assignment, epoch: int) -> float:
    """Noise of the seed beside what the parameter makes; the order shows from the second epoch on."""
    fold = None if given.fold is None else given.fold.number
    noise = random.Random(f"{given.seed} {given.params} {fold}").gauss(0.0, 0.5)
    return float(given.params["a"]) + noise + epoch


def step(driver: Coordinator, given: Assignment, epoch: int, of: int) -> bool:
    trial = given.trial
    report = EpochReported(
        trial=trial, epoch=epoch, metrics={"score": score(given, epoch)}, time=1.0, time_s=0.1
    )
    if epoch < of:
        return driver.take(trial, Continues(epochs=(report,)))
    end = TrialEnded(trial=trial, status=Status.COMPLETED, reason="", time=1.0)
    return driver.take(trial, Ends(epochs=(report,), end=end))


def drive(
    given: Spec, path: Path, *, room: int = 3, steps: int = 10**6, confirming: bool = False
) -> list[Event]:
    """Run or go on with a sweep for so many steps, then die; returns the log."""
    with Log(path) as log:
        driver = simulated.coordinator(given, log)
        history = list(store_log.read(path)) if path.exists() else []
        driver.open(history, confirming=confirming)
        assignments: dict[int, Assignment] = {}
        running: dict[int, int] = {}
        for _ in range(steps):
            while len(running) < room and (order := driver.next()) is not None:
                assignments[order.assignment.trial] = order.assignment
                running[order.assignment.trial] = 0
            if not running:
                driver.close()
                break
            trial = min(running, key=lambda one: (running[one], one))
            running[trial] += 1
            if not step(driver, assignments[trial], running[trial], given.epochs):
                del running[trial]
    return list(store_log.read(path))


def begun(events: list[Event], role: Role) -> list[TrialStarted]:
    return [event for event in events if isinstance(event, TrialStarted) and event.role is role]


def ends(events: list[Event]) -> dict[int, TrialEnded]:
    return {event.trial: event for event in events if isinstance(event, TrialEnded)}


def test_the_baseline_comes_first_with_the_seeds_of_the_search_and_nothing_ends_it(
    tmp_path: Path,
) -> None:
    events = drive(spec("repeats: 2"), tmp_path / "log.jsonl")
    first = begun(events, Role.BASELINE)
    assert [(one.trial, one.seed, one.params) for one in first] == [
        (n, n, {"a": -3, "c": 1}) for n in (0, 1)
    ]
    searched = begun(events, Role.SEARCH)
    assert [(one.trial, one.index, one.seed) for one in searched[:3]] == [
        (2, 0, 0),
        (3, 1, 1),
        (4, 2, 0),
    ]
    assert len(searched) == 16
    assert {ends(events)[one.trial].status for one in first} == {Status.COMPLETED}
    assert Status.PRUNED in {end.status for end in ends(events).values()}
    assert not begun(events, Role.CONFIRM)


@pytest.mark.parametrize("method", ["random", "tpe"])
def test_the_search_is_the_same_without_a_baseline(tmp_path: Path, method: str) -> None:
    with_it = drive(spec(method=method), tmp_path / "a.jsonl", room=1)
    text = FILE.format(method=method, cap=8).replace("baseline: {a: -3}", "")
    without = drive(parse_spec(text, "f.yaml"), tmp_path / "b.jsonl", room=1)
    assert [one.params for one in begun(with_it, Role.SEARCH)] == [
        one.params for one in begun(without, Role.SEARCH)
    ]
    assert all(one.index is None for one in begun(without, Role.SEARCH))


def test_finalists_get_the_same_fresh_seeds_until_they_are_told_apart(tmp_path: Path) -> None:
    events = drive(spec("confirm: {seeds: 8, finalists: 3, budget: null}"), tmp_path / "log.jsonl")
    fresh = begun(events, Role.CONFIRM)
    seeds: dict[str, list[int]] = {}
    for one in fresh:
        assert one.seed == one.repeat >= 1
        seeds.setdefault(str(one.params["a"]), []).append(one.seed)
    assert all(given == [*range(1, 1 + len(given))] for given in seeds.values())
    # the baseline is far behind, and dropped out
    assert len(seeds["-3"]) < max(map(len, seeds.values()))
    assert {ends(events)[one.trial].status for one in fresh} == {Status.COMPLETED}
    assert len({one.trial for one in fresh}) == len(fresh)
    search_over = max(
        i for i, e in enumerate(events) if isinstance(e, TrialEnded) and e.trial < fresh[0].trial
    )
    assert events.index(fresh[0]) > search_over


@pytest.mark.parametrize("room", [1, 4])
@pytest.mark.parametrize("more", ["repeats: 2", "folds: 2"])
def test_killed_anywhere_it_goes_on_to_the_same_race(tmp_path: Path, room: int, more: str) -> None:
    given = spec("confirm: {seeds: 4, finalists: 3, budget: 400%}", more, cap=5)
    whole = drive(given, tmp_path / "whole.jsonl", room=room)
    numbers = random.Random(room)
    path = tmp_path / "log.jsonl"
    for _ in range(400):
        if path.exists() and any(
            getattr(event, "reason", "") == "finished" for event in store_log.read(path)
        ):
            break
        drive(given, path, room=room, steps=numbers.randint(1, 25))
    again = list(store_log.read(path))

    def raced(events: list[Event]) -> set[tuple[str, int, int | None, int]]:
        return {
            (str(one.params), one.repeat, one.fold, one.seed) for one in begun(events, Role.CONFIRM)
        }

    assert raced(again) == raced(whole)
    assert len(begun(again, Role.CONFIRM)) == len(raced(whole))


def test_the_budget_bounds_it(tmp_path: Path) -> None:
    events = drive(spec("confirm: {seeds: 8, budget: 60%}"), tmp_path / "a.jsonl")
    searched = sum(
        isinstance(event, EpochReported) and event.trial < begun(events, Role.CONFIRM)[0].trial
        for event in events
    )
    assert 0 < 4 * len(begun(events, Role.CONFIRM)) <= 0.6 * searched


def test_a_sweep_that_ended_is_confirmed_later_and_extended_after_that(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    drive(spec(cap=4), path)
    given = "confirm: {seeds: 2, finalists: 2, budget: null}"
    events = drive(spec(given, cap=4), path, confirming=True)
    fresh = begun(events, Role.CONFIRM)
    assert [one.trial for one in fresh] == [*range(5, 5 + len(fresh))]
    with Log(tmp_path / "left.jsonl") as log:
        driver = simulated.coordinator(spec(given, cap=6), log)
        driver.open(events)
        assert driver.left == 2
    more = begun(drive(spec(given, cap=6), path), Role.SEARCH)
    assert [(one.trial, one.index) for one in more[4:]] == [
        (5 + len(fresh), 4),
        (6 + len(fresh), 5),
    ]
    assert [one.params for one in more] == [
        one.params for one in begun(drive(spec(cap=6), tmp_path / "b.jsonl"), Role.SEARCH)
    ]


def test_a_target_that_ends_the_search_ends_no_confirmation(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    text = FILE.format(method="random", cap=8).replace("target: 99.0", "target: 9.0")
    one = parse_spec(text + "confirm: {seeds: 3, budget: null}", "f.yaml")
    drive(one, path)
    assert not begun(list(store_log.read(path)), Role.CONFIRM)
    events = drive(one, path, confirming=True)
    fresh = begun(events, Role.CONFIRM)
    assert fresh
    epochs = {trial.trial: 0 for trial in fresh}
    for event in events:
        if isinstance(event, EpochReported) and event.trial in epochs:
            epochs[event.trial] += 1
    assert set(epochs.values()) == {4}
