"""The doctor's findings on the host: packages, environment, memory, disks and Ray."""

from __future__ import annotations

import platform
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from sweep import keras_backend
from sweep.contract import cpus, memory_bytes
from sweep.doctor.findings import Finding, Severity
from sweep.doctor.probes import NodePairResult, ProbeFailure, Resources, TensorFlow
from sweep.store.sweep_info import DISTRIBUTION, get_package_version

VARIABLES = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "TF_USE_LEGACY_KERAS", "KERAS_BACKEND")


@dataclass(frozen=True, slots=True)
class Host:
    """Facts about this machine; sizes in bytes, None if unknown."""

    python: str
    requires_python: str
    requirements: tuple[str, ...]  # of this package, from its metadata
    installed: Mapping[str, str | None]
    variables: Mapping[str, str]
    cpus: int
    memory_bytes: int | None
    shared_free_bytes: int | None  # of /dev/shm; None if the system has none


@dataclass(frozen=True, slots=True)
class Disk:
    """The disk for results."""

    folder: str
    free_bytes: int
    failure: str | None = None  # why it cannot be written


def gather_facts(environ: Mapping[str, str]) -> Host:
    """Collect the facts about this machine, without starting a process.

    ``environ`` has the environment variables; only those in `VARIABLES` are kept. Of the packages that sweep requires,
    those that are needed only on some systems, or by extras, are left out. Raises PackageNotFoundError if sweep itself
    is not installed as a package.
    """
    about = metadata.metadata(DISTRIBUTION)
    # a marker after the name says for which systems or extras a package is needed
    required = tuple(
        text for text in metadata.requires(DISTRIBUTION) or () if not Requirement(text).marker
    )
    return Host(
        python=platform.python_version(),
        requires_python=about["Requires-Python"],
        requirements=required,
        installed={
            Requirement(text).name: get_package_version(Requirement(text).name) for text in required
        },
        variables={name: environ[name] for name in VARIABLES if name in environ},
        cpus=cpus(),
        memory_bytes=memory_bytes(),
        shared_free_bytes=shutil.disk_usage("/dev/shm").free if Path("/dev/shm").is_dir() else None,
    )


def probe_disk(folder: Path) -> Disk:
    """Return the free space of the disk of a folder in bytes, and the error if the folder cannot be written to.

    To find out, a temporary file is written to the folder or, if it does not exist, to the closest folder above it. The
    file is deleted again, and the folder is not created.
    """
    existing = folder.absolute()
    while not _exists(existing):
        existing = existing.parent
    free_bytes = shutil.disk_usage(existing).free
    try:
        with tempfile.TemporaryFile(dir=existing) as file:
            file.write(b"sweep")
            file.flush()
    except OSError as error:
        return Disk(str(folder), free_bytes, f"{existing}: {error.strerror or error}")
    return Disk(str(folder), free_bytes)


def _exists(folder: Path) -> bool:
    """Return whether a folder exists; False if this user may not enter a folder above it."""
    try:
        return folder.exists()
    except PermissionError:
        return False


STORE_SHARE = 0.3  # of memory: the size of Ray's object store (Ray, "Object store memory")
LEAST_SHARED = 2**30  # NCCL and Ray fail in odd ways with Docker's default of 64 MB
LEAST_FREE = 2**30
SLOW_BYTES_PER_S = 1e8  # slightly less than a gigabit per second


def check_versions(host: Host) -> Iterator[Finding]:
    """Report in one finding whether Python and all required packages are installed in a tested version.

    If not, it is an error that names each package that is missing or has another version, and Python if that has.
    """
    wrong = []
    for text in host.requirements:
        required = Requirement(text)
        version = host.installed.get(required.name)
        if version is None:
            wrong.append(f"{required.name} is missing (expected {required.specifier})")
        elif not required.specifier.contains(version, prereleases=True):
            wrong.append(f"{required.name} {version} (expected {required.specifier})")
    if not SpecifierSet(host.requires_python).contains(host.python):
        wrong.append(f"Python {host.python} (expected {host.requires_python})")
    if wrong:
        todo = "python -m pip install -c constraints.txt -e . puts the tested versions in place"
        yield Finding(
            "versions", Severity.ERROR, f"outside of the tested versions: {', '.join(wrong)}", todo
        )
    else:
        shown = (
            f"{name} {host.installed[name]}"
            for name in ("tensorflow", "keras", "ray")
            if name in host.installed
        )
        found = f"Python {host.python}, {', '.join(shown)}; all {len(host.requirements)} packages as tested"
        yield Finding("versions", Severity.OK, found)


