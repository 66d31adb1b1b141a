"""What a person does with a sweep: requests, and the events that they become.

The process that runs a sweep carries requests out (`steering_requests`). If there is none, the command itself does.
Both check a request against what the log says so far, so that it becomes the same event, or is refused.
"""

from __future__ import annotations

import getpass
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from sweep.analysis.present_spec import Position
from sweep.errors import Problem, RefusedError, UnknownNameError, refuse
from sweep.events import (
    ConfigurationsEnqueued,
    NoteWritten,
    Params,
    Role,
    SteeringEvent,
    SweepChanged,
    TrialStarred,
    Value,
    convert_from_json_types,
    convert_to_json_types,
)
from sweep.space.domains import key
from sweep.spec import Spec, changes
from sweep.spec.configurations import read_configurations
from sweep.spec.validation import Document, describe_value
from sweep.text import counted

COMMAND = "add"
"""The source (`Add.source`) of a configuration that was typed in a command line."""


class Note(Struct, frozen=True, tag=True):
    """A request to write a note on a trial or on the sweep; an empty text removes it."""

    text: str
    trial: int | None = None


class Star(Struct, frozen=True, tag=True):
    """A request to give a trial a star, or to take it away."""

    trial: int
    starred: bool = True


class Add(Struct, frozen=True, tag=True):
    """A request to try ``configurations`` next; ``source`` is where they come from, for messages."""

    configurations: tuple[Any, ...]  # as given, each a mapping; as JSON types of `sweep.events`
    source: str

    @classmethod
    def of(cls, configurations: list[dict[str, Value]], source: str) -> Add:
        """Return the request to add configurations, as JSON types; ``source`` is where they come from, for messages.

        Raises TypeError if a configuration has a value that JSON would lose or change, such as a tuple.
        """
        return cls(tuple(map(convert_to_json_types, configurations)), source)


class Change(Struct, frozen=True, tag=True):
    """A request to change keys of the sweep file by assignments such as ``run_cap=20``, as with `--set`."""

    assignments: tuple[str, ...]


Act: TypeAlias = Note | Star | Add | Change
"""What a person may request."""


class Request(Struct, frozen=True):
    """A person's act with an id, by which it is carried out only once."""

    id: str
    by: str  # name of the user
    act: Act

    def make_event(self, sweep: Position) -> SteeringEvent:
        """Return the event that carries out the request; see the function `make_event`."""
        return make_event(self, sweep)


def make_request(act: Act) -> Request:
    """Return a request for an act, with a new id and the name of the present user."""
    return Request(make_id(), find_user(), act)


def make_id() -> str:
    """Return a new random id for a request: 12 hexadecimal digits."""
    return uuid.uuid4().hex[:12]


