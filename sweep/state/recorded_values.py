"""Records of the values of names, taken when their namespaces were first seen, for restoring them."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from sweep.state import values
from sweep.state.namespaces import Namespace
from sweep.state.values import IdentityDigest, Snapshot

Digests: TypeAlias = "dict[str, object]"
"""The digest of each value, by name. Equal values have equal digests."""


SHOWN = 3  # names in a line


def describe_stale_names(names: Iterable[str]) -> str:
    """Return a message for users that a trial changed ``names``, which cannot be restored; "" if there are none.

    It shows the first three names in alphabetical order.
    """
    shown = ", ".join(sorted(names)[:SHOWN])
    if not shown:
        return ""
    return f"{shown}, changed by an earlier trial, cannot be put back"


class NotPutBack(Exception):
    """Raised if an author's method has changed a value in place and the value cannot be restored."""


def compute_digests(
    namespaces: Sequence[Namespace], names: Container[str] | None = None
) -> Digests:
    """Return a digest of each present value in ``namespaces``, by its full name, ``namespace.name``.

    With ``names``, which are full names, return only the digests of these; names without a value are left out. Values
    that `Namespace.get_values` leaves out have no digest.
    """
    digests = {}
    for namespace in namespaces:
        for name, value in namespace.get_values().items():
            full = f"{namespace.name}.{name}"
            if names is None or full in names:
                digests[full] = values.digest(value)
    return digests


def find_changed_names(before: Digests, after: Digests) -> set[str]:
    """Return the names whose digests differ between ``before`` and ``after``, or that only one of them has."""
    missing = object()
    changed = set()
    for name in {**before, **after}:
        if before.get(name, missing) != after.get(name, missing):
            changed.add(name)
    return changed


