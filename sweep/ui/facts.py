"""The state of a running sweep as the page shows it: classes whose fields are the keys of the JSON documents."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sweep.analysis.live_status import Open, Standing
from sweep.analysis.sweep_changes import describe_to_come
from sweep.events import (
    ERRORED,
    ON_REQUEST,
    TRIED_AGAIN,
    ConfigurationsEnqueued,
    Event,
    ModelTested,
    NoteWritten,
    Record,
    Role,
    SessionEnded,
    SessionStarted,
    Status,
    SteeringEvent,
    SweepChanged,
    TrialEnded,
    TrialStarred,
    TrialStarted,
)
from sweep.spec.changes import Difference, format_value
from sweep.text import counted, figure, format_settings, score

CURVE = 48  # maximum number of points of a running trial's curve
WORKERS = 200  # maximum number of running trials that are listed
WAITING = 50  # maximum number of trials that are listed at a rung
QUIET_S = 12.0  # least time without an event until the page says that the sweep is silent
QUIET_AT_START_S = 120.0  # the same until a session's first epoch: Ray and the workers start, and build the first model
QUIET_EPOCHS = 3.0  # the same in epochs, of the longest of the latest


@dataclass(frozen=True, kw_only=True)
class EventFacts:
    """An event described in words; ``line`` is its line in the log, from 1."""

    line: int
    time: float
    kind: str  # as in the log
    text: str
    trial: int | None = None
    status: str = ""


@dataclass(frozen=True, kw_only=True)
class WorkerFacts:
    """A trial that is training now."""

    trial: int
    epoch: int
    done: int  # how far it has trained, in the units of `of`
    of: int  # epochs, or hundredths of the minutes of a trial that only these end
    position: str  # the same in words, such as 3/10 or 37 %
    value: float | None
    curve: tuple[float, ...]
    settings: str
    role: str


@dataclass(frozen=True, kw_only=True)
class RungFacts:
    """A rung, with the numbers of trials that reached it, were pruned there, and wait there."""

    epoch: int  # or hundredths of the minutes of a trial: see `LiveFacts.counts_epochs`
    reached: int
    pruned: int
    waiting: int
    trials: tuple[int, ...]  # the numbers of the first trials that wait


@dataclass(frozen=True, kw_only=True)
class FailureFacts:
    """The trials that ended without a result for one kind of reason."""

    status: str
    kind: str
    count: int
    trial: int  # the latest
    reason: str


@dataclass(frozen=True, kw_only=True)
class MarkFacts:
    """The star and the note of a trial that has one of them."""

    trial: int
    starred: bool
    note: str  # "" if there is no note


@dataclass(frozen=True, kw_only=True)
class BestFacts:
    """The best completed configuration so far."""

    value: float
    trials: tuple[int, ...]
    settings: str


@dataclass(frozen=True, kw_only=True)
class LeaderFacts:
    """The running trial that leads before a trial has completed, or that is ahead of the best one."""

    value: float
    trial: int
    position: str  # how far it has trained, such as 3/10 or 37 %
    settings: str


@dataclass(frozen=True, kw_only=True)
class LiveFacts:
    """The present state of a sweep, from its log."""

    version: Literal[1] = 1
    name: str
    state: str  # "running", "killed", "ended", or "reading" until the log of a sweep that does not run has been read
    reason: str  # why its last session ended; "" if none has
    read: float  # share of the log that has been read; all other facts are of that part
    line: int  # number of lines of the log that have been read
    now: float  # the server's clock, in seconds since 1970
    heard: float | None  # time of the last event, or when the driver took the sweep
    # time without an event after which the driver is silent for longer than expected
    quiet_s: float
    active_s: float
    left_s: float | None
    metric: str
    goal: str
    # whether trials end after a number of epochs; if not, rungs count hundredths of their minutes
    counts_epochs: bool
    total: int | None
    done: int  # trials that ended for good
    share: float | None  # share of the work that is done, with the epochs of running trials
    # trials by status; "running", "paused" and "interrupted" besides those that ended
    counts: Mapping[str, int]
    worth: Mapping[str, float]  # how many whole trials their epochs amount to, by the same statuses
    epochs_per_s: float
    cost: float
    cost_in_all: float | None
    survivors: float | None  # trials expected to train all their epochs
    # CPU cores, memory and share of the GPUs, as running trials have measured them
    use: Mapping[str, float]
    best: BestFacts | None
    # the running trial that leads, if it is ahead of the best configuration
    leader: LeaderFacts | None
    workers: tuple[WorkerFacts, ...]
    rungs: tuple[RungFacts, ...]
    failures: tuple[FailureFacts, ...]
    events: tuple[EventFacts, ...]  # the latest events, the last one first
    note: str  # the note that a person has written on the sweep; "" if there is none
    marks: tuple[MarkFacts, ...]  # stars and notes of trials
    # what is not known, and why; or what is left since a sweep that has ended was changed
    unknown: str
    to_resume: str  # the command line that resumes the sweep


def describe_standing(
    standing: Standing,
    now: float,
    *,
    running: bool,
    read: float,
    line: int,
    events: tuple[EventFacts, ...],
    unknown: str = "",
    driven_since: float | None = None,
    to_resume: str = "",
) -> LiveFacts:
    """Return the state of a sweep as the page shows it.

    ``now`` and ``driven_since`` are in seconds since 1970. ``running`` says whether a process runs the sweep, and
    ``driven_since`` is when a process on this machine began to run it. ``read`` is the share of the log that has been
    read, ``line`` the number of the last line read. ``events`` are the latest events, the last one first. ``unknown``
    says what is not known, and why. ``to_resume`` is the command line that resumes the sweep.

    If no process runs the sweep, there are no estimates, no running trials and no leader. Without ``unknown``, the
    result then tells what is left if the sweep was changed after its end.
    """
    state = _name_state(standing, running=running, read=read)
    # its session has not begun
    is_starting = driven_since is not None and driven_since > (standing.last or 0.0)
    # Otherwise the log ends with an earlier session, whose time does not go on.
    until = now if running and not is_starting else standing.last or now
    total = standing.total
    share = standing.trained_trials / total if total else None
    return LiveFacts(
        name=standing.outline.name,
        state=state,
        reason=standing.over or "",
        read=read,
        line=line,
        now=now,
        heard=driven_since if is_starting else standing.last,
        quiet_s=_find_quiet_s(standing, is_starting=is_starting),
        active_s=standing.active_s(until),
        left_s=standing.left_s(now) if running else None,
        metric=standing.outline.metric,
        goal=standing.outline.goal,
        counts_epochs=standing.outline.counts_epochs,
        total=total,
        done=standing.finished,
        share=None if share is None else min(share, 1.0),
        counts=_count_trials(standing, running=running),
        worth=_count_whole_trials(standing, running=running),
        epochs_per_s=standing.epochs_per_s(now) if running else 0.0,
        cost=standing.cost,
        cost_in_all=standing.cost_in_all(now) if running else None,
        survivors=standing.survivors() if running and standing.outline.decisions else None,
        use=standing.usage() if running else {},
        best=_describe_best(standing),
        leader=_describe_leader(standing) if running else None,
        workers=tuple(_list_workers(standing)) if running else (),
        rungs=tuple(_list_rungs(standing)),
        failures=tuple(_list_failures(standing)),
        events=events,
        note=standing.note,
        marks=tuple(_list_marks(standing)),
        unknown=unknown or ("" if running else _describe_to_come(standing, to_resume)),
        to_resume=to_resume,
    )


def _describe_to_come(standing: Standing, to_resume: str) -> str:
    """Describe what is left to do if a sweep was changed after its end, with the command for it; "" if nothing is.

    ``to_resume`` is that command.
    """
    if not standing.is_steered_after_end:
        return ""
    left = describe_to_come(standing.waiting(), standing.queued)
    if not left:
        return ""
    return f"To come: {left}. Go on with: {to_resume}"


def _find_quiet_s(standing: Standing, *, is_starting: bool) -> float:
    """Return the seconds without an event after which the page says that the sweep is silent.

    They are 120 until the first epoch of a session, and then three times the longest of the latest epochs, but at least
    12. ``is_starting`` says that a process runs the sweep whose session has not begun in the log.
    """
    if is_starting or not standing.has_reported:
        return QUIET_AT_START_S
    return max(QUIET_S, QUIET_EPOCHS * standing.longest_epoch_s)


def _name_state(standing: Standing, *, running: bool, read: float) -> str:
    """Return the state of a sweep: "running", "reading", "killed" or "ended".

    ``running`` says whether a process runs it. If none does, the state is "reading" as long as ``read``, the share of
    the log that has been read, is below 1; then "killed" if its last session has begun and not ended in the log, and
    else "ended", also for a sweep without a session.
    """
    if running:
        return "running"
    if read < 1:  # what follows may be the end of its session
        return "reading"
    was_killed = standing.session is not None and standing.over is None
    return "killed" if was_killed else "ended"


def _count_trials(standing: Standing, *, running: bool) -> dict[str, int]:
    """Return the number of trials by status; those with 0 are left out.

    Besides the statuses of ended trials, there are "running", "paused" and "interrupted". If no process runs the sweep,
    which ``running`` says, the trials that its log leaves running count as interrupted.
    """
    # If no process runs the sweep, what its log leaves running was interrupted when the last one was killed.
    counts = {"running": len(standing.running) if running else 0}
    counts |= {status.value: count for status, count in standing.ended.items() if count}
    counts["paused"] = standing.paused
    counts["interrupted"] = len(standing.open) - counts["running"] - standing.paused
    return {name: count for name, count in counts.items() if count > 0}


def _count_whole_trials(standing: Standing, *, running: bool) -> dict[str, float]:
    """Return the number of whole trials that the trained epochs amount to, by status; ended trials count as whole.

    A trial that is running, paused or interrupted counts with the share of its epochs that it has trained. The statuses
    are those of `_count_trials`; those with 0 are left out.
    """
    of_status: dict[str, list[Open]] = {"running": [], "paused": [], "interrupted": []}
    for number, trial in standing.open.items():
        if running and number in standing.running:
            of_status["running"].append(trial)
        elif _is_paused(trial):
            of_status["paused"].append(trial)
        else:
            of_status["interrupted"].append(trial)
    worth = {name: standing.count_trained(trials) for name, trials in of_status.items()}
    for status, count in standing.ended.items():
        if count:
            worth[status.value] = float(count)
    return {name: trials for name, trials in worth.items() if trials > 0}


def _describe_best(standing: Standing) -> BestFacts | None:
    """Return the best completed configuration; None if no trial has completed with a finite score.

    Its settings are those of the parameters that differ between trials.
    """
    best = standing.best
    if best is None:
        return None
    settings = format_settings(best.params, standing.outline.varying)
    return BestFacts(value=best.value, trials=best.trials, settings=settings)


def _describe_leader(standing: Standing) -> LeaderFacts | None:
    """Return the running trial with the best score, if it is ahead of the best completed configuration.

    Returns None if there is no such trial. Trials without a finite score are passed over. Any other score is ahead as
    long as there is no best configuration.
    """
    objective = standing.outline.objective
    best = standing.best
    # a loss is lower for a better score, whether the goal is to minimize or to maximize
    least_loss = math.inf if best is None else objective.to_loss(best.value)
    leader: Open | None = None
    for trial in standing.running.values():
        if (
            trial.value is not None
            and math.isfinite(trial.value)
            and objective.to_loss(trial.value) < least_loss
        ):
            least_loss = objective.to_loss(trial.value)
            leader = trial
    if leader is None or leader.value is None:
        return None
    settings = format_settings(leader.state.params, standing.outline.varying)
    return LeaderFacts(
        value=leader.value, trial=leader.state.number, position=leader.position, settings=settings
    )


def _list_workers(standing: Standing) -> Iterator[WorkerFacts]:
    """Yield the trials that are training now according to the log, the first 200."""
    for trial in list(standing.running.values())[:WORKERS]:
        yield WorkerFacts(
            trial=trial.state.number,
            epoch=trial.state.epoch,
            done=trial.done,
            of=trial.of,
            position=trial.position,
            value=trial.value,
            curve=tuple(trial.curve.points(CURVE)),
            settings=format_settings(trial.state.params, standing.outline.varying),
            role=trial.state.role.value,
        )


def _list_rungs(standing: Standing) -> Iterator[RungFacts]:
    """Yield each rung that a trial has reached, with numbers of trials: reached, pruned and waiting there.

    Of the waiting trials, at most 50 are listed, but all are counted.
    """
    # numbers of the paused trials, by the rung at which each waits
    waiting: dict[int, list[int]] = {}
    for number, trial in standing.open.items():
        if _is_paused(trial):
            waiting.setdefault(trial.done, []).append(number)
    for rung in standing.rungs():
        trials = waiting.get(rung.epoch, [])
        if rung.reached:
            yield RungFacts(
                epoch=rung.epoch,
                reached=rung.reached,
                pruned=rung.pruned,
                waiting=len(trials),
                trials=tuple(trials[:WAITING]),
            )


def _is_paused(trial: Open) -> bool:
    """Return whether its stopping rule or population has paused a trial."""
    return trial.state.paused


def _list_failures(standing: Standing) -> Iterator[FailureFacts]:
    """Yield the kinds of failures with their counts: errors before other failures, then the most frequent first."""
    # A key of `failures` is (status, kind). False sorts before True.
    found = sorted(
        standing.failures.items(), key=lambda one: (one[0][0] not in ERRORED, -one[1].count)
    )
    for (status, kind), failure in found:
        yield FailureFacts(
            status=status.value,
            kind=kind,
            count=failure.count,
            trial=failure.trial,
            reason=failure.reason,
        )


def _list_marks(standing: Standing) -> Iterator[MarkFacts]:
    """Yield the trials with a star or a note."""
    for trial in standing.list_marked_trials():
        yield MarkFacts(trial=trial.number, starred=trial.starred, note=trial.note)


def describe_event(
    event: Event | Record, line: int, standing: Standing, differences: Sequence[Difference] = ()
) -> EventFacts:
    """Return an event with its description in words; ``standing`` must have observed it as the last one.

    ``line`` is the event's line in the log. For a change of the sweep file, ``differences`` are the changed keys, if
    they are known. The result has a trial only for an event of a trial, and a status only for the end or the
    interruption of one.
    """
    trial = getattr(event, "trial", None)  # events of the whole sweep have none
    status = event.status.value if isinstance(event, TrialEnded) else ""
    time = float(getattr(event, "time", 0.0))
    kind = str(type(event).__struct_config__.tag)
    if isinstance(event, SteeringEvent):
        text = _describe_steering(event, standing, differences)
    else:
        text = _describe_event(event, standing)
    return EventFacts(line=line, time=time, kind=kind, text=text, trial=trial, status=status)


def _describe_event(event: Event | Record, standing: Standing) -> str:
    """Describe in words the start, the end or the test of a trial, or the start or the end of a session.

    Any other event is described by its kind and its fields. ``standing`` must have observed the event as the last one.
    """
    match event:
        case TrialStarted(trial=number, role=role):
            why = "" if role is Role.SEARCH else f", {role.value}"
            settings = format_settings(event.params, standing.outline.varying)
            told = f"trial {number} started{why}"
            return f"{told}: {settings}" if settings else told
        case TrialEnded():
            return _describe_end(event, standing)
        case ModelTested(trial=number, metrics=metrics):
            scores = ", ".join(f"{name} {score(value)}" for name, value in metrics.items())
            return f"trial {number} on the test data: {scores}"
        case SessionStarted(resumed=resumed):
            return "the sweep was resumed" if resumed else "the sweep began"
        case SessionEnded(reason=reason):
            return f"the session ended: {reason}"
    return _describe_unknown(event)


def _describe_steering(
    event: SteeringEvent, standing: Standing, differences: Sequence[Difference]
) -> str:
    """Describe in words what a person did to the sweep; a person without a name is "somebody".

    ``differences`` are the changed keys of the sweep file with their values; without them, only their names are given.
    Of several configurations that were added, the first three are described and the others counted.
    """
    who = event.by or "somebody"
    match event:
        case NoteWritten(trial=number, text=text):
            on = "the sweep" if number is None else f"trial {number}"
            return f"{who} noted on {on}: {text}" if text else f"{who} removed the note on {on}"
        case TrialStarred(trial=number, starred=starred):
            return (
                f"{who} gave trial {number} a star"
                if starred
                else f"{who} took the star of trial {number} away"
            )
        case ConfigurationsEnqueued(configurations=added):
            settings = "; ".join(
                format_settings(params, standing.outline.varying) for params in added[:3]
            )
            more = f" and {len(added) - 3} more" if len(added) > 3 else ""
            return f"{who} added {settings}{more}"
        case SweepChanged(settings=changed):
            told = [
                f"{one.path} from {format_value(one.before)} to {format_value(one.after)}"
                for one in differences
            ]
            return f"{who} changed {', '.join(told or changed)}, from trial {standing.started} on"


def _describe_end(event: TrialEnded, standing: Standing) -> str:
    """Describe the end or the interruption of a trial in words; ``standing`` must have observed it just before.

    A completed trial is told with its epochs, its score, and whether it belongs to the best configuration of the
    search. The event's reason follows, if it has one.
    """
    if event.again:  # it is interrupted for another try: the reason has the error
        return _describe_another_try(event)
    if event.status is Status.PRUNED and event.reason == ON_REQUEST:
        return f"trial {event.trial} was stopped by hand"
    ended = f"trial {event.trial} is {event.status.value}"
    if event.pauses:
        ended = f"trial {event.trial} waits"
    if event.status is Status.COMPLETED:
        # Only the latest ends are kept; that of this event is among them, as it was observed just before.
        found = next((one for one in reversed(standing.latest) if one.trial == event.trial), None)
        if found is not None:
            ended += f" after {counted(found.epochs, 'epoch')}"
            if found.value is not None:
                ended += f", {standing.outline.metric} {score(found.value)}"
        best = standing.searched_best
        if best is not None and event.trial in best.trials:
            ended += ": the best so far"
    return f"{ended}: {event.reason}" if event.reason else ended


def _describe_another_try(event: TrialEnded) -> str:
    """Describe in words that a trial has failed and is tried again; ``event`` is its interruption."""
    told = f"trial {event.trial} failed and is tried again"
    # by `resume --retry-failed`: the error was told when the trial failed
    if event.reason == TRIED_AGAIN:
        return told
    # The reason is such as "ValueError: no; tried again, 1 of 3".
    error, _, tries = event.reason.rpartition(f"; {TRIED_AGAIN}, ")
    return f"{told}, {tries}: {error}" if error else f"{told}: {event.reason}"


def _describe_unknown(event: Record) -> str:
    """Describe an event of any other kind by its kind and its fields, without its time and empty fields."""
    parts = []
    for name in event.__struct_fields__:
        value = getattr(event, name)
        if name == "time" or value in (None, "", (), {}):
            continue
        is_finite = isinstance(value, float) and math.isfinite(value)
        parts.append(f"{name} {figure(value) if is_finite else str(value)}")
    kind = str(type(event).__struct_config__.tag).replace("_", " ")
    return f"{kind}: {', '.join(parts)}" if parts else kind
