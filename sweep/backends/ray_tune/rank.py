"""A process that trains a trial together with rank 0: an actor in another bundle of the trial's placement group."""

from __future__ import annotations

import dataclasses
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ray

from sweep import errors
from sweep.backends import Job, Surroundings, checkpoints, inputs, memory
from sweep.backends.ray_tune import nodes, worker_exits
from sweep.contract import (
    Assignment,
    Devices,
    Diverged,
    EpochReported,
    Facts,
    Ranked,
    Stopped,
    Trainable,
    Value,
)
from sweep.functions import RANKED_METHODS, load_trainable
from sweep.state import imports

FROZEN_S = 20.0
"""Seconds after which rank 0 is considered frozen if it has not ended its peers since one of them failed."""

_CONSEQUENCES = frozenset(
    {
        *(
            "UnavailableError",
            "AbortedError",
            "CancelledError",
            "UnknownError",
            "DeadlineExceededError",
        ),
        "PSUnavailableError",
    }
)
"""Names of TensorFlow's errors that only mean that another rank did not join a sum; TensorFlow is not imported."""


@dataclasses.dataclass(frozen=True, slots=True)
class CallResult:
    """Result of a call that can be sent to another process: ``value``, or an error in words."""

    value: Any = None
    error: str = ""  # name of its type
    text: str = ""
    trace: str = ""
    is_end: bool = False  # the trial has ended, on all ranks alike
    is_short: bool = False  # out of memory
    is_consequence: bool = False  # caused by what happened to another rank


def call_and_capture(function: Callable[[], Any]) -> tuple[CallResult, BaseException | None]:
    """Call a function; return its result and, if it has raised any exception, this exception, otherwise None.

    The result has the function's value or the exception in words. Nothing is raised, not even KeyboardInterrupt or
    SystemExit.
    """
    try:
        return CallResult(function()), None
    except BaseException as error:  # any error of the user's code, as in `Worker.step`
        kind = type(error).__name__
        return CallResult(
            error=kind,
            text=errors.describe_without_type(error),
            trace=errors.folded_traceback(error),
            is_end=isinstance(error, Diverged | Stopped),
            is_short=memory.is_out_of_memory(error),
            is_consequence=kind in _CONSEQUENCES,
        ), error


def prepare_rank(job: Job, before: str = "") -> tuple[Trainable, socket.socket, str]:
    """Load the trainable of this process and reserve a port; return (trainable, socket of the port, its address).

    ``before`` is the address of the process that this one replaces, ``""`` for any port. Raises TypeError if the
    trainable trains in one process only, OSError if the address is not available, and what the import raises.
    """
    trainable: Trainable = load_trainable(
        job.trainable, job.import_folders, job.given, seed=job.data_seed
    )()
    missing = [name for name in RANKED_METHODS if not callable(getattr(trainable, name, None))]
    if missing:
        raise TypeError(
            f"a trial has {job.workers + job.aside} processes, and {job.trainable} trains in one process: it has no "
            f"{' and no '.join(f'{name}()' for name in missing)}, see sweep.contract.Ranked"
        )
    return trainable, *nodes.hold_port(before)


