"""What trains the trials of a session: this process, or workers on a Ray that it starts or joins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module

from sweep.backends.driver import Backend
from sweep.backends.inline import Inline
from sweep.backends.vitals import Vitals
from sweep.backends.worker import Job
from sweep.contract import Devices
from sweep.runner.options import Options
from sweep.spec import Spec


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a backend is made for."""

    job: Job
    devices: Devices  # of a trial
    most: int | None  # trials at once, where a bound was asked for
    imports: Sequence[str]  # modules that each worker imports first
    vitals: Callable[[], Vitals] | None  # to be shown in Ray's dashboard


@contextmanager
def backend(
    options: Options, setting: Setting, say: Callable[[str], None], leave: Callable[[str], None]
) -> Iterator[Backend]:
    """Yield this process, or workers on Ray; ``leave`` is called from another thread where a local Ray dies."""
    job, notice = setting.job, _once(say)
    if options.inline:
        yield Inline(job=job, reuse=options.reuse, notice=notice)
        return
    from sweep.backends.ray_tune import cluster, job_page, starting

    def imports() -> None:
        import_module("sweep.backends.ray_tune.backend")  # a second's work: Ray Tune is large

    start = cluster.Start(
        lost=partial(leave, "Ray has died"),
        meanwhile=imports,
        ahead=starting.importing_ahead(setting.imports, setting.devices, setting.most),
        about=job_page.pointer(job.sweep, job.session, say),
    )
    with cluster.connect(options.address, options.simulated_gpus, say, start) as found:
        from sweep.backends.ray_tune.backend import OPEN_PORT, RayTune

        trains = RayTune(
            cluster=found,
            job=job,
            devices=setting.devices,
            most=setting.most,
            reuse=options.reuse,
            notice=notice,
            vitals=setting.vitals,
        )
        if job.workers + job.aside > 1:
            say(OPEN_PORT)
        with found.shared(job.results_folder, setting.devices):
            yield trains


def room(address: str, devices: Devices, workers: int, aside: int) -> int:
    """How many trials run at once on the cluster at an address; raises InputError where none fits or nobody answers.

    ``aside``: processes of a trial beside its workers, see `Cluster.fits`.
    """
    from sweep.backends.ray_tune import cluster

    with cluster.connect(address, None, lambda text: None) as found:
        found.require(devices, workers, aside)
        return found.fits(devices, workers, aside)


def _once(say: Callable[[str], None]) -> Callable[[str], None]:
    """Say no line twice: several workers may find the same."""
    said: set[str] = set()

    def notice(text: str) -> None:
        if text not in said:
            said.add(text)
            say(text)

    return notice


def most(spec: Spec, options: Options) -> int | None:
    """Return the most trials at a time that were asked for, if any were."""
    asked = (spec.resources.max_concurrent, options.max_concurrent)
    return min((count for count in asked if isinstance(count, int)), default=None)
