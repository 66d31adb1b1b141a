"""The file that tells running trials their new shares of a GPU."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress

from sweep.backends.job import Job
from sweep.backends.protocol import Order
from sweep.errors import StoreError
from sweep.events import EpochReported
from sweep.progress import get_share
from sweep.store.disk import replacing

MOVE_S = 15.0
"""Approximate time to continue in a new process; trials that need less than this stay where they are."""


def write_shares(job: Job, shares: Mapping[int, float]) -> None:
    """Write the new GPU shares of running trials, by trial number, in place of all that were written before.

    Their workers read the file; a trial that is left out keeps the share that it has. If writing fails, as on a full
    disk, nothing is raised, and the shares that were written before still apply.
    """
    with suppress(StoreError), replacing(job.share_file) as aside:
        aside.write_text(json.dumps(shares))


def must_move(job: Job, order: Order, epoch: EpochReported) -> bool:
    """Return whether a trial must continue in another worker, because it has another GPU share now.

    ``epoch`` is its last report. A worker cannot change the share of its process. A trial with less than `MOVE_S`
    seconds left to train stays: the time of all its epochs that are left, each as long as the last one, or what is left
    of its minutes, whichever is less. A trial also stays if its ``order`` does not say that its share may change
    (`Order.shares`), if no new share was written for it, or if the share file cannot be read.
    """
    assignment = order.assignment
    left_s = (assignment.epochs - epoch.epoch) * epoch.time_s
    used_share = get_share(epoch.measures)  # of its minutes, if these are limited
    if used_share is not None and assignment.minutes is not None:
        left_s = min(left_s, (1 - used_share) * 60 * assignment.minutes)
    if not order.shares or left_s < MOVE_S:
        return False
    try:
        shares = json.loads(job.share_file.read_text())
    except (OSError, ValueError):  # no new shares were written
        return False
    share = shares.get(str(assignment.trial))  # in JSON, keys are texts
    return share is not None and share != assignment.devices.gpus
