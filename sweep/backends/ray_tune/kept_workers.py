"""Workers that stay when their Tune experiment ends, and train for the next one in the same process.

Tune ends its actors with each experiment. A process that keeps its Ray between commands (`kept_ray`) takes them out of
the controller of the experiment that ends, and puts those that can train for the next experiment into the controller of
that one. They hold their resources in between.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import Any

import ray

from sweep.backends import Job
from sweep.backends.ray_tune import ray_private_api
from sweep.backends.ray_tune.worker_settings import WorkerSettings
from sweep.errors import first_line
from sweep.text import counted

ANSWER_S = 10.0
"""Seconds that a worker may take to say whether it can train for another sweep; then it is ended."""


@dataclass(frozen=True, slots=True)
class IdleWorker:
    """A worker without a trial, and the resources that it holds."""

    resources: Any  # resources that it holds, as Tune requests them
    actor: Any  # the object by which Tune's manager knows it
    handle: Any  # Ray's handle of the actor


@dataclass(slots=True)
class KeptWorkers:
    """The workers that stay between Tune experiments, with Tune's manager of their actors and resources."""

    manager: Any = None
    workers: list[IdleWorker] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.workers)

    def end(self) -> None:
        """End all kept workers, if any, and release their resources."""
        if self.manager is not None:
            self.manager.cleanup()
        self.manager = None
        self.workers = []

    def end_unfit(self, job: Job, settings: WorkerSettings, say: Callable[[str], None]) -> None:
        """End the kept workers that cannot train for this job, are gone, or do not answer within 10 s.

        Waits until all have answered, for 10 s at most. ``settings`` are the devices and the ``training`` block of the
        job's trials. If any are ended, ``say`` gets one line with their number and the first reason.
        """
        if not self.workers:
            return
        answers = [worker.handle.find_hindrance.remote(job, settings) for worker in self.workers]
        ray.wait(answers, num_returns=len(answers), timeout=ANSWER_S)
        fitting = []
        hindrances = []
        for worker, answer in zip(self.workers, answers, strict=True):
            hindrance = _read_answer(answer)
            if hindrance:
                hindrances.append(hindrance)
                self.manager.remove_actor(worker.actor, kill=True)
            else:
                fitting.append(worker)
        self.workers = fitting
        for _ in hindrances:
            self.manager.next(timeout=0)  # Tune kills one actor a turn
        if hindrances:
            say(
                f"{counted(len(hindrances), 'worker')} of the sweep before cannot be used again: {hindrances[0]}"
            )


def _read_answer(answer: Any) -> str:
    """Return why a worker cannot be used again; ``""`` if it can.

    ``answer`` is Ray's reference to the result of its `find_hindrance`. An error is a reason too: one that the call has
    raised, or that its process is gone or has not answered yet, for which this function does not wait.
    """
    try:
        hindrance: str | None = ray.get(answer, timeout=0)
    except Exception as error:  # its process is gone, or does not answer
        return first_line(error)
    return hindrance or ""


def keeping_workers(kept: KeptWorkers, say: Callable[[str], None]) -> AbstractContextManager[None]:
    """Return a context manager in which a Tune experiment begins with the kept workers, and at its end keeps its own.

    If this Ray lacks the private names for that, the kept workers are ended now, by this call, and the experiment keeps
    none; ``say`` gets a line when the context is entered.
    """
    if ray_private_api.list_missing(ray_private_api.KEPT_WORKERS):
        kept.end()

    def make_controller(controller: type) -> type:
        # attributes of the class, because Tune saves those of the object
        return type("KeepingController", (_KeepsWorkers, controller), {"kept": kept, "idle": {}})

    return ray_private_api.replacing_name(ray_private_api.KEPT_WORKERS, say, make_controller)


