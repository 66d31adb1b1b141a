"""What else keeps up with a sweep's log while it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from sweep.store.folder import ResultsFolder


def wanted(*, tensorboard: bool) -> Sequence[Callable[[ResultsFolder], AbstractContextManager[object]]]:
    """The followers that were asked for. Raises `InputError` where a library is missing."""
    if not tensorboard:
        return ()
    from sweep.export import tensorboard as event_files

    event_files.require()
    return (event_files.LiveEventFiles,)
