"""Our searcher, scheduler and stopper in the shapes that Ray Tune asks for; the driver decides, Tune keeps nothing."""

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

from sweep.backends import Driver, Job, Order, Progress, Steps, SweepStatus, checkpoints, orders, refill
from sweep.backends.ray_tune import dashboard, ray_private_api, worker_exits
from sweep.backends.ray_tune.dashboard import Gauges, JobPage
from sweep.errors import StoreError, in_short
from sweep.text import trials_named

LONGEST_WAIT_S = 60.0


class _NotSaved:
    """Pickles as nothing: Tune saves snapshots of itself, and we never read them."""

    def __getstate__(self) -> dict[str, object]:
        return {}


@dataclass(slots=True)
class Workers:
    """Who has which trials: a trial of Tune's is a worker with one trial of the sweep, or several at once."""

    together: int  # trials that a worker gets at once
    free: list[str] = field(default_factory=list)  # workers that wait: Tune gives the next to the longest waiting one
    held: dict[str, list[int]] = field(default_factory=dict)  # trials of the sweep, by trial of Tune's
    replaced: dict[str, list[int]] = field(default_factory=dict)  # those of workers that end: they take no room

    def of(self, trial: Any) -> list[int]:
        """Return the trials that a trial of Tune's has."""
        return self.held.get(trial.trial_id, [])


class DriverSearcher(_NotSaved, Searcher):
    """Gives Tune the driver's next trials, never to more workers at a time than there is room for."""

    def __init__(self, driver: Driver, room: Callable[[], int], workers: Workers, always: dict[str, Any]) -> None:
        """``always`` is in the config of every trial: the ``job``, and whether workers ``reuse`` what they hold."""
        super().__init__()
        self._driver, self._room = driver, room
        self._workers, self._always = workers, always

    def suggest(self, trial_id: str) -> Any:
        """Return a config that holds the orders; FINISHED when there will be none, None to be asked again later.

        While a trial runs, it may come again: its worker may be lost.
        """
        workers, room = self._workers, self._room()
        idle = room - len(workers.held)
        name = workers.free[0] if workers.free else ""
        found = orders(self._driver, name, workers.together, idle) if idle > 0 else []
        if not found:
            return None if self._driver.running or idle <= 0 else Searcher.FINISHED
        del workers.free[:1]
        workers.held[trial_id] = [order.assignment.trial for order in found]
        return {"orders": found, "room": room, **self._always}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """The scheduler adapter has told the driver already."""

    def save(self, checkpoint_path: str) -> None:
        """The log is what a sweep is resumed from."""

    def restore(self, checkpoint_path: str) -> None:
        """The log is what a sweep is resumed from."""


