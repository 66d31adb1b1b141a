"""Keeps the Parquet files of a running sweep fresh, beside the sweep and never in its way."""

from __future__ import annotations

import logging
import threading
import time
from types import TracebackType

from sweep.store.folder import ResultsFolder
from sweep.store.tables import TableBuilder

FIRST_S = 2.0
REST = 20  # times as long as the last write took


class TableWriter:
    """A thread that follows the log and rewrites both tables, less often the longer that takes.

    The tables come from the log and only from it: an update that fails (a full disk) is noted in the debug
    log and the next one starts over. `close` makes the last update itself and raises what goes wrong in it.
    """

    def __init__(self, folder: ResultsFolder, *, first_s: float = FIRST_S) -> None:
        self._folder = folder
        self._period_s = first_s
        self._builder: TableBuilder | None = None
        self._written = -1  # bytes of the log in the files
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="sweep-tables", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Bring the files up to the end of the log. Raises `StoreError`, or whatever kept failing."""
        self._closing.set()
        self._thread.join()
        self._update()

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _follow(self) -> None:
        pause_s = self._period_s
        while not self._closing.wait(pause_s):
            started = time.perf_counter()
            try:
                self._update()
            except Exception:  # the sweep goes on, and `close` tries again
                logging.getLogger(__name__).exception("the tables could not be written")
                self._builder = None
            pause_s = max(self._period_s, REST * (time.perf_counter() - started))

    def _update(self) -> None:
        if self._builder is None:
            self._builder, self._written = TableBuilder.of(self._folder), -1
        observed = self._builder.follow(self._folder.log)
        if observed != self._written:
            self._builder.write(self._folder)
            self._written = observed