class SelfChangingNames:
    """Names whose values change without a trial, for example by a thread of the author's, and are not restored."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def remove_from(self, names: set[str], namespaces: Sequence[Namespace]) -> set[str]:
        """Return ``names`` without those whose values in ``namespaces`` change by themselves.

        A value changes by itself if two digests of it, taken in succession, differ. Its name is then added to the
        attribute `names`, and all later calls leave it out. ``names`` itself stays as it is.
        """
        if names:
            self.names |= find_changed_names(
                compute_digests(namespaces, names), compute_digests(namespaces, names)
            )
        return names - self.names

    def describe(self) -> str:
        """Return a line for users about the names that were found to change by themselves; "" if there are none.

        It shows the first three names in alphabetical order.
        """
        shown = ", ".join(sorted(self.names)[:SHOWN])
        if not shown:
            return ""
        return f"{shown} changes by itself, as by a thread"


self_changing = SelfChangingNames()
"""The self-changing names of this process."""


class RecordedValues:
    """Copies of the values in namespaces, taken when each namespace was first seen, by which they are restored."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, _Value]] = {}  # by namespace and name
        # which object a full name referred to after a method ran; None: no value
        self._after_run: dict[str, IdentityDigest | None] = {}
        # references to the modules, classes and mappings that were recorded, by the name of the namespace
        self._owners: dict[str, Callable[[], object]] = {}
        # full names that existed but did not count as the author's; a trial may make them count
        self._hidden: set[str] = set()

    def record(self, namespaces: Sequence[Namespace], names: Container[str] | None = None) -> None:
        """Record the values in all namespaces that are not recorded yet, of all names or only of ``names``.

        ``names`` has full names, ``namespace.name``. A namespace counts as recorded afterwards, even if only some of
        its names were. One whose name belonged to another module, class or mapping is recorded anew.
        """
        for namespace in namespaces:
            if self.is_recorded(namespace):
                continue
            self._owners[namespace.name] = _refer_to(namespace.owner)
            recorded = {}
            for name, value in namespace.get_values().items():
                if names is None or f"{namespace.name}.{name}" in names:
                    recorded[name] = _Value(value)
            self._values[namespace.name] = recorded
            for name in namespace.list_hidden_names():
                self._hidden.add(f"{namespace.name}.{name}")

    def is_recorded(self, namespace: Namespace) -> bool:
        """Return whether the values in ``namespace`` were recorded.

        If its name now belongs to another module, class or mapping than when it was recorded, they were not.
        """
        return namespace.name in self._owners and self._owners[namespace.name]() is namespace.owner

    def compute_digests(self) -> Digests:
        """Return the digests of all recorded values, as they were when they were recorded, by full name."""
        digests = {}
        for namespace, recorded in self._values.items():
            for name, value in recorded.items():
                digests[f"{namespace}.{name}"] = value.digest
        return digests

    def list_objects(self) -> Iterator[tuple[str, object]]:
        """Yield all objects within the recorded values, each as a pair of the value's full name and the object.

        These are the values themselves and what was in them when they were recorded; an object within two values comes
        twice. Plain objects such as numbers and texts are left out.
        """
        for namespace, recorded in self._values.items():
            for name, value in recorded.items():
                for part in value.content.list_objects():
                    yield f"{namespace}.{name}", part

    def find_changed(self, namespaces: Sequence[Namespace]) -> set[str]:
        """Return the full names whose values differ from the recorded ones, except those that change by themselves.

        Names that are new in ``namespaces`` or missing there count as changed, so ``namespaces`` must have all that
        were recorded. A name that existed before but did not count as the author's is never among the result. Names
        that turn out to change by themselves are added to `self_changing`.
        """
        changed = find_changed_names(self.compute_digests(), compute_digests(namespaces))
        return self_changing.remove_from(changed - self._hidden, namespaces)

    def restore(self, namespaces: Sequence[Namespace], names: set[str]) -> set[str]:
        """Restore ``names`` to their recorded values and delete new ones; return those that cannot be restored.

        ``names`` has full names, which `note_after_run` must have got before. If a name refers to another object than
        then, because other code has changed it, its present value is recorded instead. A namespace that is not recorded
        stays as it is. Names that change by themselves are restored, too, but not returned.
        """
        resisting = set()
        for namespace in namespaces:
            if not self.is_recorded(namespace):
                continue
            recorded = self._values.get(namespace.name, {})
            present = namespace.get_values()
            for name in {*present, *recorded}:
                full = f"{namespace.name}.{name}"
                if full not in names:
                    continue
                if name in present:
                    now = IdentityDigest(present[name])
                else:
                    now = None
                if now != self._after_run.get(full):  # other code has changed it since a method ran
                    if name in present:
                        recorded[name] = _Value(present[name])
                    else:
                        recorded.pop(name, None)
                elif name in recorded:
                    if not self._restore_name(namespace, name, recorded):
                        resisting.add(full)
                else:  # a new name
                    namespace.remove(name)
        return resisting - self_changing.names

    def note_after_run(self, namespaces: Sequence[Namespace], names: set[str]) -> None:
        """Remember which objects ``names`` refer to after an author's method has run, for a later `restore`.

        ``names`` has full names. A name that was recorded and has no value any more is remembered as such.
        """
        for namespace in namespaces:
            present = namespace.get_values()
            for name in {*present, *self._values.get(namespace.name, {})}:
                full = f"{namespace.name}.{name}"
                if full in names:
                    if name in present:
                        self._after_run[full] = IdentityDigest(present[name])
                    else:
                        self._after_run[full] = None

    def copy_content(self, namespace: Namespace, name: str, value: Any) -> Callable[[], Any]:
        """Copy the present content of ``value``; return a function that restores it in place and returns ``value``.

        The content is copied and restored as far as a `Snapshot` can, without TensorFlow and Keras variables that were
        not within the recorded value. If ``value`` is not the object that was recorded under ``name`` of ``namespace``,
        or is a random generator, nothing is copied and the function only returns it.
        """
        recorded = self._values.get(namespace.name, {}).get(name)
        if recorded is None or recorded.value is not value or recorded.is_generator:
            return lambda: value
        recorded_ids = set()
        for part in recorded.content.list_objects():
            recorded_ids.add(id(part))
        # new variables are restored with the program created by the method
        content = Snapshot(value, variables=recorded_ids)

        def get_value() -> Any:
            content.restore()
            return value

        return get_value

    def rewind_generators(self, namespaces: Sequence[Namespace], names: set[str]) -> set[str]:
        """Rewind the random generators among ``names`` to their recorded states; return the names rewound.

        Names are full names. A name that refers to another object than the recorded one is left out.
        """
        rewound = set()
        for namespace, name, value in self._find_unreplaced(namespaces, names):
            if value.is_generator:
                value.restore()
                rewound.add(f"{namespace.name}.{name}")
        return rewound

    def check_restorable(
        self, namespaces: Sequence[Namespace], names: set[str], *, by: str, when: str
    ) -> None:
        """Raise `NotPutBack` if a value among ``names`` was changed in place and is too large to be restored.

        ``names`` has the full names of values that are known to have changed; those that refer to another object than
        the recorded one are not checked. The error names the first value found. ``by`` and ``when`` are parts of its
        message: the method that has changed the value, and when it runs again.
        """
        for namespace, name, value in self._find_unreplaced(namespaces, names):
            if value.too_large:
                raise NotPutBack(
                    f"{by} has changed {namespace.name}.{name} in place ({value.nbytes / 2**20:,.0f} MiB), expected "
                    f"that it leaves it as it is: {when}, and would begin with the changed values; compute on a copy, "
                    "and return that"
                )

    def _restore_name(self, namespace: Namespace, name: str, recorded: dict[str, _Value]) -> bool:
        """Restore the recorded value of one name; return False if the value still differs.

        ``recorded`` has the records of the namespace by name. The results of `functools.cache` can only be cleared, so
        a value with such a cache may differ. Its present content is then put into ``recorded``, and the result is True.
        """
        value = recorded[name]
        namespace.set(name, value.restore())
        present = namespace.get_values().get(name)
        if values.digest(present) == value.digest:
            return True
        if not value.has_cache:
            return False
        recorded[name] = _Value(present)  # an empty cache is as good as one with earlier results
        return True

    def _find_unreplaced(
        self, namespaces: Sequence[Namespace], names: set[str]
    ) -> Iterator[tuple[Namespace, str, _Value]]:
        """Yield namespace, name and record of those full names in ``names`` that still refer to the recorded object."""
        for namespace in namespaces:
            recorded = self._values.get(namespace.name, {})
            for name, present in namespace.get_values().items():
                is_wanted = f"{namespace.name}.{name}" in names
                if is_wanted and name in recorded and recorded[name].value is present:
                    yield namespace, name, recorded[name]


