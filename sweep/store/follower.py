"""A thread that keeps files up to date with the log of a sweep."""

from __future__ import annotations

import logging
import threading
import time

from sweep.store.closing import Closing

REST = 20  # least pause between updates, as a multiple of the last one's duration


class Follower(Closing):
    """Calls `update` in a thread, to keep files up to date with the log of a sweep.

    The files are derived only from the log. The longer an update takes, the less often there is one. An update that
    fails, as on a full disk, is logged in the debug log, and the next one starts over. `close` does the last update
    itself and raises its errors.
    """

    def __init__(self, files: str, period_s: float) -> None:
        self._files, self._period_s = files, period_s
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._follow, name=f"sweep {files}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the thread, update the files to the end of the log and call `drop`.

        Waits for an update that is in progress. Raises any error of the last update, after `drop`.
        """
        self._closing.set()
        self._thread.join()
        try:
            self.update()
        finally:
            self.drop()

    def update(self) -> None:
        """Update the files with what is new in the log. Subclasses must implement it."""
        raise NotImplementedError  # subclasses implement it

    def drop(self) -> None:
        """Discard what earlier updates have read, so that the next one starts over. Subclasses must implement it."""
        raise NotImplementedError  # subclasses implement it

    def _follow(self) -> None:
        """Update the files again and again until `close` is called; after an error, log it and start over.

        The pause before an update is the period, or `REST` times as long as the last update took if that is longer.
        """
        pause_s = self._period_s
        while not self._closing.wait(pause_s):
            started = time.perf_counter()
            try:
                self.update()
            except Exception:  # the sweep continues, and `close` tries again
                logging.getLogger(__name__).exception("the %s could not be written", self._files)
                self.drop()
            pause_s = max(self._period_s, REST * (time.perf_counter() - started))
