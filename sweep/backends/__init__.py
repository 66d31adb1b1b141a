"""Data passed between a sweep and its workers: the job of a session, orders, progress and new shares of a GPU.

A `Driver` hands out trials and a `Backend` trains them; neither knows more about the other than is defined here.

Driver and workers exchange messages by files. If machines do not share a folder, each one watches files of its own,
and a session's stop and share files are copied through the object store. The folder in which the workers of one
machine share data is named by the sweep and deleted with its session.
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
