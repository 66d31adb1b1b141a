"""Turns ``module:Name`` into what it names, in the process that needs it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from sweep.contract import Trainable
from sweep.errors import InputError, TrainableError

METHODS = ("begin", "train", "save", "restore", "facts")


def load(trainable: str, folders: Iterable[Path]) -> type[Trainable]:
    """Import the class, with these folders importable; raises TrainableError, or what its import raises."""
    found = _found(trainable, folders)
    missing = [method for method in METHODS if not callable(getattr(found, method, None))]
    if missing:
        raise TrainableError(
            f"{trainable} lacks the methods {', '.join(missing)} of sweep.contract.Trainable; "
            "derive it from trainables.keras_trainable.KerasTrainable"
        )
    return cast(type[Trainable], found)


def load_part(target: str, folders: Iterable[Path], where: str, methods: Iterable[str], contract: str) -> Any:
    """What a sweep file names in place of a part of sweep; raises InputError if it is no such part."""
    try:
        found = _found(target, folders)
    except Exception as error:
        reason = str(error).splitlines() or [""]
        raise InputError.one(where, f"{target} cannot be imported: {type(error).__name__}: {reason[0]}") from error
    missing = [method for method in methods if not hasattr(found, method)]
    if not callable(found) or (isinstance(found, type) and missing):
        what = f"lacks {', '.join(missing)}" if missing else "cannot be called"
        raise InputError.one(where, f"{target} {what}", f"expected a class with all of {contract}: docs/extending.md")
    return found


def _found(target: str, folders: Iterable[Path]) -> Any:
    first = list(dict.fromkeys(map(str, folders)))  # in the order in which `inspection` has looked
    if sys.path[: len(first)] != first:
        sys.path[:] = [*first, *(entry for entry in sys.path if entry not in first)]
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)
