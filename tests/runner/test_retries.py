"""Failed trials that are tried again, and workers that are lost: counted over sessions, never two at a time."""

from __future__ import annotations

from pathlib import Path

import pytest
import simulated
from simulated import METHODS

from sweep.backends import Continues, Ends, Moves
from sweep.events import EpochReported, Status, TrialEnded, TrialStarted
from sweep.store import log as store_log
from sweep.store.log import Log


def _failed(trial: int, *, spoilt: bool) -> Ends:
    end = TrialEnded(trial=trial, status=Status.FAILED, reason="no", time=1.0, error="E")
    return Ends(end=end, spoilt="its trial ended as failed" if spoilt else None)


@pytest.mark.parametrize("spoilt", [True, False])
def test_a_failed_trial_is_tried_again_so_often_and_over_sessions(
    tmp_path: Path, spoilt: bool
) -> None:
    driver, log = simulated.begin(tmp_path, "retries: 3")
    driver.open()
    for other in (1, 2):
        assert driver.next().assignment.trial == 0
        driver.take(0, _failed(0, spoilt=spoilt))
        if spoilt:  # not before its worker is gone
            running, order = driver.running, driver.next()
            assert (running, order.assignment.trial) == (1, other)
            driver.take(other, simulated.progress(order.assignment, 9, 9))
            assert not driver.lose(0, "this worker is replaced")
    log.close()
    again, log = simulated.begin(tmp_path, "retries: 3")
    again.open(list(store_log.read(log.path)))
    for _ in range(2):
        assert again.next().assignment.trial == 0
        again.take(0, _failed(0, spoilt=False))
    assert again.next().assignment.trial != 0
    log.close()
    ends = [
        event
        for event in store_log.read(log.path)
        if isinstance(event, TrialEnded) and event.trial == 0
    ]
    assert [(end.status.value, end.reason) for end in ends] == [
        *(("interrupted", f"no; tried again, {n} of 3") for n in (1, 2, 3)),
        ("failed", "no"),
    ]
    assert [end.again for end in ends] == [True, True, True, False]


def test_a_hanging_trial_is_tried_again_once_its_worker_is_gone(tmp_path: Path) -> None:
    clock = simulated.Clock()
    driver, log = simulated.begin(
        tmp_path, "retries: 1", "resources: {epoch_minutes: 0.1}", clock=clock
    )
    driver.open()
    driver.next()
    for tries in range(2):
        driver.begun(0)
        clock.now += 7
        assert driver.tick() == [0]
        assert driver.running == 1 - tries
        assert not driver.lose(0, "killed")
        assert driver.next().assignment.trial == tries
    log.close()


def test_a_lost_node_is_not_the_trials_fault(tmp_path: Path) -> None:
    driver, log = simulated.begin(tmp_path, "max_restarts: 0")
    driver.open()
    for _ in range(20):
        assert driver.next().assignment.trial == 0
        assert driver.lose(0, "worker lost: its node has died", "node")
    driver.next()
    assert not driver.lose(0, "worker lost: its node has died", "node")  # it brings them down
    log.close()


def test_a_node_that_is_taken_away_never_counts(tmp_path: Path) -> None:
    driver, log = simulated.begin(tmp_path, "max_restarts: 0")
    driver.open()
    for _ in range(50):
        assert driver.next().assignment.trial == 0
        assert driver.lose(0, "worker lost: its node was taken away", "preempted")
    log.close()


def test_a_trial_that_is_stopped_while_it_leaves_a_node_is_given_out_no_more(
    tmp_path: Path,
) -> None:
    driver, log = simulated.begin(tmp_path)
    driver.open()
    driver.next()
    driver.take(0, Moves(spoilt="its node is taken away in 30 s"))
    driver.stop_trial(0)
    assert not driver.lose(0, "this worker is replaced")
    assert driver.next().assignment.trial == 1
    log.close()


def test_a_trial_that_leaves_a_node_is_given_out_again_once_its_worker_is_gone(
    tmp_path: Path,
) -> None:
    driver, log = simulated.begin(tmp_path, "max_restarts: 0")
    driver.open()
    for others in (1, 2):
        assert driver.next().assignment.trial == 0
        assert not driver.take(0, Moves(spoilt="its node is taken away in 30 s"))
        assert driver.running == 1
        order = driver.next()
        assert order.assignment.trial == others  # and not the one whose worker is still there
        assert not driver.lose(0, "this worker is replaced")
        driver.take(others, simulated.progress(order.assignment, 9, 9))
    log.close()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "rule", ["{type: asha, min_iter: 3, eta: 2}", "{type: median, min_iter: 3, min_trials: 2}"]
)
def test_failed_trials_are_reopened_at_any_time(tmp_path: Path, method: str, rule: str) -> None:
    spec = simulated.spec(method, rule, seed=1, repeats=3)
    path = tmp_path / "log.jsonl"
    whole = simulated.simulate(spec, path, 2, seed=1)
    for tries in range(2):
        with Log(path) as log:
            driver = simulated.coordinator(spec, log)
            assert driver.open(list(store_log.read(path)), retry_failed=True) == 1
            order = driver.next()
            assert order.assignment.trial == 7
            assert order.decision_epochs == ()
            for epoch in range(2, 10) if tries else ():
                report = EpochReported(
                    trial=7, epoch=epoch, metrics={"score": 0.5}, time=1.0, time_s=0.1
                )
                done = TrialEnded(trial=7, status=Status.COMPLETED, reason="", time=1.0)
                driver.take(
                    7,
                    Ends(epochs=(report,), end=done) if epoch == 9 else Continues(epochs=(report,)),
                )
            if not tries:
                driver.take(7, _failed(7, spoilt=False))
            driver.close()
    ends = [
        event.status.value
        for event in store_log.read(path)
        if isinstance(event, TrialEnded) and event.trial == 7
    ]
    assert ends == ["failed", "interrupted", "failed", "interrupted", "completed"]
    assert simulated.story(store_log.read(path))[: len(simulated.story(whole))] == simulated.story(
        whole
    )


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("repeats", [1, 3])
def test_trials_that_a_log_has_lost_are_trained_again(
    tmp_path: Path, method: str, repeats: int
) -> None:
    spec = simulated.spec(method, "{type: none}", seed=1, repeats=repeats)
    path = tmp_path / "log.jsonl"
    whole = simulated.simulate(spec, path, 1, seed=1)
    lost = {2, 5}
    with Log(tmp_path / "left.jsonl") as log:
        log.append([event for event in whole if getattr(event, "trial", None) not in lost])
        driver = simulated.coordinator(spec, log)
        driver.open(list(store_log.read(log.path)))
        orders = [driver.next() for _ in lost]
        assert [order.assignment.trial for order in orders] == [2, 5]
        assert driver.next() is None
    if not spec.search_method.learns:
        params = {event.trial: event.params for event in whole if isinstance(event, TrialStarted)}
        assert [order.assignment.params for order in orders] == [params[trial] for trial in (2, 5)]


def test_failed_trials_are_reopened_in_a_sweep_with_constraints(tmp_path: Path) -> None:
    driver, log = simulated.begin(tmp_path, 'constraints: ["score < 9"]')
    driver.open()
    driver.next()
    driver.take(0, _failed(0, spoilt=False))
    driver.close()
    log.close()
    again, log = simulated.begin(tmp_path, 'constraints: ["score < 9"]')
    assert again.open(list(store_log.read(log.path)), retry_failed=True) == 1
    assert again.next().assignment.trial == 0
    log.close()
