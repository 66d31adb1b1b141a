"""The ledger: what each event means for its trial, and which cannot be."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
import tales
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tales import ended, reported, started

from sweep.errors import StoreError
from sweep.events import (
    UNFINISHED,
    Event,
    Facts,
    ModelTested,
    Role,
    SessionEnded,
    SessionStarted,
    Status,
    TrialEnded,
)
from sweep.store.ledger import (
    Change,
    Ended,
    Interrupted,
    Ledger,
    OutOfOrder,
    Reopened,
    Reported,
    SessionChange,
    Started,
    TrialState,
    naming,
    renumber_for_search,
)
from sweep.store.ledger import (
    Tested as OfATest,
)

SEEDS = st.integers(0, 10_000)


def of(events: Iterable[Event], *, keep_epochs: bool = True) -> Ledger:
    ledger = Ledger(keep_epochs=keep_epochs)
    for event in events:
        ledger.observe(event)
    return ledger


def all_of(ledger: Ledger) -> list[tuple[object, ...]]:
    """All that is known of all trials, as text where it may hold NaN."""
    return [
        (number, *(repr(getattr(one, name)) for name in TrialState.__slots__))
        for number, one in ledger.trials.items()
    ]


def again(trial: int) -> TrialEnded:
    return ended(trial, Status.INTERRUPTED, again=True)


def test_a_trial_from_its_start_to_its_end() -> None:
    ledger = Ledger()
    begun = ledger.observe(started(3))
    assert isinstance(begun, Started)
    trial = begun.trial
    assert trial is ledger.trials[3]
    assert (trial.number, trial.params, trial.status, trial.epoch) == (
        3,
        tales.PARAMS,
        Status.RUNNING,
        0,
    )
    assert (trial.started, trial.ended, trial.last, trial.facts) == (100.0, None, {}, Facts())
    report = reported(3, 1, loss=0.5)
    assert ledger.observe(report) == Reported(trial, report)
    assert (trial.epoch, trial.reported, trial.last, trial.epochs) == (
        1,
        1,
        {"loss": 0.5},
        {1: {"loss": 0.5}},
    )
    end = ended(3, facts=Facts(node="host"))
    assert ledger.observe(end) == Ended(trial, end)
    assert (trial.status, trial.ended, trial.end, trial.facts.node) == (
        Status.COMPLETED,
        110.0,
        end,
        "host",
    )
    test = ModelTested(trial=3, metrics={"loss": 0.75}, time=120.0)
    assert ledger.observe(test) == OfATest(trial, test)
    assert trial.tested == {"loss": 0.75}


def test_an_interruption_is_no_end() -> None:
    ledger = of([started(0), reported(0, 1, loss=2.0)])
    stop = ended(0, Status.INTERRUPTED, facts=Facts(checkpoint="here"))
    assert isinstance(ledger.observe(stop), Interrupted)
    trial = ledger.trials[0]
    assert (trial.status, trial.ended, trial.end, trial.facts.checkpoint) == (
        Status.INTERRUPTED,
        None,
        stop,
        "here",
    )
    ledger.observe(reported(0, 2, loss=1.0))
    assert (trial.status, trial.reason, trial.end, trial.epochs) == (
        Status.RUNNING, "", None, {1: {"loss": 2.0}, 2: {"loss": 1.0}},
    )  # fmt: skip


def test_a_trial_of_a_killed_session_goes_on_as_it_was() -> None:
    session = SessionStarted(time=0.0, resumed=True, version="1")
    ledger = of([started(0), reported(0, 1, loss=2.0), session, reported(0, 2, loss=1.0), ended(0)])
    assert (ledger.trials[0].status, ledger.trials[0].epoch) == (Status.COMPLETED, 2)


def test_tries_are_counted_until_somebody_asks_for_more() -> None:
    ledger = of([started(0), again(0), reported(0, 1, loss=1.0), again(0), ended(0, Status.FAILED)])
    trial = ledger.trials[0]
    assert (trial.retries, trial.reopened, trial.status) == (2, False, Status.FAILED)
    assert isinstance(ledger.observe(again(0)), Reopened)
    assert (trial.retries, trial.reopened, trial.status, trial.ended) == (
        0,
        True,
        Status.INTERRUPTED,
        None,
    )
    assert isinstance(ledger.observe(again(0)), Interrupted)
    ledger.observe(ended(0))
    assert (trial.retries, trial.reopened, trial.status) == (1, True, Status.COMPLETED)


@pytest.mark.parametrize(
    ("role", "index", "place"),
    [
        (Role.SEARCH, None, 5),
        (Role.SEARCH, 2, 2),
        (Role.BASELINE, None, None),
        (Role.CONFIRM, None, None),
    ],
)
def test_the_place_of_a_trial_in_the_search(
    role: Role, index: int | None, place: int | None
) -> None:
    ledger = of([replace(started(5), role=role, index=index)])
    assert (ledger.trials[5].place, ledger.trials[5].role) == (place, role)


def test_the_search_hears_of_its_own_trials_by_their_places() -> None:
    ledger = Ledger()
    log = [
        replace(started(5), index=2),
        replace(started(6), role=Role.CONFIRM),
        started(7),
        reported(5, 1, loss=1.0),
    ]
    heard = [
        renumber_for_search(ledger.observe(event)) for event in [*log, reported(6, 1, loss=1.0)]
    ]
    second = replace(started(5), trial=2, index=2)
    assert heard == [second, None, started(7), reported(2, 1, loss=1.0), None]


def test_the_first_test_counts() -> None:
    first = ModelTested(trial=0, metrics={"a": 0.5, "loss": 1.0}, time=1.0)
    second = ModelTested(trial=0, metrics={"b": 0.5, "loss": 2.0}, time=2.0)
    assert of([started(0), ended(0), first, second]).trials[0].tested == {
        "a": 0.5,
        "b": 0.5,
        "loss": 1.0,
    }


def test_epochs_that_a_repair_has_left_out_are_not_counted() -> None:
    trial = of([started(0), reported(0, 1, loss=1.0), reported(0, 4, loss=0.5)]).trials[0]
    assert (trial.epoch, trial.reported, [*trial.epochs]) == (4, 2, [1, 4])


def test_epochs_are_kept_only_if_asked_for() -> None:
    trial = of(
        [started(0), reported(0, 1, loss=1.0), reported(0, 2, loss=0.5)], keep_epochs=False
    ).trials[0]
    assert (trial.epochs, trial.last, trial.epoch) == ({}, {"loss": 0.5}, 2)


def test_sessions_concern_no_trial() -> None:
    session = SessionEnded(time=0.0, reason="finished")
    assert Ledger().observe(session) == SessionChange(session)


BEGUN = [started(0), reported(0, 1, loss=1.0), reported(0, 2, loss=1.0)]


@pytest.mark.parametrize(
    ("before", "event", "why"),
    [
        (BEGUN, started(0), "trial 0 was started before"),
        (BEGUN, reported(0, 2, loss=0.5), "epoch 2 of trial 0 was reported before"),
        (BEGUN, reported(0, 1, loss=0.5), "epoch 1 of trial 0 was reported before"),
        (BEGUN, reported(1, 1, loss=0.5), "trial 1 was never started"),
        (BEGUN, ended(1), "trial 1 was never started"),
        (BEGUN, ModelTested(trial=1, metrics={}, time=1.0), "trial 1 was never started"),
        ([*BEGUN, ended(0)], reported(0, 3, loss=0.5), "trial 0 has ended before"),
        ([*BEGUN, ended(0)], ended(0), "trial 0 has ended before"),
        ([*BEGUN, ended(0)], again(0), "trial 0 has ended before"),
        (
            [*BEGUN, ended(0, Status.FAILED)],
            ended(0, Status.INTERRUPTED),
            "trial 0 has ended before",
        ),
        ([*BEGUN, ended(0, Status.FAILED)], reported(0, 3, loss=0.5), "trial 0 has ended before"),
    ],
)
def test_what_cannot_follow_is_refused_and_changes_nothing(
    before: Sequence[Event], event: Event, why: str
) -> None:
    ledger = of(before)
    known = all_of(ledger)
    with pytest.raises(OutOfOrder, match=f"^{why}$"):
        ledger.observe(event)
    assert all_of(ledger) == known


def test_the_log_and_the_way_out_are_named(tmp_path: Path) -> None:
    log = tmp_path / "mine" / "log.jsonl"
    with (
        pytest.raises(
            StoreError, match=f"{log}: trial 1 was never started; keep .*sweep repair .*mine"
        ),
        naming(log),
    ):
        Ledger().observe(ended(1))


def test_what_is_no_event_is_refused() -> None:
    with pytest.raises(TypeError, match="no event"):
        Ledger().observe(None)


@given(SEEDS, st.integers(0, 100))
def test_going_on_from_any_prefix_is_as_observing_the_whole(seed: int, cut: int) -> None:
    log = tales.random_log(random.Random(seed))
    first = of(log[:cut])
    resumed = copy.deepcopy(first)
    changes = [resumed.observe(event) for event in log[cut:]]
    whole = Ledger()
    expected = [whole.observe(event) for event in log][cut:]
    assert all_of(resumed) == all_of(whole)
    assert [told(one) for one in changes] == [told(one) for one in expected]
    assert all_of(first) == all_of(of(log[:cut]))


def told(change: Change) -> tuple[str, str]:
    return type(change).__name__, repr(change.event)


@given(SEEDS)
def test_changes_tell_all_that_befalls_a_trial(seed: int) -> None:
    """Who counts changes alone, and looks at no event, knows who is open and how everyone ended."""
    ledger = Ledger()
    open_trials: set[int] = set()
    ends: dict[int, Status] = {}
    for event in tales.random_log(random.Random(seed)):
        match ledger.observe(event):
            case Started(trial):
                open_trials.add(trial.number)
            case Reopened(trial):
                open_trials.add(trial.number)
                assert ends.pop(trial.number) is Status.FAILED
            case Ended(trial):
                open_trials.remove(trial.number)
                ends[trial.number] = trial.status
            case Reported(trial) | Interrupted(trial):
                assert trial.number in open_trials
    assert open_trials == {
        number for number, one in ledger.trials.items() if one.status in UNFINISHED
    }
    assert ends == {
        number: one.status for number, one in ledger.trials.items() if one.ended is not None
    }


@given(SEEDS)
def test_an_event_told_twice_is_refused(seed: int) -> None:
    ledger = Ledger()
    for event in tales.random_log(random.Random(seed)):
        ledger.observe(event)
        if isinstance(event, SessionStarted | SessionEnded | ModelTested):
            continue
        # nothing is lost by one more
        if isinstance(event, TrialEnded) and event.status is Status.INTERRUPTED:
            continue
        with pytest.raises(OutOfOrder):
            ledger.observe(event)


def test_logs_of_early_releases_say_in_words_that_a_trial_was_stopped_on_request() -> None:
    ledger = of([started(0), started(1), started(2)])
    for trial, status, reason, asked in (
        (0, Status.PRUNED, "stopped on request", True),
        (1, Status.PRUNED, "asha: score 1 below the cutoff 2", False),
        (2, Status.INTERRUPTED, "stopped on request", False),  # the whole sweep was
    ):
        ledger.observe(replace(ended(trial, status), reason=reason))
        end = ledger.trials[trial].end
        assert end is not None
        assert end.asked is asked
