"""Adapters that let Ray Tune use the driver as its searcher, scheduler and stopper; Tune itself decides nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import OutOfMemoryError, RayActorError
from ray.tune import Callback
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher
from ray.tune.stopper import Stopper

from sweep.backends import (
    Crowded,
    Driver,
    Job,
    Order,
    Outgrown,
    Progress,
    Steps,
    SweepStatus,
    checkpoints,
    is_released,
    refill,
    request_orders,
)
from sweep.backends.ray_tune import dashboard, ray_private_api, worker_exits
from sweep.backends.ray_tune.dashboard import DashboardGauges, JobPage
from sweep.errors import StoreError, in_short
from sweep.text import trials_named

LONGEST_WAIT_S = 60.0


class _NotSaved:
    """Base class of objects that pickle as empty ones, because Tune's snapshots of itself are never read."""

    def __getstate__(self) -> dict[str, object]:
        return {}


@dataclass(slots=True)
class Workers:
    """Which trials of the sweep each Tune trial has. A Tune trial is a worker, with one trial or several at once."""

    together: int  # trials that a worker gets at once
    # idle workers, the longest idle first, which is Tune's order too
    free: list[str] = field(default_factory=list)
    held: dict[str, list[int]] = field(default_factory=dict)  # trials of the sweep by Tune trial
    # the same, of workers that end and take no room
    replaced: dict[str, list[int]] = field(default_factory=dict)

    def of(self, trial: Any) -> list[int]:
        """Return the numbers of the sweep's trials that the Tune trial ``trial`` has now; empty if it has none.

        Those of a worker that is being replaced are left out.
        """
        return self.held.get(trial.trial_id, [])


