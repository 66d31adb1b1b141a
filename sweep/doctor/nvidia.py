"""Reads the state of the GPUs from the documented output of nvidia-smi."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sweep.doctor.programs import MISSING, Run
from sweep.store.sweep_info import parse_mig_devices, visible

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
    """The information from nvidia-smi. If the program exists but does not work, ``failure`` says why."""

    gpus: tuple[Gpu, ...] = ()
    processes: tuple[Process, ...] = ()
    # "NV18", "PIX", "PHB", "SYS", ...
    links: Mapping[tuple[int, int], str] = field(default_factory=dict)
    # index of the GPU by UUID of the instance
    mig_devices: Mapping[str, int] = field(default_factory=dict)
    failure: str | None = None


def gather_gpus(run: Run) -> Nvidia:
    """Run nvidia-smi and return the GPUs, their processes, links and MIG instances.

    ``run`` runs a program, as `run_command` does. If there is no nvidia-smi or no GPU, the result is empty; if the
    query of GPUs fails, only `failure` is set. Processes, links and instances are empty if only their query fails.
    """
    fields = list(FIELDS)
    while True:
        ran = run(["nvidia-smi", f"--query-gpu={','.join(fields)}", FORMAT], TIMEOUT_S)
        unknown = _UNKNOWN_FIELD.search(ran.out + ran.err)
        if unknown is None or unknown[1] not in fields:
            break
        fields.remove(unknown[1])  # not known to an older driver
    if ran.code == MISSING:
        return Nvidia()
    if "No devices were found" in ran.out:  # nvidia-smi ends with an error then, which is none here
        return Nvidia()
    if ran.code != 0:
        return Nvidia(failure=ran.reason)
    gpus = tuple(
        _parse_gpu(dict(zip(fields, _split_cells(line), strict=True)))
        for line in _skip_empty_lines(ran.out)
    )
    processes = run(
        ["nvidia-smi", f"--query-compute-apps={','.join(PROCESS_FIELDS)}", FORMAT], TIMEOUT_S
    )
    has_mig = any(gpu.mig for gpu in gpus)
    if has_mig:
        listed = run(["nvidia-smi", "-L"], TIMEOUT_S)
    else:
        listed = None
    if len(gpus) > 1:
        topology = run(["nvidia-smi", "topo", "-m"], TIMEOUT_S)
    else:
        topology = None
    return Nvidia(
        gpus=gpus,
        processes=tuple(map(_parse_process, _skip_empty_lines(processes.out)))
        if processes.code == 0
        else (),
        links=parse_links(topology.out) if topology and topology.code == 0 else {},
        mig_devices=parse_mig_devices(listed.out) if listed else {},
    )


def parse_links(matrix: str) -> dict[tuple[int, int], str]:
    """Return the link between each pair of GPUs, by their indices, lower one first.

    ``matrix`` is the output of ``nvidia-smi topo -m``. Returns {} if it has no matrix.
    """
    rows = iter([_ESCAPES.sub("", line).split() for line in matrix.splitlines()])
    head = next((row for row in rows if "GPU0" in row), [])
    links = {}
    for row in rows:
        if row and (a := _parse_gpu_number(row[0])) is not None:
            # not strict: further columns follow those of GPUs, and the names of some have a space
            for name, link in zip(head, row[1:], strict=False):
                if (b := _parse_gpu_number(name)) is not None and a < b:
                    links[a, b] = link
    return links


def list_visible_gpus(nvidia: Nvidia, setting: str | None) -> tuple[Gpu, ...]:
    """Return the GPUs that CUDA shows if CUDA_VISIBLE_DEVICES is ``setting``, in its order; None means not set.

    All are returned if it is not set. Otherwise, the result ends before the first invalid entry.
    """
    known = {gpu.index: gpu for gpu in nvidia.gpus}
    shown = visible({index: gpu.uuid for index, gpu in known.items()}, nvidia.mig_devices, setting)
    return tuple(known[index] for index in shown)


def _parse_gpu(row: Mapping[str, str]) -> Gpu:
    capability = re.fullmatch(r"(\d+)\.(\d+)", row.get("compute_cap", ""))
    return Gpu(
        index=int(row["index"]),
        uuid=row["uuid"],
        name=row["name"],
        driver=row["driver_version"],
        total_mib=_parse_count(row.get("memory.total", "")),
        used_mib=_parse_count(row.get("memory.used", "")),
        mig=_parse_switch(row.get("mig.mode.current", "")),
        ecc=_parse_switch(row.get("ecc.mode.current", "")),
        ecc_errors=_parse_count(row.get("ecc.errors.uncorrected.volatile.total", "")),
        capability=(int(capability[1]), int(capability[2])) if capability else None,
    )


def _parse_process(line: str) -> Process:
    uuid, pid, *name, used = _split_cells(line)
    return Process(uuid, pid, ", ".join(name), _parse_count(used))


def _skip_empty_lines(text: str) -> Iterable[str]:
    return (line for line in text.splitlines() if line.strip())


def _split_cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split(", ")]


def _parse_count(cell: str) -> int | None:
    return int(cell) if cell.isdecimal() else None


def _parse_switch(cell: str) -> bool | None:
    return {"Enabled": True, "Disabled": False}.get(cell)


def _parse_gpu_number(name: str) -> int | None:
    """Return 3 for "GPU3"; None for other cells, such as network cards and legends."""
    number = re.fullmatch(r"GPU(\d+)", name)
    return int(number[1]) if number else None
