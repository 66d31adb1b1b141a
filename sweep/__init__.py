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

__all__ = ["InputError", "LoadedSweep", "SweepError", "confirm", "load", "resume", "retrain", "run"]

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
"""TensorFlow reads it once, as it is imported, and else tells the terminal of its own workings; errors are told."""

recorder.install()
"""What the author's modules read when they are imported is recorded from here on; `Worker` records trials."""

_HOMES = {
    "InputError": "sweep.errors",
    "LoadedSweep": "sweep.api",
    "SweepError": "sweep.errors",
    "confirm": "sweep.api.running",
    "load": "sweep.api",
    "resume": "sweep.api.running",
    "retrain": "sweep.api.running",
    "run": "sweep.api.running",
}


def __getattr__(name: str) -> object:
    """Import pandas and all else only when it is asked for."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
