"""Whole sweeps whose trials pause and go on: nothing is lost, a killed one goes on the same, all end."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path

import pytest
import simulated
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from sweep.events import (
    PAUSES,
    EpochReported,
    Event,
    SessionEnded,
    SessionStarted,
    Status,
    TrialEnded,
    TrialStarted,
)
from sweep.schedulers import Pausing
from sweep.schedulers.early_termination import build_scheduler
from sweep.spec import Spec, parse_spec
from sweep.store import log as store_log
from sweep.store.ledger import Ledger, renumber_for_search
from sweep.store.log import Log

RULES = {
    "promotion": "{type: asha_promotion, min_iter: 1, eta: 2}",
    "promotion late": "{type: asha_promotion, min_iter: 2, eta: 3, max_iter: 4}",
    "pasha": "{type: pasha, min_iter: 1, eta: 2}",
    "pasha strict": "{type: pasha, min_iter: 1, eta: 2, epsilon: 0}",
    "freeze": "{type: freeze_thaw, min_iter: 1, eta: 2}",
    "freeze late": "{type: freeze_thaw, min_iter: 2, eta: 2, share: 0}",
}
every_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)


def spec(rule: str, *more: str, method: str = "random", repeats: int = 1, cap: int = 16) -> Spec:
    count = ", count: 6" if method == "grid" else ""
    text = simulated.FILE.format(method=method, rule=rule, seed=3, repeats=repeats, count=count)
    return parse_spec("\n".join([text.replace("run_cap: 9", f"run_cap: {cap}"), *more]), "f.yaml")


def resumed(given: Spec, path: Path, room: int = 1, seed: int = 0) -> list[Event]:
    """The whole log, once a driver has gone on with what is at ``path``."""
    return simulated.simulate(given, path, room, seed)


def ends(events: list[Event]) -> dict[int, TrialEnded]:
    return {event.trial: event for event in events if isinstance(event, TrialEnded)}


@every_rule
@pytest.mark.parametrize("room", [1, 4])
@pytest.mark.parametrize("method", ["grid", "tpe"])
def test_every_trial_ends_and_one_is_trained_whole(
    tmp_path: Path, rule: str, room: int, method: str
) -> None:
    given = spec(rule, method=method)
    events = simulated.simulate(given, tmp_path / "log.jsonl", room, seed=5)
    last = ends(events)
    assert len(last) == 16
    assert Status.INTERRUPTED not in {end.status for end in last.values()}
    assert any(end.status is Status.COMPLETED for end in last.values())
    pruned = [end for end in last.values() if end.status is Status.PRUNED]
    assert pruned
    assert all(end.waits and ": score " in end.reason and "\n" not in end.reason for end in pruned)
    assert isinstance(events[-1], SessionEnded)
    assert events[-1].reason == "finished"
    reported = Counter(
        (event.trial, event.epoch) for event in events if isinstance(event, EpochReported)
    )
    assert set(reported.values()) == {1}
    paused = Counter(
        event.trial for event in events if isinstance(event, TrialEnded) and event.waits
    )
    assert max(paused.values()) > 1  # one has gone on and paused again


@every_rule
@pytest.mark.parametrize("method", ["random", "tpe"])
def test_a_killed_sweep_goes_on_the_same(tmp_path: Path, rule: str, method: str) -> None:
    given = spec(rule, method=method, cap=10)
    whole = simulated.simulate(given, tmp_path / "whole.jsonl", 1, seed=0)
    for cut in range(1, len(whole), 7 if method == "random" else 23):
        path = tmp_path / f"{cut}.jsonl"
        with Log(path) as log:
            log.append(whole[:cut])
        assert simulated.story(resumed(given, path)) == simulated.story(whole), cut


@every_rule
def test_a_killed_sweep_of_unlike_lengths_goes_on_the_same(tmp_path: Path, rule: str) -> None:
    text = simulated.FILE.format(method="random", rule=rule, seed=3, repeats=1, count="")
    text = text.replace("epochs: 9\n", "")
    given = parse_spec(text.replace("3]}}", "3]}, epochs: {values: [4, 9]}}"), "f.yaml")
    whole = simulated.simulate(given, tmp_path / "whole.jsonl", 1, seed=0)
    for cut in range(1, len(whole), 7):
        path = tmp_path / f"{cut}.jsonl"
        with Log(path) as log:
            log.append(whole[:cut])
        assert simulated.story(resumed(given, path)) == simulated.story(whole), cut


@pytest.mark.parametrize("method", ["tpe", "cmaes"])
def test_one_that_is_stopped_where_a_trial_was_to_pause_goes_on_the_same(
    tmp_path: Path, method: str
) -> None:
    """Its worker ends the trial as it does any other then, and methods that learn must hear that it pauses."""
    given = spec(RULES["promotion"], method=method, cap=14)
    whole = simulated.simulate(given, tmp_path / "whole.jsonl", 1, seed=0)
    pauses = [
        cut
        for cut, e in enumerate(whole)
        if isinstance(e, TrialEnded) and e.waits and e.status == "interrupted"
    ]
    for cut in pauses[3::3]:
        path = tmp_path / f"{cut}.jsonl"
        with Log(path) as log:
            stopped = structs.replace(whole[cut], waits=False)
            log.append([*whole[:cut], stopped, SessionEnded(time=1.0, reason="stopped")])
        assert simulated.story(resumed(given, path)) == simulated.story(whole), cut


@every_rule
def test_what_one_more_session_would_do_does_not_depend_on_the_sessions_before(
    tmp_path: Path, rule: str
) -> None:
    """Whatever the workers of the log were: two drivers that go on from it do the same."""
    given = spec(rule)
    whole = simulated.simulate(given, tmp_path / "whole.jsonl", 3, seed=1)
    for cut in range(5, len(whole), 23):
        stories = []
        for twin in ("one", "two"):
            path = tmp_path / f"{cut}-{twin}.jsonl"
            with Log(path) as log:
                log.append(whole[:cut])
            stories.append(simulated.story(resumed(given, path)))
        assert stories[0] == stories[1]


@given(
    st.sampled_from(list(RULES.values())),
    st.integers(1, 6),
    st.integers(0, 999),
    st.sampled_from([1, 2]),
)
@settings(max_examples=12, deadline=None)
def test_a_rule_that_hears_the_log_says_what_is_in_it(
    rule: str, room: int, seed: int, repeats: int
) -> None:
    """Each pause, its end, and each end of those that still paused, whatever the order in which workers reported."""
    file = spec(rule, "baseline: {a: 0.5, b: 1}", repeats=repeats, cap=12 // repeats)
    with tempfile.TemporaryDirectory() as folder:
        events = simulated.simulate(file, Path(folder) / "log.jsonl", room, seed)
    fresh, ledger = build_scheduler(file.early_terminate, file.objectives[0], file.epochs), Ledger()
    assert isinstance(fresh, Pausing)
    told: dict[int, str] = {}
    for event in events:
        place = None
        if isinstance(event, TrialEnded) and event.waits:
            place = ledger.trials[event.trial].place
            assert place is not None
            why = (
                fresh.holds(place)
                if event.status is Status.INTERRUPTED
                else fresh.dropped(rest=True)[place]
            )
            assert event.reason == (PAUSES if event.status is Status.INTERRUPTED else "") + str(why)
            told[event.trial] = event.reason
        elif isinstance(event, EpochReported) and event.trial in told:
            place = ledger.trials[event.trial].place
            assert place is not None
            assert fresh.holds(place) is None or fresh.last() == place
            del told[event.trial]
        heard = renumber_for_search(ledger.observe(event))
        if heard is not None:
            fresh.observe(heard)


@every_rule
def test_a_finished_sweep_is_extended(tmp_path: Path, rule: str) -> None:
    path = tmp_path / "log.jsonl"
    first = simulated.simulate(spec(rule, cap=8), path, 1, seed=0)
    more = resumed(spec(rule, cap=14), path)
    assert more[: len(first)] == first
    assert len(ends(more)) == 14
    assert Status.INTERRUPTED not in {end.status for end in ends(more).values()}


@every_rule
def test_a_budget_leaves_those_that_pause_to_be_gone_on_with(tmp_path: Path, rule: str) -> None:
    path = tmp_path / "log.jsonl"
    events = simulated.simulate(spec(rule, "budget: {epochs: 14}"), path, 1, seed=0)
    states = {end.status for end in ends(events).values()}
    assert Status.INTERRUPTED in states
    more = resumed(spec(rule), path)
    assert Status.INTERRUPTED not in {end.status for end in ends(more).values()}
    alone = simulated.simulate(spec(rule), tmp_path / "alone.jsonl", 1, seed=0)
    assert simulated.story(more) == simulated.story(alone)


@every_rule
@pytest.mark.parametrize("repeats", [1, 2])
def test_repeats_baseline_and_fresh_seeds(tmp_path: Path, rule: str, repeats: int) -> None:
    more = ("baseline: {a: 0.5, b: 1}", "confirm: {seeds: 3, budget: null, finalists: 2}")
    given = spec(rule, *more, repeats=repeats, cap=12 // repeats)
    events = simulated.simulate(given, tmp_path / "log.jsonl", 2, seed=2)
    started = {event.trial: event for event in events if isinstance(event, TrialStarted)}
    last = ends(events)
    assert set(last) == set(started)
    assert Status.INTERRUPTED not in {end.status for end in last.values()}
    beside = [trial for trial, start in started.items() if start.role != "search"]
    assert len(beside) >= repeats
    assert not any(
        isinstance(event, TrialEnded) and event.waits and event.trial in beside for event in events
    )
    confirmations = [trial for trial, start in started.items() if start.role == "confirm"]
    searched = [trial for trial, start in started.items() if start.role == "search"]
    when = {
        event.trial: place for place, event in enumerate(events) if isinstance(event, TrialEnded)
    }
    begun = {
        event.trial: place for place, event in enumerate(events) if isinstance(event, TrialStarted)
    }
    # of a configuration of which one repeat alone completed, there are none
    assert confirmations or repeats == 2
    assert not confirmations or max(when[trial] for trial in searched) < min(
        begun[trial] for trial in confirmations
    )


def test_those_that_wait_until_the_end_do_not_end_the_search(tmp_path: Path) -> None:
    events = simulated.simulate(
        spec(RULES["promotion"], "stop_when: {no_improvement: 3}"),
        tmp_path / "log.jsonl",
        1,
        seed=0,
    )
    assert isinstance(events[-1], SessionEnded)
    assert events[-1].reason == "finished"


def test_a_trial_that_pauses_is_stopped_by_hand(tmp_path: Path) -> None:
    given = spec(RULES["promotion"])
    with Log(tmp_path / "log.jsonl") as log:
        driver = simulated.coordinator(given, log)
        driver.open()
        trial = _until_one_pauses(driver, given, log.path)
        driver.stop_trial(trial)
        assert simulated.trials_of(log.path)[trial].ended is not None
        driver.close()
    end = ends(list(store_log.read(tmp_path / "log.jsonl")))[trial]
    assert (end.status, end.asked, end.waits) == (Status.PRUNED, True, False)


def _until_one_pauses(driver: simulated.Coordinator, given: Spec, path: Path) -> int:
    while True:
        order = driver.next()
        assert order is not None
        assert order.waits
        trial = order.assignment.trial
        epoch = simulated.trials_of(path)[trial].epoch
        going = True
        while going:
            epoch += 1
            going = driver.take(trial, simulated.progress(order.assignment, epoch, given.epochs))
        if simulated.trials_of(path)[trial].ended is None:
            return trial


def test_a_worker_is_lost_between_two_rungs(tmp_path: Path) -> None:
    """Its trial goes on with another worker, for it has been let go on."""
    given = spec(RULES["promotion"])
    with Log(tmp_path / "log.jsonl") as log:
        driver = simulated.coordinator(given, log)
        driver.open()
        seen = set()
        while (order := driver.next()) is not None:
            trial = order.assignment.trial
            epoch = simulated.trials_of(log.path)[trial].epoch
            if epoch and trial not in seen:
                seen.add(trial)
                driver.lose(trial, "gone")
                continue
            going = True
            while going:
                epoch += 1
                going = driver.take(
                    trial, simulated.progress(order.assignment, epoch, given.epochs)
                )
        driver.close()
    events = list(store_log.read(tmp_path / "log.jsonl"))
    assert seen
    assert simulated.story(events) == simulated.story(
        simulated.simulate(given, tmp_path / "undisturbed.jsonl", 1, seed=0)
    )


def test_a_log_that_lacks_the_pause_itself_gets_it(tmp_path: Path) -> None:
    """A driver was killed between a trial's epoch and its pause: the next one writes it."""
    given = spec(RULES["promotion"])
    whole = simulated.simulate(given, tmp_path / "whole.jsonl", 1, seed=0)
    cut = next(
        place for place, event in enumerate(whole) if isinstance(event, TrialEnded) and event.waits
    )
    path = tmp_path / "cut.jsonl"
    with Log(path) as log:
        log.append(whole[:cut])
    shutil.copy(path, tmp_path / "kept.jsonl")
    more = resumed(given, path)
    pause = more[cut + 1]
    assert isinstance(more[cut], SessionStarted)
    assert isinstance(pause, TrialEnded)
    assert (pause.trial, pause.waits) == (structs.asdict(whole[cut])["trial"], True)
