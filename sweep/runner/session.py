"""Runs or resumes one sweep: puts its parts together, drives them, and takes them apart again."""

from __future__ import annotations

import os
import shutil
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TextIO

from sweep.backends import checkpoint_folders, moving, shared_data
from sweep.backends.job import SHARE_FILE, STOP_FILE, Job
from sweep.contract import Devices
from sweep.errors import InputError, Interrupted, StoppedAtOnce, StoreError
from sweep.events import EpochReported, Event, Status, TrialEnded
from sweep.inspection import Source
from sweep.runner import choosing, connecting, describing, interruption, noise, planning, stopping, testing, warm_start
from sweep.runner.coordinator import Coordinator
from sweep.runner.memo import Memo
from sweep.runner.options import Options, Outcome, View
from sweep.runner.pulse import Pulse
from sweep.runner.resuming import Reopened
from sweep.runner.retention import CheckpointKeeper
from sweep.runner.summary import Summary
from sweep.spec import Spec
from sweep.store import log as store_log
from sweep.store import provenance, requests
from sweep.store.folder import ResultsFolder
from sweep.store.log import Log
from sweep.store.writer import TableWriter

__all__ = ["Options", "Outcome", "View", "resume", "run"]


def run(
    spec: Spec,
    text: str,
    source: Source,
    results: Path,
    folders: Sequence[Path],
    options: Options,
    view: Callable[[ResultsFolder, TextIO], View],
    origin: Mapping[str, object] | None = None,
    given: object = None,
) -> Outcome:
    """Start a sweep in a new results folder; raises InputError before anything is trained.

    ``origin`` is the sweep and trial that it was made of, for its sweep.json; ``given`` the trainable's class or
    function itself, where no module has it.
    """
    choosing.check(spec, folders)
    _check_inline(spec, options)
    info = {
        "objectives": [{"name": objective.name, "goal": objective.goal} for objective in spec.objectives],
        "seed": spec.seed,
        "spec": spec.to_json_dict(),
        "import_folders": [str(folder) for folder in folders],
        "simulated_gpus": options.simulated_gpus,
        "memo": options.memo,
        "source": describing.described(source),
        "provenance": provenance.collect(folders[0]),
        "warm_start": warm_start.take(spec.warm_start, results),
        **({"origin": origin} if origin else {}),
    }
    folder = ResultsFolder.create(results, spec.name, text, info)
    try:
        return _driven(spec, source, folder, folders, options, view, given)
    except (InputError, Interrupted, KeyboardInterrupt, StoppedAtOnce):
        if not folder.log.exists():  # nothing was trained: the name is free again
            shutil.rmtree(folder.path)
        raise


def resume(
    sweep: Reopened,
    source: Source,
    options: Options,
    view: Callable[[ResultsFolder, TextIO], View],
    given: object = None,
) -> Outcome:
    """Go on with a sweep from its log; ``given`` as for `run`."""
    _check_inline(sweep.spec, options)
    options = replace(options, memo=options.memo and sweep.memo)
    try:
        return _driven(sweep.spec, source, sweep.folder, sweep.import_folders, options, view, given)
    except Interrupted as error:
        again = f"go on with: python -m sweep resume {sweep.folder.address}"
        raise Interrupted(f"interrupted before it went on; {again}") from error


def _check_inline(spec: Spec, options: Options) -> None:
    if options.inline:
        planning.check_inline(spec, "inline" if options.embedded else "--inline")


def _driven(
    spec: Spec,
    source: Source,
    folder: ResultsFolder,
    folders: Sequence[Path],
    options: Options,
    view: Callable[[ResultsFolder, TextIO], View],
    given: object,
) -> Outcome:
    """A session, one more for the fresh seeds where a limit has ended the search, and the test of who is left."""
    outcome = _drive(spec, source, folder, folders, options, view, given)
    if spec.confirm is None or outcome.interrupted:
        return outcome
    if outcome.stopped and not options.confirming:
        confirmed = _drive(spec, source, folder, folders, replace(options, confirming=True), view, given)
        outcome = replace(confirmed, stopped=confirmed.stopped or outcome.stopped)
    if not outcome.interrupted:
        testing.evaluate(folder, spec, given)
    return outcome


def _drive(
    spec: Spec,
    source: Source,
    folder: ResultsFolder,
    folders: Sequence[Path],
    options: Options,
    view: Callable[[ResultsFolder, TextIO], View],
    given: object,
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
        workers=spec.resources.workers,
        servers=spec.resources.servers,
        session=uuid.uuid4().hex[:12],
        checkpoint_every_s=spec.checkpoint.every_s,
        checkpoint_keep=spec.checkpoint.keep,
        shared=None if options.inline else shared_data.name(folder.path),
        profile=options.profile,
        target=spec.metrics[0].target,
        unsure=planning.not_seen_read(spec, source),
        varying=planning.varying(spec),
        given=given,
    )
    driver = threading.get_ident()
    with ExitStack() as beginning, folder.lock(), noise.redirected(folder.debug_log) as terminal:
        beginning.enter_context(interruption.before_it_begins())
        requests.clear(folder)
        _clean(folder.path)  # what a killed session has left
        watching = view(folder, terminal)
        try:
            describing.note_changes(folder, spec, source, folders, watching.say)
            lost: list[str] = []  # why this session is to end at once

            def leave(last_words: str) -> None:
                """End this process now: what was reported is in the log, and a local Ray dies with its driver."""
                if options.embedded:
                    lost.append(last_words)
                    if threading.get_ident() == driver:
                        raise StoppedAtOnce(last_words)
                    return  # the driver's thread looks at it
                watching.close()
                terminal.write(f"{last_words}; go on with: python -m sweep resume {folder.address}\n")
                terminal.flush()
                os._exit(130)

            pulse = None if options.inline else Pulse(spec)
            try:
                with connecting.backend(options, devices, spec, source, folder, watching, leave, job, pulse) as trains:
                    beginning.close()
                    return _session(spec, folder, devices, job, options, watching, trains, leave, lost, pulse)
            except Exception as error:
                if lost:  # and what follows from that
                    raise StoppedAtOnce(lost[0]) from error
                raise
        finally:
            watching.close()
            _clean(folder.path)


