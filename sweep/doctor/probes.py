"""Asks TensorFlow and Ray about devices and clusters, in separate processes, which may fail or hang."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sweep.doctor.programs import CommandResult, Run

MODULE = "trainables.doctor.device_probe"
CLUSTER_MODULE = "sweep.backends.ray_tune.doctor"

Resources = tuple[float, float]
"""CPUs and GPUs for trials."""


@dataclass(frozen=True, slots=True)
class TensorFlow:
    """Versions of TensorFlow and Keras, the targets of the build, and the GPUs that it can use."""

    version: str
    keras: str | None
    backend: str | None
    cuda: str | None  # None: built without CUDA
    cudnn: str | None
    architectures: tuple[str, ...]  # "sm_80" is machine code, "compute_90" is PTX
    capabilities: tuple[tuple[int, int] | None, ...]  # one per GPU
    complaint: str | None = None  # its log about unusable GPUs
    keras_error: str = ""
    # by name, whether it can be read; None: the library for it is not installed
    gauges: Mapping[str, bool] | None = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeviceResult:
    """The results of one device."""

    seconds: Mapping[str, float]
    wrong: tuple[str, ...]
    tflops: float
    cudnn: str | None  # version of the library, if the log has it


@dataclass(frozen=True, slots=True)
class CollectiveResult:
    """The results of several devices training together."""

    sums: tuple[float, ...]  # 1 + 2 + ... over the replicas, as computed on each of them
    examples_per_s: float


@dataclass(frozen=True, slots=True)
class MemoryShareResult:
    """The results of a process with a share of a GPU."""

    limit_bytes: float
    refused: bool  # whether more than the limit was refused
    works: bool  # whether it works afterwards


@dataclass(frozen=True, slots=True)
class ProbeFailure:
    """The failure of a probe; ``todo`` is advice, if the cause is known."""

    reason: str
    todo: str = ""


@dataclass(frozen=True, slots=True)
class NodePairResult:
    """Two nodes that computed a sum together, or the reason why they could not."""

    nodes: tuple[str, str]
    latency_s: float = 0.0  # of the sum of one number
    bytes_per_s: float = 0.0  # of the sum of a large tensor, counted once
    failure: str = ""


def probe_tensorflow(run: Run, timeout_s: float) -> TensorFlow | ProbeFailure:
    """Return the versions of TensorFlow and Keras, and the GPUs that TensorFlow can use, as a new process finds them.

    ``run`` runs a program, as `run_command` does. A `ProbeFailure` is returned, not raised, if the program fails, takes
    more than ``timeout_s`` seconds or answers no JSON. This holds for all probes.
    """
    ran, answer = _run_probe(run, timeout_s, MODULE, "describe")
    if isinstance(answer, ProbeFailure):
        return answer
    return TensorFlow(
        version=answer["tensorflow"],
        keras=answer["keras"],
        backend=answer["backend"],
        cuda=answer["cuda"],
        cudnn=answer["cudnn"],
        architectures=tuple(answer["architectures"]),
        capabilities=tuple(_read_capability(gpu) for gpu in answer["gpus"]),
        complaint=ran.logged("dlopen|could not find cuda|cuInit|Ignoring visible gpu"),
        keras_error=answer.get("keras_error", ""),
        gauges=answer.get("gauges", {}),
    )


def _read_capability(gpu: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return the compute capability in a probe's answer about a GPU; None if it is unknown."""
    capability = gpu["capability"]
    if capability is None:
        return None
    return (capability[0], capability[1])


def probe_device(run: Run, timeout_s: float, name: str) -> DeviceResult | ProbeFailure:
    """Run computations on the device with this name in a process of its own, and return the results.

    ``run`` starts the process (`run_command`). If it fails, or does not end within ``timeout_s`` seconds, a
    `ProbeFailure` is returned.
    """
    ran, answer = _run_probe(run, timeout_s, MODULE, "device", name)
    if isinstance(answer, ProbeFailure):
        return answer
    loaded = ran.logged("Loaded cuDNN version")  # the line ends with the version
    return DeviceResult(
        answer["seconds"],
        tuple(answer["wrong"]),
        answer["tflops"],
        loaded.rsplit(" ", 1)[-1] if loaded else None,
    )


def probe_training(
    run: Run, timeout_s: float, count: int, *, simulated: bool
) -> CollectiveResult | ProbeFailure:
    """Train on ``count`` GPUs together, in a process of its own, and return the results.

    ``run`` starts the process (`run_command`). If it fails, or does not end within ``timeout_s`` seconds, a
    `ProbeFailure` is returned. With ``simulated``, logical CPU devices stand in for the GPUs.
    """
    _, answer = _run_probe(
        run, timeout_s, MODULE, "train", str(count), *(["--simulated"] if simulated else [])
    )
    if isinstance(answer, ProbeFailure):
        return answer
    return CollectiveResult(tuple(answer["sums"]), answer["examples_per_s"])


