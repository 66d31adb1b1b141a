"""The doctor's round: ask, judge, and hand over each finding as it comes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sweep import doctor
from sweep.doctor import Finding, Resources, Run, gpu_checks, host_checks

CLUSTER_TIMEOUT_S = 60.0
MOST_PAIRS = 8  # of nodes, as in `sweep.backends.ray_tune.doctor`


@dataclass(frozen=True, slots=True)
class Round:
    """Where to look, how to ask, and how long to wait for each device."""

    run: Run
    environ: Mapping[str, str]
    results: Path
    timeout_s: float
    address: str | None = None


def examine(given: Round) -> Iterator[Finding]:
    """Yield all checks in turn, the quick ones first."""
    machine = host_checks.gather(given.environ)
    yield from host_checks.versions(machine)
    yield from host_checks.disk(host_checks.disk_of(given.results))
    driver = doctor.gather_gpus(given.run)
    shown = doctor.visible_gpus(driver, machine.variables.get("CUDA_VISIBLE_DEVICES"))
    yield from host_checks.shared_memory(machine, several_gpus=len(shown) > 1)
    tensorflow = doctor.describe(given.run, given.timeout_s)
    yield from host_checks.keras(machine, tensorflow)
    if isinstance(tensorflow, doctor.Failure):
        return
    yield from gpu_checks.presence(driver, shown, tensorflow)
    yield from gpu_checks.driver(shown, tensorflow)
    yield from gpu_checks.libraries(shown, tensorflow)
    yield from gpu_checks.capability(shown, tensorflow)
    yield from gpu_checks.health(driver, shown)
    yield from gpu_checks.memory(driver, shown)
    yield from gpu_checks.gauges(tensorflow)
    yield from gpu_checks.links(driver, shown)
    gpus = len(tensorflow.capabilities)
    if gpus:
        yield from gpu_checks.mps(gpu_checks.mps_state(given.run, given.environ))
    yield from _ray(given, (machine.cpus, gpus))
    yield from _devices(given, gpus)


def _ray(given: Round, here: Resources) -> Iterator[Finding]:
    if given.address is None:
        yield from host_checks.ray(here, usable=int(here[1]), address=None)
        return
    answer = doctor.cluster(given.run, min(given.timeout_s, CLUSTER_TIMEOUT_S), given.address)
    yield from host_checks.ray(answer, usable=int(here[1]), address=given.address)
    if not isinstance(answer, doctor.Failure):
        most_s = CLUSTER_TIMEOUT_S + MOST_PAIRS * given.timeout_s
        met = doctor.between_nodes(given.run, given.timeout_s, given.address, most_s)
        yield from host_checks.between_nodes(met)


def _devices(given: Round, gpus: int) -> Iterator[Finding]:
    """Each device, then all of them; two logical devices where there is no GPU."""
    tried = {}
    for name in [f"gpu:{i}" for i in range(gpus)] or ["cpu:0"]:
        tried[name] = doctor.try_device(given.run, given.timeout_s, name)
        yield from gpu_checks.device(name, tried[name])
    yield from gpu_checks.pace(tried)
    if isinstance(tried.get("gpu:0"), doctor.Tried):
        yield from gpu_checks.limit("gpu:0", doctor.share(given.run, given.timeout_s))
    count = gpus or 2
    several = None if gpus == 1 else doctor.train(given.run, given.timeout_s, count, simulated=not gpus)
    if several is not None:
        yield from gpu_checks.together(several, count=count, simulated=not gpus)
    if gpus:
        alone = doctor.train(given.run, given.timeout_s, 1, simulated=False)
        yield from gpu_checks.alone(alone)
        if several is not None:
            yield from gpu_checks.scaling(alone, several, gpus)