class DriverSearcher(_NotSaved, Searcher):
    """Gives Tune the driver's next trials, for at most as many workers as there is room for."""

    def __init__(
        self, driver: Driver, room: Callable[[], int], workers: Workers, always: dict[str, Any]
    ) -> None:
        """Initialize the searcher, which updates ``workers``.

        ``room`` returns how many workers may exist now. ``always`` is added to the config of every Tune trial: the
        ``job`` and settings of the worker.
        """
        super().__init__()
        self._driver, self._room = driver, room
        self._workers, self._fixed_config = workers, always

    def suggest(self, trial_id: str) -> Any:
        """Return the config of a new Tune trial; FINISHED if there will be none; None if there is none now.

        The config has the orders of the sweep's trials under ``orders``, the room under ``room``, and what is always
        added. The trials are recorded in `Workers.held`, and the worker that gets them is no longer free. None is
        returned if there is no room, and if there is no order while a trial is running, as its worker may be lost.
        """
        workers = self._workers
        room = self._room()
        idle = room - len(workers.held)
        if idle <= 0:
            return None
        # Tune will give the trial to the longest idle worker
        name = workers.free[0] if workers.free else ""
        found = request_orders(self._driver, name, workers.together, idle)
        if not found:
            # there may be one later if a running trial loses its worker
            return None if self._driver.running else Searcher.FINISHED
        del workers.free[:1]
        workers.held[trial_id] = [order.assignment.trial for order in found]
        return {"orders": found, "room": room, **self._fixed_config}

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Do nothing: `DriverScheduler` has already informed the driver."""

    def save(self, checkpoint_path: str) -> None:
        """Do nothing: a sweep is resumed from its log."""

    def restore(self, checkpoint_path: str) -> None:
        """Do nothing: a sweep is resumed from its log."""


class DriverScheduler(_NotSaved, FIFOScheduler):
    """Passes the result of each step of a worker to the driver, and returns the driver's decision to Tune."""

    def __init__(
        self,
        driver: Driver,
        notice: Callable[[str], None],
        workers: Workers,
        longest_wait_s: float = LONGEST_WAIT_S,
        room: Callable[[], int] | None = None,
    ) -> None:
        """Initialize the scheduler, which updates ``workers``; ``notice`` is called with each line for the user.

        A pending trial that has waited for ``longest_wait_s`` seconds is preferred. ``room`` returns how many workers
        may exist now, if other sweeps share the cluster.
        """
        super().__init__()
        self._room = room
        self._driver, self._notice, self._longest_wait_s = driver, notice, longest_wait_s
        self._workers = workers
        # by id of each pending Tune trial, since when it waits for room, by the monotonic clock
        self._pending_since: dict[str, float] = {}
        self._usable: dict[ray_private_api.Use, bool] = {}

    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        """Return the Tune trial to start next: the youngest pending one, unless the oldest has waited long for room.

        Return None if none is pending. Long is more than ``longest_wait_s`` of the constructor; the time in which a
        trial's worker has its resources and starts does not count, if this Ray says which workers are starting. The
        youngest comes first because Tune ends the starting worker of a trial that takes a free one: if trials are
        shorter than a start, only one worker would ever run. The oldest must not wait for ever, as it would where a
        node of the cluster is gone.
        """
        pending = [trial for trial in tune_controller.get_trials() if trial.status == Trial.PENDING]
        if not pending:
            return None
        now = time.monotonic()
        # new ones wait since now, and those that are no longer pending are forgotten
        self._pending_since = {
            trial.trial_id: self._pending_since.get(trial.trial_id, now) for trial in pending
        }
        if self._is_usable(ray_private_api.STARTING_WORKERS, tune_controller):
            for trial in pending:
                # it does not wait for room, only for its worker to start
                if _has_room(tune_controller, trial):
                    self._pending_since[trial.trial_id] = now
        oldest = pending[0]
        youngest = pending[-1]
        waited_s = now - self._pending_since[oldest.trial_id]
        return oldest if waited_s > self._longest_wait_s else youngest

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Pass one step of a worker to the driver, and return Tune's CONTINUE or STOP for the worker.

        ``trial`` is the worker's Tune trial, and ``result`` has its `Steps` under ``steps``. Notices go to the user,
        and the trials that the worker has now are recorded in `Workers`. CONTINUE means that the worker has trials to
        train, perhaps new ones, and STOP that it is free for another Tune trial. CONTINUE is also returned for a worker
        that must be replaced, or end because other sweeps want its room; it then raises an exception in its next step.
        """
        steps: Steps = result["steps"]
        workers = self._workers
        # the name of the worker, the same in the progress of all its trials
        worker = next((one.worker for one in steps.found.values()), "")
        workers.together = min(workers.together, steps.together)
        for progress in steps.found.values():
            for text in progress.notices:
                self._notice(text)
        if worker in workers.free:  # it received trials that were meant for another worker
            workers.free.remove(worker)
        # the trials that the worker trains further
        goes_on = [
            number
            for number, progress in steps.found.items()
            if self._pass_progress(number, progress)
        ]
        # Whether the driver has ended or paused a trial that the worker would train on, and must be told to release.
        must_release = any(
            number not in goes_on and not is_released(one) for number, one in steps.found.items()
        )
        more: list[Order] = []  # new trials that join those
        if steps.is_open and self._is_usable(ray_private_api.KEEPING, trial):
            more = refill(self._driver, worker, steps, len(goes_on), len(workers.held))
        for order in more:
            self._driver.begun(order.assignment.trial)
        # A worker without other trials releases its last one anyway when it gets new orders. A spoilt one must have no
        # trial, so that its next step raises.
        must_tell = bool(more) or (must_release and (bool(goes_on) or steps.spoilt is not None))
        if must_tell and not self._update_worker_trials(trial, goes_on, more):
            goes_on = []  # they were given to other workers
        goes_on += [order.assignment.trial for order in more]
        if goes_on:
            workers.held[trial.trial_id] = goes_on
            return str(TrialScheduler.CONTINUE)
        if steps.spoilt is not None:
            # Trials that continue elsewhere may already be there, and are not lost with this worker.
            workers.held.pop(trial.trial_id, None)
            workers.replaced[trial.trial_id] = [
                number for number, one in steps.found.items() if one.spoilt is not None
            ]
            self._notice(f"the worker of {trials_named(steps.found)} is replaced: {steps.spoilt}")
            # Its next step raises an exception: Tune ends actors that raise and keeps those that stop.
            return str(TrialScheduler.CONTINUE)
        workers.held.pop(trial.trial_id, None)
        # Other sweeps want its room, so it must end and not only wait for the next trial.
        if (
            self._room is not None
            and len(workers.held) >= self._room()
            and self._update_worker_trials(trial, [], [])
        ):
            # without a trial it raises as well; Tune would keep a stopped actor
            return str(TrialScheduler.CONTINUE)
        workers.free.append(worker)
        return str(TrialScheduler.STOP)

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        """Remove all ended trials from Tune's records, if this Ray allows it; the driver knows that they have ended."""
        if self._is_usable(ray_private_api.FORGETTING, tune_controller):
            forget_ended_trials(tune_controller)

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        """Tell the driver which trials were lost with the worker ``trial``, and the user of each that is retried.

        The user is told why the worker was lost and from where the trial continues. If the worker ended because it was
        replaced, the driver is told which trials it had last, because they may wait for that, and the user is told
        nothing. The files that say how the worker ended are deleted.
        """
        text = Path(trial.error_file).read_text() if trial.error_file else ""
        _, _, error = text.partition("\n")  # without the heading
        # its trial names the worker's files, see `TrialWorker._take`
        first_order: Order = trial.config["orders"][0]
        job: Job = trial.config["job"]
        # before `explain_loss` deletes files
        output = worker_exits.take_lost_output(job, first_order.assignment.trial)
        reason = (
            f"worker lost: {worker_exits.explain_loss(job, first_order.assignment.trial, error)}"
        )
        lost = worker_exits.classify_loss(error)
        workers, name = self._workers, trial.trial_id
        for number in (*workers.held.pop(name, []), *workers.replaced.pop(name, [])):
            if self._driver.lose(number, reason, lost, output):
                self._notice(f"trial {number}: {reason}; {_explain_continuation(job, number)}")

    def _pass_progress(self, number: int, progress: Progress) -> bool:
        """Pass the progress of the trial ``number`` to the driver; return whether the same worker trains it further.

        If it needs another process and its worker stays for other trials, also call the driver's `lose`.
        """
        goes_on = self._driver.take(number, progress)
        # its worker stays, for other trials
        if isinstance(progress, Outgrown | Crowded) and progress.spoilt is None:
            self._driver.lose(number, "it needs another process")
        return goes_on and not is_released(progress)

    def _update_worker_trials(self, trial: Any, goes_on: list[int], more: list[Order]) -> bool:
        """Tell a worker, by its Tune trial, which trials it keeps and gets; return False if this Ray cannot do that.

        In that case, the trials in ``goes_on`` are given to other workers, and all workers train one trial at a time
        from now on.
        """
        if self._is_usable(ray_private_api.KEEPING, trial):
            # Takes effect before its next step, because calls of one actor run in order.
            trial.temporary_state.ray_actor.keep.remote(goes_on, more)
            return True
        self._workers.together = 1
        for number in goes_on:
            # "preempted" is the kind of loss that is never counted against a trial.
            self._driver.lose(number, "its worker has another trial", "preempted")
        return False

    def _is_usable(self, use: ray_private_api.Use, controller: Any) -> bool:
        """Return whether Ray has the private names that a feature needs; if not, the user is told once.

        ``controller`` is the object whose attributes they are: Tune's controller or one of its trials.
        """
        if use not in self._usable:
            self._usable[use] = ray_private_api.is_usable(use, self._notice, controller)
        return self._usable[use]


