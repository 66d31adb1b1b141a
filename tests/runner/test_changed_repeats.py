"""Sweeps whose number of repeats a person changes: who is trained next, what searchers hear, what counts in the end."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated import trials_of
from test_steered_sweeps import METHODS, run, spec, story
from test_steering_acts import Driven

from sweep.analysis import Outline
from sweep.analysis.live_status import Standing
from sweep.analysis.numbering import Numbering
from sweep.errors import InputError, RefusedError
from sweep.events import (
    EpochReported,
    Event,
    Params,
    Role,
    Status,
    SweepChanged,
    TrialEnded,
    TrialStarted,
)
from sweep.runner.methods import Repeated
from sweep.runner.steering import Act, Add, Change, Request
from sweep.space.domains import key
from sweep.spec import Spec, changes, parse_spec
from sweep.store import log as store_log
from sweep.store.ledger import TrialState

TRIALS = tuple[object, object, int]
"""The values of a and b, and the repeat."""


def begin(tmp_path: Path, given: Spec) -> Driven:
    return Driven(tmp_path / "log.jsonl", given)


def tried(driven: Driven) -> list[TRIALS]:
    return [(one.params["a"], one.params["b"], one.repeat) for one in driven.started()]


def finish(driven: Driven) -> None:
    driven.train(9999)
    assert driven.driver.left == 0
    driven.log.close()


def test_configurations_get_the_seeds_that_they_lack_then_new_ones_get_all(tmp_path: Path) -> None:
    driven = begin(tmp_path, spec(cap="3"))
    driven.train(10)  # the first is whole, the second has begun
    driven.change("repeats=3")
    assert driven.driver.left == 9 - 2
    finish(driven)
    first, second, third = (0.0, 1), (0.0, 2), (0.0, 3)
    order = [(first, 0), (second, 0), (first, 1), (first, 2), (second, 1), (second, 2)]
    order += [(third, 0), (third, 1), (third, 2)]
    assert tried(driven) == [(*params, repeat) for params, repeat in order]
    assert [one.seed for one in driven.started()] == [0, 0, 1, 2, 1, 2, 0, 1, 2]
    assert [(one.trial, one.index) for one in driven.started()] == [
        (number, None) for number in range(9)
    ]


def test_fewer_repeats_keep_what_was_trained_and_start_no_more(tmp_path: Path) -> None:
    driven = begin(tmp_path, spec(cap="4", repeats=3))
    driven.train(9 * 3 + 9 + 1)  # the second configuration trains its second repeat
    driven.change("repeats=1")
    assert driven.driver.left == 2
    finish(driven)
    assert tried(driven) == [
        *((0.0, 1, repeat) for repeat in range(3)),
        *((0.0, 2, repeat) for repeat in range(2)),
        *((a, b, 0) for a, b in ((0.0, 3), (0.5, 1))),
    ]
    assert all(trial.status.value != "interrupted" for trial in trials_of(driven.path).values())


def test_it_goes_up_and_down_again(tmp_path: Path) -> None:
    driven = begin(tmp_path, spec(cap="4"))
    driven.train(18)
    for number in (3, 1, 2, 5, 1):
        driven.change(f"repeats={number}")
    driven.train(9)
    driven.change("repeats=2")
    finish(driven)
    assert sorted(tried(driven)) == sorted(
        (*params, n) for params in driven_points(4) for n in range(2)
    )


def driven_points(count: int) -> list[tuple[float, int]]:
    return [(a, b) for a in (0.0, 0.5, 1.0) for b in (1, 2, 3)][:count]


def test_the_baseline_gets_the_seeds_that_it_lacks(tmp_path: Path) -> None:
    driven = begin(tmp_path, spec(cap="2", more="baseline: {a: 0.7, b: 7}\n"))
    driven.train(18)
    driven.change("repeats=2")
    assert driven.driver.left == 4
    finish(driven)
    found = [(one.trial, one.index, one.role, one.repeat) for one in driven.started()]
    assert found == [
        (0, None, Role.BASELINE, 0),
        (1, 0, Role.SEARCH, 0),
        (2, None, Role.BASELINE, 1),
        (3, 1, Role.SEARCH, 1),
        (4, 2, Role.SEARCH, 0),
        (5, 3, Role.SEARCH, 1),
    ]


def test_the_cap_counts_configurations(tmp_path: Path) -> None:
    driven = begin(tmp_path, spec("random", cap="4"))
    driven.train(9 * 4)
    driven.change("repeats=2")
    driven.change("run_cap=3")
    assert driven.driver.left == 4
    driven.change("run_cap=5")
    finish(driven)
    assert len({one[:2] for one in tried(driven)}) == 5
    assert len(tried(driven)) == 10


def test_folds_are_cut_anew_in_each_repeat(tmp_path: Path) -> None:
    driven = begin(tmp_path, spec(cap="2", more="folds: 2\n"))
    driven.train(9)
    driven.change("repeats=2")
    finish(driven)
    found = [(one.params["b"], one.repeat, one.fold, one.seed) for one in driven.started()]
    assert sorted(found) == [(b, n, fold, n) for b in (1, 2) for n in range(2) for fold in range(2)]


def test_an_added_configuration_is_tried_after_what_others_lack_with_all_repeats(
    tmp_path: Path,
) -> None:
    driven = begin(tmp_path, spec(cap="null"))
    driven.train(9)
    driven.add(a=0.3, b=2)
    driven.change("repeats=2")
    driven.train(9 * 4)
    assert tried(driven)[:4] == [(0.0, 1, 0), (0.0, 1, 1), (0.3, 2, 0), (0.3, 2, 1)]
    driven.log.close()


class Listener:
    """A searcher that records what it is told, and tries one value after the other."""

    foresees = False

    def __init__(self) -> None:
        self.told: list[object] = []

    def learn(self, past: object) -> int:
        return 0

    def suggest(self, number: int) -> Params | None:
        return {"a": number / 8, "b": 1}

    def observe(self, event: Event) -> None:
        if isinstance(event, TrialStarted):
            self.told.append(event.trial)
        if isinstance(event, EpochReported) and event.epoch == 2:
            self.told.append((event.trial, event.metrics["score"]))
        if isinstance(event, TrialEnded):
            self.told.append((event.trial, str(event.status)))


def end(trial: int, *scores: float) -> list[Event]:
    events: list[Event] = []
    for epoch, score in enumerate(scores, start=1):
        metrics = {"score": score}
        events.append(
            EpochReported(trial=trial, epoch=epoch, metrics=metrics, time=1.0, time_s=0.1)
        )
    return [*events, TrialEnded(trial=trial, status=Status.COMPLETED, reason="", time=1.0)]


def start(trial: int, number: int, repeat: int = 0) -> TrialStarted:
    params = {"a": number / 8, "b": 1}
    return TrialStarted(
        trial=trial, trial_id="t", params=params, seed=repeat, repeat=repeat, time=1.0
    )


def test_a_searcher_that_learns_is_told_the_mean_in_place_of_what_it_was_told(
    tmp_path: Path,
) -> None:
    made: list[Listener] = []

    def make() -> Listener:
        made.append(Listener())
        return made[-1]

    searcher = Repeated(make(), 1, make)
    for event in (start(0, 0), *end(0, 1.0, 1.0), start(1, 1), *end(1, 2.0, 2.0), start(2, 2)):
        searcher.observe(event)
    inner = made[0]
    assert inner.told == [0, (0, 1.0), (0, "completed"), 1, (1, 2.0), (1, "completed"), 2]
    numbering = Numbering(trials_each=1)
    states = [TrialState(start(number, number)) for number in range(3)]
    searcher.change_numbering(numbering.change(states, 2))
    assert searcher.inner is inner
    searcher.observe(start(3, 0, 1))
    for event in end(3, 5.0, 5.0):
        searcher.observe(event)
    again = searcher.inner
    assert again is made[1]
    assert made[1].told == [0, (0, 3.0), (0, "completed"), 1, (1, 2.0), (1, "completed"), 2]
    for event in (*end(2, 7.0, 7.0), start(5, 2, 1), *end(5, 9.0, 9.0)):
        searcher.observe(event)
    assert searcher.inner is again
    assert made[1].told[-2:] == [(2, 8.0), (2, "completed")]  # once it has both
    assert searcher.suggest(6) == {"a": 3 / 8, "b": 1}


def test_what_was_told_already_is_not_told_twice() -> None:
    searcher = Repeated(Listener(), 1, Listener)
    for event in (start(0, 0), *end(0, 1.0, 1.0)):
        searcher.observe(event)
    states = [TrialState(start(0, 0))]
    numbering = Numbering(trials_each=1).change(states, 3)
    searcher.change_numbering(numbering)
    searcher.change_numbering(numbering.change(states, 1))
    assert isinstance(searcher.inner, Listener)
    assert searcher.inner.told == [0, (0, 1.0), (0, "completed")]


STEPS = st.lists(
    st.one_of(
        st.integers(0, 99),
        st.integers(0, 99),
        st.integers(0, 99),
        st.builds(lambda number: Change((f"repeats={number}",)), st.integers(1, 4)),
        st.sampled_from(
            [
                Change((one,))
                for one in ("run_cap=12", "run_cap=3", "parameters.b.values=[1, 2, 3, 4]")
            ]
            + [Change(("repeats=2", "parameters.a.max=0.5"))]
        ),
        st.builds(
            lambda a: Add.of([{"a": a, "b": 2}], "f.yaml"), st.sampled_from([0.25, 0.3, 0.4])
        ),
    ),
    max_size=60,
)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "rule", ["{type: asha, min_iter: 1, eta: 3}", "{type: asha_promotion, min_iter: 1, eta: 3}"]
)
@settings(max_examples=4, deadline=None)
@given(
    steps=STEPS,
    kills=st.frozensets(st.integers(0, 59), max_size=4),
    room=st.integers(1, 3),
    seed=st.integers(0, 3),
)
def test_a_sweep_that_is_killed_goes_on_as_if_it_had_not_been(
    method: str, rule: str, steps: list[int | Act], kills: frozenset[int], room: int, seed: int
) -> None:
    given_spec = spec(method, rule, seed, repeats=1 + 2 * (seed % 2))
    with TemporaryDirectory() as folder:
        whole = run(given_spec, Path(folder) / "whole.jsonl", steps, frozenset(), room)
        killed = run(given_spec, Path(folder) / "killed.jsonl", steps, kills, room)
    assert story(killed) == story(whole)
    check_trials(given_spec, whole)


def check_trials(given: Spec, events: list[Event]) -> None:
    """Nothing is trained twice, each trial has its seed, and each configuration all repeats that are asked for."""
    present = given
    found: dict[str, set[int]] = {}
    for event in events:
        if isinstance(event, SweepChanged):
            present = changes.apply_settings(present, event.settings)
        if isinstance(event, TrialStarted):
            repeats = found.setdefault(key(event.params), set())
            assert event.repeat not in repeats
            assert event.seed == given.seed + event.repeat
            repeats.add(event.repeat)
    for repeats in found.values():
        assert repeats == set(range(len(repeats)))


@pytest.mark.parametrize("method", ["grid", "random", "sobol"])
@pytest.mark.parametrize("repeats", [(1, 3), (2, 1), (3, 2)])
def test_its_trials_are_those_of_a_sweep_that_began_with_the_number(
    tmp_path: Path, method: str, repeats: tuple[int, int]
) -> None:
    before, after = repeats
    changed = run(
        spec(method, repeats=before),
        tmp_path / "a",
        [*range(30), Change((f"repeats={after}",))],
        frozenset(),
        2,
    )
    began = run(spec(method, repeats=after), tmp_path / "b", [], frozenset(), 2)
    scores = read_scores(changed)
    expected = read_scores(began)
    assert scores.keys() >= expected.keys()
    assert {trial: scores[trial] for trial in expected} == expected
    assert (scores.keys() == expected.keys()) == (after > before)


def read_scores(events: list[Event]) -> dict[tuple[str, int], object]:
    """Return the first epoch's score of each trial."""
    trials: dict[int, tuple[str, int]] = {}
    scores: dict[tuple[str, int], object] = {}
    for event in events:
        if isinstance(event, TrialStarted):
            trials[event.trial] = key(event.params), event.seed
        if isinstance(event, EpochReported) and event.epoch == 1:
            scores[trials[event.trial]] = event.metrics["score"]
    return scores


