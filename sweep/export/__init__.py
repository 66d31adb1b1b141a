"""Sweeps for other tools: experiment trackers, TensorBoard, Optuna's dashboard, CSV, and the winner as files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from sweep.store.folder import ResultsFolder


def followers(*, tensorboard: bool) -> Sequence[Callable[[ResultsFolder], AbstractContextManager[object]]]:
    """Return what is to export a sweep while it runs. Raises `InputError` where a library is missing."""
    if not tensorboard:
        return ()
    from sweep.export.tensorboard import LiveEventFiles, require

    require()
    return (LiveEventFiles,)
