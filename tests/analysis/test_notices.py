"""What is told of a sweep, and that each thing is told once."""

from __future__ import annotations

from msgspec import structs

from sweep.analysis import Outline
from sweep.analysis.notices import NoticeWatch
from sweep.analysis.outline import BudgetLimits
from sweep.events import (
    EpochReported,
    Event,
    Role,
    SessionEnded,
    SessionStarted,
    Status,
    TrialEnded,
    TrialStarted,
)

OUTLINE = Outline(name="s", metric="loss", goal="minimize", total=5, limits=BudgetLimits(epochs=10))


def trial(
    number: int,
    loss: float,
    status: Status = Status.COMPLETED,
    reason: str = "",
    *,
    worker_lost: bool = False,
) -> list[Event]:
    return [
        TrialStarted(
            trial=number,
            trial_id=f"t{number}",
            params={"x": number},
            seed=0,
            repeat=0,
            time=number + 1.0,
        ),
        EpochReported(trial=number, epoch=1, metrics={"loss": loss}, time=number + 1.5, time_s=0.5),
        TrialEnded(
            trial=number, status=status, reason=reason, time=number + 2.0, worker_lost=worker_lost
        ),
    ]


def told(watch: NoticeWatch, *events: Event) -> list[tuple[str, str]]:
    return [(notice.event, notice.text) for notice in watch.observe(events, None)]


def test_of_several_new_best_ones_the_last_is_told() -> None:
    watch = NoticeWatch(OUTLINE)
    events = [SessionStarted(time=0.0, resumed=False, version="1"), *trial(0, 3.0), *trial(1, 2.0)]
    assert told(watch, *events) == [("best", "s: new best: loss 2.000, trial 1")]
    assert told(watch, *trial(2, 5.0)) == []


def test_failures_are_told_once_by_type_and_lost_workers_apart() -> None:
    watch = NoticeWatch(Outline(name="s", metric="loss", goal="minimize"))
    assert told(watch, *trial(0, 1.0, Status.FAILED, "ValueError: no")) == [
        ("failed", "s: trial 0 failed: ValueError: no")
    ]
    assert told(watch, *trial(1, 1.0, Status.FAILED, "ValueError: again")) == []
    lost = "worker lost: killed by signal 9, after 3 restarts"
    assert told(watch, *trial(2, 1.0, Status.FAILED, lost, worker_lost=True)) == [
        ("worker_lost", f"s: trial 2: {lost}")
    ]


def test_budgets_are_told_once_at_eighty_percent() -> None:
    watch = NoticeWatch(OUTLINE)
    told(watch, *trial(0, 1.0))
    told(watch, *trial(1, 1.0), *trial(2, 1.0))
    assert told(watch, *trial(3, 1.0)) == [("budget", "s: 80 % of its budget of trials is spent")]
    assert told(watch, *trial(4, 1.0)) == []


def test_fresh_seeds_are_not_told_as_the_budget_of_the_search() -> None:
    outline = Outline(name="s", metric="loss", goal="minimize", limits=BudgetLimits(epochs=10))
    watch = NoticeWatch(outline)
    told(watch, *trial(0, 1.0))
    for number in range(1, 12):
        begin, *others = trial(number, 1.0)
        assert isinstance(begin, TrialStarted)
        assert told(watch, structs.replace(begin, role=Role.CONFIRM), *others) == []


def test_the_end() -> None:
    watch = NoticeWatch(OUTLINE)
    told(watch, *trial(0, 1.0))
    assert told(watch, SessionEnded(time=9.0, reason="finished")) == [
        ("finished", "s: finished: 1 trial ended, 1 completed")
    ]
    assert told(watch, SessionEnded(time=9.0, reason="interrupted")) == [
        ("failed", "s: interrupted: 1 trial ended, 1 completed")
    ]
    nothing = NoticeWatch(OUTLINE)
    told(nothing, *trial(0, 1.0, Status.FAILED, "ValueError: no"))
    (end,) = told(nothing, SessionEnded(time=9.0, reason="finished"))
    assert end == ("failed", "s: has ended without a completed trial (finished)")


def test_of_a_search_and_its_confirmation_the_end_of_the_second_is_told() -> None:
    watch = NoticeWatch(OUTLINE, is_confirmed_next=True)
    told(watch, *trial(0, 1.0))
    assert told(watch, SessionEnded(time=9.0, reason="budget of 10 epochs", finished=True)) == []
    assert watch.withheld is not None
    assert watch.withheld.text == "s: budget of 10 epochs: 1 trial ended, 1 completed"
    told(watch, SessionStarted(time=9.0, resumed=True, version="1"))
    assert watch.withheld is None


def test_without_a_confirmation_in_a_session_of_its_own_the_end_is_told_at_once() -> None:
    for reason, finished in (("finished", True), ("stopped on request", False)):
        watch = NoticeWatch(OUTLINE, is_confirmed_next=True)
        told(watch, *trial(0, 1.0))
        assert len(told(watch, SessionEnded(time=9.0, reason=reason, finished=finished))) == 1
        assert watch.withheld is None


def test_nothing_of_earlier_sessions_is_told() -> None:
    watch = NoticeWatch(OUTLINE)
    for event in (*trial(0, 1.0), *trial(1, 1.0, Status.FAILED, "ValueError: no")):
        watch.skip(event)
    assert told(watch, *trial(2, 3.0), *trial(3, 3.0, Status.FAILED, "ValueError: no")) == [
        ("budget", "s: 80 % of its budget of trials is spent")
    ]


def test_a_verdict_that_is_not_known_yet_is_asked_for_again() -> None:
    watch = NoticeWatch(Outline(name="s", metric="loss", goal="minimize"))
    answers = iter([None, None, True])
    events: list[Event] = [*trial(0, 1.0)]
    for several, expected in ((events, False), ([], False), ([], True)):
        notices = watch.observe(several, lambda: next(answers))
        assert any(notice.event == "verdict" for notice in notices) == expected


def test_a_verdict_is_told_once_and_only_asked_for_after_a_trial_has_ended() -> None:
    watch = NoticeWatch(Outline(name="s", metric="loss", goal="minimize"))
    asked: list[bool] = []
    answers = iter([False, True])

    def has_verdict() -> bool:
        asked.append(True)
        return next(answers)

    events = trial(0, 1.0)
    for event in events:
        watch.observe([event], has_verdict)
    assert len(asked) == 1
    notices = watch.observe(trial(1, 2.0), has_verdict)
    assert [notice.event for notice in notices] == ["verdict"]
    watch.observe(trial(2, 2.0), has_verdict)
    assert len(asked) == 2
