"""What one can wait for: how it is written, and when it holds."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from sweep.analysis import Outline, conditions
from sweep.analysis.conditions import Condition
from sweep.analysis.live_status import Standing
from sweep.analysis.ranking import Ranking
from sweep.errors import InputError
from sweep.events import (
    EpochReported,
    Event,
    SessionEnded,
    SessionStarted,
    Status,
    TrialEnded,
    TrialStarted,
)
from sweep.statistics.verdicts import TOO_FEW, Verdict, compare_configurations

EVENTS: tuple[Event, ...] = (
    SessionStarted(time=0.0, resumed=False, version="1"),
    TrialStarted(trial=0, trial_id="a", params={"x": 1}, seed=0, repeat=0, time=1.0),
    EpochReported(trial=0, epoch=1, metrics={"loss": 0.2}, time=2.0, time_s=1.0),
    TrialEnded(trial=0, status=Status.COMPLETED, reason="", time=3.0),
)


def unread() -> Ranking:
    raise AssertionError("only a verdict reads the ranking")


def standing(*more: Event) -> Standing:
    found = Standing(Outline(metric="loss", goal="minimize"))
    for event in (*EVENTS, *more):
        found.observe(event)
    return found


@pytest.mark.parametrize(
    ("text", "kind", "bound", "below"),
    [
        ("finished", "finished", 0.0, True),
        ("verdict", "verdict", 0.0, True),
        ("trials=20", "trials", 20.0, True),
        ("best<0.1", "best", 0.1, True),
        (" best <= 1e-3 ", "best", 1e-3, True),
        ("best>-2", "best", -2.0, False),
    ],
)
def test_conditions_are_read(text: str, kind: str, bound: float, below: bool) -> None:
    assert conditions.parse_condition(text, "--until") == Condition(text, kind, bound, below)  # type: ignore[arg-type]  # a kind, as a text


@pytest.mark.parametrize(
    "text", ["", "done", "trials=", "trials=-1", "best=1", "best<much", "best<1e", "trials<3"]
)
def test_others_are_refused(text: str) -> None:
    with pytest.raises(
        InputError, match=r"^--until: .*, expected finished, verdict, trials=20 or best<0.1$"
    ):
        conditions.parse_condition(text, "--until")


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("trials=1", True),
        ("trials=2", False),
        ("best<0.2", True),
        ("best<0.1", False),
        ("best>0.1", True),
    ],
)
def test_trials_and_scores(text: str, holds: bool) -> None:
    condition = conditions.parse_condition(text, "")
    assert conditions.is_met(condition, standing(), unread) is holds


def test_no_score_before_a_trial_has_completed() -> None:
    nothing = Standing(Outline(metric="loss", goal="minimize"))
    assert not conditions.is_met(conditions.parse_condition("best<9", ""), nothing, unread)


def is_finished(*events: Event) -> bool:
    return conditions.is_met(conditions.parse_condition("finished", ""), standing(*events), unread)


@pytest.mark.parametrize("finished", [True, False])
def test_whether_a_session_has_finished_is_in_its_event(finished: bool) -> None:
    assert not is_finished()
    end = SessionEnded(time=4.0, reason="whatever it says", finished=finished)
    assert is_finished(end) is finished
    assert not is_finished(end, SessionStarted(time=5.0, resumed=True, version="1"))


@pytest.mark.parametrize(
    ("reason", "finished"),
    [
        ("finished", True),
        ("out of budget: 8 epochs", True),
        ("interrupted", False),
        ("stopped on request", False),
        ("crashed: RuntimeError: a bug", False),
        ("the backend gave up", False),
    ],
)
def test_logs_of_early_releases_have_only_the_reason(reason: str, finished: bool) -> None:
    assert is_finished(SessionEnded(time=4.0, reason=reason)) is finished


@dataclass
class Row:
    verdict: Verdict
    more: int | None = None
    undecided: str = ""


@dataclass
class Judged:
    rows: tuple[Row, ...]
    confirmed: object = None

    @property
    def best(self) -> tuple[Row, ...]:
        return self.rows[:1]


@pytest.mark.parametrize(
    ("ranking", "decided"),
    [
        (Judged(()), False),
        (Judged((Row(Verdict.UNDECIDED),)), False),
        (Judged((Row(Verdict.BEST), Row(Verdict.WORSE))), True),
        # pruned, and never compared
        (
            Judged((Row(Verdict.BEST), Row(Verdict.TIES), Row(Verdict.UNDECIDED))),
            True,
        ),
        (Judged((Row(Verdict.BEST), Row(Verdict.WORSE), Row(Verdict.UNDECIDED, more=2))), False),
        # all scores so far are equal, so that no number of further seeds would tell
        (Judged((Row(Verdict.BEST), Row(Verdict.UNDECIDED, undecided=TOO_FEW))), False),
    ],
)
def test_a_verdict(ranking: Judged, decided: bool) -> None:
    given: Ranking = ranking  # type: ignore[assignment]  # all that is read of one
    condition = conditions.parse_condition("verdict", "")
    assert conditions.is_met(condition, standing(), lambda: given) is decided


def test_equal_scores_of_too_few_seeds_are_no_verdict() -> None:
    best = dict.fromkeys(range(8), 1.0)
    scores = {0: best, 1: dict.fromkeys(range(8), 0.5), 2: dict.fromkeys(range(3), 1.0)}
    found = compare_configurations(scores, maximize=True, best=0)
    rows = tuple(Row(one.verdict, one.more, one.undecided) for one in found.values())
    assert [row.verdict for row in rows] == [Verdict.BEST, Verdict.WORSE, Verdict.UNDECIDED]
    given: Ranking = Judged(rows)  # type: ignore[assignment]  # all that is read of one
    assert not conditions.has_verdict(given)