def check_keras(host: Host, tensorflow: TensorFlow | ProbeFailure) -> Iterator[Finding]:
    """Report whether ``import keras`` gives Keras 3 on TensorFlow, in one finding or two errors.

    ``tensorflow`` is the answer of `probe_tensorflow`. If the probe failed, the only finding is an error about
    TensorFlow. There are two findings if both a variable for an older Keras and another backend are set.
    """
    if isinstance(tensorflow, ProbeFailure):
        found = f"TensorFlow cannot be imported: {tensorflow.reason}"
        yield Finding(
            "tensorflow", Severity.ERROR, found, "see what python -c 'import tensorflow' says"
        )
        return
    legacy = host.variables.get("TF_USE_LEGACY_KERAS", "0").lower() in ("1", "true")
    if legacy:
        found = (
            "TF_USE_LEGACY_KERAS is set: tf.keras would be another Keras than the one that trains"
        )
        yield Finding("keras", Severity.ERROR, found, "unset TF_USE_LEGACY_KERAS")
    found = keras_backend.explain_wrong_backend(tensorflow.backend)  # "" if it is TensorFlow
    if found:
        if tensorflow.keras_error:
            found += f": {tensorflow.keras_error}"
        yield Finding("keras", Severity.ERROR, found, keras_backend.HINT)
    elif not legacy:
        yield Finding(
            "keras", Severity.OK, f"Keras {tensorflow.keras} on TensorFlow {tensorflow.version}"
        )


def check_shared_memory(host: Host, *, several_gpus: bool) -> Iterator[Finding]:
    """Report in one finding whether /dev/shm has room for Ray's object store.

    It is a warning if less than 1 GiB is free, and a note if less is free than Ray would take, which is 30 % of the
    memory, or if the system has no /dev/shm. With ``several_gpus``, the warning also names NCCL, whose buffers between
    GPUs are there.
    """
    if host.shared_free_bytes is None:
        yield Finding(
            "shared memory",
            Severity.NOTE,
            "this system has no /dev/shm; Ray keeps its objects in files",
        )
        return
    free = host.shared_free_bytes
    wanted = STORE_SHARE * (host.memory_bytes or 0)
    found = f"/dev/shm has {_format_size(free)} free; Ray would take up to {_format_size(wanted)}"
    if free < LEAST_SHARED:
        todo = f"start the container with --shm-size={max(wanted / 1e9, 1):.0f}g"
        if several_gpus:
            nccl = ", and NCCL may fail between GPUs"
        else:
            nccl = ""
        yield Finding(
            "shared memory",
            Severity.WARNING,
            f"{found}: objects would go to slow files{nccl}",
            todo,
        )
    elif free < wanted:
        yield Finding("shared memory", Severity.NOTE, f"{found}, and will take less")
    else:
        yield Finding("shared memory", Severity.OK, found)


def check_disk(disk: Disk) -> Iterator[Finding]:
    """Report in one finding whether results can be written, and if so whether their disk has less than 1 GiB free.

    The first is an error if not, the second a warning if so. ``disk`` is what `probe_disk` returns.
    """
    found = f"{disk.folder}: {_format_size(disk.free_bytes)} free"
    if disk.failure:
        found = f"{disk.folder}: nothing can be written: {disk.failure}"
        yield Finding("results", Severity.ERROR, found, "name another folder with --results")
    elif disk.free_bytes < LEAST_FREE:
        todo = "free some space: checkpoints and the log need it, and a full disk ends a sweep"
        yield Finding("results", Severity.WARNING, found, todo)
    else:
        yield Finding("results", Severity.OK, found)


