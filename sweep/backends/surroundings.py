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
        self._alone = alone
        if folder is not None and folder.is_dir():
            self._start = folder
        else:
            self._start = Path.cwd()
        self._imported = False
        self._at = self._start  # working folder of the present trial
        # streams that the trial has put in place of Python's own
        self._streams: tuple[TextIO, TextIO] | None = None
        self._outputs: dict[int, int] = {}  # copies of the file descriptors 1 and 2
        self._close_outputs = weakref.finalize(self, _close_all, ())
        self.keep_outputs()
        # What a library sets while a trial imports it later belongs to all trials, and is not undone with the trial's.
        self._settings = imports.adopt_library_settings(settings.SavedSettings())
        self._of_import: settings.Values = {}  # settings made by importing the author's code, if the process is shared
        self._of_trial: settings.Values = {}  # settings made by the present trial
        self._is_inside = False
        self.resisting: list[str] = []  # settings that a trial has changed permanently

    def keep_outputs(self) -> None:
        """Make every later trial begin with the standard output and standard error that this process has now."""
        self._close_outputs()
        # A process may have been started with closed outputs.
        self._outputs = {stream: os.dup(stream) for stream in (1, 2) if _is_open(stream)}
        self._close_outputs = weakref.finalize(self, _close_all, tuple(self._outputs.values()))

    def check(self) -> None:
        """Raise FileNotFoundError if neither the trial's folder nor the one in which trials begin exists."""
        if not (self._at.is_dir() or self._start.is_dir()):
            raise FileNotFoundError(f"{self._start}, in which trials begin, is no longer there")

    @contextmanager
    def inside(self, *, anyhow: bool = False) -> Iterator[None]:
        """Use the trial's working folder, streams and settings inside the block; restore the caller's afterwards.

        In a process that only trains trials, the trial's folder and settings stay after the block. Reads inside the
        block are recorded as the trial's. If the trial's folder and the one in which trials begin are both gone,
        FileNotFoundError is raised or, with ``anyhow``, the block runs in the present folder. With ``anyhow``, the
        caller must therefore call `check`.
        """
        back = None if self._alone else _get_current_folder()  # the caller's folder
        before = (sys.stdout, sys.stderr)  # the caller's streams
        if not anyhow:
            self.check()
        with suppress(FileNotFoundError, NotADirectoryError):  # `check` reports this
            os.chdir(self._at if self._at.is_dir() else self._start)
        sys.stdout, sys.stderr = self._streams or before
        if not self._alone:
            self._settings.save_present()  # the caller's, restored below
            settings.apply_settings(self._of_trial)
        self._is_inside = True
        try:
            with recorder.in_trial():
                yield
        finally:
            self._is_inside = False
            if not self._alone:
                self._of_trial = self._settings.find_changed()  # before the next line undoes them
                self._settings.restore()
            with suppress(FileNotFoundError):  # the trial has deleted it
                self._at = Path.cwd()
            now = (sys.stdout, sys.stderr)
            self._streams = None if now == before else now
            # The caller gets its own streams back, and usable ones if the trial has closed them.
            sys.stdout = self._open(before[0], 1)
            sys.stderr = self._open(before[1], 2)
            if back is not None and back.is_dir():
                os.chdir(back)

    def _open(self, file: TextIO, stream: int) -> TextIO:
        """Return ``file``, or a new file for the descriptor ``stream``, 1 or 2, if the trial has closed ``file``."""
        if not getattr(file, "closed", False) or stream not in self._outputs:
            return file
        os.dup2(self._outputs[stream], stream)  # closing the file has closed the descriptor, too
        return open(
            stream, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
        )

    def keep_import_effects(self) -> None:
        """Make all later trials begin with the process-wide settings and the working folder that this process has now.

        Call it inside `inside`, after the author's modules were imported, which may have changed them. The settings are
        those of `sweep.state.settings`. Each call takes over the settings, but only the first one the folder.
        """
        if not self._imported:
            self._start = Path.cwd()
            self._imported = True
        if self._alone:
            self._settings.save_present()
        else:  # the saved settings are the caller's, so those of the import are kept as the difference from them
            self._of_import = self._settings.find_changed()

    def reset(self) -> None:
        """Undo what a trial has changed in the working folder, the standard streams and the settings.

        The working folder, and in a shared process the settings, are those of a new trial only at the next `inside`;
        but a process that only trains trials leaves a folder that was deleted now, because Tune asks for it before.
        Settings that cannot be restored are added to `resisting`.
        """
        self._at, self._streams = self._start, None
        if self._alone and _get_current_folder() is None:
            with suppress(FileNotFoundError, NotADirectoryError):  # `check` reports this
                os.chdir(self._start)
        for stream, copy in self._outputs.items():
            os.dup2(copy, stream)
        self._of_trial = self._of_import
        # otherwise the settings are now the caller's, with nothing to undo
        if self._alone or self._is_inside:
            self.resisting += self._settings.restore()
            settings.apply_settings(self._of_import)


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