class DriverScheduler(_NotSaved, FIFOScheduler):
    """Hands each step to the driver and turns its answer into Tune's."""

    def __init__(
        self,
        driver: Driver,
        notice: Callable[[str], None],
        workers: Workers,
        longest_wait_s: float = LONGEST_WAIT_S,
        room: Callable[[], int] | None = None,
    ) -> None:
        """``room``: for how many workers there is room, where other sweeps may want what is not needed here."""
        super().__init__()
        self._room = room
        self._driver, self._notice, self._longest_wait_s = driver, notice, longest_wait_s
        self._workers = workers
        self._waiting: dict[str, float] = {}
        self._usable: dict[ray_private_api.Use, bool] = {}

    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        """Return the trial for the next free worker: the youngest, unless the oldest has long waited for room.

        Tune ends the worker that starts for an older one if that takes a free one instead, so that with
        trials shorter than a start only the first worker would ever run. A worker that starts is therefore
        left alone, however long that takes on a loaded machine; one that has not even got its resources may
        never start, where a node of the cluster is gone.
        """
        pending = [trial for trial in tune_controller.get_trials() if trial.status == Trial.PENDING]
        if not pending:
            return None
        now = time.monotonic()
        looks = self._may(ray_private_api.STARTING_WORKERS, tune_controller)
        starting = {trial.trial_id for trial in pending if looks and _has_room(tune_controller, trial)}
        names = [trial.trial_id for trial in pending]
        self._waiting = {name: now if name in starting else self._waiting.get(name, now) for name in names}
        oldest, youngest = pending[0], pending[-1]
        return oldest if now - self._waiting[oldest.trial_id] > self._longest_wait_s else youngest

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Called for every step; all decisions are made here."""
        steps: Steps = result["steps"]
        workers, worker = self._workers, next((one.worker for one in steps.found.values()), "")
        workers.together = min(workers.together, steps.together)
        for progress in steps.found.values():
            for text in progress.notices:
                self._notice(text)
        if worker in workers.free:  # it was given trials that were meant for another worker
            workers.free.remove(worker)
        goes_on = [number for number, progress in steps.found.items() if self._goes_on(number, progress)]
        ends = any(number not in goes_on and not one.over for number, one in steps.found.items())
        tells = steps.is_open and self._may(ray_private_api.KEEPING, trial)
        more = refill(self._driver, worker, steps, len(goes_on), len(workers.held)) if tells else []
        for order in more:
            self._driver.begun(order.assignment.trial)
        if (more or (ends and (goes_on or steps.spoilt is not None))) and not self._keeps(trial, goes_on, more):
            goes_on = []
        goes_on += [order.assignment.trial for order in more]
        if goes_on:
            workers.held[trial.trial_id] = goes_on
            return str(TrialScheduler.CONTINUE)
        if steps.spoilt is not None:
            # Those that are told to go on elsewhere may be there already, and are not lost with this worker.
            workers.held.pop(trial.trial_id, None)
            workers.replaced[trial.trial_id] = [number for number, one in steps.found.items() if one.spoilt is not None]
            self._notice(f"the worker of {trials_named(steps.found)} is replaced: {steps.spoilt}")
            # Let it raise in its next step: Tune ends actors that raise and keeps those that stop.
            return str(TrialScheduler.CONTINUE)
        workers.held.pop(trial.trial_id, None)
        if self._room is not None and len(workers.held) >= self._room() and self._keeps(trial, [], []):
            return str(TrialScheduler.CONTINUE)  # without a trial it raises as well: Tune keeps one that has stopped
        workers.free.append(worker)
        return str(TrialScheduler.STOP)

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        """The driver knows already; a good moment to forget those before it."""
        if self._may(ray_private_api.FORGETTING, tune_controller):
            forget_ended(tune_controller)

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        """A worker is gone, or raised because it was spoilt: then its trial has ended already."""
        text = Path(trial.error_file).read_text() if trial.error_file else ""
        _, _, error = text.partition("\n")  # a heading
        first: Order = trial.config["orders"][0]
        job: Job = trial.config["job"]
        reason = f"worker lost: {worker_exits.cause(job, first.assignment.trial, error)}"
        lost = worker_exits.loss(error)
        workers, name = self._workers, trial.trial_id
        for number in (*workers.held.pop(name, []), *workers.replaced.pop(name, [])):
            if self._driver.lose(number, reason, lost):
                self._notice(f"trial {number}: {reason}; {_how_on(job, number)}")

    def _goes_on(self, number: int, progress: Progress) -> bool:
        """Hand a trial's progress to the driver; whether its worker trains on."""
        goes_on = self._driver.take(number, progress)
        if progress.outgrown and progress.spoilt is None:  # its worker stays, for others
            self._driver.lose(number, "it needs another process")
        return goes_on and not progress.over

    def _keeps(self, trial: Any, goes_on: list[int], more: list[Order]) -> bool:
        """Let a worker go on with some of its trials, and more; where it cannot be told, they go on by themselves."""
        if self._may(ray_private_api.KEEPING, trial):
            # Before its next step: calls of one actor come in their order.
            trial.temporary_state.ray_actor.keep.remote(goes_on, more)
            return True
        self._workers.together = 1
        for number in goes_on:
            self._driver.lose(number, "its worker has another trial", "preempted")
        return False

    def _may(self, use: ray_private_api.Use, controller: Any) -> bool:
        """Return whether a controller has the names of a use; said once if not."""
        if use not in self._usable:
            self._usable[use] = ray_private_api.usable(use, self._notice, controller)
        return self._usable[use]


def _how_on(job: Job, trial: int) -> str:
    """Return how a trial goes on whose worker is lost: it was perhaps saved by then, and functions may save nothing."""
    try:
        saved = checkpoints.names(job.results_folder, trial)
    except StoreError:  # the object store is away
        return "it goes on"
    return "it goes on from its checkpoint" if saved else "it has no checkpoint and begins anew"


