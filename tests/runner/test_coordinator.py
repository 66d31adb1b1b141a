"""The coordinator: resumed at any record of the log it decides and suggests as if it had never stopped."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
import simulated
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from simulated import METHODS

from sweep.backends import Continues, Outgrown
from sweep.errors import StoreError
from sweep.events import Event, SessionEnded, SessionStarted, Status, TrialEnded, TrialStarted
from sweep.store import log as store_log

RULES = (
    "{type: asha, min_iter: 1, eta: 2}",
    "{type: hyperband, min_iter: 2, eta: 2}",
    "{type: median, min_iter: 1, min_trials: 2}",
    "{type: none}",
)


@settings(deadline=None, max_examples=25)
@given(
    method=st.sampled_from(METHODS),
    rule=st.sampled_from(RULES),
    seed=st.integers(0, 99),
    repeats=st.sampled_from([1, 3]),
    room=st.integers(1, 4),
    cut=st.floats(0, 1),
    torn=st.booleans(),
)
def test_any_prefix_of_the_log_goes_on_as_the_whole(
    method: str, rule: str, seed: int, repeats: int, room: int, cut: float, torn: bool
) -> None:
    spec = simulated.spec(method, rule, seed, repeats)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.jsonl"
        whole = simulated.simulate(spec, path, room, seed)
        lines = path.read_bytes().splitlines(keepends=True)
        kept = int(cut * (len(lines) - 1))
        path.write_bytes(b"".join(lines[:kept]) + (lines[kept][:-5] if torn else b""))
        resumed = simulated.go_on(spec, path, whole[kept:])
    assert sorted(map(repr, simulated.story(resumed))) == sorted(map(repr, simulated.story(whole)))
    assert _starts_and_reports(resumed) == _starts_and_reports(whole)


def _starts_and_reports(events: list[Event]) -> list[tuple[object, ...]]:
    return [one for one in simulated.story(events) if one[0] != "ended"]


@pytest.mark.parametrize("cuts", [(5, 20, 21), (0, 1, 2, 3), (30, 30, 60)])
def test_killed_again_and_again(tmp_path: Path, cuts: tuple[int, ...]) -> None:
    spec = simulated.spec("tpe", RULES[0], seed=3)
    path = tmp_path / "log.jsonl"
    whole = simulated.simulate(spec, path, 1, seed=1)
    for cut in cuts:
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[:cut]))
        seen = simulated.story(store_log.read(path)) if cut else []
        rest = whole[_position(whole, seen) :]
        assert simulated.story(simulated.go_on(spec, path, rest)) == simulated.story(whole)


def _position(events: list[Event], told: list[tuple[object, ...]]) -> int:
    """How many events of a whole log it takes to tell so much of its story."""
    return next(n for n in range(len(events) + 1) if len(simulated.story(events[:n])) == len(told))


def test_what_is_still_running_is_interrupted_and_gone_on_with_first(tmp_path: Path) -> None:
    driver, log = simulated.begin(tmp_path)
    driver.open()
    assert [driver.next().assignment.trial for _ in range(2)] == [0, 1]
    driver.take(1, simulated.progress(driver._open[1].started, 1, 9))
    driver.stop("interrupted", asked=True)
    assert driver.next() is None
    driver.close()
    log.close()
    events = list(store_log.read(log.path))
    assert [
        e.trial for e in events if isinstance(e, TrialEnded) and e.status is Status.INTERRUPTED
    ] == [0, 1]
    again, log = simulated.begin(tmp_path)
    again.open(events)
    assert (again.running, again.stopping) == (0, None)
    assert [again.next().assignment.trial for _ in range(3)] == [0, 1, 2]
    log.close()


def test_every_trial_that_did_not_end_is_interrupted_when_nothing_goes_on(tmp_path: Path) -> None:
    driver, log = simulated.begin(tmp_path)
    driver.open()
    driver.next()
    log.close()  # killed: the trial has no end
    again, log = simulated.begin(tmp_path)
    again.open(list(store_log.read(log.path)))
    again.stop("interrupted", asked=True)
    again.close()
    log.close()
    ends = [event for event in store_log.read(log.path) if isinstance(event, TrialEnded)]
    assert [(end.trial, end.status) for end in ends] == [(0, Status.INTERRUPTED)]


def test_a_log_that_cannot_be_written_stops_everything_and_loses_nothing(tmp_path: Path) -> None:
    driver, log = simulated.begin(tmp_path)
    driver.open()
    driver.next(), driver.next()
    whole, append = log.path.read_bytes(), log.append

    def full(events: object) -> None:
        raise StoreError(f"{log.path}: No space left on device")

    log.append = full
    assert not driver.take(0, simulated.progress(driver._open[0].started, 1, 9))
    assert "No space left" in driver.fault
    assert driver.next() is None
    assert not driver.take(1, simulated.progress(driver._open[1].started, 1, 9))
    assert driver.running == 0
    driver.close()
    assert log.path.read_bytes() == whole
    log.append = append
    log.close()
    again, log = simulated.begin(tmp_path)
    again.open(list(store_log.read(log.path)))
    assert [again.next().assignment.trial for _ in range(3)] == [0, 1, 2]
    log.close()


def test_a_lost_worker_is_replaced_a_few_times(tmp_path: Path) -> None:
    driver, log = simulated.begin(tmp_path, "max_restarts: 2")
    driver.open()
    for _ in range(3):
        assert driver.next().assignment.trial == 0
        driver.lose(0, "worker lost: gone")
    size = log.path.stat().st_size
    assert not driver.take(0, Continues())  # one that was given up comes back
    driver.lose(0, "again")
    assert log.path.stat().st_size == size
    log.close()
    ends = [event for event in store_log.read(log.path) if isinstance(event, TrialEnded)]
    assert [(end.status, end.reason) for end in ends] == [
        (Status.FAILED, "worker lost: gone, after 2 restarts")
    ]
    assert ends[0].worker_lost


def test_a_trial_that_its_worker_gives_back_begins_with_smaller_parts(tmp_path: Path) -> None:
    driver, log = simulated.begin(tmp_path, "max_restarts: 0")
    driver.open()
    for parts in (2, 4):
        assert driver.next().assignment.trial == 0
        assert driver.take(0, Outgrown(spoilt="its trial does not fit", accumulate=parts))
        assert not driver.lose(0, "worker lost: RuntimeError: this worker is replaced")
    assert driver.next().assignment.accumulate == 4
    assert not driver.lose(0, "worker lost: gone")  # and this one counts
    log.close()
    assert [
        event.status for event in store_log.read(log.path) if isinstance(event, TrialEnded)
    ] == [Status.FAILED]


def test_a_worker_lost_while_the_sweep_stops_interrupts_its_trial(tmp_path: Path) -> None:
    driver, log = simulated.begin(tmp_path)
    driver.open()
    driver.next()
    driver.stop("interrupted", asked=True)
    driver.lose(0, "worker lost")
    assert driver.running == 0
    driver.close()
    log.close()
    ends = [event for event in store_log.read(log.path) if isinstance(event, TrialEnded)]
    assert [end.status for end in ends] == [Status.INTERRUPTED]


def test_workers_that_cannot_be_told_to_stop_get_nothing_more_to_train(tmp_path: Path) -> None:
    """As in a folder that has become read-only, which may change again."""
    answers = [False, False, True]
    driver, log = simulated.begin(tmp_path, stop=lambda: answers.pop(0))
    driver.open()
    started = [driver.next().assignment for _ in range(3)]
    driver.stop("interrupted", asked=True)
    assert not driver.take(0, simulated.progress(started[0], 1, 9))
    # now they are told: each saves its trial in its next step
    assert driver.take(1, simulated.progress(started[1], 1, 9))
    assert driver.take(2, simulated.progress(started[2], 1, 9))
    assert (answers, driver.running) == ([], 2)
    log.close()
    ends = [event for event in store_log.read(log.path) if isinstance(event, TrialEnded)]
    assert [(end.trial, end.status) for end in ends] == [(0, Status.INTERRUPTED)]


def test_mended_code_is_given_another_chance(tmp_path: Path) -> None:
    started = [
        TrialStarted(
            trial=n, trial_id=f"t{n}", params={"a": n / 9, "b": 1}, seed=0, repeat=0, time=1.0
        )
        for n in range(2)
    ]
    failed = [TrialEnded(trial=n, status=Status.FAILED, reason="no", time=1.0) for n in range(2)]
    begun = SessionStarted(time=1.0, resumed=False, version="1")
    driver, log = simulated.begin(tmp_path)
    driver._spec = replace(driver._spec, max_failures=2)
    driver.open([begun, *started, *failed, SessionEnded(time=2.0, reason="the code is at fault")])
    assert driver.stopping is None
    log.close()


def test_a_trial_that_hangs_is_ended_and_its_worker_killed(tmp_path: Path) -> None:
    clock = simulated.Clock()
    driver, log = simulated.begin(tmp_path, "resources: {epoch_minutes: 1}", clock=clock)
    driver.open()
    driver.next(), driver.next()
    driver.begun(0), driver.begun(1)
    for _ in range(5):
        clock.now += 15
        driver.take(1, simulated.progress(driver._open[1].started, 1, 9))
        doomed = driver.tick()
    assert doomed == [0]
    assert not driver.lose(0, "worker lost: killed")
    assert (driver.running, driver.tick()) == (1, [])
    assert driver.next().assignment.trial == 2
    log.close()
    ends = [event for event in store_log.read(log.path) if isinstance(event, TrialEnded)]
    assert [(end.trial, end.status, end.reason) for end in ends] == [
        (0, Status.FAILED, "no epoch within 1 minutes (resources.epoch_minutes)")
    ]


def test_epochs_from_another_sweep_or_a_parent_take_no_hours_of_a_resumed_trial(
    tmp_path: Path,
) -> None:
    clock = simulated.Clock()
    driver, log = simulated.begin(tmp_path, "resources: {trial_hours: 2}", clock=clock)
    driver.open()
    started = driver.next().assignment
    driver.begun(0)
    reports = [simulated.progress(started, epoch, 9).epochs[0] for epoch in (1, 2, 3, 4)]
    taken = [structs.replace(one, time_s=3600.0, memo="earlier/0") for one in reports[:3]]
    driver.take(0, Continues(epochs=(*taken, structs.replace(reports[3], time_s=3600.0))))
    driver.close()
    log.close()
    driver, log = simulated.begin(tmp_path, "resources: {trial_hours: 2}", clock=clock)
    driver.open(list(store_log.read(log.path)))
    assert driver.next().assignment.trial == 0
    driver.begun(0)
    for _ in range(180):  # in steps: a driver that was absent for longer counts no time
        clock.now += 20
        assert driver.tick() == []
    clock.now += 1
    assert driver.tick() == [0]
    log.close()


@pytest.mark.parametrize("now", [True, False])
def test_a_trial_is_stopped_on_request(tmp_path: Path, now: bool) -> None:
    clock = simulated.Clock()
    driver, log = simulated.begin(tmp_path, clock=clock)
    driver.open()
    driver.next(), driver.next()
    driver.stop_trial(1, now=now)
    driver.stop_trial(7)
    clock.now += 1
    assert driver.tick() == ([1] if now else [])
    assert not driver.take(1, simulated.progress(driver._open[0].started, 1, 9))
    assert driver.next().assignment.trial == 2
    driver.lose(2, "worker lost")
    driver.stop_trial(2)  # between two workers
    assert driver.next().assignment.trial == 3
    driver.stop_trial(3)
    assert not driver.lose(3, "worker lost")
    driver.close()
    log.close()
    ends = {
        event.trial: event for event in store_log.read(log.path) if isinstance(event, TrialEnded)
    }
    assert {trial: end.status for trial, end in ends.items()} == {
        **dict.fromkeys((1, 2, 3), Status.PRUNED),
        0: Status.INTERRUPTED,
    }
    assert {ends[trial].reason for trial in (1, 2, 3)} == {"stopped on request"}


@pytest.mark.parametrize("asked", [False, True])
def test_a_worker_that_is_lost_for_good_is_not_waited_for_if_the_log_cannot_be_written(
    tmp_path: Path, asked: bool
) -> None:
    driver, log = simulated.begin(tmp_path, "max_restarts: 0")
    driver.open()
    driver.next()
    if asked:
        driver.stop_trial(0)
    append = log.append

    def full(events: object) -> None:
        raise StoreError(f"{log.path}: No space left on device")

    log.append = full
    assert not driver.lose(0, "worker lost: gone")
    assert "No space left" in driver.fault
    assert driver.running == 0  # otherwise Tune would wait for ever
    log.append = append
    log.close()
