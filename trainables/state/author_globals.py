"""Changes that an author's methods make to the trainable, to modules and to classes: recorded, undone and redone.

Changes by `data` are recorded by name and undone before `data` runs again, so that all runs begin alike. Changes by
`model` and the related methods in modules are undone before a model is made again, and changes by all other methods,
hooks and callbacks are undone when their trial ends.
"""

from __future__ import annotations

import os
import types
import weakref
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import numpy as np

from sweep.state import imports, namespaces, settings, trials, values
from sweep.state.namespaces import Namespace
from sweep.state.recorded_values import (
    SHOWN,
    Digests,
    NotPutBack,
    RecordedValues,
    compute_digests,
    find_changed_names,
    self_changing,
)
from trainables.state import modules

__all__ = ["NotPutBack"]
DATA_AGAIN = "data() runs again for other trials and for the test"
MODEL_AGAIN = "model() and the related methods run again for other trials and for exports"


class AuthorSurroundings:
    """The trainable and the author's modules, where `data` may set values that later runs must find unchanged.

    ``own`` has the names of the trainable's attributes that do not belong to the author.
    """

    def __init__(self, own: frozenset[str]) -> None:
        self._own = own
        self._object = RecordedValues()
        self._names_left: set[str] = set()  # names on the trainable

    def names_left(self, author: object) -> set[str]:
        """Return the full names of all values that `data` has set so far, such as "self.NAME" or "module.NAME".

        Those on the object were set on this trainable, the others by `data` of any trainable of this class.
        """
        return self._names_left | _names_left_in_modules.get(type(author), set())

    @property
    def attributes(self) -> frozenset[str]:
        """The names of the attributes that any run of `data` has set on this trainable."""
        return frozenset(name.removeprefix("self.") for name in self._names_left)

    def compute_digests(self, author: object) -> Digests:
        """Return digests, by full name, of the present values of all names that `data` has set; {} if there is none.

        Names without a present value are left out.
        """
        names = self.names_left(author)
        if not names:
            return {}
        return compute_digests(self._list_namespaces(author), names)

    @contextmanager
    def running_data(self, author: object) -> Iterator[Callable[[], set[str]]]:
        """Undo the changes of earlier runs of `data` before it runs inside the block, and record its own changes.

        Names that cannot be restored are added to `trials.resisting`. Changes by the present model are undone inside
        the block. Yields a function that returns the full names that all runs of `data` have set so far, and rewinds
        random generators that this run has drawn from; these are not among the names, nor is what changes by itself.
        Raises: NotPutBack: after the block, or from the function, if a value that was changed in place is too large to
        be restored.
        """
        with without_model_changes():
            spaces = self._list_namespaces(author)
            for recorded, some in self._with_records(spaces):
                recorded.record(some)
                # With a name that cannot be restored, this process must train no other trial.
                trials.resisting.update(recorded.restore(some, self.names_left(author)))
            before = compute_digests(spaces)

            # Called after each import in the block: what importing a module sets in it is no change by `data`.
            def record_imported(imported: list[Namespace]) -> None:
                _modules.record(imported)
                before.update(compute_digests(imported))

            def find_names_left() -> set[str]:
                present = self._list_namespaces(author)
                changed = find_changed_names(before, compute_digests(present))
                names = self_changing.remove_from(changed, present)
                for recorded, some in self._with_records(present):
                    names -= recorded.rewind_generators(some, names)
                # `self.` names belong to this trainable, all others to the modules, for all trainables of the class.
                on_object = set()
                for name in names:
                    if name.startswith("self."):
                        on_object.add(name)
                self._names_left |= on_object
                _names_left_in_modules.setdefault(type(author), set()).update(names - on_object)
                for recorded, some in self._with_records(present):
                    recorded.note_after_run(some, self.names_left(author))
                    recorded.check_restorable(some, names, by="data()", when=DATA_AGAIN)
                return self.names_left(author)

            with _listening_to_imports(author, record_imported):
                try:
                    yield find_names_left
                finally:  # also record changes if `data` has failed or nobody has called the function
                    find_names_left()

    def _list_namespaces(self, author: object) -> list[Namespace]:
        return [Namespace("self", author, self._own), *modules.find_namespaces(author)]

    def _with_records(
        self, spaces: list[Namespace]
    ) -> list[tuple[RecordedValues, list[Namespace]]]:
        """Return pairs (record of original values, its namespaces): one for the trainable, one for all others.

        ``spaces`` has the trainable's namespace first.
        """
        return [(self._object, spaces[:1]), (_modules, spaces[1:])]


