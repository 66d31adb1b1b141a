"""Turns ``module:Name`` into the trainable's class, in the process that trains."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import cast

from sweep.contract import Trainable
from sweep.errors import TrainableError

METHODS = ("begin", "train", "save", "restore", "facts")


def load(trainable: str, folders: Iterable[Path]) -> type[Trainable]:
    """Import the class, with these folders importable; raises TrainableError, or what its import raises."""
    first = list(dict.fromkeys(map(str, folders)))  # in the order in which `inspection` has looked
    if sys.path[: len(first)] != first:
        sys.path[:] = [*first, *(entry for entry in sys.path if entry not in first)]
    module, _, name = trainable.partition(":")
    found = getattr(importlib.import_module(module), name)
    missing = [method for method in METHODS if not callable(getattr(found, method, None))]
    if missing:
        raise TrainableError(
            f"{trainable} lacks the methods {', '.join(missing)} of sweep.contract.Trainable; "
            "derive it from trainables.keras_trainable.KerasTrainable"
        )
    return cast(type[Trainable], found)
