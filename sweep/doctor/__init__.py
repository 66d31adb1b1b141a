"""Findings of the doctor, and its questions to TensorFlow, Ray and NVIDIA's driver.

TensorFlow and Ray are queried in separate processes, which may fail, abort or hang; the driver by the documented output
of nvidia-smi.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from sweep.store.sweep_info import parse_mig_devices, visible


class Level(StrEnum):
    """The severity of a finding; an error means that some sweeps cannot run on this machine."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the checklist: what was checked, the result, and what to do about it."""

    check: str
    level: Level
    found: str
    todo: str = ""


MISSING = 127  # exit code of a shell for a missing program
_TELLING = re.compile(r"error|fail|fatal|abort|cannot|could not|unable|mismatch", re.IGNORECASE)
_PREFIX = re.compile(
    r"^([IWEF]\d{4} [\d:.]+ +\d+ \S+\]|\[[\d-]+ [\d:,]+ \w \d+ \d+\] \S+:) "
)  # of log lines of TensorFlow and Ray


@dataclass(frozen=True, slots=True)
class Ran:
    """The result of a program; ``code`` is None after a timeout, and negative after a signal."""

    code: int | None
    out: str
    err: str = ""

    @property
    def reason(self) -> str:
        """Why it gave no answer, in one line: how it ended, during which step, and its last relevant line of output."""
        if self.code is None:
            how = "no answer in time"
        elif self.code < 0:
            how = f"aborted by {signal.Signals(-self.code).name}"
        else:
            how = f"exit code {self.code}"
        lines = [_PREFIX.sub("", line).strip() for line in f"{self.out}\n{self.err}".splitlines() if line.strip()]
        steps = [line.removeprefix("probe: ") for line in lines if line.startswith("probe: ")]
        words = [line for line in lines if _TELLING.search(line) and not line.startswith("probe: ")][-1:] or lines[-1:]
        said = [] if words and words[0].startswith("probe: ") else words
        return "; ".join([how + (f" during {steps[-1]}" if steps else ""), *said])

    def logged(self, pattern: str) -> str | None:
        """Return the last line of its log that matches, without time, process and source file; None if none does."""
        lines = [line for line in self.err.splitlines() if re.search(pattern, line, re.IGNORECASE)]
        return _PREFIX.sub("", lines[-1]).strip() if lines else None


Run: TypeAlias = Callable[[Sequence[str], float], Ran]
"""Runs a program with a timeout in seconds."""