class _Value:
    """One recorded value: the object, a digest, and a snapshot of its content."""

    def __init__(self, value: Any) -> None:
        self.value = value
        digester = values.Digester()
        self.digest = digester.digest(value)
        self.nbytes = digester.nbytes
        self.is_generator = values.get_generator_state(value) is not None
        self.content = Snapshot(value)
        self.too_large = self.content.too_large
        self.has_cache = self.content.has_cache
        # its attributes are its state, and the snapshot restores them in place
        if values.holds_user_content(value):
            self._copy_iterator = None
        else:
            self._copy_iterator = _make_copier(value)

    def restore(self) -> Any:
        """Give the object its recorded content back as far as possible, and return it.

        In place of an iterator that can be copied, return a new copy that stands where the iterator stood when it was
        recorded. Parts beyond the snapshot's limits, generators and files keep their present content, and a cache is
        emptied; compare digests to see whether the value is restored.
        """
        self.content.restore()
        if self._copy_iterator is None:
            return self.value
        return self._copy_iterator()


def _make_copier(value: Any) -> Callable[[], Any] | None:
    """Return a function that makes copies of an iterator as it is now; None if ``value`` is no iterator.

    Each copy stands where the iterator stands at this call, even if the iterator advances later; making copies does not
    advance it. Also returns None for generators, files and other objects that cannot be copied.
    """
    if not hasattr(value, "__next__") or not hasattr(value, "__iter__"):
        return None
    try:
        copied = copy.copy(value)
        copy.copy(copied)  # the later copies are made of the copy, so that must be possible too
    # A generator or a file raises TypeError. Others, such as a temporary file, fail in code of their own while the copy
    # has no attributes yet.
    except Exception:
        return None
    return lambda: copy.copy(copied)


def _refer_to(owner: Any) -> Callable[[], object]:
    """Return a function that holds a weak reference to ``owner`` and returns it, or None once it was deleted.

    If the type of ``owner`` allows no weak references, the function keeps it alive.
    """
    try:
        return weakref.ref(owner)
    except TypeError:  # the globals of a notebook
        return lambda: owner
