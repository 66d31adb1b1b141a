"""Where a trial's time went before it trained."""

from __future__ import annotations

import time


class Stopwatch:
    """Seconds by part, added up lap by lap."""

    def __init__(self) -> None:
        self.started = time.time()
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def begin(self) -> None:
        """Let the next lap begin now."""
        self._last = time.perf_counter()

    def lap(self, part: str) -> None:
        """Count the time since the last lap as this part's."""
        now = time.perf_counter()
        self.laps[part] = self.laps.get(part, 0.0) + now - self._last
        self._last = now