def find_user() -> str:
    """Return the name of the present user; "" if the system does not know it, as in some containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def make_event(request: Request, sweep: Position) -> SteeringEvent:
    """Check a request against the state of the sweep, and return the event, not logged yet, that carries it out.

    The event has the id and the user of the request, and the present time. Nothing is changed.

    Raises:
        InputError: with all mistakes in added configurations or changed keys.
        UnknownNameError: if the request is about a trial that has not started.
        RefusedError: if the request is valid, but this sweep cannot carry it out.
    """
    now = time.time()
    match request.act:
        case Note(text, trial):
            _check_trial(trial, sweep)
            return NoteWritten(trial=trial, text=text, request=request.id, by=request.by, time=now)
        case Star(trial, starred):
            _check_trial(trial, sweep)
            return TrialStarred(
                trial=trial, starred=starred, request=request.id, by=request.by, time=now
            )
        case Add(configurations, source):
            found = _read_additions(configurations, source, sweep)
            return ConfigurationsEnqueued(
                configurations=found, request=request.id, by=request.by, time=now
            )
        case Change(assignments):
            after = changes.with_assignments(sweep.present.spec, assignments, sweep.name)
            return make_change(after, sweep, "--set ", request.id, request.by)


def make_change(after: Spec, sweep: Position, where: str, request: str, by: str) -> SweepChanged:
    """Return the event, not logged yet, that changes the present sweep file to ``after``.

    The event has the new values of all top-level keys that differ. It also removes the added configurations that wait
    and are not in the new space.

    Arguments:
        where: prefix of the key in each message, such as ``--set ``.
        request: id of the request.
        by: name of the user.

    Raises:
        RefusedError: with all keys that cannot change, or not to these values; if there are none, with those that
            cannot change while a process runs the sweep; if more `repeats` would need seeds of the confirmation; or if
            nothing would change.
    """
    before = sweep.present.spec
    changes.check_change(before, after, where, searcher_changes=sweep.searcher_changes)
    if sweep.began is not None:  # a process runs the sweep
        changes.check_running(
            before, after, sweep.began, f"python -m sweep stop {sweep.address}", where
        )
    refuse(_list_used_seeds(after, sweep, where), RefusedError)
    settings = changes.make_settings(before, after)
    if not settings:
        raise RefusedError.one(sweep.name, "has these values already, there is nothing to change")
    # the queue has the added configurations that wait; those in the new space stay in it
    waiting = [queued.params for queued in sweep.ledger.queue.values()]
    dropped = tuple(params for params in waiting if not after.space.has(params))
    return SweepChanged(
        settings=settings, dropped=dropped, request=request, by=by, time=time.time()
    )


def _list_used_seeds(after: Spec, sweep: Position, where: str) -> Iterator[Problem]:
    """Yield a problem if ``after`` has more `repeats`, and these would need seeds of the confirmation so far.

    A confirmation needs seeds that no trial of the search has used. ``where`` is the prefix of the key in the message.
    """
    if after.repeats <= sweep.present.spec.repeats:
        return
    fresh = []  # the repeats, from 0, of the trials of the confirmation; a repeat determines the seed
    for trial in sweep.ledger.trials.values():
        if trial.role is Role.CONFIRM:
            fresh.append(trial.start.repeat)
    if not fresh or after.repeats <= min(fresh):
        return
    what = f"is {after.repeats}, but finalists were confirmed with the seeds that follow those of {min(fresh)} repeats"
    more = f"confirm them with more seeds (python -m sweep confirm {sweep.address} --seeds N)"
    hint = f"{more}, or {changes.ANOTHER_SWEEP}"
    yield Problem(f"{where}repeats", what, hint)


def list_added(event: SteeringEvent) -> tuple[Params, ...]:
    """Return the configurations that an event adds; () if it adds none."""
    if not isinstance(event, ConfigurationsEnqueued):
        return ()
    return event.configurations


def list_dropped(event: SteeringEvent) -> tuple[Params, ...]:
    """Return the added configurations that an event removes; () if it removes none."""
    if not isinstance(event, SweepChanged):
        return ()
    return event.dropped


def _check_trial(trial: int | None, sweep: Position) -> None:
    """Raise `UnknownNameError` if no trial of this number has started; do nothing for None, the whole sweep."""
    trials = sweep.ledger.trials
    if trial is None or trial in trials:
        return
    known = "no trial was started yet"
    if trials:
        known = f"it has trials {min(trials)} to {max(trials)}"
    raise UnknownNameError.one(sweep.name, f"has no trial {trial}", known)


def _read_additions(given: tuple[Any, ...], source: str, sweep: Position) -> tuple[Params, ...]:
    """Return the configurations that a request adds, checked and with all parameters, as a searcher suggests them.

    ``given`` has them as JSON types (`Add.configurations`), ``source`` is where they come from, for messages.

    Raises:
        InputError: with all mistakes in them.
        RefusedError: with all reasons, if one of them has begun or was added already, or if they are too many; or if
            the sweep trains a population.
    """
    spec = sweep.present.spec
    if spec.population is not None:
        what = f"method {spec.method} trains one population, to which nothing can be added"
        raise RefusedError.one(sweep.name, what, changes.ANOTHER_SWEEP)
    document = Document(source)  # collects the mistakes
    mappings: list[Mapping[str, Value]] = []
    for index, one in enumerate(given):
        plain = convert_from_json_types(one)
        if isinstance(plain, dict):
            mappings.append(plain)
        else:
            document.add_mistake(
                (index,), f"{describe_value(one)}, expected a mapping of parameters"
            )
    # a command line has one configuration, so its messages need no number to say which one is meant
    found = read_configurations(mappings, spec.space, (), document, numbered=source != COMMAND)
    document.check()  # raises them
    refuse(_list_reasons(found, sweep), RefusedError)
    return found


def _list_reasons(found: tuple[Params, ...], sweep: Position) -> Iterator[Problem]:
    """Yield a problem for each configuration that has begun or was added already, and one if there are too many.

    Too many are more than `run_cap` and `budget.trials` leave room for. A configuration that only the baseline or the
    confirmation has trained counts as begun too.
    """
    present = sweep.present
    trials = {}  # number of the first trial with these parameters
    for trial in reversed(sweep.ledger.trials.values()):
        trials[key(trial.params)] = trial.number
    for index, params in enumerate(found):
        if len(found) == 1:
            where = sweep.name
        else:
            where = f"{sweep.name}: [{index}]"
        if key(params) in trials:
            number = trials[key(params)]
            hint = f"failed trials are tried again by python -m sweep resume {sweep.address} --retry-failed"
            yield Problem(where, f"this configuration is that of trial {number} already", hint)
        elif present.is_known(params):
            yield Problem(where, "this configuration was added already, and waits")
    present_count = _count_limited_configurations(sweep)
    new_count = present_count + len(found)
    exceeded = {name: cap for name, cap in present.spec.caps.items() if cap < new_count}
    if exceeded:
        cap = min(exceeded.values())
        room = max(cap - present_count, 0)
        what = f"is limited to {counted(cap, 'configuration')}, of which {room} may still be added"
        settings = " ".join(f"--set {name}={new_count}" for name in exceeded)
        hint = f"raise the limit first: python -m sweep change {sweep.address} {settings}"
        yield Problem(sweep.name, what, hint)


def _count_limited_configurations(sweep: Position) -> int:
    """Return how many configurations already count towards `run_cap` and `budget.trials`.

    They are the configurations of the search that have started, each counted once for all its repeats and folds, and
    added ones that wait.
    """
    begun = set()
    for trial in sweep.ledger.trials.values():
        if trial.role is Role.SEARCH:
            begun.add(key(trial.params))
    return len(begun) + len(sweep.ledger.queue)
