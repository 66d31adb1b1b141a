"""What may change in a sweep that has begun, and the sweep file that a change makes.

A sweep begins with the file in its sweep.json. Its present file follows from that one and the changes in its log, each
of which has the new values of top-level keys of the resolved file (`SweepChanged.settings`). `resume --set`,
`run FILE --or-resume` and `change` all make such changes, by the rules of this module.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from sweep.errors import Problem, RefusedError, refuse
from sweep.events import Value
from sweep.space.domains import Constant, Tied, key
from sweep.space.early_terminate import Own
from sweep.spec.configurations import read_start_with
from sweep.spec.loading import parse_spec
from sweep.spec.resolved import Spec
from sweep.spec.validation import Document, flow
from sweep.text import shortened

LIMITS = (
    *("run_cap", "budget", "stop_when", "metric.target", "max_failures", "max_restarts", "retries"),
    *("confirm", "description", "notify"),
    *("checkpoint", "resources.max_concurrent", "resources.max_share"),
    *("resources.trial_hours", "resources.epoch_minutes"),
)
"""Keys that change when a sweep ends or how it is run, but not what has been trained."""

SPACE = frozenset({"parameters", "constraints", "prior"})
"""Keys that are the space."""

SEARCH = ("parameters", "constraints", "prior", "early_terminate")
"""Keys that change what is tried from now on, and how long."""

CHANGEABLE = (*LIMITS, *SEARCH, "repeats")
"""Keys that may change after a sweep has begun."""

INSTEAD = {
    "start_with": "python -m sweep add tries further configurations next",
}
"""What to do instead of changing a key that never changes."""

BETWEEN_SESSIONS = ("metric.target", "confirm", "notify", "checkpoint", "resources.max_share")
"""Keys of `CHANGEABLE` that a process that runs the sweep reads once, when it begins."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A key of the resolved sweep file with its values before and after a change; None stands for a missing key."""

    keys: tuple[str | int, ...]
    before: Value
    after: Value

    @property
    def path(self) -> str:
        """The key as the user writes it for ``--set``: with dots, and with ``metric`` for the first of the metrics."""
        return re.sub(r"^metrics\.0\.", "metric.", ".".join(map(str, self.keys)))

    @property
    def is_changeable(self) -> bool:
        """Whether this key can be changed after a sweep has begun; `check_change` may still refuse the new value."""
        return self.is_one_of(CHANGEABLE)

    def is_one_of(self, keys: Iterable[str]) -> bool:
        """Return whether the key's `path` is one of ``keys``, or lies within the block of one."""
        return any(self.path == known or self.path.startswith(f"{known}.") for known in keys)

    def describe(self) -> str:
        """Return a sentence without a full stop that says the key, the new and the earlier value."""
        return f"{self.path} is {format_value(self.after)} from now on; it was {format_value(self.before)}"


def find_differences(
    before: Value, after: Value, keys: tuple[str | int, ...] = ()
) -> Iterator[Difference]:
    """Yield the keys in which two resolved sweep files differ.

    ``before`` and ``after`` are what `Spec.to_json_dict` returns, or parts of it, to which ``keys`` lead from the
    outermost mapping. Mappings are compared key by key, and lists of mappings item by item if they have the same
    length; other lists differ as a whole. A missing key equals one with the value None. The numbers 1 and 1.0 differ.
    """
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys([*before, *after]):
            yield from find_differences(before.get(name), after.get(name), (*keys, name))
    elif _are_blocks(before) and _are_blocks(after) and len(before) == len(after):
        for at, pair in enumerate(zip(before, after, strict=True)):
            yield from find_differences(*pair, (*keys, at))
    elif json.dumps(before) != json.dumps(after):  # as text, because 1 and 1.0 train differently
        yield Difference(keys, before, after)


def _are_blocks(value: Value) -> TypeGuard[list[Value]]:
    """Return whether a value is a list of mappings; True for an empty list."""
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def format_value(value: Value) -> str:
    """Format a value as YAML on one line for a message, at most 100 characters; "not set" for None, a missing key."""
    if value is None:
        return "not set"
    return shortened(flow(value), 100)


def list_differences(before: Spec, after: Spec) -> list[Difference]:
    """Return the keys in which the resolved files of two sweeps differ, with the values in both."""
    return list(find_differences(before.to_json_dict(), after.to_json_dict()))


# ---- what a change makes


