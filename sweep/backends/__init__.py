"""Data passed between a sweep and its workers: the job of a session, orders, progress and new shares of a GPU.

A `Driver` hands out trials and a `Backend` trains them; this package defines everything that passes between the two.

The driver sends messages to running workers by two files of the session, the stop file and the share file. If machines
share no folder, these files are copied to each of them through the object store. The folder in which the workers of one
machine share data is named by the driver and deleted when the session ends.
"""

from sweep.backends.gpu_shares import MOVE_S, must_move, write_shares
from sweep.backends.job import SHARE_FILE, STOP_FILE, Job
from sweep.backends.protocol import (
    Backend,
    Continues,
    Crowded,
    Driver,
    Ends,
    Lost,
    Moves,
    Order,
    Outgrown,
    Progress,
    SameData,
    Steps,
    SweepStatus,
    WorkerNode,
    is_released,
    refill,
    request_orders,
)
from sweep.backends.shared_data import remove_shared_data, shared_data_name, shared_data_prefix
from sweep.backends.surroundings import Surroundings

__all__ = [
    "MOVE_S",
    "SHARE_FILE",
    "STOP_FILE",
    "Backend",
    "Continues",
    "Crowded",
    "Driver",
    "Ends",
    "Job",
    "Lost",
    "Moves",
    "Order",
    "Outgrown",
    "Progress",
    "SameData",
    "Steps",
    "Surroundings",
    "SweepStatus",
    "WorkerNode",
    "is_released",
    "must_move",
    "refill",
    "remove_shared_data",
    "request_orders",
    "shared_data_name",
    "shared_data_prefix",
    "write_shares",
]