class TrialRank:
    """The actor of a peer: it does in its process what rank 0 does. Ray's process titles begin with this name."""

    def __init__(self, job: Job, rank: int, devices: Devices, first: Any) -> None:
        """Prepare the process of the peer ``rank``; ``first`` is the actor that is rank 0.

        From now on, what this process reads and how it ends is recorded, and imports are seeded.
        """
        # before anything imports TensorFlow, which then sees the right GPUs
        nodes.prepare_process(devices)
        self._job, self._rank, self._rank_0 = job, rank, first
        job.prepare()
        self._note_begin = worker_exits.record_exit(job)
        inputs.record_reads(job, is_own_process=True)
        self._surroundings = Surroundings(job.working_folder, alone=True)
        self._calls = 0  # number of calls that all ranks make together
        imports.start_seeding(job.data_seed)  # for the life of this process

    def ready(self) -> CallResult:
        """Load the trainable and reserve a port; the result has the address ``host:port``, or the error if this fails.

        The port stays reserved as long as this process lives.
        """

        def get_ready() -> str:
            return self._load()

        return call_and_capture(get_ready)[0]

    def join(self, devices: Devices, training: Mapping[str, Value]) -> CallResult:
        """Connect to the other ranks, which must call this too; the result has the name of this rank's node.

        ``devices`` are those of this process, also for later trials. If this fails, the result has the error, and this
        rank disconnects.
        """
        self._devices = devices

        def join() -> str:
            self._ranked.join(devices, training)
            self._surroundings.keep_import_effects()  # settings made here belong to no trial
            return socket.gethostname()

        return self._run_on_all_ranks(join)

    def come_back(self, before: str, devices: Devices, training: Mapping[str, Value]) -> CallResult:
        """Load the trainable and connect at the address ``before`` of a lost rank, which this one replaces.

        It takes the place of `ready` and `join`, without waiting for other ranks. The result has no value, or the error
        if this fails.
        """

        def come() -> None:
            self._load(before)
            self._ranked.join(devices, training)

        return call_and_capture(come)[0]

    def heartbeat(self) -> CallResult:
        """Return an empty result, as a sign of life."""
        return CallResult()

    def begin(self, assignment: Assignment) -> CallResult:
        """Begin a trial; the result has this rank's node, devices and fingerprint of the data as `Facts`.

        The other ranks must call this too. What the trial before has changed in the process is undone. If this fails,
        the result has the error, and this rank disconnects, except if the trial has only ended.
        """
        self._note_begin(assignment.trial)  # in the file in which this process writes how it ends
        self._surroundings.reset()
        # A folder of its own for each rank; None if the trial is not profiled.
        profile = assignment.profile and assignment.profile / f"rank-{self._rank}"
        given = dataclasses.replace(assignment, devices=self._devices, profile=profile)

        def begin() -> Facts:
            self._trainable.begin(given)
            facts = self._trainable.facts()
            return Facts(node=facts.node, devices=facts.devices, data=facts.data)

        return self._run_on_all_ranks(begin)

    def restore(self, folder: Path) -> CallResult:
        """Continue from the checkpoint in ``folder``, which rank 0 has chosen; the result has its epoch.

        ``folder`` is its path on rank 0's node. It is copied from the object store if this node lacks it. No rank waits
        for another one here. If this fails, the result has the error.
        """

        def restore() -> int:
            here = checkpoints.ensure_local(self._job.folder, folder)
            with self._surroundings.inside():
                return self._trainable.restore(here)

        return call_and_capture(restore)[0]

    def epoch(self) -> CallResult:
        """Train one more epoch; the result has (its number, its exact loss as text), or None if there is none left.

        The other ranks must call this too. If this fails, the result has the error, and this rank disconnects, except
        if the trial has only ended.
        """
        reported: list[EpochReported] = []

        def report(epoch: EpochReported) -> bool:
            reported.append(epoch)
            return False  # train no further epoch: rank 0 decides whether there is another

        def train() -> tuple[int, str] | None:
            self._trainable.train(report)
            return get_compared_epoch(reported)

        return self._run_on_all_ranks(train)

    def inputs(self) -> CallResult:
        """Return a result with the `Inputs` that this process has read so far, whatever ``depends_on`` says.

        If this fails, the result has the error.
        """
        return call_and_capture(lambda: inputs.collect_inputs(self._job, None))[0]

    def _load(self, before: str = "") -> str:
        """Load the trainable and reserve a port, or the address ``before``; return its address.

        Raises what `prepare_rank` raises.
        """
        with self._surroundings.inside():
            self._trainable, self._held, address = prepare_rank(self._job, before)
            self._surroundings.keep_import_effects()
        return address

    @property
    def _ranked(self) -> Ranked:
        """The trainable, as one that trains in several processes."""
        return self._trainable  # type: ignore[return-value]  # `prepare_rank` has checked

    def _run_on_all_ranks(self, function: Callable[[], Any]) -> CallResult:
        """Call a function that all ranks call at the same time; return its result or error.

        If it fails, except by an end of the trial, this rank disconnects, so that the others do not wait. A thread then
        kills rank 0 if it makes no further call within 20 s and has not ended this process by then.
        """
        self._calls += 1
        with self._surroundings.inside():
            found, error = call_and_capture(function)
        if error is not None and not found.is_end:
            self._ranked.leave(f"rank {self._rank}: {found.error}: {found.text}")
            threading.Thread(
                target=self._end_frozen_rank_0, args=(self._calls,), daemon=True
            ).start()
        return found

    def _end_frozen_rank_0(self, call: int) -> None:
        """Wait `FROZEN_S` seconds, and kill rank 0 if it has made no further call to all ranks in the meantime.

        Runs in a thread of this peer after its call with the number ``call`` has failed. Normally, rank 0 notices the
        failure and ends its peers, this process among them, before the time is over. Only calls that all ranks make
        together count (`join`, `begin` and `epoch`), not `heartbeat` or `restore`.
        """
        time.sleep(FROZEN_S)
        if self._calls == call:
            ray.kill(self._rank_0)


def get_compared_epoch(epochs: list[EpochReported]) -> tuple[int, str] | None:
    """Return (number, exact loss as text) of the only epoch in ``epochs``, on which ranks must agree.

    Returns None if there is no epoch. The text is "None" if the epoch has no loss.
    """
    return (epochs[0].epoch, repr(epochs[0].metrics.get("loss"))) if epochs else None
