"""TensorFlow's devices: those of a trial, and the strategy over them and the devices of other ranks.

TensorFlow fixes devices and threads at its first operation, and must connect to other processes before it. So a process
serves one share of a machine, with the ranks that it began with. If a trial needs other devices, `NewProcessNeeded` is
raised.
"""

from __future__ import annotations

import importlib.util
import math
import os
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

import tensorflow as tf

from sweep import author_code
from sweep.contract import Devices, Ranks, Value
from sweep.errors import first_line
from trainables import tensorflow_private
from trainables.devices import parameter_server
from trainables.devices.parameter_server import PARAMETER_SERVER
from trainables.devices.replicas import Replicas

_UNKNOWN, _UNAVAILABLE = 2, 14  # error codes of TensorFlow


def join_ranks(ranks: Ranks, names: tuple[str, ...], cross_device: str) -> tf.distribute.Strategy:
    """Connect to the other ranks; return a strategy that mirrors variables over the devices of all ranks.

    Waits for ranks that are still starting, for at most ``ranks.register_s`` seconds; TensorFlow then raises its error.
    ``names`` are the devices of this process, such as "gpu:0". ``cross_device`` is "nccl" or "ring"; anything else
    means NCCL on GPUs and ring on CPUs. The caller must hold this rank's port until this call.
    """
    tensorflow_private.share_ports()
    _serve_heartbeats(ranks)
    resolver = tensorflow_private.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": list(ranks.addresses)}),
        task_type="worker",
        task_id=ranks.rank,
        rpc_layer="grpc",
    )
    kinds = tf.distribute.experimental.CommunicationImplementation
    default = kinds.NCCL if names[0].startswith("gpu") else kinds.RING
    implementation = {"nccl": kinds.NCCL, "ring": kinds.RING}.get(cross_device, default)
    # No timeout: with one, TensorFlow would keep a sleeping thread per sum until it expires, thousands after a while.
    options = tf.distribute.experimental.CommunicationOptions(implementation=implementation)
    return tensorflow_private.RanksStrategy(names, resolver, options)


def leave_ranks(reason: str) -> None:
    """Abort all collective operations of this process and report ``reason`` to the other ranks.

    Of ``reason``, 300 characters are sent. It may be called from any thread. Errors are ignored, as when this process
    has not connected.
    """
    for tell, code in (
        (tensorflow_private.report_error_to_cluster, _UNKNOWN),
        (tensorflow_private.abort_collective_ops, _UNAVAILABLE),
    ):
        with suppress(Exception):  # nothing to end: not connected yet, or the others are gone
            tell(code, reason[:300])


def _serve_heartbeats(ranks: Ranks) -> None:
    """Start the heartbeat service by which ranks notice that another one has ended; rank 0 hosts it."""
    tensorflow_private.serve_heartbeats(
        len(ranks.addresses), register_s=ranks.register_s, heartbeat_s=ranks.heartbeat_s
    )


TPU_OPS = ("_ConfigureDistributedTPU", "_TPUCompileMlir", "TPUExecute")
"""One operation each that starts TPUs, compiles for them, and computes on them."""


def list_device_kinds(op: str) -> set[str]:
    """Return the kinds of devices, such as "CPU" and "GPU", for which this TensorFlow has a kernel of an operation.

    ``op`` is the type of the operation, such as "MatMul".
    """
    kinds = set()
    for kernel in tensorflow_private.get_registered_kernels_for_op(op).kernel:
        kinds.add(kernel.device_type)
    return kinds


def list_tpu_problems(
    devices_with: Callable[[str], Collection[str]] = list_device_kinds,
) -> tuple[str, ...]:
    """Return the reasons why this installation cannot use TPUs, in words; empty if none is found.

    They are missing kernels for TPUs and a missing libtpu, which the environment variable ``TPU_LIBRARY_PATH`` may name
    instead. Whether the machine has TPUs is not checked. ``devices_with`` returns the kinds of devices that have a
    kernel for an operation. TensorFlow's usual builds declare the operations for TPUs without any kernel, and the
    strategy would fail with an IndexError.
    """
    without = [op for op in TPU_OPS if not devices_with(op)]
    found = []
    if without:
        found.append(
            f"this TensorFlow ({tf.__version__}) has no TPU kernels ({', '.join(without)})"
        )
    if not os.environ.get("TPU_LIBRARY_PATH") and importlib.util.find_spec("libtpu") is None:
        found.append("there is no libtpu")
    return tuple(found)


