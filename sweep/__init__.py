"""Hyperparameter sweeps on Ray for people who train Keras models."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING

from sweep.read_recorder import recorder

if TYPE_CHECKING:
    from sweep.api import LoadedSweep, load
    from sweep.api.running import confirm, resume, retrain, run
    from sweep.errors import InputError, SweepError
    from sweep.ui.notebook import show

__all__ = [
    "InputError",
    "LoadedSweep",
    "SweepError",
    "confirm",
    "load",
    "resume",
    "retrain",
    "run",
    "show",
]

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
"""TensorFlow reads this once, at import.

Without it, it prints its own progress to the terminal; errors still appear.
"""

recorder.install()
"""From here on, record what the author's modules read while they are imported; `Worker` records the trials' reads."""

_HOMES = {
    "InputError": "sweep.errors",
    "LoadedSweep": "sweep.api",
    "SweepError": "sweep.errors",
    "confirm": "sweep.api.running",
    "load": "sweep.api",
    "resume": "sweep.api.running",
    "retrain": "sweep.api.running",
    "run": "sweep.api.running",
    "show": "sweep.ui.notebook",
}


def __getattr__(name: str) -> object:
    """Return the public object ``name``, such as `run`, and import its module if that was not imported yet.

    Python calls this for every name that the module does not have itself. Raises AttributeError if it is not public.
    """
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List all names of this module, sorted, including the public names that are not imported yet."""
    return sorted({*globals(), *_HOMES})