def with_assignments(spec: Spec, assignments: Sequence[str], source: str) -> Spec:
    """Return a copy of a sweep with values changed by assignments, written as for ``--set``.

    An assignment is a text such as ``budget.hours=3``; ``metric.`` in front stands for the first of the metrics.
    Starting configurations outside of the new space are left out, unless an assignment changes ``start_with``.
    ``source`` is the path of the sweep file, for messages. Whether the changes are allowed in a sweep that has begun is
    not checked. Raises `InputError` with all mistakes if the result is not a valid sweep.
    """
    content = spec.to_json_dict()
    typed = []
    for one in assignments:
        # The resolved file has `metrics`, even if the user's file has `metric`.
        typed.append(re.sub(r"^metric\.", "metrics.0.", one))
    if not spec.start_with or any(one.startswith("start_with") for one in typed):
        return parse_spec(_as_text(content), source, typed)
    # Which starts are valid depends on the new space, so the file is first parsed without any, and again with those.
    changed = parse_spec(_as_text({**content, "start_with": []}), source, typed)
    kept: list[Value] = []
    for start in spec.start_with:
        if _is_valid_start(start, changed):
            kept.append(dict(start))
    return parse_spec(_as_text({**content, "start_with": kept}), source, typed)


def _is_valid_start(start: Mapping[str, Value], spec: Spec) -> bool:
    """Return whether a starting configuration lies in a sweep's space, as `read_start_with` checks it."""
    document = Document("")  # only to count the mistakes
    read_start_with([start], spec.space, (), document)
    return not document.found


def make_settings(before: Spec, after: Spec) -> dict[str, Value]:
    """Return the new values of the top-level keys in which two sweeps differ; None for a removed key.

    A key is included with its whole value, even if only a part of it differs, or only the order of keys within it.
    Without differences, the result is {}.
    """
    old = before.to_json_dict()
    new = after.to_json_dict()
    settings: dict[str, Value] = {}
    for name in dict.fromkeys([*old, *new]):
        if json.dumps(old.get(name)) != json.dumps(new.get(name)):
            settings[name] = new.get(name)
    return settings


def apply_settings(spec: Spec, settings: Mapping[str, Value], source: str = "") -> Spec:
    """Return a copy of a sweep with new values of top-level keys; a key with the value None is removed.

    Keys that ``settings`` lacks keep their values. ``source`` is the path of the sweep file, for messages. Raises
    `InputError` if the result is not a valid sweep.
    """
    return parse_spec(_as_text({**spec.to_json_dict(), **settings}), source)


def apply_all(spec: Spec, changes: Iterable[Mapping[str, Value]], source: str = "") -> Spec:
    """Return a copy of the sweep as it began with all changes applied in order; the sweep itself if there are none.

    Each change has new values of top-level keys, as `make_settings` returns them; a later one of a key replaces an
    earlier one. Raises `InputError` as `apply_settings` does; only the result is checked, not the sweeps in between.
    """
    settings: dict[str, Value] = {}
    for one in changes:
        settings |= one
    if settings:
        return apply_settings(spec, settings, source)
    return spec


def _as_text(content: Mapping[str, Value]) -> str:
    """Return a resolved sweep file as text in JSON, which is also YAML; keys with the value None are left out."""
    return json.dumps({name: value for name, value in content.items() if value is not None})


# ---- what may change


def check_change(
    before: Spec, after: Spec, where: str = "", *, searcher_changes: bool = True
) -> None:
    """Raise `RefusedError` if a sweep that has begun cannot be changed from ``before`` to ``after``; list all reasons.

    Keys that are not `CHANGEABLE` are refused, and so are changes of the space, of constraints on metrics or of the
    rule for early stopping that the sweep cannot adopt.

    Arguments:
        where: text in front of each key in the messages, such as ``--set ``.
        searcher_changes: whether the sweep's searcher can continue in another space.
    """
    refuse(list_refusals(before, after, where, searcher_changes=searcher_changes), RefusedError)


def list_refusals(
    before: Spec, after: Spec, where: str = "", *, searcher_changes: bool = True
) -> list[Problem]:
    """Return a problem for each difference that a sweep which has begun cannot adopt; see `check_change`.

    Those of keys that never change come first. The result is [] if the sweep can adopt all differences. Starting
    configurations that are left out because the space has changed are no such difference.
    """
    found = list_differences(before, after)
    if _leaves_out_starts(before, after):
        # `with_assignments` has left them out because of another change, which is judged by itself.
        found = [one for one in found if one.keys[0] != "start_with"]
    problems = list(list_fixed_keys(found, where))
    for one in found:
        if one.is_changeable:
            why = _explain_refusal(one, before, after, searcher_changes=searcher_changes)
            if why is not None:
                problems.append(Problem(f"{where}{one.path}", *why))
    return problems


def _leaves_out_starts(before: Spec, after: Spec) -> bool:
    """Return whether the space has changed, and ``after`` has no starting configuration that ``before`` lacks.

    That is True as well if none was left out.
    """
    known = {key(start) for start in before.start_with}
    left = {key(start) for start in after.start_with}
    return not before.space.is_same_as(after.space) and left <= known


