"""Undoes what the present trial of this process changes in modules and classes, when it ends or the next one begins."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType

import numpy as np

from sweep.state import imports
from sweep.state.namespaces import Namespace
from sweep.state.recorded_values import (
    RecordedValues,
    compute_digests,
    describe_stale_names,
    find_changed_names,
)

_ListNamespaces = Callable[[], list[Namespace]]
_MakeListener = Callable[[RecordedValues], imports.Listener]


@dataclass
class _PresentTrial:
    """The trial that runs in this process, and how its changes to modules are undone."""

    recorded: RecordedValues  # values before it began
    list_namespaces: _ListNamespaces
    before_end: Callable[[], None]
    stop_listening: Callable[[], None]
    modules: frozenset[str]  # names in `sys.modules` when it began
    # names that the trial changed, once it is over; later changes are not its own
    changed: set[str] | None = None


_present: list[_PresentTrial] = []  # at most one
_messages: list[str] = []
resisting: set[str] = set()
"""Names in this process that a trial has changed and that could not be restored."""


class StartingValues:
    """The values of the author's names with which all trials of one trainable begin."""

    def __init__(self) -> None:
        self._recorded = RecordedValues()
        self._key: object = None

    def begin_trial(
        self,
        list_namespaces: _ListNamespaces,
        *,
        key: object,
        make_listener: _MakeListener,
        before_end: Callable[[], None],
    ) -> None:
        """End the previous trial, undo its changes as `restore_names` does, and watch for changes by the new one.

        The present values are recorded as `record` does, and those of modules that the trial imports by a listener.

        Arguments:
            list_namespaces: returns the namespaces to watch; called again when the trial ends.
            key: an object; if it is another one than for the last trial, the values are recorded again.
            make_listener: gets the recorded values, and returns a listener for imports that adds to them.
            before_end: called when the trial ends, before its changes are undone.
        """
        restore_names()
        self.record(list_namespaces, key=key)
        stop_listening = imports.add_import_listener(make_listener(self._recorded))
        modules = frozenset(sys.modules)
        _present.append(
            _PresentTrial(self._recorded, list_namespaces, before_end, stop_listening, modules)
        )

    def record(self, list_namespaces: _ListNamespaces, *, key: object) -> None:
        """Record the present values in the namespaces that ``list_namespaces`` returns as those that trials begin with.

        Namespaces that were recorded for the same ``key`` keep their recorded values. With another object as ``key``
        than in the last call, all earlier records are forgotten.
        """
        if self._key is not key:
            self._recorded = RecordedValues()
            self._key = key
        self._recorded.record(list_namespaces())

    def list_objects(self) -> Iterator[tuple[str, object]]:
        """Yield all objects within the recorded values, each with the full name of the value.

        Plain objects such as numbers and texts are left out.
        """
        return self._recorded.list_objects()


def record_changes() -> None:
    """Record which names the present trial, which is over, has changed; do not restore them yet.

    `restore_names` restores these names and no others: until then the trial's model may still be inspected, saved,
    tested or exported, and what this changes does not count as the trial's. Nothing happens if there is no trial, or if
    its changes were recorded before.
    """
    for trial in _present:
        if trial.changed is None:
            namespaces = trial.list_namespaces()
            trial.changed = trial.recorded.find_changed(namespaces)
            trial.recorded.note_after_run(namespaces, trial.changed)


def restore_names() -> None:
    """End the present trial, if any: restore all names that it has changed in the author's modules and classes.

    If `record_changes` was called after the trial, only the changes before that call count. The trial's ``before_end``
    is called before names are restored, and imports are no longer watched. Modules that the trial has put into
    `sys.modules` without importing them are removed there. Names that cannot be restored are added to `resisting`.
    Messages about changed names that may hold results, such as lists and numbers, are kept for `take_messages`.
    """
    record_changes()
    while _present:  # one, or none
        trial = _present.pop()
        trial.stop_listening()
        trial.before_end()
        _forget_new_modules(trial)
        namespaces = trial.list_namespaces()
        changed = trial.changed or set()  # never None, since `record_changes` was called
        # the names whose values are not those with which the trial began
        differing = find_changed_names(
            trial.recorded.compute_digests(), compute_digests(namespaces)
        )
        for full in sorted(changed & differing):  # what building a model changed is undone already
            if _may_collect_results(_get_value(namespaces, full)):
                _messages.append(_describe_change(full))
        resisting.update(trial.recorded.restore(namespaces, changed))


def _forget_new_modules(trial: _PresentTrial) -> None:
    """Remove the modules that a trial has put into `sys.modules` without importing them.

    The next trial loads them again, as in a fresh process. Imported modules stay, because their values were recorded at
    the import.
    """
    for namespace in trial.list_namespaces():
        is_new = isinstance(namespace.owner, ModuleType) and namespace.name not in trial.modules
        is_listed = sys.modules.get(namespace.name) is namespace.owner
        if is_new and is_listed and not trial.recorded.is_recorded(namespace):
            del sys.modules[namespace.name]


def take_messages() -> list[str]:
    """Return the messages for users about names that trials have changed, without duplicates, and forget them."""
    messages = [*dict.fromkeys(_messages)]
    _messages.clear()
    return messages


def describe_stale() -> str:
    """Return a line for users about names that earlier trials in this process changed and that cannot be restored.

    It shows the first three names in alphabetical order. Returns "" if there are none.
    """
    return describe_stale_names(resisting)


def _describe_change(name: str) -> str:
    return f"{name}, which a trial has changed, is as before for the next one: trials share nothing (docs/limits.md)"


def _get_value(namespaces: list[Namespace], full: str) -> object:
    """Return the present value of a full name, ``namespace.name``; None if there is no such name."""
    for namespace in namespaces:
        values = namespace.get_values()
        # the name of a class begins with that of its module, which has no such name
        name = full.removeprefix(f"{namespace.name}.")
        if name != full and name in values:
            return values[name]
    return None


def _may_collect_results(value: object) -> bool:
    """Return whether a value is a list, dictionary, set, number or array, in which code may collect results."""
    return isinstance(value, list | dict | set | int | float | np.ndarray)
