"""A trainable in several processes that acts as one: this process is rank 0, the others (peers) are its actors.

Only rank 0 decides, reports and saves. All ranks receive the same calls, each of at most one epoch; a failure on one
rank ends the call on all. A gang with a failed call cannot be used again, because ranks can connect only once. Peers
that serve rank 0 instead of training (parameter servers and their workers) are watched by a thread.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from msgspec import structs
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from sweep.backends import Job, inputs
from sweep.backends.ray_tune import worker_exits
from sweep.backends.ray_tune.rank import (
    CallResult,
    TrialRank,
    call_and_capture,
    get_compared_epoch,
    prepare_rank,
)
from sweep.contract import (
    Assignment,
    EpochReported,
    Facts,
    OutOfMemory,
    Ranked,
    Ranks,
    Report,
    Trainable,
)
from sweep.errors import WorkerLost
from sweep.events import Inputs

HEARTBEAT_S, REGISTER_S = 10.0, 60.0
BEGIN_S = 600.0  # between the ends of `begin` on two ranks, each of which traces by itself
START_S = 180.0  # between the starts of two processes, which import a lot
SKEW_S = 30.0  # between the ends of an epoch on two ranks, as an epoch ends with a sum over all
AFTER_S = 5.0  # for the other ranks to report their failures, after one on rank 0
LEAVING_S = 1.0  # time in which leaving usually succeeds
LOOK_S = 0.2  # between checks of the peers


class Gang:
    """A `Trainable` that trains each trial in several processes: as rank 0, together with peers that it starts.

    The peers end with this process.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._peers: list[Any] = []  # the actors that receive calls, rank 1 first
        self._trainable: Trainable | None = None  # of this process
        self._ranks: Ranks | None = None  # None until the peers are started
        self._peer_facts: list[Facts] = []  # of the peers, rank 1 first
        # of peers that serve this rank and receive no calls; None without servers
        self._peer_watcher: PeerWatcher | None = None
        self._trial = 0

    def told(self) -> tuple[str, ...]:
        """Return the lines for the user about peers that were lost and replaced since the last call, if any.

        Each line is returned only once.
        """
        lines = () if self._peer_watcher is None else self._peer_watcher.told()
        return tuple(f"trial {self._trial}: {line}" for line in lines)

    # ---- methods of a trainable

    def begin(self, assignment: Assignment) -> None:
        """Begin a trial on all ranks; for the first trial, start the peers before.

        Raises RuntimeError if ranks have loaded different data, WorkerLost if one is lost, and otherwise the error that
        a rank has raised. After an error that does not only end the trial, this gang cannot be used again.
        """
        self._trial = assignment.trial
        if self._ranks is None:
            self._ranks = self._start_peers(assignment)
        devices = dataclasses.replace(self._job.shares(assignment.devices)[0], ranks=self._ranks)
        # A plain mapping for the peers: that of rank 0 records which parameters are read, in this process only.
        theirs = dataclasses.replace(assignment, params=dict(assignment.params.items()))
        mine = dataclasses.replace(assignment, devices=devices)
        _, *peer_facts = self._call_all_ranks(
            "begin", (theirs,), lambda: self._own_trainable.begin(mine), BEGIN_S
        )
        if self._peer_watcher is not None:
            # peers that serve receive no calls, so there is nothing to compare
            return
        self._peer_facts = peer_facts
        data = self._own_trainable.facts().data
        for rank, other in enumerate(self._peer_facts, 1):
            if other.data != data:
                self._end_unequal_ranks(
                    f"rank {rank} has loaded other data than rank 0 (fingerprints {other.data} and {data})"
                )

    def train(self, report: Report) -> None:
        """Train epoch after epoch on all ranks, as long as ``report`` returns True and there is one left.

        ``report`` gets the epochs of rank 0. Each call of a rank trains one epoch, because the report function that it
        gets always returns False. Raises RuntimeError if ranks disagree about the epoch or its loss, WorkerLost if one
        is lost, and otherwise the error that a rank has raised. After an error that does not only end the trial, this
        gang cannot be used again.
        """
        while True:
            epochs: list[
                EpochReported
            ] = []  # that this rank trains in this turn: one, or none if none is left

            # `epochs` is a default value, so that each function keeps the list of its own turn of the loop.
            def record_epoch(epoch: EpochReported, epochs: list[EpochReported] = epochs) -> bool:
                epochs.append(epoch)
                return False  # train no further epoch

            def train_one_epoch(
                report: Report = record_epoch, epochs: list[EpochReported] = epochs
            ) -> Any:
                self._own_trainable.train(report)
                return get_compared_epoch(epochs)

            mine, *theirs = self._call_all_ranks("epoch", (), train_one_epoch, SKEW_S)
            for rank, other in enumerate(theirs, 1):
                if other != mine:
                    self._end_unequal_ranks(
                        f"rank {rank} trained {other}, rank 0 {mine} (epoch, loss)"
                    )
            if not epochs or not report(epochs[0]):
                return

    def save(self, folder: Path) -> Callable[[], None] | None:
        """Save rank 0 alone, because all ranks have the same state; return what its trainable's ``save`` returns.

        Raises RuntimeError before the first trial.
        """
        return self._own_trainable.save(folder)

    def restore(self, folder: Path) -> int:
        """Continue from a checkpoint on all ranks; return its epoch.

        A rank that does not have the checkpoint downloads it. Raises ValueError if ranks restore different epochs,
        WorkerLost if one is lost, and otherwise the error that a rank has raised. Except after WorkerLost, another
        checkpoint can be tried.
        """
        mine, *theirs = self._call_all_ranks(
            "restore", (folder,), lambda: self._own_trainable.restore(folder), BEGIN_S
        )
        if any(other != mine for other in theirs):
            raise ValueError(f"ranks restored the epochs {[mine, *theirs]}, expected the same")
        return int(mine)

    def facts(self) -> Facts:
        """Return the facts of rank 0, with the nodes of all ranks, each once, and the devices of all ranks.

        Nodes are joined by commas, devices by semicolons. Of peers that serve rank 0, only the nodes are known. Raises
        RuntimeError before the first trial.
        """
        facts = self._own_trainable.facts()
        nodes = dict.fromkeys(str(one.node) for one in (facts, *self._peer_facts) if one.node)
        devices = ";".join(str(one.devices) for one in (facts, *self._peer_facts) if one.devices)
        return structs.replace(facts, node=",".join(nodes) or None, devices=devices or None)

    def absorb_reads(self) -> None:
        """Add the files and variables that the other ranks have read to this process's record.

        The reads of a rank that does not answer within 5 s, or with an error, are recorded as unknown. Peers that serve
        rank 0 are not asked: their reads are always unknown.
        """
        if self._peer_watcher is not None:  # its peers receive no calls
            inputs.add_earlier_inputs(
                Inputs(unknown=("what its workers have read was not recorded",)), self._job
            )
            return
        answers, lost = self._collect_answers(
            [peer.inputs.remote() for peer in self._peers], AFTER_S
        )
        for rank, answer in answers.items():
            if answer.error:
                lost[rank] = answer.text
            else:
                inputs.add_earlier_inputs(answer.value, self._job)
        for rank, reason in lost.items():
            unknown = f"what rank {rank} has read is not known ({reason})"
            inputs.add_earlier_inputs(Inputs(unknown=(unknown,)), self._job)

    def close(self) -> None:
        """End the peers; this gang cannot be used any more."""
        for peer in self._peers:
            with suppress(Exception):  # it is already gone
                ray.kill(peer)
        self._peers = []
        if self._peer_watcher is not None:
            self._peer_watcher.close()

    # ---- internals

    @property
    def _own_trainable(self) -> Trainable:
        """The trainable of rank 0. Raises RuntimeError before the first trial."""
        if self._trainable is None:
            raise RuntimeError("no trial has begun")
        return self._trainable

    def _leave(self, reason: str) -> None:
        """Disconnect rank 0 from the other ranks and send them the reason, but wait only a second for it.

        While ranks connect, TensorFlow blocks one that leaves; it then leaves in a thread, later. Raises RuntimeError
        before the first trial.
        """
        ranked: Ranked = self._own_trainable  # type: ignore[assignment]  # `prepare_rank` has checked
        leaving = threading.Thread(
            target=ranked.leave, args=(reason,), name="sweep-leave", daemon=True
        )
        leaving.start()
        leaving.join(LEAVING_S)

    def _start_peers(self, assignment: Assignment) -> Ranks:
        """Start the peers and connect all ranks; return the addresses of all ranks, with the rank of this process.

        Creates the trainable of this process. With servers, a `PeerWatcher` takes over the peers, of which the facts
        are then only their nodes. Raises what `_call_all_ranks` raises.
        """
        group = ray.util.get_current_placement_group()
        rank_0 = ray.get_runtime_context().current_actor
        shares = self._job.shares(assignment.devices)  # the devices of each rank

        # starts the actor of a peer, also in place of a lost one
        def start_actor(rank: int) -> Any:
            bundle = group.bundle_specs[rank]
            where = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank)
            actor_class = ray.remote(TrialRank).options(
                num_cpus=bundle.get("CPU", 0),
                num_gpus=bundle.get("GPU", 0),
                scheduling_strategy=where,
            )
            return actor_class.remote(self._job, rank, shares[rank], rank_0)

        self._peers = [start_actor(rank) for rank in range(1, len(shares))]

        # First, all ranks load their trainables and reserve ports.
        def get_ready() -> str:
            # `_held_port` keeps the port reserved
            self._trainable, self._held_port, address = prepare_rank(self._job)
            return address

        addresses = tuple(self._call_all_ranks("ready", (), get_ready, START_S))
        servers = self._job.servers
        # Who the ranks are, as each of them sees it.
        all_ranks = [
            Ranks(addresses, rank, HEARTBEAT_S, REGISTER_S, servers)
            for rank in range(len(addresses))
        ]
        devices = [
            dataclasses.replace(share, ranks=ranks)
            for share, ranks in zip(shares, all_ranks, strict=True)
        ]
        training = dict(assignment.training)
        ranked: Ranked = self._own_trainable  # type: ignore[assignment]  # `prepare_rank` has checked
        join_arguments = [(theirs, training) for theirs in devices[1:]]  # of the peers

        # Then they connect. TensorFlow applies REGISTER_S only to other ranks, and blocks Python's threads here
        def join() -> None:
            with worker_exits.limiting_time(REGISTER_S + AFTER_S):
                ranked.join(devices[0], training)

        _, *nodes = self._call_all_ranks("join", join_arguments, join, SKEW_S)
        if servers:
            # called by the watcher in place of a lost peer
            def start_again(rank: int) -> tuple[Any, Any]:
                actor = start_actor(rank)
                # At the address of the lost one, the only one that the other ranks know.
                return actor, actor.come_back.remote(addresses[rank], *join_arguments[rank - 1])

            # From now on only rank 0 is called: it gives the others their work through TensorFlow.
            peers = dict(enumerate(self._peers, 1))
            self._peers = []
            self._peer_facts = [Facts(node=node) for node in nodes]
            self._peer_watcher = PeerWatcher(
                peers, all_ranks[0].workers, start_again, START_S, self._find_cause
            )
        return all_ranks[0]

    def _call_all_ranks(
        self, method: str, arguments: Any, mine: Callable[[], Any], patience_s: float
    ) -> list[Any]:
        """Call a method of all ranks at once; return the results, rank 0 first.

        Arguments:
            method: name of the method of the peers, see `TrialRank`.
            arguments: arguments for the peers: a tuple for all, or a list with one for each rank.
            mine: the call on this rank.
            patience_s: how many seconds later than this rank peers may end.

        Raises the error that a rank has raised, or WorkerLost if a rank is gone. The peers are ended after WorkerLost,
        and after any other error that neither only ends the trial nor comes from ``restore``.
        """
        each = arguments if isinstance(arguments, list) else [arguments] * len(self._peers)
        calls = [
            getattr(peer, method).remote(*values)
            for peer, values in zip(self._peers, each, strict=True)
        ]
        # tells the watcher that this rank is in a call
        in_call: AbstractContextManager[None] = nullcontext()
        if self._peer_watcher is not None:
            in_call = self._peer_watcher.busy()
        with self._watching(calls), in_call:
            here, error = call_and_capture(mine)  # the result of this rank, and what it raised
            fails = error is not None and not here.is_end
            # The other ranks would wait for this one, except in `restore`, which each does by itself.
            if fails and self._trainable is not None and method != "restore":
                self._leave(f"rank 0: {here.error}: {here.text}")
        answers, lost = self._collect_answers(calls, AFTER_S if fails else patience_s)
        if self._peer_watcher is not None:
            if (
                here.is_consequence
            ):  # of the loss of a peer, which the watching thread may find only now
                self._peer_watcher.found.wait(AFTER_S)
            lost |= self._peer_watcher.lost
        try:
            self._raise_outcome(here, error, answers, lost)
        except BaseException as failure:
            # After a failed `restore`, an older checkpoint is tried; after the end of a trial, another one begins.
            if (method != "restore" and not here.is_end) or isinstance(failure, WorkerLost):
                self.close()
            raise
        return [here.value, *(answer.value for answer in answers.values())]

    def _raise_outcome(
        self,
        here: CallResult,
        error: BaseException | None,
        answers: dict[int, CallResult],
        lost: dict[int, str],
    ) -> None:
        """Raise the error of a call on all ranks, if any rank has failed, has ended the trial or is lost.

        ``here`` and ``error`` are the result and the exception of this rank, and ``answers`` the results of others by
        rank. ``lost`` says why ranks are lost. If several ranks have failed, the first error that is no consequence of
        another rank's failure is raised. If there is none, but ranks are lost or have failed, WorkerLost is raised. If
        ranks have ended the call differently without a failure, the peers are ended and RuntimeError is raised.
        """
        results = {0: here, **answers}
        failed = {
            rank: result for rank, result in results.items() if result.error and not result.is_end
        }
        causes = {rank: result for rank, result in failed.items() if not result.is_consequence}
        # Each of these loops raises for the first rank that it finds. A rank's own error explains more than a loss,
        # which may follow from it, and a loss more than the errors that only mean that another rank is gone.
        if 0 in causes and error is not None:
            raise error
        for rank, result in causes.items():
            raise _make_error(rank, result)
        for rank, why in lost.items():
            raise WorkerLost(f"rank {rank}: {why}")
        for rank, result in failed.items():
            raise WorkerLost(
                f"the ranks have lost one another; rank {rank}: {result.error}: {result.text}"
            )
        # Here no rank has failed: each has trained an epoch or has ended the trial.
        for rank, result in answers.items():
            if result.error != here.error:
                self._end_unequal_ranks(
                    f"rank {rank} ended with {result.error or 'an epoch'}, rank 0 with {here.error or 'an epoch'}"
                )
        if error is not None:  # all ranks have ended the trial
            raise error

    def _end_unequal_ranks(self, difference: str) -> None:
        """Disconnect this rank, end the peers and raise RuntimeError, because ranks have not computed the same.

        ``difference`` says what differs, for the message.
        """
        self._leave(difference)
        self.close()
        raise RuntimeError(f"ranks must compute the same, and {difference}")

    def _collect_answers(
        self, calls: Sequence[Any], patience_s: float
    ) -> tuple[dict[int, CallResult], dict[int, str]]:
        """Wait up to ``patience_s`` seconds; return, by rank, the answers of the peers, and why the others are lost.

        ``calls`` are Ray's references to the calls of all peers, rank 1 first. An answer may be an error of the call.
        """
        if calls:
            ray.wait([*calls], num_returns=len(calls), timeout=patience_s)
        # those that have not answered by now are lost
        answers: dict[int, CallResult] = {}
        lost: dict[int, str] = {}
        for rank, call in enumerate(calls, 1):
            try:
                answers[rank] = ray.get(call, timeout=0)
            except GetTimeoutError:
                lost[rank] = f"no answer within {patience_s:g} s"
            except RayError as error:
                lost[rank] = self._find_cause(str(error))
        return answers, lost

    def _find_cause(self, error: str) -> str:
        """Return in words why a peer was lost; ``error`` is Ray's message about that.

        If the message does not say that a node or a rank was lost or that memory ran low, the answer is what the lost
        process itself wrote when it died. The file with that is deleted, so that a second call does not find it.
        """
        return worker_exits.explain_loss(self._job, self._trial, error)

    @contextmanager
    def _watching(self, calls: Sequence[Any]) -> Iterator[None]:
        """Watch the peers that run ``calls`` in a thread while this rank runs its own call in the block.

        If a peer is lost, this rank is disconnected, so that its call ends instead of waiting.
        """
        over = threading.Event()
        watch = threading.Thread(
            target=self._watch, args=([*calls], over), name="sweep-gang", daemon=True
        )
        watch.start()
        try:
            yield
        finally:
            over.set()
            watch.join()

    def _watch(self, waiting: list[Any], over: threading.Event) -> None:
        """Wait until ``over`` is set; if a peer is lost before, disconnect this rank, so that its call ends.

        Runs in a thread. ``waiting`` are the calls of the peers; once all have answered, the method returns. If this
        rank's call has not ended 15 s after a loss, this process is ended with exit code 75.
        """
        while waiting and not over.wait(LOOK_S):
            answered, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=0)
            if any(map(_is_gone, answered)):
                # otherwise the trainable of this rank still loads, and is not connected yet
                if self._trainable is not None:
                    self._leave("a rank is gone")
                if not over.wait(STUCK_S):
                    os._exit(STUCK)  # TensorFlow's wait cannot be interrupted in another way
                return