class DriverStopper(_NotSaved, Stopper):
    """Ends the experiment once the driver stops and no trial runs any more."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self._driver.stopping is not None and self._driver.running == 0


def silence(say: Callable[[str], None]) -> list[Any]:
    """Stands in for Tune's printer of results, which keeps each trial for ever even where it prints nothing."""
    if not ray_private_api.usable(ray_private_api.SILENCE, say):
        return []

    class Silence(ray_private_api.module("ray.tune.progress_reporter").TrialProgressCallback):  # type: ignore[misc]  # of a module without types
        def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: Any, **info: Any) -> None:
            """The driver's listeners show what there is to see."""

        def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            """As above."""

        def on_trial_error(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            """As above."""

    return [Silence()]


def forget_ended(controller: Any) -> None:
    """Take trials that have ended out of Tune's collections, which else grow with each one.

    Tune walks over all its trials in each step and writes them all down at the end, but needs none that has ended.
    """
    trials: list[Any] = controller.get_trials()
    ended = {trial for trial in trials if trial.is_finished()}
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
        with suppress(OSError):  # where the trial's error lies in it
            Path(trial.local_path).rmdir()


def survive_memory_kills(say: Callable[[str], None]) -> None:
    """Let Tune take a worker that Ray's memory monitor has killed for a lost one.

    Tune of Ray 2.60 expects two kinds of error from a worker; at this third one it would end all trials. The names that
    its modules have for the first kind are made to mean both.
    """
    if ray_private_api.usable(ray_private_api.MEMORY_KILLS, say):
        for name in ray_private_api.MEMORY_KILLS.names:
            ray_private_api.module(name.partition(":")[0]).RayActorError = (RayActorError, OutOfMemoryError)


def count_no_callbacks(say: Callable[[str], None]) -> None:
    """Keep Tune from importing all of its loggers, MLflow and W&B with them, to count which of them are used.

    The count is for Ray's usage reports, which are off.
    """
    if ray_private_api.usable(ray_private_api.TAGGING, say):
        ray_private_api.module("ray.air._internal.usage").tag_callbacks = lambda callbacks: False


def take_waiting_processes(say: Callable[[str], None]) -> None:
    """Let workers be the processes that Ray has started ahead for them.

    Tune of Ray 2.60 gives its actors environment variables, those of cloud storage among them, for which Ray
    starts other processes than those that wait. On this machine they have all of the driver's as it is.
    """
    if not ray_private_api.usable(ray_private_api.WAITING_PROCESSES, say):
        return

    class Plain:
        def get(self, trainable: type) -> Any:
            return actors.setdefault(trainable, ray.remote(trainable))

    actors: dict[type, Any] = {}
    ray_private_api.module("ray.tune.execution.tune_controller")._ActorClassCache = Plain


def name_workers(job: Job, say: Callable[[str], None]) -> None:
    """Let Ray show each worker under the name of its sweep, its session and its own number.

    Tune makes an actor of a class by way of `options`, to which the name is added. Session and number make it one that
    no other worker of a cluster has, whatever its namespace.
    """
    if not ray_private_api.usable(ray_private_api.NAMED_WORKERS, say):
        return
    controller = ray_private_api.module("ray.tune.execution.tune_controller")
    there: Any = controller._ActorClassCache
    theirs: Any = getattr(there, "unnamed", there)
    numbers = count()

    class Named:
        unnamed = theirs

        def __init__(self) -> None:
            self._theirs, self._named = theirs(), dict[type, Any]()

        def get(self, trainable: type) -> Any:
            if trainable not in self._named:
                self._named[trainable] = self._with_names(self._theirs.get(trainable))
            return self._named[trainable]

        def _with_names(self, actors: Any) -> Any:
            named, options = copy(actors), actors.options
            named.options = lambda **given: options(
                **given, name=f"{job.sweep}/{job.session[:6]}/worker-{next(numbers)}"
            )
            return named

    controller._ActorClassCache = Named


def _has_room(controller: Any, trial: Any) -> bool:
    """Return whether the trial's own worker has got its resources and starts."""
    worker = controller._trial_to_actor.get(trial)
    return worker is not None and bool(controller._actor_manager.is_actor_started(worker))


class DriverClock(Callback):
    """Called by Tune in each turn of its loop, whether anything has happened or not."""

    def __init__(self, driver: Driver, notice: Callable[[str], None], workers: Workers) -> None:
        self._driver, self._notice, self._workers = driver, notice, workers

    def on_trial_start(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """A worker is there and takes the trial."""
        for number in self._workers.of(trial):
            self._driver.begun(number)

    def on_step_end(self, iteration: int, trials: Any, **info: Any) -> None:
        """Kill the processes of trials that the driver has ended while they trained."""
        doomed = set(self._driver.tick())
        for trial in trials if doomed else ():
            if trial.is_finished() or not doomed & set(self._workers.of(trial)):
                continue
            if (
                ray_private_api.usable(ray_private_api.KILLING, self._notice, trial)
                and trial.temporary_state.ray_actor is not None
            ):
                ray.kill(trial.temporary_state.ray_actor)  # Tune hears of it as of any lost worker


EVERY_S = 1.0


class Publisher(Callback):
    """Called by Tune in each turn of its loop; ``page`` is None where the dashboard cannot have one."""

    def __init__(
        self,
        driver: Driver,
        job: Job,
        sweep_status: Callable[[], SweepStatus],
        room: Callable[[], int],
        page: JobPage | None,
    ) -> None:
        self._driver, self._vitals, self._room, self._page = driver, sweep_status, room, page
        self._gauges = Gauges(job.sweep, job.session)
        self._next = 0.0

    def on_step_end(self, iteration: int, trials: Any, **info: Any) -> None:
        """Publish, if the last time is long enough ago."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + EVERY_S
            self._publish(dashboard.RUNNING)

    def close(self, error: BaseException | None = None) -> None:
        """Publish the end of the session."""
        stopping = self._driver.stopping
        if error is not None:
            self._publish(dashboard.FAILED, in_short(error))
        elif stopping is not None:
            self._publish(dashboard.STOPPED, stopping)
        else:
            self._publish(dashboard.SUCCEEDED)

    def _publish(self, status: str, why: str = "") -> None:
        sweep_status = self._vitals()
        if status != dashboard.RUNNING:
            sweep_status = replace(sweep_status, left_s=None)
        self._gauges.set(sweep_status, self._driver.running, self._room())
        if self._page is not None:
            line, words = dashboard.words(sweep_status)
            self._page.show(status, f"{why}; {line}" if why else line, words)