def _explain_continuation(job: Job, trial: int) -> str:
    """Return a text that says whether a trial whose worker was lost continues from a checkpoint or begins again.

    It does not say which if the object store is unavailable. The checkpoint may be newer than the trial's last report.
    """
    try:
        saved = checkpoints.list_names(job.results_folder, trial)
    except StoreError:  # the object store is away
        return "it goes on"
    return "it goes on from its checkpoint" if saved else "it has no checkpoint and begins anew"


class DriverStopper(_NotSaved, Stopper):
    """Ends the Tune experiment when the driver is stopping and no trial runs any more."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        """Return whether Tune must end the experiment: the driver is stopping, and no trial is running."""
        return self._driver.stopping is not None and self._driver.running == 0


def create_silent_printer(say: Callable[[str], None]) -> list[Any]:
    """Return a list with a callback that takes the place of Tune's own printer and prints nothing.

    Tune's printer keeps every trial in memory, even if it prints nothing. If this Ray lacks the private name for it,
    the list is empty, and ``say`` gets a line.
    """
    if not ray_private_api.is_usable(ray_private_api.SILENCE, say):
        return []

    reporter: Any = ray_private_api.import_private("ray.tune.progress_reporter")

    class Silence(reporter.TrialProgressCallback):
        def on_trial_result(
            self, iteration: int, trials: Any, trial: Any, result: Any, **info: Any
        ) -> None:
            """Print nothing: the driver's listeners show the results."""

        def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            """Print nothing."""

        def on_trial_error(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            """Print nothing."""

    return [Silence()]


def forget_ended_trials(controller: Any) -> None:
    """Remove ended trials from the collections of Tune's ``controller``, which would otherwise grow with each trial.

    Their empty folders are deleted too. Tune iterates over all its trials in each step and writes them all at the end,
    but does not need ended ones.
    """
    trials: list[Any] = controller.get_trials()  # Tune's own list, not a copy
    ended = {trial for trial in trials if trial.is_finished()}
    # In place, because these are the collections in which Tune itself looks.
    trials[:] = [trial for trial in trials if trial not in ended]
    for kept in (
        controller.get_live_trials(),
        controller._stopped_trials,
        controller._failed_trials,
        controller._trials_to_cache,
    ):
        kept.difference_update(ended)
    for trial in ended:
        controller._trial_metadata.pop(trial.trial_id, None)
        with suppress(OSError):  # if it contains the trial's error
            Path(trial.local_path).rmdir()


def survive_memory_kills(say: Callable[[str], None]) -> None:
    """Make Tune treat a worker killed by Ray's memory monitor as a lost one, for the rest of this process.

    Tune of Ray 2.60 would end all trials after Ray's `OutOfMemoryError`. The name `RayActorError` in Tune's modules is
    therefore bound to both classes of errors. If these names are missing, nothing changes, and ``say`` gets a line.
    """
    if not ray_private_api.is_usable(ray_private_api.MEMORY_KILLS, say):
        return
    for name in ray_private_api.MEMORY_KILLS.names:
        # a name is "module:RayActorError"; in an `except` clause, a tuple stands for each of its classes
        module = ray_private_api.import_private(name.partition(":")[0])
        module.RayActorError = (RayActorError, OutOfMemoryError)


def skip_callback_count(say: Callable[[str], None]) -> None:
    """Keep Tune from importing all its loggers, including MLflow and W&B, just to count which of them are used.

    The count is for Ray's usage reports, which are off. It is skipped for the rest of this process. If this Ray lacks
    the private name, nothing changes, and ``say`` gets a line.
    """
    if not ray_private_api.is_usable(ray_private_api.TAGGING, say):
        return
    usage = ray_private_api.import_private("ray.air._internal.usage")
    usage.tag_callbacks = lambda callbacks: False  # nothing was counted


def use_prestarted_processes(say: Callable[[str], None]) -> None:
    """Make Tune use the worker processes that Ray has started in advance, for the rest of this process.

    Tune of Ray 2.60 gives its actors environment variables, such as those of cloud storage, for which Ray starts other
    processes. On one machine, workers inherit all of the driver's variables anyway. If this Ray lacks the private name,
    nothing changes, and ``say`` gets a line.
    """
    if not ray_private_api.is_usable(ray_private_api.WAITING_PROCESSES, say):
        return

    actors: dict[type, Any] = {}  # the actor class of each trainable, kept over all experiments

    class Plain:
        """Takes the place of Tune's cache of actor classes: makes them without environment variables of their own."""

        def get(self, trainable: type) -> Any:
            return actors.setdefault(trainable, ray.remote(trainable))

    ray_private_api.import_private("ray.tune.execution.tune_controller")._ActorClassCache = Plain


def name_workers(job: Job, say: Callable[[str], None]) -> None:
    """Give each worker that Tune starts from now on a name in Ray: ``SWEEP/SESSION/worker-N``, with N from 0.

    The name is added to the `options` with which Tune creates an actor. The session, of which six characters are used,
    and the number make it unique in the cluster, even across Ray's namespaces. If this Ray lacks the private name,
    workers get no names, and ``say`` gets a line.
    """
    if not ray_private_api.is_usable(ray_private_api.NAMED_WORKERS, say):
        return
    controller = ray_private_api.import_private("ray.tune.execution.tune_controller")
    present_cache: Any = controller._ActorClassCache
    # that of Tune itself or `Plain`: the present one may be `Named`, from an earlier sweep in this process
    unnamed_cache: Any = getattr(present_cache, "unnamed", present_cache)
    numbers = count()

    class Named:
        """Takes the place of Tune's cache of actor classes: makes them with names."""

        unnamed = unnamed_cache

        def __init__(self) -> None:
            self._unnamed_actors = unnamed_cache()
            self._named_actors: dict[type, Any] = {}  # by trainable

        def get(self, trainable: type) -> Any:
            if trainable not in self._named_actors:
                self._named_actors[trainable] = self._with_names(
                    self._unnamed_actors.get(trainable)
                )
            return self._named_actors[trainable]

        def _with_names(self, actors: Any) -> Any:
            # a copy, because the unnamed cache may share it with other sweeps
            named = copy(actors)
            options = actors.options
            named.options = lambda **given: options(
                **given, name=f"{job.sweep}/{job.session[:6]}/worker-{next(numbers)}"
            )
            return named

    controller._ActorClassCache = Named


def _has_room(controller: Any, trial: Any) -> bool:
    """Return whether the worker that Tune starts for ``trial`` has its resources and is starting."""
    worker = controller._trial_to_actor.get(trial)
    return worker is not None and bool(controller._actor_manager.is_actor_started(worker))


class DriverClock(Callback):
    """Calls the driver's `tick` in each turn of Tune's loop, even if nothing has happened."""

    def __init__(self, driver: Driver, notice: Callable[[str], None], workers: Workers) -> None:
        self._driver, self._notice, self._workers = driver, notice, workers
        self._doomed: set[int] = set()  # ended trials whose workers are still to be killed

    def on_trial_start(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """Tell the driver that a worker has begun all its trials."""
        for number in self._workers.of(trial):
            self._driver.begun(number)

    def on_step_end(self, iteration: int, trials: Any, **info: Any) -> None:
        """Call the driver's `tick`, and kill the workers of trials that it has ended.

        A worker that is still starting is killed in a later turn. The other trials of a killed worker are lost with it.
        If this Ray lacks the private name, no worker is killed, and the user gets a line.
        """
        self._doomed.update(self._driver.tick())
        if not self._doomed:
            return
        starting: set[int] = set()  # doomed trials whose workers cannot be killed yet
        for trial in trials:  # a Tune trial is a worker
            doomed = self._doomed & set(self._workers.of(trial))
            if not doomed or trial.is_finished():
                continue
            if not ray_private_api.is_usable(ray_private_api.KILLING, self._notice, trial):
                continue
            if trial.temporary_state.ray_actor is None:  # it cannot be killed before it is there
                starting |= doomed
            else:
                ray.kill(trial.temporary_state.ray_actor)  # to Tune it is a lost worker
        self._doomed = starting


EVERY_S = 1.0


class Publisher(Callback):
    """Shows the status of the sweep in Ray's metrics and on its page in the dashboard, in turns of Tune's loop.

    ``page`` is None if the dashboard has no page for the sweep.
    """

    def __init__(
        self,
        driver: Driver,
        job: Job,
        sweep_status: Callable[[], SweepStatus],
        room: Callable[[], int],
        page: JobPage | None,
    ) -> None:
        self._driver, self._sweep_status, self._room, self._page = driver, sweep_status, room, page
        self._gauges = DashboardGauges(job.sweep, job.session)
        self._next_publish = 0.0  # by the monotonic clock

    def on_step_end(self, iteration: int, trials: Any, **info: Any) -> None:
        """Publish the status, if the last time was at least `EVERY_S` seconds ago."""
        now = time.monotonic()
        if now >= self._next_publish:
            self._next_publish = now + EVERY_S
            self._publish(dashboard.RUNNING)

    def close(self, error: BaseException | None = None) -> None:
        """Publish that the session has failed with ``error`` or, if that is None, was stopped or has succeeded.

        It was stopped if the driver says why it is stopping.
        """
        stopping = self._driver.stopping
        if error is not None:
            self._publish(dashboard.FAILED, in_short(error))
        elif stopping is not None:
            self._publish(dashboard.STOPPED, stopping)
        else:
            self._publish(dashboard.SUCCEEDED)

    def _publish(self, status: str, why: str = "") -> None:
        """Write the sweep's figures to Ray's metrics, and to the sweep's page in Ray's dashboard if there is one.

        The page also gets ``status`` and its reason ``why``. With a status other than `dashboard.RUNNING`, the
        estimated time left is written to neither.
        """
        sweep_status = self._sweep_status()
        if status != dashboard.RUNNING:  # nothing is left to wait for
            sweep_status = replace(sweep_status, left_s=None)
        self._gauges.set(sweep_status, self._driver.running, self._room())
        if self._page is not None:
            line, metadata = dashboard.describe_status(sweep_status)
            self._page.show(status, f"{why}; {line}" if why else line, metadata)
