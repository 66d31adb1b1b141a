"""History: one record for each trial."""

from __future__ import annotations

from sweep.conformance.logs import ended, epoch, started, trial
from sweep.events import SessionStarted, Status
from sweep.searchers.history import History


def test_a_record_gathers_what_was_said_of_a_trial() -> None:
    history = History()
    for event in trial(0, {"x": 1}, Status.PRUNED, [3.0, 2.0]):
        history.observe(event)
    record = history.trials[0]
    assert (record.params, record.status, record.started, record.ended) == ({"x": 1}, Status.PRUNED, 100.0, 300.0)
    assert record.epochs == {1: {"loss": 3.0}, 2: {"loss": 2.0}}
    assert record.last == {"loss": 2.0}


def test_an_interrupted_trial_stays_as_it_was_and_goes_on() -> None:
    history = History()
    for event in [started(0, {}), epoch(0, 1, loss=3.0), ended(0, Status.INTERRUPTED)]:
        history.observe(event)
    assert (history.trials[0].status, history.trials[0].ended) == (Status.RUNNING, None)
    for event in [started(0, {}), epoch(0, 1, loss=3.0), epoch(0, 2, loss=2.0), ended(0, Status.COMPLETED)]:
        history.observe(event)
    assert history.trials[0].status is Status.COMPLETED
    assert history.trials[0].epochs == {1: {"loss": 3.0}, 2: {"loss": 2.0}}


def test_what_belongs_to_no_started_trial_is_ignored() -> None:
    history = History()
    session = SessionStarted(time=0.0, resumed=False, version="1")
    for event in [session, epoch(3, 1, loss=1.0), ended(3, Status.FAILED)]:
        history.observe(event)
    assert history.trials == {}


def test_a_trial_without_epochs_has_no_last_metrics() -> None:
    history = History()
    history.observe(started(0, {}))
    assert history.trials[0].last == {}
