"""The doctor's findings on GPUs: driver, libraries, what each GPU can do, and whether trials can share one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sweep.doctor.findings import Finding, Severity
from sweep.doctor.nvidia import Gpu, Nvidia, Process
from sweep.doctor.probes import (
    MODULE,
    CollectiveResult,
    DeviceResult,
    MemoryShareResult,
    ProbeFailure,
    TensorFlow,
)
from sweep.doctor.programs import MISSING, Run
from sweep.gpu_architectures import Coverage, find_coverage, parse_architecture
from sweep.text import counted

GOOD, POOR = 0.8, 0.5  # shares of perfect scaling


def check_device(name: str, tried: DeviceResult | ProbeFailure) -> Iterator[Finding]:
    """Report the results of one device, in one finding: its speed, or the error of the probe or in its results.

    ``name`` is the device's name for TensorFlow, ``tried`` the answer of `probe_device`. It is an error if the probe
    failed, or if some results are wrong.
    """
    if isinstance(tried, ProbeFailure):
        todo = (
            f"see it fail: python -m {MODULE} device {name}; leave this device out until it works"
        )
        yield Finding("device", Severity.ERROR, f"{name}: {tried.reason}", todo)
        return
    times = ", ".join(f"{step} {1e3 * seconds:.2g} ms" for step, seconds in tried.seconds.items())
    found = f"{name}: {times} ({tried.tflops:.2g} TFLOP/s)"
    if tried.cudnn:
        found += f", cuDNN {tried.cudnn}"
    if tried.wrong:
        todo = "trust no result of this device; test it with its maker's tools"
        yield Finding(
            "device", Severity.ERROR, f"{found}; wrong results from {', '.join(tried.wrong)}", todo
        )
    else:
        yield Finding("device", Severity.OK, found)


def check_pace(tried: Mapping[str, DeviceResult | ProbeFailure]) -> Iterator[Finding]:
    """Report devices with less than 80 % of the fastest device's speed; they would slow down a trial on all devices.

    ``tried`` has the answer of `probe_device` for each device by name. All slow devices are one finding, a warning;
    nothing is yielded if there are none. Devices whose probe failed do not count.
    """
    speeds = {}
    for name, one in tried.items():
        if isinstance(one, DeviceResult):
            speeds[name] = one.tflops
    fastest = max(speeds.values(), default=0.0)
    slow = []
    for name, speed in speeds.items():
        if speed < GOOD * fastest:
            slow.append(f"{name} ({speed:.2g} TFLOP/s)")
    if slow:
        found = f"{', '.join(slow)}: slower than the fastest device ({fastest:.2g} TFLOP/s)"
        todo = "look for heat and power limits (nvidia-smi -q -d PERFORMANCE) and for other users"
        yield Finding("device", Severity.WARNING, found, todo)


def check_together(
    several: CollectiveResult | ProbeFailure, *, count: int, simulated: bool
) -> Iterator[Finding]:
    """Report in one finding whether several devices work together in one trial.

    ``several`` is the answer of `probe_training` for ``count`` devices, with the same ``simulated``. It is an error if
    the probe failed, or if a device has a wrong sum over all of them.
    """
    what = f"{count} {'logical CPU devices' if simulated else 'GPUs'}"
    expected = count * (count + 1) / 2  # the replicas contribute 1, 2, ... to the sum
    if isinstance(several, ProbeFailure):
        todo = f"see it fail: python -m {MODULE} train {count}{' --simulated' if simulated else ''}"
        if not simulated:
            todo += "; try NCCL_P2P_DISABLE=1, or training.cross_device: hierarchical_copy, or one GPU a trial"
        yield Finding("together", Severity.ERROR, f"{what}: {several.reason}", todo)
    elif several.sums != (expected,) * count:
        found = f"{what} summed to {list(several.sums)}, expected {expected} on each"
        yield Finding(
            "together",
            Severity.ERROR,
            found,
            "train on one GPU a trial; NCCL_DEBUG=INFO shows what was chosen",
        )
    elif simulated:
        yield Finding(
            "together", Severity.OK, f"{what} sum and train (a rehearsal: they share the CPU)"
        )
    else:
        yield Finding("together", Severity.OK, f"{what} sum and train")


def check_scaling(
    alone: CollectiveResult | ProbeFailure, several: CollectiveResult | ProbeFailure, count: int
) -> Iterator[Finding]:
    """Report the ratio of the examples per second on ``count`` GPUs to those on one; nothing if a probe failed.

    ``alone`` and ``several`` are the answers of `probe_training` for one GPU and for all. The finding is a note if the
    ratio is below 80 % of ``count``, and a warning if it is below 50 %.
    """
    if isinstance(alone, ProbeFailure) or isinstance(several, ProbeFailure):
        return
    factor = several.examples_per_s / alone.examples_per_s
    found = f"{count} GPUs train {factor:.2f} times the examples per second of one"
    if factor < POOR * count:
        todo = "one GPU a trial and more trials at a time gain more than several GPUs in one trial"
        yield Finding("scaling", Severity.WARNING, found, todo)
    elif factor < GOOD * count:
        todo = "larger models and batches scale better; one GPU a trial always does"
        yield Finding("scaling", Severity.NOTE, found, todo)
    else:
        yield Finding("scaling", Severity.OK, found)


def check_one_gpu(trained: CollectiveResult | ProbeFailure) -> Iterator[Finding]:
    """Report in one finding whether one GPU can train, an error if not.

    ``trained`` is the answer of `probe_training` for it, whose examples per second are in the finding.
    """
    if isinstance(trained, ProbeFailure):
        todo = f"see it fail: python -m {MODULE} train 1"
        yield Finding("training", Severity.ERROR, f"one GPU does not train: {trained.reason}", todo)
    else:
        yield Finding(
            "training",
            Severity.OK,
            f"one GPU trains: {trained.examples_per_s:,.0f} examples/s of a wide net",
        )


Version = tuple[int, ...]

# First Linux driver of each CUDA toolkit (NVIDIA, CUDA Toolkit release notes, table "driver versions").
TOOLKIT_DRIVERS: Mapping[Version, str] = {
    (12, 0): "525.60.13",
    (12, 1): "530.30.02",
    (12, 2): "535.54.03",
    (12, 3): "545.23.06",
    (12, 4): "550.54.14",
    (12, 5): "555.42.02",
    (12, 6): "560.28.03",
    (12, 8): "570.26",
    (12, 9): "575.51.03",
    (13, 0): "580.65.06",
}
INSTALL = 'python -m pip install -c constraints.txt -e ".[gpu]"'
FAST_LINKS = ("NV", "PIX", "PXB")


def check_presence(
    nvidia: Nvidia, shown: Sequence[Gpu], tensorflow: TensorFlow
) -> Iterator[Finding]:
    """Report the GPUs of the machine, those visible to CUDA (``shown``), and whether the visible ones differ.

    The first finding says which GPUs there are, that there are none, that there is no nvidia-smi although TensorFlow
    sees GPUs (a note), or that nvidia-smi fails (an error). A note follows if some GPUs are hidden, unless the machine
    has MIG instances, and a warning if the visible ones have different names.
    """
    seen = len(tensorflow.capabilities)  # one for each GPU that TensorFlow can use
    if nvidia.failure:
        todo = "mend the driver first: nvidia-smi must list the GPUs (a reboot after an update often does)"
        yield Finding("gpus", Severity.ERROR, f"nvidia-smi does not work: {nvidia.failure}", todo)
    elif not nvidia.gpus and not seen:
        yield Finding("gpus", Severity.OK, "CPU only: there is no NVIDIA GPU here")
    elif not nvidia.gpus:
        sees = f"TensorFlow sees {counted(seen, 'GPU')}"
        found = f"{sees}; there is no nvidia-smi, so links, memory and driver are not checked"
        yield Finding(
            "gpus", Severity.NOTE, found, "install nvidia-smi, which comes with the driver"
        )
    else:
        yield Finding("gpus", Severity.OK, _describe_gpus(nvidia.gpus))
        # with MIG, `check_health` says what a process can use
        if len(shown) < len(nvidia.gpus) and not nvidia.mig_devices:
            found = f"CUDA_VISIBLE_DEVICES leaves {len(shown)} of {counted(len(nvidia.gpus), 'GPU')} to use"
            yield Finding("gpus", Severity.NOTE, found, "unset it to use all of them")
        if len({gpu.name for gpu in shown}) > 1:
            found = "the GPUs differ: a trial over several of them goes at the pace of the slowest"
            yield Finding(
                "gpus",
                Severity.WARNING,
                found,
                "give each trial one GPU, or set CUDA_VISIBLE_DEVICES",
            )


def check_driver(shown: Sequence[Gpu], tensorflow: TensorFlow) -> Iterator[Finding]:
    """Report in one finding whether the driver is recent enough for the CUDA version of TensorFlow.

    ``shown`` are the GPUs visible to CUDA, the first of which tells the driver's version. It is an error if the driver
    is older than the first one for this major version of CUDA or, if a GPU needs PTX, for this minor version. It is a
    note if nothing is known about the version. Nothing is yielded if no GPU is shown, or if TensorFlow is built without
    CUDA.
    """
    if not shown or tensorflow.cuda is None:
        return
    cuda = _parse_version(tensorflow.cuda)[:2]
    installed = _parse_version(shown[0].driver)
    found = f"driver {shown[0].driver}, TensorFlow built with CUDA {tensorflow.cuda}"
    # that of the first toolkit of a major version serves all toolkits of that version
    oldest_driver = TOOLKIT_DRIVERS.get((cuda[0], 0))
    # the toolkit of TensorFlow or, if that is not in the table, the last one before it with the same major version
    toolkit = max((v for v in TOOLKIT_DRIVERS if v[0] == cuda[0] and v <= cuda), default=None)
    if oldest_driver is None or toolkit is None:
        yield Finding("driver", Severity.NOTE, f"{found}: no rule is known for this CUDA")
        return
    if installed < _parse_version(oldest_driver):
        yield Finding(
            "driver",
            Severity.ERROR,
            f"{found}, which needs {oldest_driver}",
            f"install driver {oldest_driver} or newer; a GPU that it does not serve is too old for TensorFlow",
        )
        return
    driver_of_toolkit = TOOLKIT_DRIVERS[toolkit]
    needs_ptx = any(_runs_by_ptx(gpu, tensorflow) for gpu in shown)
    if needs_ptx and installed < _parse_version(driver_of_toolkit):
        # Minor-version compatibility covers machine code, not PTX (NVIDIA, CUDA compatibility, section 2).
        found += ", whose PTX an older driver cannot compile, and these GPUs need it"
        todo = f"install driver {driver_of_toolkit} or newer"
        yield Finding("driver", Severity.ERROR, found, todo)
    else:
        yield Finding("driver", Severity.OK, found)


def check_libraries(shown: Sequence[Gpu], tensorflow: TensorFlow) -> Iterator[Finding]:
    """Report in one finding, an error, if TensorFlow silently ignores GPUs that the driver shows.

    ``shown`` are the GPUs visible to CUDA. Those too old for TensorFlow's build are not expected to be used; if MIG is
    on for one of the others, a single GPU is expected. Nothing is yielded if TensorFlow can use as many as expected.
    """
    # the lowest compute capability that the build has code for
    least = min(map(parse_architecture, tensorflow.architectures), default=(0, 0))
    # the others are too old in any case
    usable = []
    for gpu in shown:
        if not gpu.capability or gpu.capability >= least:
            usable.append(gpu)
    expected = len(usable)
    if any(gpu.mig for gpu in usable):
        expected = 1  # a process uses one MIG instance at most
    seen = len(tensorflow.capabilities)
    if seen >= expected:
        return
    found = f"the driver shows {counted(expected, 'GPU')}, TensorFlow can use {seen}"
    if tensorflow.cuda is None:
        yield Finding(
            "libraries", Severity.ERROR, f"{found}: this TensorFlow is built without CUDA", INSTALL
        )
    else:
        if tensorflow.complaint:
            said = f"; it says: {tensorflow.complaint}"
        else:
            said = ""
        todo = f"mend the driver if it is named here; {INSTALL} brings CUDA's libraries; unset LD_LIBRARY_PATH"
        yield Finding("libraries", Severity.ERROR, found + said, todo)


def check_capability(shown: Sequence[Gpu], tensorflow: TensorFlow) -> Iterator[Finding]:
    """Report whether TensorFlow was built with code for each kind of GPU, and which precision ``auto`` means on it.

    There are two findings for each kind, but only the first if it is an error. ``shown`` are the GPUs visible to CUDA;
    if the driver does not report the compute capability of all, each GPU that TensorFlow can use is checked, too.
    Nothing is yielded if TensorFlow is built without CUDA.
    """
    if tensorflow.cuda is None:
        return
    kinds: dict[str, tuple[int, int] | None] = {}
    for gpu in shown:
        kinds[gpu.name] = gpu.capability
    # an old driver or no nvidia-smi; TensorFlow knows the GPUs that it uses
    if not shown or None in kinds.values():
        kinds |= {f"gpu:{i}": version for i, version in enumerate(tensorflow.capabilities)}
    for name, version in kinds.items():
        if version is None:
            continue
        code = _check_build(
            f"{name}, compute capability {version[0]}.{version[1]}",
            version,
            tensorflow.architectures,
        )
        yield code
        if code.level is not Severity.ERROR:
            yield _recommend_precision(name, version)


def check_gauges(tensorflow: TensorFlow) -> Iterator[Finding]:
    """Report in one finding which measurements of GPUs trials can make, such as utilization and power.

    It is a note if nvidia-ml-py is not installed, or if the driver does not tell some of them besides ``sm_activity``,
    which older GPUs do not count. Nothing is yielded if TensorFlow can use no GPU, or if its probe said nothing about
    measurements.
    """
    if not tensorflow.capabilities or tensorflow.gauges == {}:
        return
    if tensorflow.gauges is None:
        found = (
            "nvidia-ml-py is not installed: no trial says how busy its GPUs were and what they drew"
        )
        yield Finding("gauges", Severity.NOTE, found, INSTALL)
        return
    told = []
    lacking = []
    for name, can_be_read in tensorflow.gauges.items():
        if can_be_read:
            told.append(name)
        else:
            lacking.append(name)
    found = f"the driver tells {', '.join(told) or 'nothing'}"
    if not lacking:
        yield Finding("gauges", Severity.OK, found)
    elif lacking == ["sm_activity"]:
        yield Finding("gauges", Severity.OK, f"{found}; sm_activity is counted from Hopper on")
    else:
        todo = "columns of these will be missing; a container needs the driver's libnvidia-ml (capability utility)"
        yield Finding(
            "gauges", Severity.NOTE, f"{found}; it does not tell {', '.join(lacking)}", todo
        )


def check_links(nvidia: Nvidia, shown: Sequence[Gpu]) -> Iterator[Finding]:
    """Report in one finding the links between the GPUs of one trial, over which gradients are summed.

    The GPUs are those ``shown``, which are visible to CUDA. A link that passes through a CPU is slow; if there are such
    links, the finding is a warning that names the worst pair, first of all one on two CPU sockets. Nothing is yielded
    if no links are known.
    """
    indices = {gpu.index for gpu in shown}
    pairs = {pair: link for pair, link in nvidia.links.items() if set(pair) <= indices}
    if not pairs:
        return
    counts = ", ".join(f"{count} {link}" for link, count in Counter(pairs.values()).most_common())
    slow = {pair: link for pair, link in pairs.items() if not link.startswith(FAST_LINKS)}
    if not slow:
        yield Finding("links", Severity.OK, f"pairs of GPUs by link: {counts}")
        return
    # the worst pair: between two sockets, else between two host bridges, else any
    (a, b), link = max(slow.items(), key=lambda item: (item[1] == "SYS", item[1] == "NODE"))
    way = {"SYS": "from one CPU socket to the other", "NODE": "between two PCIe host bridges"}.get(
        link, "through the CPU's PCIe host bridge"
    )
    found = f"pairs of GPUs by link: {counts}; GPU {a} and {b} meet {way} ({link})"
    todo = (
        "prefer one GPU a trial (resources.gpus: 1); for trials over several, keep to well-linked pairs with "
        "CUDA_VISIBLE_DEVICES, and try training.cross_device: hierarchical_copy if NCCL is slow or hangs"
    )
    yield Finding("links", Severity.WARNING, found, todo)


def check_memory(nvidia: Nvidia, shown: Sequence[Gpu]) -> Iterator[Finding]:
    """Report each of the GPUs ``shown`` of which more than 5 % of the memory is in use.

    There is a finding for each, which names the programs that use it: above 10 % a warning, otherwise a note. GPUs
    whose memory the driver does not report are passed over.
    """
    for gpu in shown:
        if not gpu.total_mib or not gpu.used_mib or gpu.used_mib <= 0.05 * gpu.total_mib:
            continue
        users = []
        for process in nvidia.processes:
            if process.uuid == gpu.uuid:
                users.append(_describe_process(process))
        found = f"GPU {gpu.index}: {gpu.used_mib} of {gpu.total_mib} MiB are in use"
        if users:
            found += f" by {'; '.join(users)}"
        else:
            found += ", by programs that the driver does not name"
        if gpu.used_mib > 0.1 * gpu.total_mib:
            level = Severity.WARNING
        else:
            level = Severity.NOTE
        todo = "end them, or leave this GPU out with CUDA_VISIBLE_DEVICES"
        yield Finding("memory", level, found, todo)


def check_health(nvidia: Nvidia, shown: Sequence[Gpu]) -> Iterator[Finding]:
    """Report MIG partitions, memory errors and disabled error correction of the GPUs ``shown``.

    All GPUs on which MIG is on are one finding, a warning, or an error if there is no instance. Each GPU with
    uncorrected memory errors is an error. All GPUs without error correction are one note. Nothing is yielded if there
    are none of these.
    """
    sliced = [gpu.index for gpu in shown if gpu.mig]
    if sliced and not nvidia.mig_devices:
        found = (
            f"MIG is on for GPU {_format_indices(sliced)}, with no instance: nothing can run there"
        )
        todo = f"create instances, or switch it off: sudo nvidia-smi -i {sliced[0]} -mig 0"
        yield Finding("mig", Severity.ERROR, found, todo)
    elif sliced:
        found = (
            f"MIG is on for GPU {_format_indices(sliced)} ({len(nvidia.mig_devices)} instances): a process uses one "
            "instance at most, so no trial can use several, and Ray counts whole GPUs"
        )
        todo = f"run one sweep per instance with CUDA_VISIBLE_DEVICES=MIG-..., or sudo nvidia-smi -i {sliced[0]} -mig 0"
        yield Finding("mig", Severity.WARNING, found, todo)
    for gpu in shown:
        if gpu.ecc_errors:
            found = f"GPU {gpu.index} had {gpu.ecc_errors} uncorrected memory errors since the driver was loaded"
            todo = "reset it (sudo nvidia-smi --gpu-reset) or reboot; have it replaced if they come back"
            yield Finding("ecc", Severity.ERROR, found, todo)
    if off := [gpu.index for gpu in shown if gpu.ecc is False]:
        yield Finding(
            "ecc", Severity.NOTE, f"error correction is switched off for GPU {_format_indices(off)}"
        )


def _check_build(who: str, capability: tuple[int, int], architectures: Sequence[str]) -> Finding:
    """Return a finding on whether TensorFlow was built with code for a GPU's compute capability.

    ``architectures`` are the targets of TensorFlow's build, such as ``sm_80`` and ``compute_90``. The finding's text
    begins with ``who``, the name and the compute capability of the GPU. It is a note if the driver must compile PTX for
    the GPU, and an error if the GPU is too old or too new for the build.
    """
    known = ", ".join(architectures)
    match find_coverage(capability, architectures):
        case Coverage.MACHINE_CODE:
            return Finding("capability", Severity.OK, f"{who}: the build has machine code for it")
        case Coverage.PTX:
            found = f"{who}: kernels are compiled from PTX at first use (minutes)"
            todo = "let CUDA_CACHE_PATH lie on a lasting disk and set CUDA_CACHE_MAXSIZE=4294967296"
            return Finding("capability", Severity.NOTE, found, todo)
        case Coverage.TOO_OLD:
            found = f"{who}: too old for this build ({known})"
            return Finding("capability", Severity.ERROR, found, "leave this GPU out")
        case Coverage.TOO_NEW:
            found = f"{who}: newer than this build ({known}); kernels may fail, and jit_compile: auto leaves XLA out"
            todo = "use another GPU, or TensorFlow built for this one (tensorflow issues 89272, 111958)"
            return Finding("capability", Severity.ERROR, found, todo)


def _recommend_precision(name: str, capability: tuple[int, int]) -> Finding:
    if capability >= (8, 0):
        return Finding("precision", Severity.OK, f"{name}: precision auto trains in mixed_bfloat16")
    if capability >= (7, 0):
        return Finding(
            "precision",
            Severity.OK,
            f"{name}: precision auto trains in mixed_float16; no bfloat16 below 8.0",
        )
    return Finding(
        "precision",
        Severity.NOTE,
        f"{name}: precision auto trains in float32; half precision gains nothing",
    )


def _runs_by_ptx(gpu: Gpu, tensorflow: TensorFlow) -> bool:
    return gpu.capability is not None and (
        find_coverage(gpu.capability, tensorflow.architectures) is Coverage.PTX
    )


def _describe_process(process: Process) -> str:
    if process.used_mib is None:
        used = ""
    else:
        used = f", {process.used_mib} MiB"
    return f"{process.name} (process {process.pid}{used})"


def _describe_gpus(gpus: Sequence[Gpu]) -> str:
    counts = Counter(gpu.name for gpu in gpus)
    return ", ".join(f"{count} x {name}" for name, count in counts.items())


def _format_indices(indices: Sequence[int]) -> str:
    return ", ".join(map(str, indices))


def _parse_version(text: str) -> Version:
    return tuple(int(part) for part in re.findall(r"\d+", text))


PIPES = "CUDA_MPS_PIPE_DIRECTORY"
DAEMON = "nvidia-cuda-mps-control"


@dataclass(frozen=True, slots=True)
class Mps:
    """NVIDIA's multi-process service, with which processes on one GPU compute concurrently instead of taking turns."""

    runs: bool | None  # None: unknown
    pipes: str | None  # the folder by which processes find the service, if it is set
    pipes_exist: bool = True


