"""The worker as Ray Tune's class trainable; Tune reuses its process for one trial after another."""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray
from ray import tune

from sweep.backends import memory
from sweep.backends.protocol import Job, Order, Progress
from sweep.backends.ray_tune import nodes, worker_exits
from sweep.backends.ray_tune.gang import Gang
from sweep.backends.worker import Worker
from sweep.contract import Devices
from sweep.events import Status, TrialEnded
from sweep.loading import make_importable


class TrialWorker(tune.Trainable):
    """Moves orders and progress between Tune and `sweep.backends.worker.Worker`.

    Tune sets actors up that it then never uses, and takes a failing `reset_config` for the trial's failure:
    both do nothing but note the order.
    """

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> tune.PlacementGroupFactory | None:
        """Return what the processes of an order's trial are given.

        Tune takes a worker for another one if that is equal.
        """
        if "order" not in config:  # Tune asks for the experiment as well
            return None
        job: Job = config["job"]
        shares = job.shares(config["order"].assignment.devices)
        return tune.PlacementGroupFactory([{"CPU": of.cpus} | ({"GPU": of.gpus} if of.gpus else {}) for of in shares])

    def setup(self, config: dict[str, Any]) -> None:
        """Note the first order."""
        job: Job = config["job"]
        order: Order = config["order"]
        with suppress(ValueError):  # not in the main thread
            # Whoever ends this process does not mean the trial: Ray's handler would raise SystemExit in its code.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._name = ray.get_runtime_context().get_actor_name() or f"{job.sweep}/worker-{order.assignment.trial}"
        if not order.assignment.devices.gpus or order.assignment.devices.simulated:
            os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # before TensorFlow looks
        self._job, self._trial = job, order.assignment.trial
        job.prepare()
        self._began = worker_exits.record(job)
        node = _here()
        room = config["room"] * (job.workers + job.aside)
        neighbours = at_once(order.assignment.devices, room, node.get("Resources", {}))
        whole = _whole(job, config)
        self._gang = gang = Gang(whole) if job.workers + job.aside > 1 else None
        self._worker = Worker(
            whole,
            reuse=config["reuse"],
            memory_bytes=memory.part(neighbours),
            make=None if gang is None else lambda: gang,
            labels=node.get("Labels"),
            leaving=nodes.Leaving() if config["watch"] else None,
        )
        self._take(order)
        self._spoilt = False
        self._id = uuid.uuid4().hex
        self._folder = Path(self.logdir)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Note the next order; Tune has made a folder for it, as for the one before."""
        with suppress(OSError):  # where the trainable wrote something into it
            self._folder.rmdir()
        self._folder = Path(self.logdir)
        new_config.pop("given", None)  # Tune sends the config back with each result
        self._take(new_config["order"])
        return True

    def cleanup(self) -> None:
        """Let go of the last trial, before Tune ends this process."""
        self._worker.close()
        if self._gang is not None:
            self._gang.close()

    def _without_results(self) -> Progress:
        folder = self._job.folder
        fault = f"node {socket.gethostname()} does not see {folder}, which all nodes must share"
        end = TrialEnded(trial=self._trial, status=Status.INTERRUPTED, reason=fault, time=time.time())
        return Progress(end=end, fault=fault)

    def _take(self, order: Order) -> None:
        self._trial = order.assignment.trial
        self._began(order.assignment.trial)
        self._worker.take(order)

    def step(self) -> dict[str, Any]:
        """Train to the next decision point."""
        if self._spoilt:
            # A worker whose trial failed must not train another: raising is Tune's way to end an actor.
            raise RuntimeError("this worker is replaced")
        if not self._job.folder.is_dir():  # a node that has joined since the sweep began
            return {"progress": self._without_results()}
        progress = self._worker.step()
        self._spoilt = progress.spoilt is not None
        notices = progress.notices + (self._gang.told() if self._gang is not None else ())
        return {"progress": dataclasses.replace(progress, worker=self._id, notices=notices)}

    def __repr__(self) -> str:
        """Return the name in the Ray dashboard: that of the actor, or else the sweep and the first trial."""
        return getattr(self, "_name", type(self).__name__)


def _whole(job: Job, config: dict[str, Any]) -> Job:
    """Return the job with the class or function that `backend.hand_over` has put aside."""
    if "given" not in config:
        return job
    make_importable(job.import_folders)  # what it imports may lie there
    return dataclasses.replace(job, given=ray.get(config.pop("given")))


def at_once(devices: Devices, room: int, node: Mapping[str, float]) -> int:
    """Return how many trials run at once on a node with these resources, of the ``room`` on all nodes."""
    rooms = [node.get(name, 0.0) / asked for name, asked in (("CPU", devices.cpus), ("GPU", devices.gpus)) if asked]
    return max(min(room, *map(int, rooms)), 1)


def _here() -> Mapping[str, Any]:
    """What Ray knows of the node on which this worker runs."""
    here = ray.get_runtime_context().get_node_id()
    return next((node for node in ray.nodes() if node["NodeID"] == here), {})