_modules = RecordedValues()  # values in the modules of this process
# by trainable
_names_left_in_modules: weakref.WeakKeyDictionary[type, set[str]] = weakref.WeakKeyDictionary()


class ModelChanges:
    """The values that making one model has set in the author's modules, in process settings and as working folder."""

    def __init__(self) -> None:
        # namespace, name in it, and a function that returns the value with the content that it had
        self._values: list[tuple[Namespace, str, Callable[[], Any]]] = []
        self.settings: settings.Values = {}  # the changed settings of this process
        self.folder: Path | None = None  # the new working folder; None if it has not changed

    def add(
        self, recorded: RecordedValues, spaces: Sequence[Namespace], names: Container[str]
    ) -> None:
        """Add the present values in ``spaces`` whose full names are in ``names``, to be set again by `redo`.

        Of values that ``recorded`` has from before, and that were changed in place, the content is copied, see
        `RecordedValues.copy_content`. Names without a value are left out.
        """
        for namespace in spaces:
            for name, value in namespace.get_values().items():
                if f"{namespace.name}.{name}" in names:
                    self._values.append(
                        (namespace, name, recorded.copy_content(namespace, name, value))
                    )

    def redo(self) -> None:
        """Undo the changes of the last model in modules, and apply those recorded in this object.

        The recorded changes concern modules, settings and the working folder, which stays if the recorded one is gone.
        Those in modules then count as changes of the last model. Settings that cannot be set stay, without an error.
        """
        undo_model_changes()
        settings.apply_settings(self.settings)
        if self.folder is not None and self.folder.is_dir():
            os.chdir(self.folder)
        # the namespaces, each once
        spaces = [*{namespace.name: namespace for namespace, *_ in self._values}.values()]
        names = set()
        for namespace, name, _ in self._values:
            names.add(f"{namespace.name}.{name}")
        recorded = RecordedValues()
        recorded.record(spaces, names)  # before the changes, to undo them later
        for namespace, name, get_value in self._values:
            namespace.set(name, get_value())
        _remember(recorded, spaces, names)


# at most one: how to undo the last model's
_model_changes: list[tuple[RecordedValues, list[Namespace], set[str]]] = []


def undo_model_changes() -> None:
    """Restore the values that the author's modules had before the last model was made, if any.

    Names that cannot be restored are added to `trials.resisting`. Settings and the working folder stay.
    """
    while _model_changes:
        recorded, spaces, names = _model_changes.pop()
        trials.resisting.update(recorded.restore(spaces, names))


@contextmanager
def without_model_changes() -> Iterator[None]:
    """Undo the changes that making the present model has made to modules inside the block, and redo them afterwards.

    Changes by a model that is made inside the block are undone before that. Settings and the working folder stay.
    """
    changes = ModelChanges()
    for recorded, spaces, names in _model_changes:
        changes.add(recorded, spaces, names)
    undo_model_changes()
    try:
        yield
    finally:
        changes.redo()


@contextmanager
def making_model(author: object) -> Iterator[ModelChanges]:
    """Undo the changes of the last model before a model is made inside the block, and record the changes of this one.

    Yields the changes that the block makes to modules, settings and working folder, complete after the block, also if
    the block fails. Changes in modules are not undone until a model is made again or another trial begins, because
    hooks of this trial may read them. Random generators of the author's are rewound after the block.
    Raises: NotPutBack: after the block, if a value that was changed in place is too large to be restored.
    """
    undo_model_changes()
    recorded = RecordedValues()
    changes = ModelChanges()
    settings_before = settings.read_settings()
    folder_before = _find_working_folder()
    recorded.record(modules.find_namespaces(author))
    with _listening_to_imports(author, recorded.record):
        try:
            yield changes
        finally:  # a method that fails may have changed values as well
            spaces = modules.find_namespaces(author)
            names = recorded.find_changed(spaces)
            names -= recorded.rewind_generators(spaces, names)
            _remember(recorded, spaces, names)
            changes.add(recorded, spaces, names)
            changes.settings = settings.find_changed_settings(
                settings_before, settings.read_settings()
            )
            folder = _find_working_folder()
            if folder == folder_before:
                changes.folder = None
            else:
                changes.folder = folder
    recorded.check_restorable(spaces, names, by="model() or a related method", when=MODEL_AGAIN)


