"""The trials of a worker: one, or several of one structure that are trained together.

Each trial has a `Worker` of its own, which works as it does alone: it begins, receives epochs, saves and ends. They all
train with one object, the `Group` of the trainable.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import TypeAlias

from sweep.backends import Job, Moves, Order, Progress, Steps, is_released, memory
from sweep.backends.worker import Worker
from sweep.contract import Apart, Group, Report, Trainable
from sweep.errors import StoppedAtOnce, WorkerLost, first_line
from sweep.functions import load_trainable

_Steps: TypeAlias = Generator[Report, None, Progress]


class WorkerGroup:
    """Trains the trials of a process step by step: one, or several together.

    ``make`` creates a worker for a function that creates its trainable, or for None, which means the trainable of the
    job. If trainables cannot train trials together, they get one at a time.
    """

    def __init__(self, job: Job, make: Callable[[Callable[[], Trainable] | None], Worker]) -> None:
        self._job, self._make = job, make
        self._group: Group | None = None
        self._free: list[Worker] = []
        self._workers: dict[int, Worker] = {}  # by trial
        self._members: dict[int, Trainable] = {}  # of the group, by trial: a worker drops the trainable of a failed one
        self._spoilt: str | None = None
        self._has_apart_trial = False  # a trial did not fit together with the present ones
        self._together = job.together
        self._notices: list[str] = []
        self._sent_notices: set[str] = set()

    def take(self, orders: Iterable[Order]) -> None:
        """Accept trials from the driver; nothing is trained before the next step."""
        for order in orders:
            if self._free:
                worker = self._free.pop()
            else:
                worker = self._create_worker()
            worker.take(order)
            self._workers[order.assignment.trial] = worker
            if self._group is not None:
                self._members[order.assignment.trial] = worker.trainable

    def keep(self, trials: Iterable[int]) -> None:
        """Release all trials except these; the driver has ended the others."""
        kept_trials = set(trials)
        for trial in [trial for trial in self._workers if trial not in kept_trials]:
            worker = self._workers.pop(trial)
            worker.release()
            if self._group is not None:
                self._group.leave(self._members.pop(trial))
            self._free.append(worker)

    def step(self) -> Steps:
        """Train one step of all trials and return their progress. An exception of the trainable ends its trial."""
        if self._group is None:
            results = {}
            for trial, worker in self._workers.items():
                results[trial] = worker.step()
        else:
            with next(iter(self._workers.values())).surroundings.inside(anyhow=True):
                results = self._step_together(self._group)
        spoilt = next((result.spoilt for result in results.values() if result.spoilt is not None), None)
        self._spoilt = self._spoilt or spoilt
        if len(self._workers) > 1:  # the worker still trains the others
            results = {trial: dataclasses.replace(result, spoilt=None) for trial, result in results.items()}
        self.keep([trial for trial, result in results.items() if not is_released(result)])
        self._has_apart_trial = bool(self._workers) and (
            self._has_apart_trial or any(isinstance(result, Moves) for result in results.values())
        )
        results_with_notices = {}
        for trial, result in results.items():
            results_with_notices[trial] = self._remove_repeated_notices(result)
        is_open = self._group is not None and not self._has_apart_trial and self._spoilt is None and self._group.is_open
        return Steps(results_with_notices, self._spoilt, self._together, is_open)

    @property
    def is_idle(self) -> bool:
        """True if it has no trial to train."""
        return not self._workers

    def _remove_repeated_notices(self, progress: Progress) -> Progress:
        """Return progress without notices that were sent before, and with those of the group itself."""
        new = []
        for text in (*self._notices, *progress.notices):
            if self._group is None or text not in self._sent_notices:
                new.append(text)
        self._sent_notices.update(new)
        self._notices.clear()
        return dataclasses.replace(progress, notices=tuple(new))

    @property
    def idle_worker(self) -> Worker | None:
        """A worker that has no trial, but still the trainable of earlier ones; None without one."""
        return self._free[-1] if self._free else None

    def close(self) -> None:
        """Release all trials and stop receiving messages from the driver."""
        for worker in (*self._workers.values(), *self._free):
            worker.close()

    # ---- internals

    def _create_worker(self) -> Worker:
        """Return a new worker; the first one finds out whether trials of this trainable can be trained together."""
        if self._job.together <= 1:
            return self._make(None)
        if self._group is None:
            trainable = load_trainable(
                self._job.trainable, self._job.import_folders, self._job.given, seed=self._job.data_seed
            )()
            group = getattr(trainable, "group", None)
            if group is None:
                self._notices.append(f"{self._job.trainable} has no group(): its trials are trained one at a time")
                self._job = dataclasses.replace(self._job, together=1)
                self._together = 1
                return self._make(None)
            self._group = group()
        return self._make(self._group.member)

    def _step_together(self, group: Group) -> dict[int, Progress]:
        """Train one step of all trials together; return the progress of each.

        Each worker runs until it needs training; those are trained together, until every step has ended.
        """
        ended: dict[int, Progress] = {}
        waiting: dict[int, tuple[_Steps, Report]] = {}
        for trial, worker in self._workers.items():
            _continue_step(trial, worker.steps(), None, waiting, ended)
        while waiting:
            turn, waiting = waiting, {}
            for trial, error in self._train(group, {trial: hear for trial, (_, hear) in turn.items()}).items():
                if error is None:
                    self._workers[trial].pause()
                _continue_step(trial, turn[trial][0], error, waiting, ended)
        return ended

    def _train(self, group: Group, reports: Mapping[int, Report]) -> dict[int, BaseException | None]:
        """Train these trials together; return for each the exception that it raised, or None.

        ``reports`` are the report functions by trial. If the trials cannot be trained together, only the first is
        trained, and the others get `Apart`.
        """
        by_trial = {}
        for trial in reports:
            by_trial[trial] = self._members[trial]
        try:
            raised = group.train({by_trial[trial]: hear for trial, hear in reports.items()})
        except (StoppedAtOnce, WorkerLost):
            raise
        except BaseException as error:  # any error of the user's code
            first, *others = reports
            if not others:
                return {first: error}
            short = memory.is_out_of_memory(error)
            if short:
                self._together = max(len(reports) // 2, 1)
                why = f"{len(reports)} trials at once do not fit into memory"
            else:
                self._together = 1
                why = first_line(error)
            self._notices.append(why)
            if isinstance(error, Apart):  # nothing was trained, so the first one can continue here
                return self._train(group, {first: reports[first]}) | {trial: Apart(why) for trial in others}
            # It is unclear which trial caused this: each continues alone from its last checkpoint, and may fail there.
            self._spoilt = f"its trials failed together: {why}"
            return dict.fromkeys(reports, Apart(why))
        return {trial: raised.get(by_trial[trial]) for trial in reports}


def _continue_step(
    trial: int,
    steps: _Steps,
    error: BaseException | None,
    waiting: dict[int, tuple[_Steps, Report]],
    ended: dict[int, Progress],
) -> None:
    """Continue a trial's step until it needs training (then it is in ``waiting``) or ends (then in ``ended``).

    ``error`` is the exception of the training before, if it raised one.
    """
    try:
        if error is None:
            report = next(steps)
        else:
            report = steps.throw(error)
    except StopIteration as end:
        ended[trial] = end.value
    else:
        waiting[trial] = steps, report