def run_command(command: Sequence[str], timeout_s: float) -> Ran:
    """Run a program in its own session, which is killed as a whole after the timeout."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "0"}  # TensorFlow's log explains why it sees no GPU
    try:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=environment,
            start_new_session=True,
        )
    except FileNotFoundError:
        return Ran(MISSING, "")
    except OSError as error:
        return Ran(MISSING - 1, "", str(error))
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        out, err = _end(process)
        return Ran(None, out, err)
    finally:
        if process.poll() is None:
            _end(process)
    return Ran(process.returncode, out, err)


def _end(process: subprocess.Popen[str]) -> tuple[str, str]:
    os.killpg(process.pid, signal.SIGKILL)
    try:
        return process.communicate(timeout=5)
    except subprocess.TimeoutExpired:  # it hangs in the driver and ignores signals
        return "", ""


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
class Tried:
    """The results of one device."""

    seconds: Mapping[str, float]
    wrong: tuple[str, ...]
    tflops: float
    cudnn: str | None  # version of the library, if the log has it


@dataclass(frozen=True, slots=True)
class Trained:
    """The results of several devices training together."""

    sums: tuple[float, ...]  # 1 + 2 + ... over the replicas, as computed on each of them
    examples_per_s: float


@dataclass(frozen=True, slots=True)
class Shared:
    """The results of a process with a share of a GPU."""

    limit_bytes: float
    refused: bool  # whether more than the limit was refused
    works: bool  # whether it works afterwards


@dataclass(frozen=True, slots=True)
class Failure:
    """A probe without an answer; ``todo`` is advice, if the cause is known."""

    reason: str
    todo: str = ""


@dataclass(frozen=True, slots=True)
class Met:
    """Two nodes that computed a sum together, or the reason why they could not."""

    nodes: tuple[str, str]
    latency_s: float = 0.0  # of the sum of one number
    bytes_per_s: float = 0.0  # of the sum of a large tensor, counted once
    failure: str = ""


def describe(run: Run, timeout_s: float) -> TensorFlow | Failure:
    """Query the versions of TensorFlow and the devices it sees."""
    ran, answer = _ask(run, timeout_s, MODULE, "describe")
    if isinstance(answer, Failure):
        return answer
    return TensorFlow(
        version=answer["tensorflow"],
        keras=answer["keras"],
        backend=answer["backend"],
        cuda=answer["cuda"],
        cudnn=answer["cudnn"],
        architectures=tuple(answer["architectures"]),
        capabilities=tuple(
            None if gpu["capability"] is None else (gpu["capability"][0], gpu["capability"][1])
            for gpu in answer["gpus"]
        ),
        complaint=ran.logged("dlopen|could not find cuda|cuInit|Ignoring visible gpu"),
        keras_error=answer.get("keras_error", ""),
        gauges=answer.get("gauges", {}),
    )


def try_device(run: Run, timeout_s: float, name: str) -> Tried | Failure:
    """Run computations on one device."""
    ran, answer = _ask(run, timeout_s, MODULE, "device", name)
    if isinstance(answer, Failure):
        return answer
    loaded = ran.logged("Loaded cuDNN version")
    return Tried(
        answer["seconds"], tuple(answer["wrong"]), answer["tflops"], loaded.rsplit(" ", 1)[-1] if loaded else None
    )


def train(run: Run, timeout_s: float, count: int, *, simulated: bool) -> Trained | Failure:
    """Train on ``count`` devices together."""
    _, answer = _ask(run, timeout_s, MODULE, "train", str(count), *(["--simulated"] if simulated else []))
    if isinstance(answer, Failure):
        return answer
    return Trained(tuple(answer["sums"]), answer["examples_per_s"])


def share(run: Run, timeout_s: float) -> Shared | Failure:
    """Run a process that may use a quarter of the first GPU and asks for more."""
    _, answer = _ask(run, timeout_s, MODULE, "share")
    if isinstance(answer, Failure):
        return answer
    return Shared(answer["limit_bytes"], answer["refused"], answer["works"])


def tpu(run: Run, timeout_s: float) -> tuple[str, ...] | Failure:
    """Return the reasons why TensorFlow cannot compute on TPUs; empty if it can."""
    _, answer = _ask(run, timeout_s, MODULE, "tpu")
    return answer if isinstance(answer, Failure) else tuple(answer["missing"])


def cluster(run: Run, timeout_s: float, address: str) -> Resources | Failure:
    """Query the resources of the Ray cluster at an address."""
    ran, answer = _ask(run, timeout_s, CLUSTER_MODULE, address)
    if "AuthenticationError" in ran.err or "InvalidAuthToken" in ran.err:
        found = "it wants an authentication token (RAY_AUTH_TOKEN) and got none or another"
        return Failure(
            found, "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN to what ray get-auth-token says on its head node"
        )
    if isinstance(answer, Failure):
        return answer
    return answer["cpus"], answer["gpus"]


def between_nodes(run: Run, timeout_s: float, address: str, most_s: float) -> tuple[Met, ...] | Failure:
    """Run a sum on pairs of nodes of a cluster; empty if it has only one node.

    Each pair must finish within ``timeout_s``, and all of them within ``most_s``.
    """
    _, answer = _ask(run, most_s, CLUSTER_MODULE, address, f"{timeout_s:g}")
    if isinstance(answer, Failure):
        return answer
    return tuple(_met(pair["nodes"], [Ran(*one) for one in pair["ran"]]) for pair in answer["pairs"])


def _met(nodes: list[str], ran: list[Ran]) -> Met:
    both = (nodes[0], nodes[1])
    for node, one in zip(nodes, ran, strict=True):
        if one.code != 0:
            return Met(both, failure=f"on {node}: {one.reason}")
    try:
        found = json.loads(ran[0].out.strip().splitlines()[-1])
        return Met(both, found["latency_s"], found["bytes_per_s"])
    except (IndexError, KeyError, json.JSONDecodeError):
        return Met(both, failure=f"no JSON but {ran[0].out[-100:]!r}")


def _ask(run: Run, timeout_s: float, module: str, *arguments: str) -> tuple[Ran, Any]:
    ran = run([sys.executable, "-m", module, *arguments], timeout_s)
    lines = ran.out.strip().splitlines()
    if ran.code != 0 or not lines:
        return ran, Failure(ran.reason)
    try:
        return ran, json.loads(lines[-1])
    except json.JSONDecodeError:
        return ran, Failure(f"no JSON but {lines[-1]!r}")


FIELDS = (
    *("index", "uuid", "name", "driver_version", "memory.total", "memory.used", "mig.mode.current"),
    *("ecc.mode.current", "ecc.errors.uncorrected.volatile.total", "compute_cap"),
)
PROCESS_FIELDS = ("gpu_uuid", "pid", "process_name", "used_memory")
FORMAT = "--format=csv,noheader,nounits"
TIMEOUT_S = 30.0

_UNKNOWN_FIELD = re.compile(r'Field "([^"]+)" is not a valid field to query')
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. Values that the driver does not report are None; memory is in MiB."""

    index: int
    uuid: str
    name: str
    driver: str
    total_mib: int | None = None
    used_mib: int | None = None
    mig: bool | None = None
    ecc: bool | None = None
    ecc_errors: int | None = None
    capability: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Process:
    """A program that uses memory of a GPU."""

    uuid: str
    pid: str
    name: str
    used_mib: int | None