def _session(
    spec: Spec,
    folder: ResultsFolder,
    devices: Devices,
    job: Job,
    options: Options,
    view: View,
    backend: connecting.Backend,
    leave: Callable[[str], None],
    lost: Sequence[str],
    pulse: Pulse | None,
) -> Outcome:
    info = folder.read_info()
    searcher = choosing.searcher(spec, job.import_folders, spec.trials_each)
    warm_start.learn(searcher, info, view.say)
    scheduler = choosing.scheduler(spec, job.import_folders)
    keeper = CheckpointKeeper(folder.path, spec)
    taken: dict[int, str] = {}  # open trials that another sweep has begun
    answers: Counter[tuple[str, str]] = Counter()  # trials by that sweep, and by what became of them
    interrupted = False

    def listen(event: Event) -> None:
        keeper.on(event)
        view.on(event)
        if pulse is not None:
            pulse.on(event)
        match event:
            case EpochReported(memo=str(source)):
                taken[event.trial] = source.rpartition("/")[0]
            case TrialEnded() if event.trial in taken and event.status is not Status.INTERRUPTED:
                told = "answered from {}, not trained again" if event.memo else "continued from {}"
                answers[taken.pop(event.trial), told] += 1

    with Log(folder.log) as log:
        known = Memo(folder, info, view.say) if options.memo else None
        coordinator = Coordinator(spec, devices, searcher, scheduler, log, listen, known)
        coordinator.on_stop = lambda: _touch(job.stop_file)
        coordinator.to_beat = keeper.to_beat
        coordinator.sharing.at_once = backend.at_once
        coordinator.kept = partial(checkpoint_folders.of_epoch, folder.path)

        def first() -> None:
            nonlocal interrupted
            interrupted = True
            view.say("stopping after the running epochs; once more to stop at once")
            coordinator.stop("interrupted")

        def second() -> None:
            leave("stopped at once")

        def asked() -> None:
            nonlocal interrupted
            interrupted = True
            view.say("stopping after the running epochs, as `sweep stop` asks")

        def tick() -> None:
            if lost:
                raise StoppedAtOnce(lost[0])
            stopping.obey(folder, coordinator, asked, second)

        coordinator.on_tick = tick

        history = list(store_log.read(folder.log))
        view.replay(history)
        if pulse is not None:
            pulse.replay(history)
        for event in history:
            keeper.on(event)
        followers = ExitStack()
        try:
            followers.enter_context(Summary(folder))
            for follower in (TableWriter, *options.beside):
                followers.enter_context(follower(folder))
            with interruption.handled(first, second):
                again = coordinator.open(history, retry_failed=options.retry_failed, confirming=options.confirming)
                coordinator.sharing.say, coordinator.sharing.tell = view.say, partial(moving.tell, job)
                if options.retry_failed:
                    view.say(f"{again} failed {'trial is' if again == 1 else 'trials are'} tried again")
                del history
                try:
                    if not coordinator.stopping:
                        backend.train(coordinator, job)
                except BaseException as crash:
                    if not lost:  # else it is as a kill; Ray makes other errors of what a signal's handler raises
                        coordinator.crash(crash)
                    raise
                coordinator.close()
        finally:
            full = _closed(followers)
    if coordinator.error:
        raise coordinator.error
    for (name, told), count in answers.items():
        view.say(f"{count} {'trial' if count == 1 else 'trials'} {told.format(name)}")
    if coordinator.exhausted and spec.method != "grid" and not spec.space.finite():
        view.say("no other configuration was found that meets the constraints: the space is exhausted")
    if spec.confirm and coordinator.confirmed:
        view.say(f"confirm: {coordinator.confirmed}")
    fault = coordinator.fault or full
    return Outcome(folder, coordinator.completed, coordinator.stopping, interrupted or fault is not None, fault)


def _closed(followers: ExitStack) -> str | None:
    """Why the tables could not be brought up to date: they are derived from the log, and no loss."""
    try:
        followers.close()
    except StoreError as error:
        return str(error)
    return None


def _clean(folder: Path) -> None:
    for kind in (STOP_FILE, SHARE_FILE):
        for path in folder.glob(f"{kind}*"):
            path.unlink(missing_ok=True)
    shared_data.clean(folder)
    checkpoint_folders.clean(folder)


def _touch(stop_file: Path) -> None:
    with suppress(OSError):  # a full disk: each trial is stopped when it reports next
        stop_file.touch()
