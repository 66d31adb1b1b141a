"""Hyperparameter sweeps on Ray for people who train Keras models."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sweep.analysis.frames import LoadedSweep, load

__all__ = ["LoadedSweep", "load"]


def __getattr__(name: str) -> object:
    """Import pandas only when a sweep is loaded."""
    if name in __all__:
        from sweep.analysis import frames

        return getattr(frames, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