def start_tpus() -> tf.distribute.Strategy:
    """Start this machine's TPUs and return a strategy over all cores; TensorFlow raises an error if there are none."""
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="local")
    tf.tpu.experimental.initialize_tpu_system(resolver)
    return tf.distribute.TPUStrategy(resolver)


STRATEGIES = ("auto", "none", "one_device", "mirrored", "tpu", PARAMETER_SERVER)
CROSS_DEVICE = ("auto", "nccl", "ring", "hierarchical_copy", "reduction_to_one_device")


class NewProcessNeeded(Exception):
    """Raised if this process is bound to other devices, so that the trial needs a new process."""


class DeviceError(Exception):
    """Raised if the trial's devices cannot be used as the sweep file asks."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The strategy of a trial, with its replicas and the names of their devices."""

    replicas: Replicas
    name: str  # one_device, mirrored, multi_worker, tpu or parameter_server
    devices: tuple[str, ...]  # "cpu:0", "gpu:1"

    @property
    def on_gpu(self) -> bool:
        """Whether the trial computes on a GPU."""
        return self.devices[0].startswith("gpu")

    @property
    def num_replicas(self) -> int:
        """The number of copies of the model that train at the same time; with parameter servers, that of workers."""
        if self.name == PARAMETER_SERVER:
            return parameter_server.count_workers()
        return self.replicas.number

    @property
    def described(self) -> str:
        """The devices as text, separated by commas: "gpu:0,gpu:1".

        For parameter servers, one device per worker, separated by semicolons: "gpu:0;gpu:0".
        """
        if self.name != PARAMETER_SERVER:
            return ",".join(self.devices)
        # The strategy has one device, with the same name on each worker, such as "/.../device:GPU:0".
        (device,) = self.replicas.strategy.extended.worker_devices
        return ";".join([device.rpartition("device:")[2].lower()] * self.num_replicas)


_lock = threading.Lock()
_Key: TypeAlias = "tuple[tuple[str, ...], str, str, Ranks | None]"
placements: dict[_Key, Placement] = {}
"""The placements of this process, which may have only one over ring or NCCL, or with other ranks."""


class RankJoining:
    """Implementation of `sweep.contract.Ranked`, for trainables that several processes train together."""

    def join(self, devices: Devices, training: Mapping[str, Value]) -> None:
        """Connect to the other ranks and return when all have connected.

        A rank above 0 of a trial with parameter servers, which trains or keeps weights, only starts its TensorFlow
        server and returns at once. ``training`` is the sweep file's ``training`` block. Without ranks, nothing is
        connected, and the devices are only bound.
        Raises: DeviceError or NewProcessNeeded: as in `place`.
        """
        if devices.ranks is not None and devices.ranks.servers and devices.ranks.rank:
            parameter_server.serve(
                devices.ranks, cpus=devices.cpus, gpus=0 if devices.simulated else int(devices.gpus)
            )
        else:
            choose_placement(devices, training)

    def leave(self, reason: str) -> None:
        """Abort the collective operations of this process and tell the other ranks ``reason``, ignoring errors.

        At most 300 characters of ``reason`` are sent. It may be called from any thread.
        """
        leave_ranks(reason)


def choose_placement(devices: Devices, training: Mapping[str, Value]) -> Placement:
    """Return the placement that ``strategy`` and ``cross_device`` of a sweep file's ``training`` block ask for.

    Both are "auto" by default; see `place` for errors.
    """
    return place(
        devices, str(training.get("strategy", "auto")), str(training.get("cross_device", "auto"))
    )