def _find_working_folder() -> Path | None:
    """Return the working folder; None if it was deleted."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None


def _remember(recorded: RecordedValues, spaces: list[Namespace], names: set[str]) -> None:
    """Store the records by which the changes of the present model can be undone; nothing if ``names`` is empty."""
    if names:
        recorded.note_after_run(spaces, names)
        _model_changes.append((recorded, spaces, names))


@contextmanager
def _listening_to_imports(
    author: object, listener: Callable[[list[Namespace]], None]
) -> Iterator[None]:
    """Call ``listener`` after each import of an author's module inside the block, with the module and its classes."""
    with imports.listen_to_imports(_pass_author_modules(author, listener)):
        yield


def _pass_author_modules(
    author: object, listener: Callable[[list[Namespace]], None]
) -> imports.Listener:
    """Return an import listener that calls ``listener`` with each author's module and its classes, as namespaces."""

    def on_import(module: types.ModuleType) -> None:
        if modules.is_author_module(
            module.__name__, module.__file__, modules.list_top_packages(author)
        ):
            listener(namespaces.list_namespaces_of_module(module))

    return on_import


class TrialSnapshot:
    """A snapshot of the author's modules and of the trainable's attributes, which is restored after each trial.

    ``own`` has the names of the trainable's attributes that do not belong to the author.
    """

    def __init__(self, own: frozenset[str]) -> None:
        self._own = own
        self._starting_values = trials.StartingValues()

    def begin(self, author: object, data: object, *, trains: bool) -> None:
        """Restore what the previous trial has changed, and take a snapshot for a trial on ``data``.

        Call it after the data is loaded and before any other method runs. The snapshot of another trial on the same
        object ``data`` is used again. If ``trains`` is False, nothing is restored, neither now nor after the trial,
        which may be inspected in a user's own process.
        """
        names = frozenset(vars(author)) - self._own

        def list_namespaces() -> list[Namespace]:
            return [Namespace("self", author, only=names), *modules.find_namespaces(author)]

        def make_listener(recorded: RecordedValues) -> imports.Listener:
            return _pass_author_modules(author, recorded.record)

        if trains:
            self._starting_values.begin_trial(
                list_namespaces,
                key=data,
                make_listener=make_listener,
                before_end=undo_model_changes,
            )
        else:
            self._starting_values.record(list_namespaces, key=data)

    def list_objects(self) -> Iterator[tuple[str, object]]:
        """Yield (full name of a value, object) for the values of the snapshot and all objects within them.

        They are those of the moment when the snapshot was taken; an object within two values comes twice. Plain objects
        such as numbers and texts are left out. Of a value with very many objects, only the first ones are yielded.
        """
        return self._starting_values.list_objects()


def end_trial() -> None:
    """Undo what the present trial, if any, and its model have changed in the author's modules and on the trainable.

    Names that cannot be restored are added to `trials.resisting`.
    """
    trials.restore_names()
    undo_model_changes()