def probe_memory_share(run: Run, timeout_s: float) -> MemoryShareResult | ProbeFailure:
    """Return whether a process that may use a quarter of the first GPU's memory is kept within it.

    ``run`` starts the process (`run_command`). If it fails, or does not end within ``timeout_s`` seconds, a
    `ProbeFailure` is returned.
    """
    _, answer = _run_probe(run, timeout_s, MODULE, "share")
    if isinstance(answer, ProbeFailure):
        return answer
    return MemoryShareResult(answer["limit_bytes"], answer["refused"], answer["works"])


def probe_tpu(run: Run, timeout_s: float) -> tuple[str, ...] | ProbeFailure:
    """Return the reasons why TensorFlow cannot compute on TPUs; () if it can.

    A `ProbeFailure` means that this could not be found out. ``run`` asks TensorFlow in a process (`run_command`), which
    must end within ``timeout_s`` seconds.
    """
    _, answer = _run_probe(run, timeout_s, MODULE, "tpu")
    if isinstance(answer, ProbeFailure):
        return answer
    return tuple(answer["missing"])


def probe_cluster(run: Run, timeout_s: float, address: str) -> Resources | ProbeFailure:
    """Return the CPUs and GPUs for trials of the Ray cluster at an address; a `ProbeFailure` if it does not answer.

    ``run`` asks in a process (`run_command`), which must end within ``timeout_s`` seconds. If the cluster expects
    another authentication token, the failure has advice.
    """
    ran, answer = _run_probe(run, timeout_s, CLUSTER_MODULE, address)
    # Ray writes the name of its error to standard error
    if "AuthenticationError" in ran.err or "InvalidAuthToken" in ran.err:
        found = "it wants an authentication token (RAY_AUTH_TOKEN) and got none or another"
        return ProbeFailure(
            found,
            "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN to what ray get-auth-token says on its head node",
        )
    if isinstance(answer, ProbeFailure):
        return answer
    return answer["cpus"], answer["gpus"]


def probe_node_pairs(
    run: Run, timeout_s: float, address: str, most_s: float
) -> tuple[NodePairResult, ...] | ProbeFailure:
    """Let pairs of nodes of a cluster compute a sum together; return the results, () if it has only one node.

    ``run`` starts the process that does this (`run_command`). Each pair must finish within ``timeout_s`` seconds; a
    pair that fails has a result with the reason. If the process fails, or not all pairs finish within ``most_s``
    seconds, a `ProbeFailure` is returned.
    """
    _, answer = _run_probe(run, most_s, CLUSTER_MODULE, address, f"{timeout_s:g}")
    if isinstance(answer, ProbeFailure):
        return answer
    results = []
    for pair in answer["pairs"]:
        ran = [CommandResult(*one) for one in pair["ran"]]  # one for each of the two nodes
        results.append(_parse_node_pair(pair["nodes"], ran))
    return tuple(results)


def _parse_node_pair(nodes: list[str], ran: list[CommandResult]) -> NodePairResult:
    both = (nodes[0], nodes[1])
    for node, one in zip(nodes, ran, strict=True):
        if one.code != 0:
            return NodePairResult(both, failure=f"on {node}: {one.reason}")
    # the program on the first node prints the measurements, in the last line
    try:
        found = json.loads(ran[0].out.strip().splitlines()[-1])
        return NodePairResult(both, found["latency_s"], found["bytes_per_s"])
    except (IndexError, KeyError, json.JSONDecodeError):
        return NodePairResult(both, failure=f"no JSON but {ran[0].out[-100:]!r}")


def _run_probe(
    run: Run, timeout_s: float, module: str, *arguments: str
) -> tuple[CommandResult, Any]:
    """Run a module as a program; return its result, and its answer: the JSON in the last line of its output.

    The answer is a `ProbeFailure` with the reason if the program fails, does not end within ``timeout_s`` seconds,
    prints nothing, or no JSON in that line.
    """
    ran = run([sys.executable, "-m", module, *arguments], timeout_s)
    lines = ran.out.strip().splitlines()
    if ran.code != 0 or not lines:
        return ran, ProbeFailure(ran.reason)
    try:
        return ran, json.loads(lines[-1])
    except json.JSONDecodeError:
        return ran, ProbeFailure(f"no JSON but {lines[-1]!r}")