def _is_gone(call: Any) -> bool:
    """Return whether a call that has ended failed because its actor is gone; True for any other error of Ray too.

    An error of the call itself is part of its `CallResult`, and no error of Ray.
    """
    try:
        ray.get(call, timeout=0)
    except RayError:
        return True
    return False


def _make_error(rank: int, result: CallResult) -> Exception:
    """Return the error of another rank, as an exception of the same name with a note of where it was raised.

    Its class is a new one of that name, derived from Exception. If the rank was out of memory, it is `OutOfMemory`
    instead.
    """
    text = f"{result.text} (rank {rank})"
    error: Exception
    if result.is_short:
        error = OutOfMemory(f"{result.error}: {text}")
    else:
        error = type(result.error, (Exception,), {})(text)
    error.add_note(f"On rank {rank}:\n{result.trace}")
    return error


ATTEND_S = 0.2  # between checks for answers
PULSE_S = 1.0  # between heartbeats
SILENT_S = 20.0  # a process without a heartbeat for this long is considered lost, and killed
TIMES = 3  # fruitless replacements of a worker in a row
STUCK_S = 15.0  # for rank 0 to notice what it has lost
STUCK = 75  # exit code


@dataclass(slots=True)
class _Peer:
    """A peer that `PeerWatcher` watches, and the heartbeat that was requested from it."""

    actor: Any
    call: Any  # the call that it must answer next; None until the next heartbeat is requested
    since: float  # when the call was made or answered, by the monotonic clock
    patience_s: float = SILENT_S
    in_vain: int = 0  # replacements that never answered