def check_running(before: Spec, after: Spec, began: Spec, stop: str, where: str = "") -> None:
    """Raise `RefusedError`, with all reasons, for changes that are not possible while a process runs the sweep.

    These are changes of the keys in `BETWEEN_SESSIONS`, and of a parameter from one value in all trials to several.
    What `check_change` refuses is not checked here.

    ``before`` and ``after`` are the sweep without and with the change, and ``began`` is the sweep as it was when that
    process started to run it. ``stop`` is the command line that stops the process, for the hint, and ``where`` is as
    for `check_change`.
    """
    problems = []
    for one in list_differences(before, after):
        if one.is_one_of(BETWEEN_SESSIONS):
            problems.append(
                Problem(
                    f"{where}{one.path}", "is read once, when a session begins", f"first: {stop}"
                )
            )
    # The workers of a session were told at its start which parameters are the same in all trials, and go by that.
    for name in began.space.constant:
        if name not in after.space.constant:
            what = "has one value in all trials of the session that is running"
            problems.append(Problem(f"{where}parameters.{name}", what, f"first: {stop}"))
    refuse(problems, RefusedError)


def list_fixed_keys(found: Iterable[Difference], where: str) -> Iterator[Problem]:
    """Yield a problem for each changed key that must not change after a sweep has begun; the last one has the hint.

    Differences of keys that may change are skipped. ``where`` is the text in front of each key in the messages. The
    hint names all keys that may change; if a key of `INSTEAD` is the only wrong one, it is the one given there.
    """
    wrong = [one for one in found if not one.is_changeable]
    general_hint = (
        f"a sweep that has begun can change {', '.join(CHANGEABLE)} alone: run it under another --name, and trials "
        "that stay the same are answered from this one"
    )
    for number, one in enumerate(wrong, start=1):
        what = f"is {format_value(one.after)}, but the sweep began with {format_value(one.before)}"
        if number < len(wrong):
            hint = ""
        elif number == 1:  # the only wrong key
            hint = INSTEAD.get(one.path, general_hint)
        else:
            hint = general_hint
        yield Problem(f"{where}{one.path}", what, hint)


ANOTHER_SWEEP = "run it under another --name, with warm_start"


def _explain_refusal(
    one: Difference, before: Spec, after: Spec, *, searcher_changes: bool
) -> tuple[str, str] | None:
    """Return why a sweep cannot adopt a changed key of the search, and what to do instead; None if it can.

    Returns None for keys that are not in `SEARCH`. Populations adopt none of these. ``searcher_changes`` is as for
    `check_change`.
    """
    if not one.is_one_of(SEARCH):
        return None
    if before.population is not None:
        return (
            f"method {before.method} trains one population, whose space and rule stay",
            ANOTHER_SWEEP,
        )
    if one.is_one_of(("early_terminate",)):
        return _explain_rule(before, after)
    if not searcher_changes:
        what = (
            f"method {before.method} has no change_space, by which it would go on in another space"
        )
        return what, ANOTHER_SWEEP
    # `constraints` also has those on parameters, which are part of the space and may change.
    if one.is_one_of(("constraints",)) and before.constraints != after.constraints:
        return "constraints on metrics say what the trials so far came to", ANOTHER_SWEEP
    return _explain_parameter(one, before, after)


def _explain_rule(before: Spec, after: Spec) -> tuple[str, str] | None:
    """Return why a sweep cannot adopt another rule for early stopping, and what to do instead; None if it can.

    It cannot if the earlier or the new rule is the user's own, or pauses trials.
    """
    rules = (before.early_terminate, after.early_terminate)
    if any(isinstance(rule, Own) for rule in rules):
        return "a rule of your own begins with its sweep", ANOTHER_SWEEP
    if any(rule.pauses for rule in rules):
        return "a rule that pauses trials begins with its sweep, and ends with it", ANOTHER_SWEEP
    return None


def _explain_parameter(one: Difference, before: Spec, after: Spec) -> tuple[str, str] | None:
    """Return why a sweep cannot adopt a changed parameter, and what to do instead; None if it can.

    Ranges, choices and distributions can be changed, except those of ``epochs``. A sweep cannot adopt a new or missing
    parameter, another constant in place of a constant, another condition, or a change of a tied parameter. The first
    reason that holds is returned. Returns None if the key is not that of a parameter.
    """
    if not one.is_one_of(("parameters",)):
        return None
    name = str(one.keys[1])  # the keys are "parameters", the name, and those within the parameter
    old = {parameter.name: parameter for parameter in before.space.parameters}.get(name)
    new = {parameter.name: parameter for parameter in after.space.parameters}.get(name)
    if old is None or new is None:
        what = "is new" if old is None else "is gone"
        return f"{what}, and the trials so far have other parameters", ANOTHER_SWEEP
    if (
        isinstance(old.domain, Constant)
        and isinstance(new.domain, Constant)
        # by their keys, because 1 equals 1.0 and true otherwise
        and key(old.domain.value) != key(new.domain.value)
    ):
        return "has another value than in all trials so far", "write values: [...] with both"
    if name == "epochs":
        what = "says how long trials train"
    elif old.when != new.when:
        what = "exists under another condition than in the trials so far"
    elif isinstance(old.domain, Tied) or isinstance(new.domain, Tied):
        what = "is tied to other parameters"
    else:
        return None
    return what, ANOTHER_SWEEP
