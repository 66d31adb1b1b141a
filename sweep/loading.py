"""Turns ``module:Name`` into what it names, in the process that needs it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, cast

from sweep.contract import Trainable
from sweep.errors import InputError, TrainableError, shortened
from sweep.functions import FunctionTrainable, takes_report

METHODS = ("begin", "train", "save", "restore", "facts")


def load(trainable: str, folders: Iterable[Path], given: object = None) -> Callable[[], Trainable]:
    """Return what makes trainables: the class, or one around the function, with these folders importable.

    ``given`` is the class or function itself where no module has it. Raises TrainableError, or what its import raises.
    """
    make_importable(folders)
    return maker(_named(trainable) if given is None else given, trainable)


def maker(found: object, name: str) -> Callable[[], Trainable]:
    """Return what makes trainables of a class or a function; raise TrainableError for what is neither."""
    if not isinstance(found, type):
        if not callable(found):
            raise TrainableError(f"{name} is {shortened(repr(found), 100)}, expected a class or a function")
        takes_report(found)
        return partial(FunctionTrainable, found)
    if missing := lacking(found):
        raise TrainableError(
            f"{name} lacks the methods {', '.join(missing)} of sweep.contract.Trainable; "
            "derive it from trainables.keras_trainable.KerasTrainable"
        )
    wrap = getattr(found, "__trainable__", None)
    return cast(type[Trainable], found) if wrap is None else lambda: cast(Trainable, wrap(found()))


def lacking(found: type) -> list[str]:
    """Return the methods of `Trainable` that neither a class has nor, for it, what its ``__trainable__`` names."""
    if callable(getattr(found, "__trainable__", None)):
        return []
    return [method for method in METHODS if not callable(getattr(found, method, None))]


def offers(method: str, trainable: str, folders: Iterable[Path], given: object = None) -> bool:
    """Return whether trainables have a method beyond the contract's, and make none; arguments as of `load`.

    True as well where only an object could tell.
    """
    make_importable(folders)
    found = _named(trainable) if given is None else given
    kind = getattr(found, "__trainable__", found)
    only_an_object_tells = kind is not found and not isinstance(kind, type)
    return only_an_object_tells or callable(getattr(kind, method, None))


def load_part(target: str, folders: Iterable[Path], where: str, methods: Iterable[str], contract: str) -> Any:
    """Return what a sweep file names in place of a part of sweep; raise InputError if it is no such part."""
    found = named(target, folders, where)
    missing = [method for method in methods if not hasattr(found, method)]
    if not callable(found) or (isinstance(found, type) and missing):
        what = f"lacks {', '.join(missing)}" if missing else "cannot be called"
        raise InputError.one(where, f"{target} {what}", f"expected a class with all of {contract}: docs/extending.md")
    return found


def named(target: str, folders: Iterable[Path], where: str) -> Any:
    """Return what ``module:Name`` names, with these folders importable; raise InputError if it cannot be imported."""
    try:
        make_importable(folders)
        return _named(target)
    except Exception as error:  # the border to the user's code
        reason = str(error).splitlines() or [""]
        raise InputError.one(where, f"{target} cannot be imported: {type(error).__name__}: {reason[0]}") from error


def make_importable(folders: Iterable[Path]) -> None:
    """Look for modules in these folders first, in this order, in which `inspection` has looked."""
    first = list(dict.fromkeys(map(str, folders)))
    if sys.path[: len(first)] != first:
        sys.path[:] = [*first, *(entry for entry in sys.path if entry not in first)]


def _named(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)