def test_a_search_that_has_gained_enough_trains_further_repeats(tmp_path: Path) -> None:
    driven = begin(tmp_path, spec("random", cap="60", more="stop_when: {gain: 9.0}\n"))
    driven.train(999)
    ended = len(driven.started())
    assert driven.driver.enough
    assert ended < 60
    driven.change("repeats=2")
    driven.train(999)
    assert driven.driver.enough
    configurations = {one[:2] for one in tried(driven)}
    assert len(configurations) == ended
    assert len(driven.started()) == 2 * ended
    driven.log.close()


CONFIRMED = "confirm: {seeds: 3, finalists: 2, budget: null}\n"


def test_seeds_that_have_confirmed_finalists_are_not_those_of_repeats(tmp_path: Path) -> None:
    driven = begin(tmp_path, spec(cap="3", more=CONFIRMED))
    driven.train(9 * 4)
    fresh = [one for one in driven.started() if one.role is Role.CONFIRM]
    assert {one.repeat for one in fresh} == {1}
    with pytest.raises(
        RefusedError,
        match=r"--set repeats: is 2, but finalists were confirmed with the seeds that follow",
    ):
        driven.change("repeats=2")
    driven.log.close()


def test_finalists_are_confirmed_with_seeds_that_the_search_never_had(tmp_path: Path) -> None:
    driven = begin(tmp_path, spec(cap="3", repeats=3, more=CONFIRMED))
    driven.train(9 * 2)
    driven.change("repeats=1")
    driven.train(999)
    assert {one.repeat for one in driven.started() if one.role is Role.SEARCH} == {0, 1}
    assert min(one.repeat for one in driven.started() if one.role is Role.CONFIRM) == 2
    assert driven.driver.confirmed
    driven.log.close()


