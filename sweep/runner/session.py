"""Runs or resumes one sweep: puts its parts together, drives them, and takes them apart again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TextIO

from sweep.backends import checkpoints, inline
from sweep.backends.worker import Job
from sweep.contract import Devices
from sweep.errors import InputError
from sweep.events import EpochReported, Event, Status, TrialEnded
from sweep.inspection import Source
from sweep.runner import interruption, noise, planning
from sweep.runner.coordinator import Coordinator
from sweep.schedulers.build import build as build_scheduler
from sweep.searchers.build import build as build_searcher
from sweep.spec import Spec
from sweep.store import log as store_log
from sweep.store import provenance
from sweep.store.folder import ResultsFolder
from sweep.store.log import Log
from sweep.store.writer import TableWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to run, whatever the sweep."""

    address: str | None = None
    max_concurrent: int | None = None
    simulated_gpus: int | None = None
    reuse: bool = True
    inline: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a session ended."""

    folder: ResultsFolder
    completed: int
    stopped: str | None  # why it ended before its trials did
    interrupted: bool


class View(Protocol):
    """Who watches a session."""

    def replay(self, events: Sequence[Event]) -> None:
        """See what happened before this session."""

    def on(self, event: Event) -> None:
        """See an event."""

    def say(self, text: str) -> None:
        """See a line about the session itself."""

    def close(self) -> None:
        """See no more."""


def run(
    spec: Spec,
    text: str,
    source: Source,
    results: Path,
    folders: Sequence[Path],
    options: Options,
    view: Callable[[ResultsFolder, TextIO], View],
) -> Outcome:
    """Start a sweep in a new results folder; raises InputError before anything is trained."""
    info = {
        "objectives": [{"name": objective.name, "goal": objective.goal} for objective in spec.objectives],
        "seed": spec.seed,
        "spec": spec.to_json_dict(),
        "import_folders": [str(folder) for folder in folders],
        "simulated_gpus": options.simulated_gpus,
        "source": {"trainable": spec.trainable, "modules": sorted(source.files), "sha256": source.digest()},
        "provenance": provenance.collect(folders[0]),
    }
    folder = ResultsFolder.create(results, spec.name, text, info)
    try:
        return _drive(spec, folder, folders, options, view, [])
    except InputError:
        if not folder.log.exists():  # nothing was trained: the name is free again
            shutil.rmtree(folder.path)
        raise


def resume(
    folder: ResultsFolder,
    spec: Spec,
    folders: Sequence[Path],
    options: Options,
    view: Callable[[ResultsFolder, TextIO], View],
) -> Outcome:
    """Go on with a sweep from its log."""
    return _drive(spec, folder, folders, options, view, list(store_log.read(folder.log)))


def _drive(
    spec: Spec,
    folder: ResultsFolder,
    folders: Sequence[Path],
    options: Options,
    view: Callable[[ResultsFolder, TextIO], View],
    history: list[Event],
) -> Outcome:
    devices = planning.devices(spec, options.simulated_gpus)
    objective = spec.objectives[0]
    job = Job(
        sweep=spec.name,
        trainable=spec.trainable,
        import_folders=tuple(folders),
        results_folder=folder.path.resolve(),
        objective=objective.name,
        maximize=objective.goal == "maximize",
        checkpoint_every_s=spec.checkpoint.every_s,
    )
    job.stop_file.unlink(missing_ok=True)
    with folder.lock(), noise.redirected(folder.debug_log) as terminal:
        watching = view(folder, terminal)
        watching.replay(history)
        try:
            with _backend(options, devices, spec, watching) as train:
                return _session(spec, folder, devices, job, history, watching, train)
        finally:
            watching.close()
            job.stop_file.unlink(missing_ok=True)


def _session(
    spec: Spec,
    folder: ResultsFolder,
    devices: Devices,
    job: Job,
    history: list[Event],
    view: View,
    train: Callable[[Coordinator, Job], None],
) -> Outcome:
    searcher = build_searcher(spec.method, spec.space, spec.objectives, spec.seed, spec.repeats)
    scheduler = build_scheduler(spec.early_terminate, spec.objectives[0], spec.epochs)
    interrupted = False
    with Log(folder.log) as log, TableWriter(folder):
        keeper = _CheckpointKeeper(folder.path, job.objective, maximize=job.maximize)

        def listen(event: Event) -> None:
            keeper.on(event)
            view.on(event)

        coordinator = Coordinator(spec, devices, searcher, scheduler, log, listen)
        coordinator.on_stop = job.stop_file.touch

        def first() -> None:
            nonlocal interrupted
            interrupted = True
            view.say("stopping after the running epochs; once more to stop at once")
            coordinator.stop("interrupted")

        def second() -> None:
            view.close()
            view.say(f"stopped at once; go on with: python -m sweep resume {spec.name}")
            os._exit(130)  # what was reported is in the log; a local Ray dies with this process

        for event in history:
            keeper.on(event)
        with interruption.handled(first, second):
            coordinator.open(history)
            try:
                train(coordinator, job)
            finally:
                coordinator.close()
    if coordinator.error:
        raise coordinator.error
    return Outcome(folder, coordinator.completed, coordinator.stopping, interrupted)


@contextmanager
def _backend(
    options: Options, devices: Devices, spec: Spec, view: View
) -> Iterator[Callable[[Coordinator, Job], None]]:
    """A function that trains all of a coordinator's trials."""
    if options.inline:
        yield lambda driver, job: inline.run(driver, job, reuse=options.reuse, notice=view.say)
        return
    from sweep.backends.ray_tune import backend, cluster

    with cluster.connect(options.address, options.simulated_gpus) as found:
        room = _room(found.fits(devices), spec, options)
        if found.dashboard:
            view.say(f"Ray dashboard: {found.dashboard}")
        yield lambda driver, job: backend.run(
            driver,
            job,
            devices,
            room=room,
            max_restarts=spec.max_restarts,
            reuse=options.reuse,
            notice=view.say,
        )


def _room(fits: int, spec: Spec, options: Options) -> int:
    limits: list[int] = [fits]
    if spec.resources.max_concurrent != "auto":
        limits.append(spec.resources.max_concurrent)
    if options.max_concurrent is not None:
        limits.append(options.max_concurrent)
    return min(limits)


class _CheckpointKeeper:
    """Deletes the checkpoints of ended trials, but for the best completed one's."""

    def __init__(self, folder: Path, objective: str, *, maximize: bool) -> None:
        self._folder, self._objective = folder, objective
        self._sign = -1.0 if maximize else 1.0
        self._last: dict[int, Mapping[str, float]] = {}
        self._best: tuple[float, int] | None = None

    def on(self, event: Event) -> None:
        match event:
            case EpochReported():
                self._last[event.trial] = event.metrics
            case TrialEnded(status=status, trial=trial) if status is not Status.INTERRUPTED:
                metrics = self._last.pop(trial, {})
                value = metrics.get(self._objective)
                if status is Status.COMPLETED and value is not None:
                    self._compare(self._sign * value, trial)
                else:
                    checkpoints.delete(self._folder, trial)

    def _compare(self, loss: float, trial: int) -> None:
        if self._best is None or loss < self._best[0]:
            worse, self._best = self._best, (loss, trial)
            if worse is not None:
                checkpoints.delete(self._folder, worse[1])
        else:
            checkpoints.delete(self._folder, trial)