class HookChanges:
    """The changes that hooks and callbacks have made to the author's modules and to settings since their trial began.

    A checkpoint holds the changed values that JSON can represent. The others are named in a message when a trial
    continues without them.
    """

    def __init__(self, author: object) -> None:
        self._author = author
        self._digests = self._compute_digests()  # as the trial began
        # by the id of a result in a function's cache: the result, and its digest when it was first seen
        self._cached_results: dict[int, tuple[object, object]] = {}
        self._find_changed_caches()  # called to store the digests of the present results
        self._settings = imports.adopt_library_settings(settings.SavedSettings())

    def enter_phase(self) -> None:
        """Accept the values that making the model of another phase has set; they do not count as changes by hooks."""
        of_model = {name for _, _, names in _model_changes for name in names}
        for name, digest in self._compute_digests().items():
            if name in of_model:
                self._digests[name] = digest

    def state(self) -> dict[str, Any]:
        """Return the changes for a checkpoint, as JSON.

        ``values``, ``generators`` (states of NumPy's) and ``settings`` hold values by full name; ``lost`` is a sorted
        list of the names of changed values that the checkpoint cannot hold, also of deleted ones. Names whose values
        change by themselves are left out.
        """
        spaces = modules.find_namespaces(self._author)
        changed = find_changed_names(self._digests, self._compute_digests())
        names = self_changing.remove_from(changed, spaces)
        present = {}
        for full, value in self._get_values().items():
            if full in names:
                present[full] = value
        plain_values = {}
        for full, value in present.items():
            if _is_json_value(value):
                plain_values[full] = value
        generators = {}
        for full, value in present.items():
            if _get_numpy_state(value):
                generators[full] = _get_numpy_state(value)
        changed_settings = self._settings.find_changed()
        # Settings that are not single values, such as os.environ with its passwords, are left out.
        plain_settings = {}
        for name, value in changed_settings.items():
            if type(value) in _SINGLE:
                plain_settings[name] = value
        all_changed = {*names, *changed_settings, *self._find_changed_caches()}
        lost = sorted(all_changed - {*plain_values, *generators, *plain_settings})
        return {
            "values": plain_values,
            "generators": generators,
            "settings": plain_settings,
            "lost": lost,
        }

    def restore(self, state: Mapping[str, Any]) -> str:
        """Apply the changes in ``state``, which `state` returned.

        Values of namespaces that are gone are left out. Existing lists and dictionaries are changed in place. Returns a
        line for users that names up to three changed values that ``state`` lacks, or "" if it lacks none.
        """
        for namespace in modules.find_namespaces(self._author):
            for full, value in state["values"].items():
                owner, _, name = full.rpartition(".")
                if owner == namespace.name:
                    _set_plain_value(namespace, name, value)
            for name, generator in namespace.get_values().items():
                generator_state = state["generators"].get(f"{namespace.name}.{name}")
                if generator_state is not None:
                    values.restore_generator(generator, generator_state)
        settings.apply_settings(state["settings"])
        if not state["lost"]:
            return ""
        lost = ", ".join(state["lost"][:SHOWN])
        return f"{lost}, changed by hooks or callbacks, is no plain value, and a resumed trial is without it"

    def _find_changed_caches(self) -> set[str]:
        """Return the full names of functions with a cache in which a result has changed since it was first seen here.

        Results that were added are no changes: a resumed trial computes them again. They are stored as first seen now.
        """
        changed = set()
        for full, value in self._get_values().items():
            if not hasattr(value, "cache_info"):
                continue
            for result in values.list_cached_results(value):
                digest = values.digest(result)
                # The result is stored, too, so that no other object gets its id.
                _, first_digest = self._cached_results.setdefault(id(result), (result, digest))
                if digest != first_digest:
                    changed.add(full)
        return changed

    def _compute_digests(self) -> Digests:
        digests = {}
        for full, value in self._get_values().items():
            digests[full] = _WithoutCallbacks().digest(value)
        return digests

    def _get_values(self) -> dict[str, object]:
        values = {}
        for namespace in modules.find_namespaces(self._author):
            for name, value in namespace.get_values().items():
                values[f"{namespace.name}.{name}"] = value
        return values


class _WithoutCallbacks(values.Digester):
    """A digester that ignores callbacks, whose state is saved separately, and results cached by functions."""

    def _digest_parts(self, value: Any, identity: object) -> object:
        if isinstance(value, keras.callbacks.Callback) or hasattr(value, "cache_info"):
            return values.IdentityDigest(value)
        return super()._digest_parts(value, identity)


def _set_plain_value(namespace: Namespace, name: str, value: Any) -> None:
    """Set a name to a plain value; an existing list or dictionary is changed in place, as other code may hold it."""
    present = namespace.get_values().get(name)
    if isinstance(present, list) and isinstance(value, list):
        present[:] = value
    elif isinstance(present, dict) and isinstance(value, dict):
        present.clear()
        present.update(value)
    else:
        namespace.set(name, value)


_SINGLE = (bool, int, float, str)


def _is_json_value(value: object) -> bool:
    """Return whether a value survives a round trip through JSON.

    That is so for None, bool, int, float and str, and for lists of such values and dictionaries of them with texts as
    keys. Subclasses of these types do not count.
    """
    if type(value) is list:
        return all(map(_is_json_value, value))
    if type(value) is dict:
        return all(type(name) is str and _is_json_value(part) for name, part in value.items())
    return value is None or type(value) in _SINGLE


def _get_numpy_state(value: object) -> Any:
    """Return the state of a NumPy generator; None for anything else."""
    if not isinstance(value, np.random.Generator):
        return None
    return values.get_generator_state(value)