@dataclass(frozen=True, slots=True)
class Nvidia:
    """The information from nvidia-smi; ``failure`` if it exists but does not work."""

    gpus: tuple[Gpu, ...] = ()
    processes: tuple[Process, ...] = ()
    links: Mapping[tuple[int, int], str] = field(default_factory=dict)  # "NV18", "PIX", "PHB", "SYS", ...
    mig_devices: Mapping[str, int] = field(default_factory=dict)  # index of the GPU by UUID of the instance
    failure: str | None = None


def gather_gpus(run: Run) -> Nvidia:
    """Query nvidia-smi; without that program, return no GPUs and no failure."""
    fields = list(FIELDS)
    while True:
        ran = run(["nvidia-smi", f"--query-gpu={','.join(fields)}", FORMAT], TIMEOUT_S)
        unknown = _UNKNOWN_FIELD.search(ran.out + ran.err)
        if unknown is None or unknown[1] not in fields:
            break
        fields.remove(unknown[1])  # not known to an older driver
    if ran.code == MISSING:
        return Nvidia()
    if "No devices were found" in ran.out:
        return Nvidia()
    if ran.code != 0:
        return Nvidia(failure=ran.reason)
    gpus = tuple(_gpu(dict(zip(fields, _cells(line), strict=True))) for line in _lines(ran.out))
    processes = run(["nvidia-smi", f"--query-compute-apps={','.join(PROCESS_FIELDS)}", FORMAT], TIMEOUT_S)
    listed = run(["nvidia-smi", "-L"], TIMEOUT_S) if any(gpu.mig for gpu in gpus) else None
    topology = run(["nvidia-smi", "topo", "-m"], TIMEOUT_S) if len(gpus) > 1 else None
    return Nvidia(
        gpus=gpus,
        processes=tuple(map(_process, _lines(processes.out))) if processes.code == 0 else (),
        links=parse_links(topology.out) if topology and topology.code == 0 else {},
        mig_devices=parse_mig_devices(listed.out) if listed else {},
    )


def parse_links(matrix: str) -> dict[tuple[int, int], str]:
    """Return the link between each pair of GPUs, lower index first, from the matrix of ``nvidia-smi topo -m``."""
    rows = iter([_ESCAPES.sub("", line).split() for line in matrix.splitlines()])
    head = next((row for row in rows if "GPU0" in row), [])
    links = {}
    for row in rows:
        if row and (a := _number(row[0])) is not None:
            for name, link in zip(head, row[1:], strict=False):
                if (b := _number(name)) is not None and a < b:
                    links[a, b] = link
    return links


def visible_gpus(nvidia: Nvidia, setting: str | None) -> tuple[Gpu, ...]:
    """Return the GPUs that CUDA shows with this CUDA_VISIBLE_DEVICES (None: not set), in its order."""
    known = {gpu.index: gpu for gpu in nvidia.gpus}
    shown = visible({index: gpu.uuid for index, gpu in known.items()}, nvidia.mig_devices, setting)
    return tuple(known[index] for index in shown)


def _gpu(row: Mapping[str, str]) -> Gpu:
    capability = re.fullmatch(r"(\d+)\.(\d+)", row.get("compute_cap", ""))
    return Gpu(
        index=int(row["index"]),
        uuid=row["uuid"],
        name=row["name"],
        driver=row["driver_version"],
        total_mib=_count(row.get("memory.total", "")),
        used_mib=_count(row.get("memory.used", "")),
        mig=_switch(row.get("mig.mode.current", "")),
        ecc=_switch(row.get("ecc.mode.current", "")),
        ecc_errors=_count(row.get("ecc.errors.uncorrected.volatile.total", "")),
        capability=(int(capability[1]), int(capability[2])) if capability else None,
    )


def _process(line: str) -> Process:
    uuid, pid, *name, used = _cells(line)
    return Process(uuid, pid, ", ".join(name), _count(used))


def _lines(text: str) -> Iterable[str]:
    return (line for line in text.splitlines() if line.strip())


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split(", ")]


def _count(cell: str) -> int | None:
    return int(cell) if cell.isdecimal() else None


def _switch(cell: str) -> bool | None:
    return {"Enabled": True, "Disabled": False}.get(cell)


def _number(name: str) -> int | None:
    """Return 3 for "GPU3"; None for other cells, such as network cards and legends."""
    number = re.fullmatch(r"GPU(\d+)", name)
    return int(number[1]) if number else None