def place(devices: Devices, strategy: str = "auto", cross_device: str = "auto") -> Placement:
    """Return the placement of trials on ``devices``; the first call with these arguments creates it.

    It also binds TensorFlow in this process to the devices. ``strategy`` is one of `STRATEGIES`, ``cross_device`` one
    of `CROSS_DEVICE`. If ``devices`` has ranks, the first call connects to them and waits for them, and ``strategy`` is
    ignored unless it is "tpu". ``cross_device`` is only checked if variables are mirrored over devices of this process
    alone. The strategy "parameter_server" without ranks means one device.
    Raises: DeviceError: if there are fewer GPUs than ``devices`` has, the memory for a share of a GPU is unknown or too
    small, or ``strategy`` or ``cross_device`` is unknown or not possible on the devices. NewProcessNeeded: if this
    process is already bound to other devices or ranks.
    """
    with _lock:
        if strategy == "tpu":
            return _place_on_tpu(devices)
        names = _bind(devices)
        if devices.ranks is None:
            chosen = _choose_strategy(strategy, names)
        else:
            chosen = _choose_ranked_strategy(devices.ranks)
        key = (names, chosen, cross_device, devices.ranks)
        if key in placements:
            return placements[key]
        if devices.ranks is None:
            if _uses_collectives(key) and any(map(_uses_collectives, placements)):
                # Every MirroredStrategy numbers its collectives from 1, so a second set of devices in one process fails
                # with "joining a group that is already full", and breaks the first one, too.
                raise NewProcessNeeded(
                    f"this process already mirrors over other devices than {names}"
                )
            created = _build_strategy(chosen, names, cross_device)
        else:
            if placements:  # TensorFlow has started, or has other ranks
                raise NewProcessNeeded(
                    "a process can join other ranks only once, before it trains anything"
                )
            if devices.ranks.servers:
                created = parameter_server.connect_to_servers(devices.ranks)
            else:
                created = join_ranks(devices.ranks, names, cross_device)
        placements[key] = Placement(Replicas(created), chosen, names)
        return placements[key]


def _place_on_tpu(devices: Devices) -> Placement:
    """Return a placement over all TPU cores of this machine; the first call starts them.

    The first call also hides the GPUs and limits TensorFlow's threads to the CPUs of ``devices``, of which nothing else
    is used. The caller holds `_lock`.
    Raises: DeviceError: if there are no usable TPUs. NewProcessNeeded: if TensorFlow has started with GPUs.
    """
    problems = list_tpu_problems()
    if problems:
        raise DeviceError(f"strategy is tpu, but {' and '.join(problems)}")
    key: _Key = ("tpu",), "tpu", "auto", None
    if key not in placements:
        _limit_threads(devices.cpus)
        _hide_gpus()
        try:
            strategy = start_tpus()
        except (tf.errors.OpError, ValueError, RuntimeError) as error:
            raise DeviceError(
                f"strategy is tpu, but no TPU answers: {first_line(error)}"
            ) from error
        names = (f"tpu:{core}" for core in range(strategy.num_replicas_in_sync))
        placements[key] = Placement(Replicas(strategy), "tpu", tuple(names))
    return placements[key]


def _uses_collectives(key: _Key) -> bool:
    """Return whether a placement with this key sums gradients by TensorFlow's collective operations."""
    names, chosen, cross_device, _ = key
    on_gpu = names[0].startswith("gpu")
    return chosen == "mirrored" and (
        cross_device in ("nccl", "ring") or (cross_device == "auto" and on_gpu)
    )


