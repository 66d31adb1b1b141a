"""The worker as a class trainable of Ray Tune, which reuses its process for one trial after another."""

from __future__ import annotations

import dataclasses
import os
import socket
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray import tune

from sweep.backends import Ends, Job, Order, Steps, WorkerNode, inputs, is_released, memory
from sweep.backends.group import WorkerGroup
from sweep.backends.ray_tune import nodes, worker_exits
from sweep.backends.ray_tune.gang import Gang
from sweep.backends.ray_tune.output_capture import OutputCapture
from sweep.backends.ray_tune.worker_settings import WorkerSettings
from sweep.backends.worker import Worker
from sweep.contract import Devices, Trainable
from sweep.errors import WorkerLost, in_short
from sweep.events import Status, TrialEnded
from sweep.functions import make_importable


class TrialWorker(tune.Trainable):
    """A worker as Tune knows it: passes orders to a `sweep.backends.worker.Worker` and its progress to Tune.

    Tune calls `setup` for actors that it may never use, and treats an exception in `reset_config` as a failure of the
    trial. These two methods therefore prepare the process and store orders, but begin no trial.
    """

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> tune.PlacementGroupFactory | None:
        """Return the resources that Tune must reserve for the processes of the first trial in ``config["orders"]``.

        There is one bundle for each process, by rank. Return None if ``config`` has no orders. Tune reuses a worker for
        another trial if their resources are equal.
        """
        if "orders" not in config:  # Tune also asks for the experiment
            return None
        job: Job = config["job"]
        bundles = []  # one for each process, ordered by rank
        for share in job.shares(config["orders"][0].assignment.devices):
            bundle = {"CPU": share.cpus}
            if share.gpus:
                bundle["GPU"] = share.gpus
            bundles.append(bundle)
        return tune.PlacementGroupFactory(bundles)

    def setup(self, config: dict[str, Any]) -> None:
        """Prepare the process, begin the session and store the first orders, without beginning their trials.

        ``config`` is a result of `DriverSearcher.suggest`, which has the orders as ``config["orders"]``; for its other
        keys, see `_begin_session`. Beginning the session creates the worker group, and records from now on what this
        process prints and how it ends. The working folder becomes again the one from which Tune was started, because
        Tune has changed to a folder of the trial.
        """
        job: Job = config["job"]
        orders: Sequence[Order] = config["orders"]
        order = orders[0]
        # The actor has a name if this Ray allows it, see `adapters.name_workers`.
        self._name = (
            ray.get_runtime_context().get_actor_name()
            or f"{job.sweep}/worker-{order.assignment.trial}"
        )
        nodes.prepare_process(order.assignment.devices)
        # Tune has changed to a folder of the trial, in which the author's relative paths would be wrong.
        os.chdir(os.environ.get("TUNE_ORIG_WORKING_DIR", os.curdir))
        self._settings = WorkerSettings.of(order.assignment)
        self._begin_session(config, earlier=None)
        self._take(orders)
        self._id = uuid.uuid4().hex
        self._folder = Path(self.logdir)

    def _begin_session(self, config: dict[str, Any], earlier: Worker | None) -> None:
        """Create the worker group of a session, and record from now on what this process prints and how it ends.

        ``config`` is a result of `DriverSearcher.suggest`. Its keys are ``job``, ``orders``, ``room`` (how many workers
        may exist), ``reuse`` (whether trials may use the trainable of earlier ones), ``watch`` (whether nodes may be
        taken away) and, if the trainable itself was passed, ``given``, a reference to it, which is removed. With
        ``earlier``, a worker of the session before, its trainable is used, unless a trial has several processes.
        """
        job: Job = config["job"]
        devices: Devices = config["orders"][0].assignment.devices
        self._job = job
        job.prepare()
        self._note_begin = worker_exits.record_exit(job)
        # before the workers, which restore the outputs that they find
        self._output = _capture_output(job)
        here = _describe_node()
        processes = job.workers + job.aside  # of each trial
        # Processes at once on this machine, which divide its memory.
        neighbours = count_trials_at_once(
            devices, config["room"] * processes, here.get("Resources", {})
        )
        complete_job = _complete_job(job, config)
        # of a trial with several processes: a trainable that trains with all of them
        self._gang = gang = Gang(complete_job) if processes > 1 else None
        labels = here.get("Labels") or {}
        # Only machines of a cluster are taken away; the machine of a local Ray is not watched.
        node = WorkerNode(labels, nodes.DrainWatcher()) if config["watch"] else WorkerNode(labels)

        # The group calls it whenever it needs another worker, with None for the job's own trainable.
        def make_worker(make_trainable: Callable[[], Trainable] | None) -> Worker:
            create = partial(
                Worker,
                complete_job,
                reuse=config["reuse"],
                memory_bytes=memory.divide_memory(neighbours),
                node=node,
            )
            if gang is not None:  # kept over the trials: its other processes stay connected
                return create(make=lambda: gang)
            worker = create(make=make_trainable)
            if earlier is not None:
                worker.take_over(earlier)
            return worker

        self._group = WorkerGroup(complete_job, make_worker)
        self._keep_error: WorkerLost | None = None  # of the last `keep`, for the next step

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Release the present trials and store the orders ``new_config["orders"]``; return True.

        ``new_config`` is a result of `DriverSearcher.suggest`, from which ``given`` is removed. The folder that Tune
        made for the ended trials is deleted if it is empty. If the orders are of another session, this worker begins
        that session with its present trainable.
        """
        with suppress(OSError):  # the trainable wrote something into it
            self._folder.rmdir()
        self._folder = Path(self.logdir)
        if new_config["job"].session != self._job.session:  # see `kept_workers`
            inputs.continue_record(new_config["job"])
            self._begin_session(new_config, earlier=self._group.idle_worker)
        new_config.pop("given", None)  # otherwise Tune would send it back with each result
        self._take(new_config["orders"])
        return True

    def rest(self) -> None:
        """Release the last trials, end this worker's session and restore standard output, but keep the trainable.

        Another session can use the trainable: its `reset_config` must be called before the next step. Call this once.
        """
        self._group.keep([])
        self._group.close()
        if self._output is not None:
            self._output.close()

    def find_hindrance(self, job: Job, settings: WorkerSettings) -> str | None:
        """Return why this worker cannot train trials of another session, ``job``; None if it can.

        It cannot if the job, its code or ``settings``, those of its trials, differ from the present ones, if this
        worker has no trainable of earlier trials, or if something that was read here has changed. Raises TrainableError
        for an invalid ``depends_on``.
        """
        same = (
            "trainable",
            "import_folders",
            "working_folder",
            "data_seed",
            "workers",
            "servers",
            "together",
        )
        for name in same:
            if getattr(job, name) != getattr(self._job, name):
                return f"{name} is another"
        if settings != self._settings:
            return "its devices or its training block are others"
        if (job.code, job.digest) != (self._job.code, self._job.digest):
            return "the code has changed"
        worker = self._group.idle_worker
        if worker is None:
            return "it has trained no trial"
        return worker.find_hindrance(job)

    def cleanup(self) -> None:
        """Release the last trials and end the processes of their other ranks; Tune calls it before it ends this one."""
        self._group.close()
        if self._gang is not None:
            self._gang.close()

    def keep(self, trials: Sequence[int], more: Sequence[Order]) -> None:
        """Release all trials except those with the numbers ``trials``, and accept the trials of ``more``.

        Nobody reads the result of this call. Any exception is therefore raised by the next step, as WorkerLost.
        """
        self._trials = [*trials, *(order.assignment.trial for order in more)]
        try:
            self._group.keep(trials)
            self._group.take(more)
        except Exception as error:
            self._keep_error = WorkerLost(in_short(error))
            self._keep_error.__cause__ = error

    def _interrupt_all(self) -> Steps:
        """Return the result of a step in which all trials are interrupted, because this node lacks the results folder.

        Each has a fault, which ends the whole sweep. The worker group is not changed.
        """
        folder = self._job.folder
        fault = f"node {socket.gethostname()} does not see {folder}, which all nodes must share"

        def end(trial: int) -> Ends:
            ended = TrialEnded(
                trial=trial, status=Status.INTERRUPTED, reason=fault, time=time.time()
            )
            return Ends(end=ended, fault=fault)

        return Steps({trial: end(trial) for trial in self._trials})

    def _take(self, orders: Sequence[Order]) -> None:
        """Release the present trials and accept those of ``orders``, at least one; nothing is trained yet.

        The first trial is recorded in the file of `worker_exits.record_exit`. Output of the earlier trials that was not
        sent is discarded. If trials may be trained together, this may import and create the trainable, and raises what
        that raises.
        """
        self._trials = [order.assignment.trial for order in orders]
        # by its first trial, the driver finds out how this worker has ended
        self._note_begin(self._trials[0])
        self._group.keep([])
        if self._output is not None:
            self._output.begin_trial()
        self._group.take(orders)

    def step(self) -> dict[str, Any]:
        """Train all trials to their next decision; return their progress for the driver, a `Steps` under ``steps``.

        The progress of each trial has the id of this worker and what the whole process has printed since the last step.
        After a failed trial, the worker still trains its other trials, but gets no new ones. If its node lacks the
        results folder, nothing is trained, and all trials are interrupted.

        Raises:
            RuntimeError: if it has no trial any more, which is how Tune learns that it ends.
            WorkerLost: if another rank is lost, or the last `keep` has failed.
        """
        if not self._job.folder.is_dir():  # a node that has joined since the sweep began
            return {"steps": self._interrupt_all()}
        if self._keep_error is not None:
            raise self._keep_error
        if self._group.is_idle:
            # Its trial failed, or another sweep wants its room; raising is Tune's way to end an actor.
            raise RuntimeError("this worker has no trial any more")
        steps = self._group.step()
        # lines about other processes that were lost and replaced
        gang_notices = () if self._gang is None else self._gang.told()
        trial_ends = any(is_released(progress) for progress in steps.found.values())
        # Of all trials, because nobody can tell which of them has printed what in their common process.
        output = "" if self._output is None else self._output.take(trial_ends=trial_ends)
        found = {}
        for trial, progress in steps.found.items():
            notices = progress.notices + gang_notices
            found[trial] = dataclasses.replace(
                progress, worker=self._id, notices=notices, output=output
            )
        return {"steps": dataclasses.replace(steps, found=found)}

    def __repr__(self) -> str:
        """Return the worker's name in the Ray dashboard: that of the actor, else of the sweep and the first trial.

        Before `setup` it is the name of the class.
        """
        return getattr(self, "_name", type(self).__name__)


def _capture_output(job: Job) -> OutputCapture | None:
    """Start to collect what this process prints; return None if the file for it cannot be created."""
    try:
        return OutputCapture(worker_exits.get_output_file(job))
    except OSError:
        return None


def _complete_job(job: Job, config: dict[str, Any]) -> Job:
    """Return the job with the trainable to which ``config["given"]`` is a reference; ``job`` itself without that key.

    The reference, to a class or function in Ray's object store, is removed from ``config``, and the job's import
    folders are put on the import path.
    """
    if "given" not in config:
        return job
    make_importable(job.import_folders)  # its imports may be there
    return dataclasses.replace(job, given=ray.get(config.pop("given")))


def count_trials_at_once(devices: Devices, room: int, node: Mapping[str, float]) -> int:
    """Return how many of ``room`` processes run at once on a node with the resources ``node``, at least 1.

    ``node`` has them by Ray's names, ``CPU`` and ``GPU``; each process takes ``devices``. Raises ValueError if that are
    neither CPUs nor GPUs.
    """
    return max(min(room, devices.fits(node.get("CPU", 0.0), node.get("GPU", 0.0))), 1)


def _describe_node() -> Mapping[str, Any]:
    """Return Ray's description of the node on which this worker runs; empty if Ray does not know it."""
    here = ray.get_runtime_context().get_node_id()
    return next((node for node in ray.nodes() if node["NodeID"] == here), {})
