"""Sweeps that people add to and change: a run that is killed and resumed anywhere is the run that was not."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated import coordinator, progress, trials_of

from sweep.contract import Assignment
from sweep.errors import InputError
from sweep.events import (
    ConfigurationsEnqueued,
    EpochReported,
    Event,
    NoteWritten,
    SessionEnded,
    SessionStarted,
    Status,
    SteeringEvent,
    SweepChanged,
    TrialEnded,
    TrialStarred,
    TrialStarted,
)
from sweep.runner.coordinator import Coordinator
from sweep.runner.steering import Act, Add, Change, Note, Request, Star
from sweep.space.domains import key
from sweep.spec import Spec, parse_spec
from sweep.store import log as store_log
from sweep.store.log import Log

METHODS = (
    *("grid", "random", "sobol"),
    *(pytest.param(method, marks=pytest.mark.slow) for method in ("tpe", "nsga2", "gp", "cmaes")),
)
FILE = """
name: steered
trainable: none:None
method: {method}
metric: {{name: score, goal: minimize}}
parameters: {{a: {{min: 0.0, max: 1.0, count: 3}}, b: {{values: [1, 2, 3]}}}}
epochs: 9
run_cap: {cap}
repeats: {repeats}
early_terminate: {rule}
max_failures: 99
seed: {seed}
"""


def spec(
    method: str = "grid",
    rule: str = "{type: none}",
    seed: int = 0,
    repeats: int = 1,
    cap: str = "9",
    more: str = "",
) -> Spec:
    text = FILE.format(method=method, rule=rule, seed=seed, repeats=repeats, cap=cap) + more
    if method != "grid":
        text = text.replace(", count: 3", "")
    return parse_spec(text, "f.yaml")


class Workers:
    """Drives a coordinator as workers would: what it does follows from a number drawn for each step."""

    def __init__(self, given: Spec, driver: Coordinator, path: Path, room: int) -> None:
        self.given, self.driver, self.path, self.room = given, driver, path, room
        self.assignments: dict[int, Assignment] = {}
        self.epochs: dict[int, int] = {}

    def fill(self) -> None:
        while len(self.epochs) < self.room and (order := self.driver.next()) is not None:
            self.begin(order.assignment)

    def begin(self, assignment: Assignment) -> None:
        """Go on with a trial after its last epoch, as if each had a checkpoint."""
        self.assignments[assignment.trial] = assignment
        self.epochs[assignment.trial] = trials_of(self.path)[assignment.trial].epoch

    def step(self, number: int) -> bool:
        """Train an epoch of a trial; False if there is none."""
        self.fill()
        if not self.epochs:
            return False
        trial = sorted(self.epochs)[number % len(self.epochs)]
        self.epochs[trial] += 1
        if not self.driver.take(
            trial, progress(self.assignments[trial], self.epochs[trial], self.given.epochs)
        ):
            del self.epochs[trial]
        return True


def steer(driver: Coordinator, act: Act, number: int) -> None:
    """Carry out an act; a refusal is no failure."""
    try:
        driver.steer(Request(f"r{number}", "ada", act))
    except InputError:
        assert not isinstance(act, Note)


CHANGES = (
    "parameters.b.values=[1, 2, 3, 4]",
    "parameters.b.values=[2, 3]",
    "parameters.a.max=0.5",
    "parameters.a.max=2.0",
    "run_cap=12",
    "run_cap=5",
    "retries=1",
    "early_terminate={type: asha, min_iter: 1, eta: 2}",
    "early_terminate={type: none}",
    "constraints=['a * b < 1.5']",
    "stop_when={gain: 9.0}",
    *(f"repeats={number}" for number in (1, 2, 3)),
    "epochs=3",  # refused
)
ACTS = st.one_of(
    st.builds(Note, text=st.sampled_from(["", "good"]), trial=st.none()),
    st.builds(Star, trial=st.integers(0, 9), starred=st.booleans()),
    st.builds(
        lambda a, b: Add.of([{"a": a, "b": b}], "f.yaml"),
        st.sampled_from([0.0, 0.25, 0.5, 1.0, 1.75]),
        st.integers(1, 5),
    ),
    st.builds(lambda one: Change((one,)), st.sampled_from(CHANGES)),
)
STEPS = st.lists(st.one_of(st.integers(0, 99), ACTS), max_size=25)


def story(events: list[Event]) -> list[tuple[object, ...]]:
    """What a log says, without times and sessions, and without interruptions."""
    told: list[tuple[object, ...]] = []
    for event in events:
        match event:
            case (
                SessionStarted()
                | SessionEnded()
                | TrialEnded(status=Status.INTERRUPTED, again=False)
            ):
                pass
            case TrialStarted():
                marks = event.enqueued_by, event.space_version
                told.append(
                    (
                        "started",
                        event.trial,
                        event.index,
                        event.seed,
                        event.repeat,
                        key(event.params),
                        marks,
                    )
                )
            case EpochReported():
                told.append(("epoch", event.trial, event.epoch, dict(event.metrics)))
            case TrialEnded():
                told.append(("ended", event.trial, event.status, event.reason))
            case NoteWritten() | TrialStarred() | ConfigurationsEnqueued() | SweepChanged():
                told.append(
                    (type(event).__name__, event.request, repr(event).partition(", time=")[0])
                )
    return told


def run(
    given: Spec, path: Path, steps: list[int | Act], kills: frozenset[int], room: int
) -> list[Event]:
    """Take the steps, and then others until all is trained; at a kill, another coordinator goes on from the log."""
    with Log(path) as log:
        driver = coordinator(given, log)
        driver.open()
        workers = Workers(given, driver, path, room)
        number = 0
        for number, step in enumerate(steps):
            if number in kills:
                workers = _kill(given, log, path, workers, room)
            if isinstance(step, int):
                workers.step(step)
            else:
                steer(workers.driver, step, number)
                if number in kills:  # it was logged, and the request was not deleted any more
                    steer(workers.driver, step, number)
        while workers.step(number):
            number += 1
        workers.driver.close()
    return list(store_log.read(path))


def _kill(given: Spec, log: Log, path: Path, before: Workers, room: int) -> Workers:
    """Return workers of a coordinator that has taken over from one that was killed, with the same trials."""
    driver = coordinator(given, log)
    driver.open(list(store_log.read(path)))
    workers = Workers(given, driver, path, room)
    for _ in before.epochs:
        order = driver.next()
        assert order is not None
        workers.begin(order.assignment)
    assert workers.epochs == before.epochs
    return workers


def _check(events: list[Event]) -> None:
    """Nothing is trained twice, nothing added is lost unless it was dropped, and each request is logged once."""
    configurations = [
        key(event.params)
        for event in events
        if isinstance(event, TrialStarted) and not event.repeat
    ]
    assert len(configurations) == len(set(configurations))
    requests = [event.request for event in events if isinstance(event, SteeringEvent)]
    assert len(requests) == len(set(requests))


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=4, deadline=None)
@given(
    steps=STEPS,
    kills=st.frozensets(st.integers(0, 39), max_size=3),
    room=st.integers(1, 3),
    seed=st.integers(0, 3),
)
def test_a_sweep_that_is_killed_goes_on_as_if_it_had_not_been(
    method: str, steps: list[int | Act], kills: frozenset[int], room: int, seed: int
) -> None:
    given_spec = spec(method, "{type: asha, min_iter: 1, eta: 3}", seed, repeats=1 + seed % 2)
    with TemporaryDirectory() as folder:
        whole = run(given_spec, Path(folder) / "whole.jsonl", steps, frozenset(), room)
        killed = run(given_spec, Path(folder) / "killed.jsonl", steps, kills, room)
    assert story(killed) == story(whole)
    _check(whole)


def test_a_search_that_has_gained_enough_trains_what_is_added_and_goes_on_in_a_wider_space(
    tmp_path: Path,
) -> None:
    given_spec = spec("random", cap="60", more="stop_when: {gain: 9.0}\n")
    with Log(tmp_path / "log.jsonl") as log:
        driver = coordinator(given_spec, log)
        driver.open()
        workers = Workers(given_spec, driver, log.path, room=1)
        while workers.step(0):
            pass
        ended = len(trials_of(log.path))
        assert driver.enough
        assert ended < 60
        steer(driver, Add.of([{"a": 0.25, "b": 2}], "f.yaml"), 1)
        while workers.step(0):
            pass
        trials = trials_of(log.path)
        assert len(trials) == ended + 1
        assert trials[ended].params == {"a": 0.25, "b": 2}
        steer(driver, Change(("parameters.a.max=2.0",)), 2)
        assert driver.enough is None
        assert workers.step(0)
        again = coordinator(given_spec, log)
        again.open(list(store_log.read(log.path)))
        assert again.enough is None


def test_a_search_that_goes_on_may_be_told_to_end_when_it_gains_too_little(tmp_path: Path) -> None:
    given_spec = spec("random", cap="60")
    with Log(tmp_path / "log.jsonl") as log:
        driver = coordinator(given_spec, log)
        driver.open()
        workers = Workers(given_spec, driver, log.path, room=1)
        while len(trials_of(log.path)) < 30:
            workers.step(0)
        steer(driver, Change(("stop_when={gain: 9.0}",)), 1)
        while workers.step(0):
            pass
        assert driver.enough
        assert len(trials_of(log.path)) <= 32  # at the next end of a trial