class PeerWatcher:
    """Watches peers in a thread, and replaces a lost one if its rank is at most ``workers``; the others are servers.

    ``peers`` are the actors by rank. ``start`` returns the new actor of a rank and the call with which it starts, which
    must be answered within ``start_s`` seconds. ``cause`` returns why a peer was lost, given Ray's message.
    """

    def __init__(
        self,
        peers: Mapping[int, Any],
        workers: int,
        start: Callable[[int], tuple[Any, Any]],
        start_s: float,
        cause: Callable[[str], str],
    ) -> None:
        # peers without which the trial cannot continue: why they were lost, by rank
        self.lost: dict[int, str] = {}
        self.found = threading.Event()  # set once there is one, or the watching has ended
        self._replacements: list[str] = []  # lines for the user
        self._last_worker = workers  # the highest rank of a worker; those above it are servers
        self._start_peer, self._start_s = start, start_s
        self._find_cause = cause
        self._peers = {
            rank: _Peer(peer, peer.heartbeat.remote(), time.monotonic())
            for rank, peer in peers.items()
        }
        self._rank_0_calls = threading.Event()  # set while rank 0 runs a call
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name="sweep-attendance", daemon=True).start()

    def told(self) -> tuple[str, ...]:
        """Return the lines about peers that were lost and replaced since the last call, and forget them."""
        lines, self._replacements = tuple(self._replacements), []
        return lines

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Record for the watching thread that rank 0 runs a call inside the block.

        If a server is lost, or a worker that cannot be replaced, and rank 0 is still in a call 15 s later, this process
        is ended with exit code 75.
        """
        self._rank_0_calls.set()
        try:
            yield
        finally:
            self._rank_0_calls.clear()

    def close(self) -> None:
        """Stop watching and end all peers."""
        self._closed.set()
        for peer in self._peers.values():
            _kill(peer.actor)

    def _watch(self) -> None:
        """Check all peers repeatedly until `close`, or until one is lost that cannot be replaced; then set `found`.

        Runs in a thread. If rank 0 is in a call `STUCK_S` seconds after such a loss, this process is ended.
        """
        while not self._closed.wait(ATTEND_S) and not self.lost:
            for rank, peer in self._peers.items():
                if reason := self._look(peer):
                    self._replace(rank, peer, reason)
        self.found.set()
        # Rank 0 usually ends the trial itself when it sees `lost`, unless its call waits in TensorFlow for ever.
        if self.lost and not self._closed.wait(STUCK_S) and self._rank_0_calls.is_set():
            os._exit(STUCK)

    def _look(self, peer: _Peer) -> str:
        """Request a peer's heartbeat or read its answer; return why the peer is lost, or "" if it lives.

        A heartbeat is requested `PULSE_S` seconds after the last answer. A peer is lost if its actor is gone, its
        answer is an error, or it does not answer within its ``patience_s``.
        """
        waited = (
            time.monotonic() - peer.since
        )  # since the call was made or, without one, the last answer came
        if peer.call is None:
            if waited > PULSE_S:
                peer.call = peer.actor.heartbeat.remote()
                peer.since = time.monotonic()
                peer.patience_s = SILENT_S
            return ""
        try:
            answer = ray.get(peer.call, timeout=0)
        except GetTimeoutError:
            if waited > peer.patience_s:
                return f"no sign of life within {peer.patience_s:g} s"
            return ""
        except RayError as error:
            return self._find_cause(str(error))
        if answer.error:
            return f"{answer.error}: {answer.text}"
        # It lives, and the next request is due in `PULSE_S`.
        peer.call = None
        peer.since = time.monotonic()
        peer.in_vain = 0
        return ""

    def _replace(self, rank: int, peer: _Peer, reason: str) -> None:
        """Start another actor in place of a lost peer; record a server, or a worker lost too often, as lost instead.

        A worker was lost too often if three replacements in a row have not answered. A replacement becomes a line of
        `told`. The peer's actor is ended first. After `close`, nothing else is done.
        """
        _kill(peer.actor)  # one that is only silent must not come back beside its replacement
        if self._closed.is_set():
            return
        if rank > self._last_worker:  # what a server keeps is lost with it
            self.lost[rank] = f"a server, {reason}"
        elif peer.in_vain == TIMES:
            self.lost[rank] = f"a worker, replaced {TIMES} times in vain: {reason}"
        else:
            self._replacements.append(
                f"worker {rank} was lost and is replaced, the others train on: {reason}"
            )
            peer.actor, peer.call = self._start_peer(rank)
            peer.since = time.monotonic()
            peer.patience_s = self._start_s
            peer.in_vain += 1


def _kill(actor: Any) -> None:
    """End an actor of Ray; errors are ignored, as it may be gone."""
    with suppress(Exception):  # it is already gone
        ray.kill(actor)
