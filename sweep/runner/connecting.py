"""What trains the trials of a session: this process, or workers on a Ray that it starts or joins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module

from sweep.backends import inline
from sweep.backends.worker import Job
from sweep.contract import Devices
from sweep.inspection import Source
from sweep.runner.coordinator import Coordinator
from sweep.runner.options import Options, View
from sweep.runner.pulse import Pulse
from sweep.spec import Spec
from sweep.store.folder import ResultsFolder


@contextmanager
def backend(
    options: Options,
    devices: Devices,
    spec: Spec,
    source: Source,
    folder: ResultsFolder,
    view: View,
    leave: Callable[[str], None],
    job: Job,
    pulse: Pulse | None,
) -> Iterator[Callable[[Coordinator, Job], None]]:
    """A function that trains all of a coordinator's trials."""
    if options.inline:
        yield lambda driver, job: inline.run(driver, job, reuse=options.reuse, notice=_once(view.say))
        return
    from sweep.backends.ray_tune import cluster, job_page, starting

    def imports() -> None:
        import_module("sweep.backends.ray_tune.backend")  # a second's work: Ray Tune is large

    lost = partial(leave, "Ray has died")
    most = _most(spec, options)
    ahead = starting.importing_ahead(source.first_imports, devices, most)
    about = job_page.pointer(spec.name, job.session, view.say)
    with cluster.connect(options.address, options.simulated_gpus, lost, view.say, imports, ahead, about) as found:
        from sweep.backends.ray_tune import backend as ray_tune

        room = found.room(devices, most, job.workers, job.aside)
        if job.workers + job.aside > 1:
            view.say(ray_tune.OPEN_PORT)
        given = ray_tune.hand_over(job)
        with found.shared(folder.path, devices):
            yield lambda driver, job: ray_tune.run(
                driver,
                job,
                devices,
                room=room,
                reuse=options.reuse,
                local=found.local,
                notice=_once(view.say),
                given=given,
                vitals=pulse,
                page=found.page,
            )


def room(address: str, devices: Devices, workers: int, aside: int) -> int:
    """How many trials run at once on the cluster at an address; raises InputError where none fits or nobody answers.

    ``aside``: processes of a trial beside its workers, see `Cluster.fits`.
    """
    from sweep.backends.ray_tune import cluster

    with cluster.connect(address, None, lambda: None, lambda text: None) as found:
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


def _most(spec: Spec, options: Options) -> int | None:
    """The most trials at a time that were asked for, if any were."""
    asked = (spec.resources.max_concurrent, options.max_concurrent)
    return min((count for count in asked if isinstance(count, int)), default=None)