@pytest.mark.parametrize("repeats", [(1, 3), (3, 1), (3, 2)])
def test_the_live_view_is_the_same_from_the_first_file_and_from_the_last(
    tmp_path: Path, repeats: tuple[int, int]
) -> None:
    before, after = repeats
    given_spec = spec(cap="5", repeats=before)
    driven = begin(tmp_path, given_spec)
    driven.train(30)
    driven.change(f"repeats={after}")
    driven.train(30)
    for _ in range(2):
        views = []
        for outline in (Outline.of(given_spec), Outline.of(driven.driver.spec)):
            standing = Standing(outline)
            for event in store_log.read(driven.path):
                standing.observe(event)
            views.append(
                (standing.best, standing.total, standing.finished, standing.outline.repeats)
            )
        assert views[0] == views[1]
        assert standing.total == driven.driver.left + len(driven.started())  # type: ignore[operator]  # it is known
        driven.train(999)
    assert standing.best is not None
    assert len(standing.best.trials) >= after
    driven.log.close()


def test_a_population_has_no_repeats(tmp_path: Path) -> None:
    text = """
name: population
trainable: none:None
method: pbt
metric: {name: score}
parameters: {a: {min: 0.0, max: 1.0}}
population: {size: 4, interval: 2}
epochs: 9
"""
    given_spec = parse_spec(text, "f.yaml")
    with pytest.raises(InputError, match=r"repeats.*a copy goes on with the seed of its parent"):
        changes.with_assignments(given_spec, ["repeats=2"], "population")


def test_a_request_is_carried_out_once(tmp_path: Path) -> None:
    driven = begin(tmp_path, spec(cap="3"))
    driven.train(3)
    request = Request("once", "ada", Change(("repeats=2",)))
    assert driven.driver.steer(request)
    assert driven.driver.steer(request)
    with pytest.raises(RefusedError, match="has these values already"):
        driven.change("repeats=2")
    driven.log.close()
