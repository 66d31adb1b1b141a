"""Waits for a sweep that another process runs, from its log alone."""

from __future__ import annotations

import time
from dataclasses import dataclass

from sweep.analysis import conditions
from sweep.analysis.conditions import Condition
from sweep.analysis.live_status import LogReader, Standing
from sweep.analysis.ranking import Ranking
from sweep.runner.resuming import StoredSweep
from sweep.store.ledger import naming

# looks without a driver after which it has ended: the confirmation is a session of its own
SETTLE_LOOKS = 2


@dataclass(frozen=True, slots=True)
class Waited:
    """Why the waiting ended: the condition is met, the sweep has ended without that, or the time is over."""

    reached: bool
    running: bool
    waited_s: float


def wait_until(
    sweep: StoredSweep, condition: Condition, *, timeout_s: float | None, interval_s: float
) -> Waited:
    """Wait until the condition is met, no process runs the sweep any more, or ``timeout_s`` has passed.

    Looks every ``interval_s`` seconds, the first time at once; `Waited` says which of the three was first. The sweep
    counts as ended after two looks without a process, or after one if ``timeout_s`` has passed by then; the condition
    ``finished`` is not met before. A ``timeout_s`` of None is no limit.

    Raises `StoreError` if the log is damaged.
    """
    watch = _Watch(sweep)
    began = time.monotonic()
    looks_without_driver = 0
    while True:
        # before reading the log, so that the last events are not missed
        running = sweep.folder.is_running()
        watch.read_on()
        if running:
            looks_without_driver = 0
        else:
            looks_without_driver += 1
        waited_s = time.monotonic() - began
        is_timed_out = timeout_s is not None and waited_s >= timeout_s
        # once the time is over, there is no second look
        ended = looks_without_driver >= (1 if is_timed_out else SETTLE_LOOKS)
        is_due = ended or condition.kind != "finished"  # another session may follow the end of one
        if is_due and watch.holds(condition):
            return Waited(True, running, waited_s)
        if ended or is_timed_out:
            return Waited(False, running, waited_s)
        if timeout_s is None:
            pause_s = interval_s
        else:
            pause_s = min(interval_s, max(timeout_s - waited_s, 0.0))
        time.sleep(pause_s)


class _Watch:
    """The state of a sweep, kept up to date with its log."""

    def __init__(self, sweep: StoredSweep) -> None:
        self._folder = sweep.folder
        self._outline = sweep.outline
        self._reader = LogReader(sweep.folder)
        self._standing = Standing(self._outline)
        # number of ended trials, and whether they gave a verdict
        self._judged: tuple[int, bool] | None = None

    def read_on(self) -> None:
        """Update the state with the new events of the log; begin anew if the log was replaced.

        Raises `StoreError` if the log is damaged.
        """
        with naming(self._folder.log):
            while True:
                events = self._reader.more()
                if events is None:  # the log was replaced, and is read from its beginning
                    self._standing = Standing(self._outline)
                    self._judged = None
                    continue
                if not events:  # nothing is new
                    return
                for event in events:
                    self._standing.observe(event)

    def holds(self, condition: Condition) -> bool:
        """Return whether a condition is met in the state that `read_on` has read.

        For the condition ``verdict``, the ranking is read from the folder, and only if the number of ended trials has
        changed, or the log was replaced, since the last call. Always pass the same condition.
        """
        if condition.kind != "verdict":
            return conditions.is_met(condition, self._standing, self._read_ranking)
        ended = self._standing.finished  # number of trials
        # a ranking takes a while; only ended trials change it
        if self._judged is None or self._judged[0] != ended:
            self._judged = ended, conditions.is_met(condition, self._standing, self._read_ranking)
        _, is_met = self._judged
        return is_met

    def _read_ranking(self) -> Ranking:
        """Return the ranking of the sweep as it is now, computed from its folder."""
        return conditions.read_ranking(self._folder)