def _bind(devices: Devices) -> tuple[str, ...]:
    """Make ``devices`` alone visible before TensorFlow's first operation, and return their names, such as "cpu:0".

    Simulated GPUs are logical CPU devices. Also limits TensorFlow's threads, and sets the memory limit of a share of a
    GPU, or lets the memory of whole GPUs grow.
    Raises: NewProcessNeeded: if TensorFlow has started with other devices. DeviceError: if there are too few GPUs, or
    the memory for a share of one is unknown or too small.
    """
    _limit_threads(devices.cpus)
    count = math.ceil(devices.gpus)
    if count and not devices.simulated:
        return _bind_gpus(devices, count)
    _hide_gpus()
    if not count:
        return ("cpu:0",)
    cpu = tf.config.list_physical_devices("CPU")[0]
    try:
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * count
        )
    except RuntimeError:  # TensorFlow has started; its devices must suffice
        existing = len(tf.config.list_logical_devices("CPU"))
        if existing < count:
            raise NewProcessNeeded(
                f"{existing} logical CPU devices exist, {count} are needed{_describe_start()}"
            ) from None
    return tuple(f"cpu:{i}" for i in range(count))


def _bind_gpus(devices: Devices, count: int) -> tuple[str, ...]:
    """Make the first ``count`` GPUs alone visible, as `_bind` does, and return their names.

    If TensorFlow has started, it must have as many GPUs; otherwise NewProcessNeeded is raised. Raises DeviceError as
    `_bind`.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if len(gpus) < count:
        raise DeviceError(f"the trial was given {count} GPUs, TensorFlow sees {len(gpus)}")
    try:
        tf.config.set_visible_devices(gpus[:count], "GPU")
        if devices.gpus < 1:  # a share of one GPU: `count` is 1
            part = [tf.config.LogicalDeviceConfiguration(memory_limit=_limit_mib(devices))]
            tf.config.set_logical_device_configuration(gpus[0], part)
        else:
            for gpu in gpus[:count]:
                tf.config.experimental.set_memory_growth(gpu, True)
    except RuntimeError:  # TensorFlow has started; its GPUs must be as many
        if len(tf.config.list_logical_devices("GPU")) != count:
            raise NewProcessNeeded(
                f"TensorFlow is bound to other GPUs than the {count} needed{_describe_start()}"
            ) from None
    return tuple(f"gpu:{i}" for i in range(count))


def _limit_mib(devices: Devices) -> int:
    """Return the memory limit of a share of a GPU in MiB, rounded down.

    Raises: DeviceError: if the GPU's memory is unknown, or the share leaves less than 1 MiB for the trial.
    """
    from trainables.devices import gpu_memory

    most = gpu_memory.get_limit_bytes(devices)
    if most is None:
        raise DeviceError(
            "the memory of the GPU that the trial shares is unknown; "
            f"{gpu_memory.explain_unknown_memory()}, or resources: {{gpus: 1}}"
        )
    if most < 2**20:
        share = f"a share of {devices.gpus:g} has no GPU memory left after what CUDA itself needs"
        raise DeviceError(f"{share}; expected a larger one in resources.gpus")
    return int(most / 2**20)


def _hide_gpus() -> None:
    """Make TensorFlow see no GPUs; raises NewProcessNeeded if it has started with some."""
    try:
        tf.config.set_visible_devices([], "GPU")
    except RuntimeError:  # TensorFlow has started; it must have done so without GPUs
        if tf.config.list_logical_devices("GPU"):
            raise NewProcessNeeded(
                f"TensorFlow is bound to GPUs that this trial may not use{_describe_start()}"
            ) from None


_start: list[str] = []
"""The author's line that started TensorFlow, if one did."""


def _record_start_line() -> None:
    """Record the author's line that runs now, for messages of `NewProcessNeeded`.

    TensorFlow calls this before its first operation, which fixes the visible devices.
    """
    _start.append(author_code.find_present_line(quoted=True))


tensorflow_private.call_before_start(_record_start_line)


def _describe_start() -> str:
    """Return the end of a message that names the author's line that started TensorFlow; "" if none did."""
    if not _start:
        return ""
    return (
        f": TensorFlow was started at {_start[0]}, before it was told of the devices of trials. Layers, metrics and "
        "tensors belong into the methods of the trainable, which each trial calls"
    )


def _limit_threads(cpus: float) -> None:
    """Set TensorFlow's thread pools to the trial's CPUs, rounded down, at least 1; no effect once it has started."""
    threads = max(1, int(cpus))
    try:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
    except RuntimeError:  # it has started, and keeps its threads
        return


