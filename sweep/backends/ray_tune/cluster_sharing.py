"""How sweeps share a cluster: while one of them waits for room, each has its part; else, whatever there is.

Users have equal parts, and so have the sweeps of a user. A sweep that has more than its part gives up a worker when the
trial of that ends.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import ray
from ray.tune import Callback
from ray.tune.experiment import Trial
from ray.util.placement_group import placement_group_table

from sweep.backends.ray_tune import dashboard
from sweep.backends.ray_tune.dashboard import Driving
from sweep.contract import Devices
from sweep.errors import plural
from sweep.store.object_store import repeat

LOOK_S = 2.0
"""Between looks at who else is there."""
PATIENCE_S = 10.0
"""Before a sweep says that it waits."""


def share(fits: int, max_share: float | None) -> int:
    """Return how many of the trials that fit a sweep may run at once: at least one."""
    return fits if max_share is None else max(math.floor(max_share * fits + 1e-9), 1)


def part(fits: int, user: str, others: Sequence[Driving]) -> int:
    """Return how many of the trials that fit a user's sweep runs while others wait: at least one.

    Parts are rounded up, so that no room is left over.
    """
    users = len({user, *(other.user for other in others)})
    sweeps = 1 + sum(other.user == user for other in others)
    return max(math.ceil(fits / (users * sweeps)), 1)


class Sharing:
    """The part of one sweep, by what a thread sees of the others; `close` ends that."""

    def __init__(self, drivers: Callable[[], Sequence[Driving]], waits: Callable[[], bool]) -> None:
        """``drivers``: the sweeps on the cluster; ``waits``: whether anybody waits for room."""
        self._drivers, self._waits = drivers, waits
        self._user, self._job = dashboard.user(), ray.get_runtime_context().get_job_id()
        self.others: tuple[Driving, ...] = ()
        self._contested = False
        self.close = repeat(self.look, LOOK_S, "sweeps that share the cluster")

    def look(self) -> None:
        """See who is there, and whether anybody waits."""
        with suppress(Exception):  # a head that is away for a moment: the next look may do
            self.others = tuple(one for one in self._drivers() if one.job != self._job)
            self._contested = bool(self.others) and self._waits()

    def __call__(self, fits: int) -> int:
        """Return how many of the trials that fit are to run at once now."""
        return part(fits, self._user, self.others) if self._contested else fits


def anybody_waits() -> bool:
    """Return whether a worker, of whatever program, waits for room on the cluster."""
    return any(group["state"] == "PENDING" for group in placement_group_table().values())


class WaitsForRoom(Callback):
    """Says what a sweep waits for of which no trial runs; called by Tune in each turn of its loop."""

    def __init__(self, devices: Devices, sharing: Sharing, notice: Callable[[str], None]) -> None:
        self._devices, self._sharing, self._notice = devices, sharing, notice
        self._since, self._told = math.inf, set[tuple[str, ...]]()

    def on_step_end(self, iteration: int, trials: Sequence[Trial], **info: object) -> None:
        """Say it once a while has gone by, and again for others who have the room."""
        states = {trial.status for trial in trials}
        if Trial.RUNNING in states or Trial.PENDING not in states:
            self._since = math.inf
            return
        now = time.monotonic()
        self._since = min(self._since, now)
        others = tuple(one.job for one in self._sharing.others)
        if now - self._since > PATIENCE_S and others not in self._told:
            self._told.add(others)
            self._notice(waits_for(self._devices, ray.available_resources(), self._sharing.others))


def waits_for(devices: Devices, free: dict[str, float], others: Sequence[Driving]) -> str:
    """Return what a sweep waits for, and who has it."""
    asked = [("CPU", devices.cpus), ("GPU", devices.gpus)]
    each = " and ".join(f"{count:g} {name}" for name, count in asked if count)
    there = " and ".join(f"{free.get(name, 0.0):g} {name}" for name, count in asked if count)
    held = ", ".join(f"{one.user}/{one.sweep} runs {one.running} {plural('trial', one.running)}" for one in others)
    who = held or "no other sweep is there: other programs have it, or its nodes are yet to come"
    return f"waits for room: a trial takes {each}, {there} are free on all nodes together; {who}"