class _KeepsWorkers:
    """Mixin for Tune's controller that keeps all workers without a trial; Tune would end all but one."""

    kept: KeptWorkers
    idle: dict[Any, IdleWorker]  # by actor, all workers that were ever idle in this experiment

    _actor_manager: Any  # this and the following attributes belong to Tune's controller
    _actor_cache: Any
    _actor_to_trial: dict[Any, Any]
    _trial_to_actor: dict[Any, Any]
    _started_actors: set[Any]
    _stopping_actors: dict[Any, float]
    _actor_started: Callable[..., None]
    _actor_stopped: Callable[..., None]
    _actor_failed: Callable[..., None]
    _schedule_trial_stop: Callable[..., None]
    _cleanup_stopping_actors: Callable[..., None]

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._is_ending = False
        # Tune's manager of actors; only the one that has started the kept workers knows them.
        if self.kept.manager is not None:
            self._actor_manager = self.kept.manager
        for worker in self.kept.workers:
            # Their callbacks are still those of the controller before.
            worker.actor.set_on_start(self._actor_started)
            worker.actor.set_on_stop(self._actor_stopped)
            worker.actor.set_on_error(self._actor_failed)
            self._started_actors.add(worker.actor)
            self._put_aside(worker)
        # They belong to this experiment until `_cleanup_trials`; if it fails before, none must be used again.
        self.kept.manager = None
        self.kept.workers = []

    def _put_aside(self, worker: IdleWorker) -> None:
        """Put an idle worker into Tune's cache of actors, which is enlarged by one."""
        self.idle[worker.actor] = worker
        self._actor_cache.increase_max(worker.resources)
        self._actor_cache.cache_object(worker.resources, worker.actor)

    def _maybe_reuse_cached_actor(self, trial: Any) -> bool:
        """Let Tune give an idle worker from its cache to a trial; return whether the trial has one from there.

        True also if an earlier call gave it one that is not reset yet. The cache's size is lowered by one for a worker
        that leaves it.
        """
        cached = self._actor_cache.num_cached_objects
        is_reused: bool = super()._maybe_reuse_cached_actor(trial)  # type: ignore[misc]  # of Tune's controller
        # otherwise the trial had a worker already, or there was none
        if self._actor_cache.num_cached_objects < cached:
            self._actor_cache.decrease_max(trial.placement_group_factory)
        return is_reused

    def _maybe_cache_trial_actor(self, trial: Any) -> bool:
        """Take its worker from an ended trial and put it into Tune's cache; return whether that was done.

        Nothing is done if the worker has not started or has failed, or if the experiment is ending. Tune itself would
        decide by the size of its cache.
        """
        actor = self._trial_to_actor[trial]
        is_usable = actor in self._started_actors and not self._actor_manager.is_actor_failed(actor)
        if self._is_ending or not is_usable:
            return False
        worker = IdleWorker(trial.placement_group_factory, actor, trial.temporary_state.ray_actor)
        del self._trial_to_actor[trial]
        del self._actor_to_trial[actor]
        trial.set_ray_actor(None)
        self._put_aside(worker)
        return True

    def _cleanup_trials(self) -> None:
        """End the workers that still have a trial, and put the idle ones into `kept` for the next experiment.

        The idle ones end their session; this waits 10 s at most for that, and ignores errors.
        """
        # workers that still have a trial are ended below, and must not be kept
        self._is_ending = True
        idle = [
            self.idle[actor] for actor in self._actor_cache.flush_cached_objects(force_all=True)
        ]
        for trial in list(self._actor_to_trial.values()):
            self._schedule_trial_stop(trial)
        stopping = len(self._stopping_actors)  # counted first, because the next line empties it
        self._cleanup_stopping_actors(force_all=True)
        for _ in range(stopping):
            # kills one that has not stopped; Tune kills one actor a turn
            self._actor_manager.next(timeout=0)
        resting = [worker.handle.rest.remote() for worker in idle]
        with suppress(Exception):  # a worker that does not answer is ended before the next sweep
            ray.get(resting, timeout=ANSWER_S)
        self.kept.manager = self._actor_manager
        self.kept.workers = idle