def _choose_ranked_strategy(ranks: Ranks) -> str:
    """Return the strategy of a trial with several processes: "parameter_server" with servers, else "multi_worker"."""
    if ranks.servers:
        return PARAMETER_SERVER
    return "multi_worker"


def _choose_strategy(strategy: str, names: tuple[str, ...]) -> str:
    """Return "one_device" or "mirrored", as ``strategy`` asks for on the devices ``names``.

    "auto" means mirrored on several devices. "mirrored" is kept on one device. Raises DeviceError if ``strategy`` is
    unknown, or means one device where there are several.
    """
    if strategy == "auto":
        if len(names) > 1:
            return "mirrored"
        return "one_device"
    # There are no parameter servers where only a checkpoint is inspected.
    if strategy in ("none", "one_device", PARAMETER_SERVER):
        if len(names) > 1:
            raise DeviceError(
                f"strategy {strategy} uses one device, the trial was given {', '.join(names)}"
            )
        return "one_device"
    if strategy == "mirrored":
        return "mirrored"
    raise DeviceError(f"strategy is {strategy!r}, expected one of {', '.join(STRATEGIES)}")


def _build_strategy(
    chosen: str, names: tuple[str, ...], cross_device: str
) -> tf.distribute.Strategy:
    """Return TensorFlow's strategy for ``chosen``, "one_device" or "mirrored", on the devices ``names``.

    Raises DeviceError as `_choose_cross_device_ops`.
    """
    devices = [f"/{name}" for name in names]
    if chosen == "one_device":
        return tf.distribute.OneDeviceStrategy(devices[0])
    return tf.distribute.MirroredStrategy(
        devices, cross_device_ops=_choose_cross_device_ops(cross_device, names)
    )


def _choose_cross_device_ops(
    choice: str, names: tuple[str, ...]
) -> tf.distribute.CrossDeviceOps | None:
    """Return the operations that sum gradients over the devices ``names``; None for TensorFlow's default, NCCL.

    ``choice`` is one of `CROSS_DEVICE`. "auto" means NCCL on GPUs. On CPU devices it means hierarchical copy, or
    reduction to one device if their number is odd.
    Raises: DeviceError: if ``choice`` is unknown, or cannot be used on the devices: NCCL on CPU devices, and
    hierarchical copy for an odd number of devices above 1.
    """
    on_cpu = names[0].startswith("cpu")
    # of an odd number of devices, TensorFlow's hierarchical copy silently ignores the last one
    odd = len(names) > 1 and len(names) % 2 == 1
    match choice:
        case "auto" if on_cpu and odd:
            return tf.distribute.ReductionToOneDevice()
        case "auto" if on_cpu:
            # ring is slower and less robust on CPU devices
            return tf.distribute.HierarchicalCopyAllReduce()
        case "auto":
            return None  # TensorFlow's default: collectives over NCCL
        case "hierarchical_copy" if odd:
            raise DeviceError(
                f"cross_device is hierarchical_copy, which adds up an even number of devices, the trial has "
                f"{len(names)}; expected auto, nccl, ring or reduction_to_one_device"
            )
        case "hierarchical_copy":
            return tf.distribute.HierarchicalCopyAllReduce()
        case "reduction_to_one_device":
            return tf.distribute.ReductionToOneDevice()
        case "nccl" if on_cpu:
            raise DeviceError(
                "cross_device is nccl, which needs GPUs; expected auto or ring on CPU devices"
            )
        case "nccl" | "ring":
            kinds = tf.distribute.experimental.CommunicationImplementation
            options = tf.distribute.experimental.CommunicationOptions(
                implementation=kinds.NCCL if choice == "nccl" else kinds.RING
            )
            return tensorflow_private.collective_all_reduce([f"/{name}" for name in names], options)
        case _:
            raise DeviceError(
                f"cross_device is {choice!r}, expected one of {', '.join(CROSS_DEVICE)}"
            )
