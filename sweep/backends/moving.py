"""Whether a running trial is to go on in another worker, with another share of a GPU.

The driver writes which ones are, and a worker looks after each epoch of a trial whose share is not fixed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress

from sweep.backends.job import Job
from sweep.backends.orders import Order
from sweep.events import EpochReported

MOVE_S = 15.0
"""About what it takes to go on in a new process: a trial that needs no longer ends where it is."""


def tell(job: Job, wanted: Mapping[int, float]) -> None:
    """Let these trials go on with these shares."""
    aside = job.share_file.with_suffix(".new")
    with suppress(OSError):  # a full disk: they go on as they are
        aside.write_text(json.dumps(wanted))
        aside.replace(job.share_file)


def wanted_elsewhere(job: Job, order: Order, epoch: EpochReported) -> bool:
    """Whether a trial is told another share than it has, and is worth moving after this epoch."""
    given = order.assignment
    if not order.shares or (given.epochs - epoch.epoch) * epoch.time_s < MOVE_S:
        return False
    try:
        wanted = json.loads(job.share_file.read_text())
    except (OSError, ValueError):  # nobody is told anything
        return False
    share = wanted.get(str(given.trial))
    return share is not None and share != given.devices.gpus