def read_mps_state(run: Run, environ: Mapping[str, str]) -> Mps:
    """Return whether the MPS daemon is running (None if unknown), and its folder of pipes; do not start the daemon.

    It is unknown if there is no ``pgrep`` to run; if ``pgrep`` fails, the daemon counts as not running. ``environ`` has
    the environment variables, of which ``CUDA_MPS_PIPE_DIRECTORY`` may name the folder.
    """
    ran = run(["pgrep", "-f", DAEMON], 10.0)
    pipes = environ.get(PIPES)
    if ran.code == MISSING:
        runs = None
    else:
        runs = ran.code == 0
    return Mps(runs, pipes, pipes is None or Path(pipes).is_dir())


def check_mps(mps: Mps) -> Iterator[Finding]:
    """Report in one finding whether trials that share a GPU compute at the same time; nothing if that is unknown.

    It is a note if they do not, because the daemon does not run. A folder of pipes that does not exist is reported
    instead, as a warning.
    """
    if not mps.pipes_exist:
        what = f"{PIPES} is {mps.pipes}, which does not exist: CUDA may not start in any trial"
        yield Finding(
            "mps", Severity.WARNING, what, f"unset it, or start the daemon with it: {DAEMON} -d"
        )
    elif mps.runs:
        yield Finding(
            "mps",
            Severity.OK,
            "the MPS daemon runs: trials that share a GPU compute at the same time",
        )
    elif mps.runs is False:
        what = "the MPS daemon does not run: trials that share a GPU (resources.gpus below 1, or auto) take turns"
        todo = f"nothing for whole GPUs; else start it before the sweep: {DAEMON} -d"
        yield Finding("mps", Severity.NOTE, what, todo)


def check_memory_limit(name: str, tried: MemoryShareResult | ProbeFailure) -> Iterator[Finding]:
    """Report in one finding whether a process stays within its share of a GPU's memory.

    ``name`` is the GPU's name in the finding, ``tried`` the answer of `probe_memory_share`. It is an error if the probe
    failed, if more than the share was not refused, or if the process did not work afterwards.
    """
    if isinstance(tried, ProbeFailure):
        todo = f"see it fail: python -m {MODULE} share; give each trial a whole GPU until it works"
        yield Finding("share", Severity.ERROR, f"{name}: {tried.reason}", todo)
        return
    # the probe's process had a share of a quarter of the GPU
    found = f"{name}: a quarter may have {tried.limit_bytes / 2**30:.1f} GiB"
    if tried.refused and tried.works:
        yield Finding("share", Severity.OK, f"{found}, more is refused, and it goes on")
        return
    if tried.refused:
        wrong = "the process cannot go on after more was refused"
    else:
        wrong = "more was not refused"
    todo = "give each trial a whole GPU: one could take its neighbour's memory"
    yield Finding("share", Severity.ERROR, f"{found}, but {wrong}", todo)
