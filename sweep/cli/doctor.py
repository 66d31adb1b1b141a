"""``doctor``: checks whether this machine can train, with advice if it cannot."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sweep.cli import options

if TYPE_CHECKING:
    from rich.console import Console

    from sweep.doctor.findings import Finding
    from sweep.doctor.probes import Resources
    from sweep.doctor.programs import Run

STYLES = {"ok": "green", "note": "cyan", "warning": "yellow", "error": "red"}
CLUSTER_TIMEOUT_S = 60.0
# maximum number of pairs of nodes that are tried, as in `sweep.backends.ray_tune.doctor`
MOST_PAIRS = 8


@click.command()
@options.results
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=180,
    show_default=True,
    metavar="S",
    help="Seconds for each device check.",
)
@click.option(
    "--address",
    envvar="RAY_ADDRESS",
    show_envvar=True,
    metavar="HOST:PORT",
    help="Check this Ray cluster.",
)
@options.as_json
def doctor(results: Path, timeout: float, address: str | None, as_json: bool) -> None:
    """Check whether this machine can train; exit code 1 if something must be fixed."""
    from sweep.doctor.findings import Severity
    from sweep.doctor.programs import run_command
    from sweep.render import console, document

    given = CheckInputs(run_command, os.environ, results, timeout, address)
    target = console()
    found = []
    for finding in examine(given):
        found.append(finding)
        if not as_json:
            _print_finding(finding, target)
    if as_json:
        click.echo(document(found))
    if any(finding.level is Severity.ERROR for finding in found):
        sys.exit(1)


def _print_finding(finding: Finding, target: Console) -> None:
    """Print a finding on one line, and its advice, if it has any, on the next one."""
    from rich.text import Text

    level = Text(f"{finding.level.value:<9}", STYLES[finding.level.value])
    target.print(Text.assemble(level, f"{finding.check:<15}{finding.found}"), soft_wrap=True)
    if finding.todo:
        # Below what was found, which begins after 9 + 15 characters.
        target.print(Text.assemble(" " * 24, ("to do: ", "bold"), finding.todo), soft_wrap=True)


@dataclass(frozen=True, slots=True)
class CheckInputs:
    """The inputs of all checks: how to run commands, the environment, the results folder and the timeout."""

    run: Run
    environ: Mapping[str, str]
    results: Path
    timeout_s: float
    address: str | None = None


def examine(given: CheckInputs) -> Iterator[Finding]:
    """Run all checks, quick ones first, and yield their findings as they come.

    A check runs only when its finding is asked for; some start other processes and take minutes. If TensorFlow cannot
    be started, the checks of GPUs, Ray and devices are left out.
    """
    from sweep.doctor import gpu_checks, host_checks, nvidia, probes

    machine = host_checks.gather_facts(given.environ)
    yield from host_checks.check_versions(machine)
    yield from host_checks.check_disk(host_checks.probe_disk(given.results))
    driver = nvidia.gather_gpus(given.run)
    visible = nvidia.list_visible_gpus(driver, machine.variables.get("CUDA_VISIBLE_DEVICES"))
    yield from host_checks.check_shared_memory(machine, several_gpus=len(visible) > 1)
    tensorflow = probes.probe_tensorflow(given.run, given.timeout_s)
    yield from host_checks.check_keras(machine, tensorflow)
    if isinstance(tensorflow, probes.ProbeFailure):
        return
    yield from gpu_checks.check_presence(driver, visible, tensorflow)
    yield from gpu_checks.check_driver(visible, tensorflow)
    yield from gpu_checks.check_libraries(visible, tensorflow)
    yield from gpu_checks.check_capability(visible, tensorflow)
    yield from gpu_checks.check_health(driver, visible)
    yield from gpu_checks.check_memory(driver, visible)
    yield from gpu_checks.check_gauges(tensorflow)
    yield from gpu_checks.check_links(driver, visible)
    gpus = len(tensorflow.capabilities)
    if gpus:
        yield from gpu_checks.check_mps(gpu_checks.read_mps_state(given.run, given.environ))
    yield from _check_ray(given, (machine.cpus, gpus))
    yield from _check_devices(given, gpus)


def _check_ray(given: CheckInputs, here: Resources) -> Iterator[Finding]:
    """Check Ray and yield the findings: its folder and this machine's resources, or a cluster at the given address.

    ``here`` has the numbers of this machine's CPUs and GPUs. Of a cluster, its resources and, if it answers, the
    connections between its nodes are checked.
    """
    from sweep.backends.ray_tune import ray_folder
    from sweep.doctor import host_checks, probes

    if given.address is None:
        folder, variable = ray_folder.get_ray_folder(given.environ)  # the variable may be ""
        yield from host_checks.check_ray_folder(
            f"{variable} {folder}".strip(), ray_folder.find_fault(folder)
        )
        yield from host_checks.check_ray(here, usable=int(here[1]), address=None)
        return
    answer = probes.probe_cluster(given.run, min(given.timeout_s, CLUSTER_TIMEOUT_S), given.address)
    yield from host_checks.check_ray(answer, usable=int(here[1]), address=given.address)
    if not isinstance(answer, probes.ProbeFailure):
        # the time to join the cluster, and for all pairs together
        most_s = CLUSTER_TIMEOUT_S + MOST_PAIRS * given.timeout_s
        pairs = probes.probe_node_pairs(given.run, given.timeout_s, given.address, most_s)
        yield from host_checks.check_node_pairs(pairs)


def _check_devices(given: CheckInputs, gpus: int) -> Iterator[Finding]:
    """Check each of the ``gpus`` devices and their speeds, then train on one GPU and, if there are several, on all.

    Yields the findings. If the first GPU works, the limit of memory is checked on it; the training on all is compared
    with that on one. Without a GPU, the CPU is checked, and a training on two logical CPU devices.
    """
    from sweep.doctor import gpu_checks, probes

    tried = {}  # by the name of the device: what came out
    for name in [f"gpu:{i}" for i in range(gpus)] or ["cpu:0"]:
        tried[name] = probes.probe_device(given.run, given.timeout_s, name)
        yield from gpu_checks.check_device(name, tried[name])
    yield from gpu_checks.check_pace(tried)
    if isinstance(tried.get("gpu:0"), probes.DeviceResult):
        yield from gpu_checks.check_memory_limit(
            "gpu:0", probes.probe_memory_share(given.run, given.timeout_s)
        )
    count = gpus or 2  # two logical CPU devices stand in for GPUs
    on_all = None  # with a single GPU, there is nothing to train on together
    if gpus != 1:
        on_all = probes.probe_training(given.run, given.timeout_s, count, simulated=not gpus)
        yield from gpu_checks.check_together(on_all, count=count, simulated=not gpus)
    if gpus:
        on_one = probes.probe_training(given.run, given.timeout_s, 1, simulated=False)
        yield from gpu_checks.check_one_gpu(on_one)
        if on_all is not None:
            yield from gpu_checks.check_scaling(on_one, on_all, gpus)
