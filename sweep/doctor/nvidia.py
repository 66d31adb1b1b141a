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
    Links are asked for only if there are several GPUs, instances only if MIG is on. What an older driver does not know
    is None.
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
    # one line for each GPU, with the fields in their order
    gpus = tuple(
        _parse_gpu(dict(zip(fields, _split_cells(line), strict=True)))
        for line in _skip_empty_lines(ran.out)
    )
    listed = run(
        ["nvidia-smi", f"--query-compute-apps={','.join(PROCESS_FIELDS)}", FORMAT], TIMEOUT_S
    )
    processes: tuple[Process, ...] = ()
    if listed.code == 0:
        processes = tuple(map(_parse_process, _skip_empty_lines(listed.out)))
    mig_devices: Mapping[str, int] = {}
    if any(gpu.mig for gpu in gpus):
        mig_devices = parse_mig_devices(run(["nvidia-smi", "-L"], TIMEOUT_S).out)
    links: Mapping[tuple[int, int], str] = {}
    if len(gpus) > 1:
        topology = run(["nvidia-smi", "topo", "-m"], TIMEOUT_S)
        if topology.code == 0:
            links = parse_links(topology.out)
    return Nvidia(gpus=gpus, processes=processes, links=links, mig_devices=mig_devices)


def parse_links(matrix: str) -> dict[tuple[int, int], str]:
    """Return the link between each pair of GPUs, such as "NV18" or "SYS", by their indices, lower one first.

    ``matrix`` is the output of ``nvidia-smi topo -m``, which has a row and a column for each GPU. Returns {} if it has
    no matrix.
    """
    rows = iter([_ESCAPES.sub("", line).split() for line in matrix.splitlines()])
    column_names = next((row for row in rows if "GPU0" in row), [])
    links = {}
    for row in rows:  # those after the names of the columns
        if not row:
            continue
        a = _parse_gpu_number(row[0])
        if a is None:  # the row of a network card, or of the legend
            continue
        # not strict: further columns follow those of GPUs, and the names of some have a space
        for name, link in zip(column_names, row[1:], strict=False):
            b = _parse_gpu_number(name)
            if b is not None and a < b:
                links[a, b] = link
    return links


def list_visible_gpus(nvidia: Nvidia, setting: str | None) -> tuple[Gpu, ...]:
    """Return the GPUs that CUDA shows if CUDA_VISIBLE_DEVICES is ``setting``, in its order; None means not set.

    All are returned if it is not set. Otherwise, the result ends before the first entry that names no GPU of
    ``nvidia``, so it is () for an empty text. Entries are indices, beginnings of UUIDs, or MIG instances, which stand
    for their GPU.
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
    """Return the number of a GPU in a cell of a matrix, 3 for "GPU3"; None for cells of other devices and words."""
    number = re.fullmatch(r"GPU(\d+)", name)
    return int(number[1]) if number else None
