"""Export of sweeps to experiment trackers, TensorBoard, Optuna's dashboard and CSV, and of the winner as files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from sweep.store.folder import ResultsFolder


def create_followers(
    *, tensorboard: bool
) -> Sequence[Callable[[ResultsFolder], AbstractContextManager[object]]]:
    """Return the exporters that follow a sweep while it runs: that of TensorBoard's event files; () if not asked for.

    Each is called with the sweep's folder and returns a context manager, inside which it follows the sweep. Raises
    `InputError` if a library that it needs is missing.
    """
    if not tensorboard:
        return ()
    from sweep.export.tensorboard import LiveEventFiles, import_events

    import_events()
    return (LiveEventFiles,)
