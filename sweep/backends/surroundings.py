"""The working folder, standard streams and settings of a process that trains trials."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from sweep.read_recorder import recorder
from sweep.state import imports, settings


class Surroundings:
    """Keeps the working folder, standard streams and settings of a process the same for each of its trials.

    Each trial begins in ``folder``, or in the current folder if ``folder`` does not exist. If importing the author's
    code changes the working folder or the settings (`sweep.state.settings`), each trial begins with the changed ones.
    With ``alone``, the process only trains trials and stays in the trial's state between steps, for the sake of threads
    that read ahead. Otherwise the caller's state is restored after each step.
    """

    def __init__(self, folder: Path | None, *, alone: bool = False) -> None:
        self._only_trains = alone
        if folder is not None and folder.is_dir():
            self._start_folder = folder
        else:
            self._start_folder = Path.cwd()
        self._has_imported = False
        self._trial_folder = self._start_folder  # working folder of the present trial
        # streams that the trial has put in place of Python's own; None if it has not
        self._trial_streams: tuple[TextIO, TextIO] | None = None
        self._output_copies: dict[int, int] = {}  # copies of the file descriptors 1 and 2
        self._close_outputs = weakref.finalize(self, _close_all, ())
        self.keep_outputs()
        # What a library sets while a trial imports it later belongs to all trials, and is not undone with the trial's.
        self._saved_settings = imports.adopt_library_settings(settings.SavedSettings())
        # settings made by importing the author's code, if the process is shared
        self._import_settings: settings.Values = {}
        self._trial_settings: settings.Values = {}  # settings made by the present trial
        self._is_inside = False  # whether a block of `inside` runs
        self.resisting: list[str] = []  # settings that a trial has changed permanently

    def keep_outputs(self) -> None:
        """Make every later trial begin with the standard output and standard error that this process has now.

        These are its file descriptors 1 and 2, of which copies are kept, unless they are closed.
        """
        self._close_outputs()
        # A process may have been started with closed outputs.
        self._output_copies = {stream: os.dup(stream) for stream in (1, 2) if _is_open(stream)}
        self._close_outputs = weakref.finalize(
            self, _close_all, tuple(self._output_copies.values())
        )

    def check(self) -> None:
        """Raise FileNotFoundError if neither the trial's folder nor the one in which trials begin exists."""
        if not (self._trial_folder.is_dir() or self._start_folder.is_dir()):
            raise FileNotFoundError(
                f"{self._start_folder}, in which trials begin, is no longer there"
            )

    @contextmanager
    def inside(self, *, anyhow: bool = False) -> Iterator[None]:
        """Use the trial's working folder, streams and settings inside the block; restore the caller's afterwards.

        In a process that only trains trials, the trial's folder and settings stay after the block. Reads inside the
        block are recorded as the trial's. If the trial's folder and the one in which trials begin are both gone,
        FileNotFoundError is raised or, with ``anyhow``, the block runs in the present folder. With ``anyhow``, the
        caller must therefore call `check`.
        """
        callers_folder = None if self._only_trains else _get_current_folder()
        callers_streams = (sys.stdout, sys.stderr)
        if not anyhow:
            self.check()
        with suppress(FileNotFoundError, NotADirectoryError):  # `check` reports this
            os.chdir(self._trial_folder if self._trial_folder.is_dir() else self._start_folder)
        sys.stdout, sys.stderr = self._trial_streams or callers_streams
        if not self._only_trains:
            self._saved_settings.save_present()  # the caller's, restored below
            settings.apply_settings(self._trial_settings)
        self._is_inside = True
        try:
            with recorder.in_trial():
                yield
        finally:
            self._is_inside = False
            if not self._only_trains:
                # before the next line undoes them
                self._trial_settings = self._saved_settings.find_changed()
                self._saved_settings.restore()
            with suppress(FileNotFoundError):  # the trial has deleted it
                self._trial_folder = Path.cwd()
            now = (sys.stdout, sys.stderr)
            self._trial_streams = None if now == callers_streams else now
            # The caller gets its own streams back, and usable ones if the trial has closed them.
            sys.stdout = self._open(callers_streams[0], 1)
            sys.stderr = self._open(callers_streams[1], 2)
            if callers_folder is not None and callers_folder.is_dir():
                os.chdir(callers_folder)

    def _open(self, file: TextIO, stream: int) -> TextIO:
        """Return ``file``, or a new file for the descriptor ``stream``, 1 or 2, if the trial has closed ``file``.

        A new file writes where the descriptor pointed at the last `keep_outputs`. If the descriptor was closed then,
        ``file`` is returned as it is.
        """
        if not getattr(file, "closed", False) or stream not in self._output_copies:
            return file
        # closing the file has closed the descriptor, too
        os.dup2(self._output_copies[stream], stream)
        return open(
            stream, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
        )

    def keep_import_effects(self) -> None:
        """Make all later trials begin with the process-wide settings and the working folder that this process has now.

        Call it inside `inside`, after the author's modules were imported, which may have changed them. The settings are
        those of `sweep.state.settings`. Each call takes over the settings, but only the first one the folder.
        """
        if not self._has_imported:
            self._start_folder = Path.cwd()
            self._has_imported = True
        if self._only_trains:
            self._saved_settings.save_present()
        else:  # the saved settings are the caller's, so those of the import are kept as the difference from them
            self._import_settings = self._saved_settings.find_changed()

    def reset(self) -> None:
        """Undo what a trial has changed in the working folder, the standard streams and the settings.

        The file descriptors 1 and 2 are restored at once, and so are the settings, except in a shared process outside
        of `inside`. The working folder changes only at the next `inside`; but a process that only trains trials leaves
        a deleted one now, because Tune asks for it before. Settings that cannot be restored are added to `resisting`.
        """
        self._trial_folder, self._trial_streams = self._start_folder, None
        if self._only_trains and _get_current_folder() is None:
            with suppress(FileNotFoundError, NotADirectoryError):  # `check` reports this
                os.chdir(self._start_folder)
        for stream, copy in self._output_copies.items():
            os.dup2(copy, stream)
        self._trial_settings = self._import_settings
        # otherwise the settings are now the caller's, with nothing to undo
        if self._only_trains or self._is_inside:
            self.resisting += self._saved_settings.restore()
            settings.apply_settings(self._import_settings)


def _get_current_folder() -> Path | None:
    """Return the working folder of this process; None if it was deleted."""
    try:
        return Path.cwd()
    except FileNotFoundError:  # it was deleted
        return None


def _close_all(descriptors: tuple[int, ...]) -> None:
    """Close file descriptors."""
    for descriptor in descriptors:
        os.close(descriptor)


def _is_open(stream: int) -> bool:
    """Return whether the file descriptor ``stream`` is open."""
    try:
        os.fstat(stream)
    except OSError:
        return False
    return True
