"""What is worth telling somebody who does not watch: a sweep has finished or failed, has a new best, and so on.

A pure function of the events, as the live view is; who is told, and how, is in `sweep.runner.notifying`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sweep.analysis.live_status import Best, Standing, get_error_type
from sweep.analysis.outline import Outline
from sweep.events import Event, SessionEnded, SessionStarted, Status, TrialEnded
from sweep.text import counted, percent, score, trials_named

Kind: TypeAlias = Literal["finished", "failed", "best", "budget", "verdict", "worker_lost"]

BUDGET_SHARE = 0.8
"""Share of a budget at which a notice is due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One message for the receivers of `notify`, with the fields that programs get."""

    version: Literal[1] = 1
    event: Kind
    sweep: str
    text: str  # for people, one line
    time: float  # seconds since 1970
    metric: str
    best: float | None
    best_trials: tuple[int, ...]
    ended_trials: int


class NoticeWatch:
    """Observes the events of a sweep and makes notices of those that matter; each at most once in a session.

    With ``is_confirmed_next``, a search that ends at a limit is followed by a session that confirms its finalists. Then
    the notice that the search has ended is kept in ``withheld``, and only the end of the confirmation makes a notice.
    """

    def __init__(self, outline: Outline, *, is_confirmed_next: bool = False) -> None:
        self.withheld: Notice | None = None  # the end of the search, until the confirmation begins
        self._is_confirmed_next = is_confirmed_next
        self._standing = Standing(outline)
        self._announced_best: Best | None = None
        self._announced_budgets: set[str] = set()  # budgets that are nearly spent
        self._announced_error_types: set[str] = set()  # types of errors
        self._is_verdict_announced = False
        self._ended_when_judged = 0  # number of ended trials when the verdict was last looked up

    def skip(self, event: Event) -> None:
        """Observe an event of an earlier session without making notices.

        What it would have announced, such as a best configuration or a budget that is nearly spent, counts as
        announced. A verdict does not: once another trial has ended, it is looked up again, and announced. The end of a
        session may be kept in `withheld`, as in `observe`.
        """
        for _ in self._make_notices(event):  # it observes the event only while it is iterated over
            pass
        self._announced_best = self._standing.searched_best
        self._ended_when_judged = self._standing.finished
        self._announced_budgets |= dict(self._list_spent(self._standing.last or 0.0)).keys()

    def observe(
        self, events: Iterable[Event], has_verdict: Callable[[], bool | None] | None
    ) -> list[Notice]:
        """Observe events and return the notices that they call for, in this order.

        They are about the end of a session, a failed trial, a lost worker, a new best configuration of the search (only
        the last of several), a budget of which `BUDGET_SHARE` is spent, and a verdict.

        ``has_verdict`` reads the ranking and returns whether there is a verdict, or None if that is not known; it is
        itself None if no receiver wants to know. It is called at most once, after all events, only if a trial has ended
        since it last had an answer, and never again once it has returned True. Its errors are passed on, and the
        notices are lost.
        """
        notices: list[Notice] = []
        for event in events:
            notices += self._make_notices(event)
        best = self._standing.searched_best
        if best is not None and best != self._announced_best:
            value = f"{self._standing.outline.metric} {score(best.value)}"
            notices.append(
                self._make_notice("best", f"new best: {value}, {trials_named(best.trials)}")
            )
            self._announced_best = best
        # budgets that are nearly spent
        for budget, share in self._list_spent(self._standing.last or 0.0):
            if budget not in self._announced_budgets:
                self._announced_budgets.add(budget)
                notices.append(
                    self._make_notice(
                        "budget", f"{percent(share)} of its budget of {budget} is spent"
                    )
                )
        has_trial_ended = self._standing.finished != self._ended_when_judged  # since the last look
        if has_verdict is not None and not self._is_verdict_announced and has_trial_ended:
            answer = has_verdict()
            if answer is not None:
                self._ended_when_judged = self._standing.finished
            if answer:
                self._is_verdict_announced = True
                notices.append(self._make_notice("verdict", "the best configuration has a verdict"))
        return notices

    def _make_notices(self, event: Event) -> Iterator[Notice]:
        """Observe an event and yield its notices: the end of a session, a failed trial, or a lost worker.

        Of trials that fail with the same type of error, only the first makes a notice. A lost worker makes one each
        time that its trial has failed for good. The start of a session discards the notice in `withheld`. The event is
        observed only when the result is iterated over.
        """
        trial = self._standing.observe(event)  # the one that the event has ended or interrupted
        if isinstance(event, SessionStarted):
            # If the notice of the search's end was kept back, the session that now begins, usually the confirmation,
            # will make a notice of its own end instead.
            self.withheld = None
        if isinstance(event, SessionEnded):
            yield from self._announce_end(event)
        if trial is None or not isinstance(event, TrialEnded) or trial.status is not Status.FAILED:
            return
        if event.worker_lost:
            yield self._make_notice("worker_lost", f"trial {trial.trial}: {trial.reason}")
            return
        # one notice for each type of error, because many trials may fail alike
        error_type = get_error_type(trial.reason)
        if error_type not in self._announced_error_types:
            self._announced_error_types.add(error_type)
            yield self._make_notice("failed", f"trial {trial.trial} failed: {trial.reason}")

    def _announce_end(self, event: SessionEnded) -> Iterator[Notice]:
        """Yield the notice that a session has ended.

        If it has ended at a limit and a confirmation follows, keep the notice in `withheld` instead, for the case that
        the confirmation does not begin.
        """
        notice = self._describe_end(event)
        # after a search that has tried everything, the confirmation is part of the same session: this is its end, too
        is_at_limit = self._standing.has_finished and event.reason != "finished"
        if self._is_confirmed_next and is_at_limit:
            self.withheld = notice
        else:
            yield notice

    def _describe_end(self, event: SessionEnded) -> Notice:
        """Return the notice that a session has ended.

        Its kind is "finished" if a trial completed, and nothing is left to do or a limit was reached; otherwise
        "failed".
        """
        standing = self._standing
        completed = standing.ended[Status.COMPLETED]
        ended = f"{counted(standing.finished, 'trial')} ended, {completed} completed"
        if not completed:
            return self._make_notice(
                "failed", f"has ended without a completed trial ({event.reason})"
            )
        kind: Kind = "finished" if standing.has_finished else "failed"
        return self._make_notice(kind, f"{event.reason}: {ended}")

    def _list_spent(self, now: float) -> Iterator[tuple[str, float]]:
        """Yield each budget of which at least `BUDGET_SHARE` is spent, as its name and the share that is spent.

        The number of trials is one of the budgets, of which those that have ended are spent. The share may be above 1.
        Budgets without a limit are left out. ``now`` is a time in seconds since 1970.
        """
        standing, limits = self._standing, self._standing.outline.limits
        budgets = (
            ("trials", standing.finished, standing.total),
            ("epochs", standing.spent.epochs, limits.epochs),
            ("hours", standing.counted_s(now) / 3600, limits.hours),
            ("GPU hours", standing.spent.gpu_s / 3600, limits.gpu_hours),
            ("money", standing.spent.cost, limits.money),
        )
        for name, spent, limit in budgets:
            if limit and spent >= BUDGET_SHARE * limit:
                yield name, spent / limit

    def _make_notice(self, kind: Kind, text: str) -> Notice:
        """Return a notice with ``text``, after the sweep's name, and the present state of the sweep.

        Its time is that of the last event, 0 before the first one.
        """
        standing = self._standing
        best = standing.best
        return Notice(
            event=kind,
            sweep=standing.outline.name,
            text=f"{standing.outline.name}: {text}",
            time=standing.last or 0.0,
            metric=standing.outline.metric,
            best=None if best is None else best.value,
            best_trials=() if best is None else best.trials,
            ended_trials=standing.finished,
        )
