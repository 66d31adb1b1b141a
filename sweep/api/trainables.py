"""Finds trainables that are passed as a class, a function or a name, and restores models from checkpoints."""

from __future__ import annotations

import os
import re
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sweep import author_code
from sweep.errors import InputError, TrainableError
from sweep.functions import FunctionTrainable, make_trainable_factory
from sweep.inspection import HERE, Source, find_import_folder, get_import_target, inspect_object
from sweep.runner import checking, restoring
from sweep.runner.restoring import Which
from sweep.spec import Spec
from sweep.store.folder import ResultsFolder


@dataclass(frozen=True, slots=True)
class NamedTrainable:
    """A trainable with the name by which a sweep file refers to it."""

    target: str  # "module:Name"
    itself: object = None  # the class or function, if no module contains it
    folders: tuple[Path, ...] = ()  # where its module can be imported from

    @property
    def name(self) -> str:
        return self.target.partition(":")[2]


def accept_trainable(trainable: object) -> NamedTrainable:
    """Return a trainable, given as a class, a function or ``"module:Name"``, together with its name.

    Nothing is imported; a name is not checked, except that of a class or function of the running script or notebook. A
    class or function that workers cannot import from a module is itself part of the result, to be sent to them. Raises
    InputError if a class or function cannot be trained, or if the script or notebook does not define the name.
    """
    if isinstance(trainable, str):
        return find_resumed_trainable(trainable)
    # an identifier, as in a sweep file, also for a lambda; an object that can be called has the name of its class
    name = re.sub(r"\W", "_", getattr(trainable, "__name__", type(trainable).__name__)).lstrip(
        "0123456789"
    )
    try:
        make_trainable_factory(trainable, name)
    except TrainableError as error:
        raise InputError.one("trainable", str(error)) from None
    target = get_import_target(trainable)
    if target:
        folder = _find_import_folder(target.partition(":")[0])
        if folder is None:  # installed, so that workers find it without a folder
            return NamedTrainable(target)
        if folder != Path():  # `Path()`: it cannot be imported by its name
            return NamedTrainable(target, folders=(folder,))
    # a worker cannot import it, so it is sent to the workers itself
    return NamedTrainable(f"{HERE}:{name}", trainable)


def find_resumed_trainable(target: str) -> NamedTrainable:
    """Return the trainable with the name ``"module:Name"``, for a sweep that is resumed, without importing its module.

    A trainable that a notebook or script has defined, with the module ``__main__``, is looked up in the present one.
    Raises InputError if it is not defined there. Any other name is not checked.
    """
    module, _, name = target.partition(":")
    if module != HERE:
        return NamedTrainable(target)
    itself = getattr(sys.modules[HERE], name, None)
    if itself is None:
        what = f"{name} was defined in a notebook or script, and is not defined in this one"
        raise InputError.one("trainable", what, f"define it and give it: trainable={name}")
    return NamedTrainable(target, itself)


def inspect_and_check(
    given: NamedTrainable, spec: Spec, where: str, folders: Sequence[Path], *, here: bool
) -> Source:
    """Return the source of a trainable, after checking the sweep against it as the command line does.

    ``where`` names the sweep file in messages; the trainable's module is searched in ``folders``. ``here`` says whether
    the trials run on this machine (`checking.check_trainable`). Raises InputError with all that certainly fails or has
    no effect, such as a parameter that nothing reads, or if the source is missing.
    """
    if given.itself is None:
        return checking.check_trainable(spec, where, folders, here=here)
    source = inspect_object(given.target, given.itself, folders, checking.list_own_optimizers(spec))
    checking.check_source(spec, where, source, here=here)
    return source


def _find_import_folder(module: str) -> Path | None:
    """Return the folder from which a loaded module can be imported.

    ``module`` is its dotted name. Returns None if the module is installed, and `Path()` if it cannot be imported by its
    name, because it has no file or a file of another name.
    """
    file = getattr(sys.modules[module], "__file__", None)
    if file is None:
        return Path()
    path = Path(file).resolve()
    home = find_import_folder(path, module)
    if author_code.is_installed(str(path)):
        return None
    expected = home.joinpath(*module.split("."))
    return home if path in (expected.with_suffix(".py"), expected / "__init__.py") else Path()


def model(folder: ResultsFolder, trial: int | None, epoch: Which, trainable: object) -> Any:
    """Return the Keras model of a trial, by default of the best one, with its weights after an epoch.

    ``epoch`` is the number of an epoch, ``"last"`` or ``"best"``, the kept one with the lowest loss. ``trainable`` is a
    class, a function or ``"module:Name"``; if it is None, the one that the sweep names is used. Issues a warning for
    everything that has changed and may make it a different model. Raises `InputError` if there is no such checkpoint or
    it cannot be restored, if there is no single best configuration and ``trial`` is None, or if the trainable makes no
    model, and `StoreError` if the log or the checkpoint cannot be read. Environment variables and ``sys.path`` are
    restored.
    """
    kept = restoring.find_checkpoint(folder, trial, epoch)
    target = kept.sweep.spec.trainable
    given = accept_trainable(target if trainable is None else trainable)
    spec = replace(kept.sweep.spec, trainable=given.target)
    folders = (*kept.sweep.import_folders, *given.folders)
    # as if the sweep had been run with this trainable
    kept = replace(kept, sweep=replace(kept.sweep, spec=spec, import_folders=folders))
    with kept_process():
        restored = restoring.begin_trial(kept, given.itself)
        for note in restored.notes:
            warnings.warn(f"{kept.where}: {note}", stacklevel=3)
        make = getattr(restored.trainable, "trained_model", None)  # a method of `KerasTrainable`
        if make is None:
            is_function = isinstance(restored.trainable, FunctionTrainable)
            kind = "a function" if is_function else "no KerasTrainable"
            what = f"{given.target} is {kind}, and sweep knows no model of it"
            raise InputError.one(kept.where, what, f"what it saved is in {kept.checkpoint}")
        return make()


_running = threading.Lock()


@contextmanager
def claim_process() -> Iterator[None]:
    """Allow only one sweep in this process inside the block, because a process has one Ray and one standard error.

    Raises InputError at once if another sweep is running.
    """
    if not _running.acquire(blocking=False):
        raise InputError.one(
            "sweep.run", "a sweep is running in this process", "wait for it, or use another process"
        )
    try:
        yield
    finally:
        _running.release()


@contextmanager
def kept_process() -> Iterator[None]:
    """Restore the environment variables and ``sys.path`` after the block, also after an error.

    Variables and paths that the block added are removed, and changed ones get their earlier values. The other work of
    this process is thus not affected.
    """
    environment, path = dict(os.environ), list(sys.path)
    try:
        yield
    finally:
        sys.path[:] = path
        for name in os.environ.keys() - environment.keys():
            del os.environ[name]
        os.environ.update(environment)
