"""Methods that learn do so from trials that pause, which may never go on."""

from __future__ import annotations

import pytest
from msgspec import structs
from optuna.trial import TrialState as State

from sweep.conformance.searchers import drive, ended, started
from sweep.events import EpochReported, Event, Params, Status, TrialEnded
from sweep.runner.methods import Repeated
from sweep.searchers.cmaes_search import CmaesSearcher
from sweep.searchers.optuna_search import OptunaSearcher
from sweep.space import Parameter, Space
from sweep.space.domains import Uniform
from sweep.space.objectives import Objective

LOSS = (Objective("loss", "minimize"),)
PLANE = Space((Parameter("x", Uniform(-1, 1)), Parameter("y", Uniform(-1, 1))))


def epoch(trial: int, number: int, loss: float) -> EpochReported:
    return EpochReported(trial=trial, epoch=number, metrics={"loss": loss}, time=0.0, time_s=1.0)


def pause(trial: int) -> TrialEnded:
    return structs.replace(ended(trial, Status.INTERRUPTED), waits=True)


def pausing(number: int, params: Params) -> list[Event]:
    """A trial that trains an epoch, and pauses."""
    loss = (params["x"] - 0.5) ** 2 + (params["y"] + 0.5) ** 2
    return [started(number, params), epoch(number, 1, loss), pause(number)]


def test_tpe_takes_one_that_pauses_for_pruned_until_it_goes_on() -> None:
    searcher = OptunaSearcher("tpe", PLANE, LOSS, 0)
    drive(searcher, 3, pausing)
    assert [trial.state for trial in searcher.study().trials] == [State.PRUNED] * 3
    searcher.observe(epoch(1, 2, 0.1))
    assert [trial.state for trial in searcher.study().trials] == [
        State.PRUNED,
        State.RUNNING,
        State.PRUNED,
    ]
    searcher.observe(ended(1, Status.COMPLETED))
    assert searcher.study().trials[1].state is State.COMPLETE
    assert searcher.study().trials[1].value == 0.1


def test_tpe_and_cmaes_come_nearer_though_all_trials_pause() -> None:
    for searcher in (OptunaSearcher("tpe", PLANE, LOSS, 0), CmaesSearcher(PLANE, LOSS, 0)):
        log = drive(searcher, 60, pausing)
        losses = [event.metrics["loss"] for event in log if isinstance(event, EpochReported)]
        assert sum(losses[40:]) < 0.5 * sum(losses[:20])


def test_cmaes_counts_a_trial_in_its_generation_once() -> None:
    one, other = CmaesSearcher(PLANE, LOSS, 0), CmaesSearcher(PLANE, LOSS, 0)
    log = drive(one, 20, pausing)
    for event in log:
        other.observe(event)
        if isinstance(event, TrialEnded):  # it has gone on, and paused again
            for later in (epoch(event.trial, 2, 0.0), pause(event.trial)):
                other.observe(later)
    assert one.suggest(20) == other.suggest(20)


class Listener:
    foresees = False

    def __init__(self) -> None:
        self.heard: list[Event] = []

    def suggest(self, number: int) -> Params | None:
        return {"x": number}

    def learn(self, past: object) -> int:
        return 0

    def observe(self, event: Event) -> None:
        self.heard.append(event)


def test_repeats_are_heard_of_as_far_as_all_have_come() -> None:
    listener = Listener()
    searcher = Repeated(listener, 2)
    events: list[Event] = [
        started(0, {"x": 0}),
        started(1, {"x": 0}),
        epoch(0, 1, 1.0),
        pause(0),
        epoch(1, 1, 3.0),
    ]
    events += [pause(1), epoch(0, 2, 0.5), epoch(0, 3, 0.4), pause(0)]
    events += [
        epoch(1, 2, 1.5),
        ended(1, Status.DIVERGED),
        epoch(0, 4, 0.3),
        ended(0, Status.COMPLETED),
    ]
    for event in events:
        searcher.observe(event)
    told = [
        (event.epoch, event.metrics["loss"]) if isinstance(event, EpochReported) else event.status
        for event in listener.heard[1:]
        if isinstance(event, EpochReported | TrialEnded)
    ]
    assert told == [
        *((1, 2.0), Status.INTERRUPTED),  # both pause
        *(Status.INTERRUPTED,),  # one of them has come further, and the other no less far
        *((2, 0.5), (3, 0.4), Status.INTERRUPTED),  # the other one has diverged, and counts no more
        *((4, 0.3), Status.DIVERGED),
    ]


@pytest.mark.parametrize("waits", [True, False])
def test_only_who_pauses_counts(waits: bool) -> None:
    searcher = OptunaSearcher("tpe", PLANE, LOSS, 0)
    drive(searcher, 1, lambda number, params: pausing(number, params)[:2])
    searcher.observe(structs.replace(pause(0), waits=waits))
    assert (searcher.study().trials[0].state is State.PRUNED) is waits