def check_ray(
    resources: Resources | ProbeFailure, usable: int, address: str | None
) -> Iterator[Finding]:
    """Report the resources for trials, of the cluster at ``address`` or, if it is None, of the Ray that a sweep starts.

    There is one finding. ``resources`` are the CPUs and GPUs for trials, or the failure of `probe_cluster`, which is an
    error. ``usable`` is the number of GPUs that TensorFlow sees on this machine; a cluster with fewer gets a warning.
    """
    if isinstance(resources, ProbeFailure):
        found = f"no cluster at {address}: {resources.reason}"
        todo = (
            resources.todo
            or "start one with: ray start --head; or leave --address and RAY_ADDRESS out"
        )
        yield Finding("ray", Severity.ERROR, found, todo)
        return
    cpu_count, gpu_count = resources
    share = f"{cpu_count:g} CPUs and {gpu_count:g} GPUs"
    if address is None:
        yield Finding(
            "ray", Severity.OK, f"a sweep starts its own Ray here, with {share} for trials"
        )
    elif gpu_count < usable:
        todo = "start its nodes with --num-gpus, or without CUDA_VISIBLE_DEVICES"
        found = f"the cluster at {address} has {share}, though TensorFlow sees {usable} GPUs on this machine"
        yield Finding("ray", Severity.WARNING, found, todo)
    else:
        yield Finding("ray", Severity.OK, f"the cluster at {address} has {share}")


def check_ray_folder(folder: str, fault: str) -> Iterator[Finding]:
    """Report, as a warning, if a Ray that a sweep starts itself cannot store its files in ``folder``.

    ``fault`` says why, as the end of a sentence about the folder; if it is "", nothing is yielded.
    """
    if fault:
        todo = "export RAY_TMPDIR=DIR, a short folder that can be written; a sweep takes /tmp where it can"
        yield Finding("ray", Severity.WARNING, f"{folder} {fault}", todo)


def check_node_pairs(pairs: tuple[NodePairResult, ...] | ProbeFailure) -> Iterator[Finding]:
    """Report whether a trial can have workers on several nodes, and the cost of summing between them.

    ``pairs`` is the answer of `probe_node_pairs`. There is one finding for each pair, an error if it failed and a
    warning if it sums less than 100 MB/s, and then a note about open ports. There is a single finding if the probe
    failed, which is an error, or if there are no pairs.
    """
    todo = (
        "let the nodes reach one another on all ports, and install the same versions on all of them"
    )
    if isinstance(pairs, ProbeFailure):
        yield Finding(
            "nodes", Severity.ERROR, f"nothing is known of sums between nodes: {pairs.reason}", todo
        )
        return
    if not pairs:
        yield Finding(
            "nodes",
            Severity.OK,
            "one node has CPUs for trials: there is nothing between nodes to try",
        )
        return
    for one in pairs:
        names = " and ".join(one.nodes)
        if one.failure:
            yield Finding(
                "nodes", Severity.ERROR, f"{names} do not train together: {one.failure}", todo
            )
            continue
        found = f"{names} sum up over two ranks: {one.latency_s * 1000:.2f} ms, {one.bytes_per_s / 1e6:.0f} MB/s"
        if one.bytes_per_s < SLOW_BYTES_PER_S:
            wait_s = 1e8 / one.bytes_per_s  # 25 million weights of 4 bytes
            slow = f"{found}; each update of a model of 25 million weights waits {wait_s:.1f} s"
            yield Finding(
                "nodes",
                Severity.WARNING,
                slow,
                "join the nodes by a faster link, or give each trial one node",
            )
        else:
            yield Finding("nodes", Severity.OK, found)
    found = "the workers of a trial listen on all networks of their nodes, on ports of TensorFlow's without a password"
    yield Finding(
        "ports",
        Severity.NOTE,
        found,
        "keep the nodes in a network of their own, or behind a firewall",
    )


def _format_size(count: float) -> str:
    if count >= 2**30:
        return f"{count / 2**30:.1f} GiB"
    return f"{count / 2**20:.0f} MiB"
