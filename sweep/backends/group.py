"""A worker's trials: one, or several of one structure that are trained together.

Each trial has a `Worker` of its own, for whom nothing is different but that several of them train at once: it begins,
hears of epochs, saves and ends as any. What they train with is one object, the trainable's `Group`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import TypeAlias

from sweep.backends import Job, Order, Progress, Steps, memory
from sweep.backends.worker import Worker
from sweep.contract import Apart, Group, Report, Trainable
from sweep.errors import StoppedAtOnce, WorkerLost, first_line
from sweep.functions import load_trainable

_Steps: TypeAlias = Generator[Report, None, Progress]


class WorkerGroup:
    """Takes orders, trains their trials step by step, and keeps those that go on.

    ``make`` makes a worker of a trainable, or of that which the job names; trainables that cannot train trials together
    get one at a time.
    """

    def __init__(self, job: Job, make: Callable[[Callable[[], Trainable] | None], Worker]) -> None:
        self._job, self._make = job, make
        self._group: Group | None = None
        self._free: list[Worker] = []
        self._taken: dict[int, Worker] = {}  # by trial
        self._members: dict[int, Trainable] = {}  # of the group, by trial: a worker forgets one that failed
        self._spoilt: str | None = None
        self._parted = False  # a trial did not fit to those that are here
        self._together = job.together
        self._notices: list[str] = []
        self._told: set[str] = set()

    def take(self, orders: Iterable[Order]) -> None:
        """Accept trials; nothing happens before their first step."""
        for order in orders:
            worker = self._free.pop() if self._free else self._worker()
            worker.take(order)
            self._taken[order.assignment.trial] = worker
            if self._group is not None:
                self._members[order.assignment.trial] = worker.trainable

    def keep(self, trials: Iterable[int]) -> None:
        """Let go of all trials but these: the driver has ended the others."""
        kept = set(trials)
        for trial in [trial for trial in self._taken if trial not in kept]:
            worker = self._taken.pop(trial)
            worker.let_go()
            if self._group is not None:
                self._group.leave(self._members.pop(trial))
            self._free.append(worker)

    def step(self) -> Steps:
        """Train on; never raises for what a trainable does."""
        if self._group is None:
            found = {trial: worker.step() for trial, worker in self._taken.items()}
        else:
            with next(iter(self._taken.values())).surroundings.inside(anyhow=True):
                found = self._step_together(self._group)
        spoilt = next((one.spoilt for one in found.values() if one.spoilt is not None), None)
        self._spoilt = self._spoilt or spoilt
        if len(self._taken) > 1:  # the worker serves the others on
            found = {trial: dataclasses.replace(one, spoilt=None) for trial, one in found.items()}
        self.keep([trial for trial, one in found.items() if not one.over])
        self._parted = bool(self._taken) and (self._parted or any(one.moves for one in found.values()))
        told = {trial: self._told_once(one) for trial, one in found.items()}
        is_open = self._group is not None and not self._parted and self._spoilt is None and self._group.is_open
        return Steps(told, self._spoilt, self._together, is_open)

    @property
    def is_idle(self) -> bool:
        """Whether it has no trial."""
        return not self._taken

    def _told_once(self, progress: Progress) -> Progress:
        """Leave out what another trial's worker has said already, and add what the group has to say."""
        new = [text for text in (*self._notices, *progress.notices) if self._group is None or text not in self._told]
        self._told.update(new)
        self._notices.clear()
        return dataclasses.replace(progress, notices=tuple(new))

    def close(self) -> None:
        """Let go of the trials, and of the driver."""
        for worker in (*self._taken.values(), *self._free):
            worker.close()

    # ---- how it is done

    def _worker(self) -> Worker:
        if self._job.together <= 1:
            return self._make(None)
        if self._group is None:
            trainable = load_trainable(
                self._job.trainable, self._job.import_folders, self._job.given, seed=self._job.data_seed
            )()
            group = getattr(trainable, "group", None)
            if group is None:
                self._notices.append(f"{self._job.trainable} has no group(): its trials are trained one at a time")
                self._job, self._together = dataclasses.replace(self._job, together=1), 1
                return self._make(None)
            self._group = group()
        return self._make(self._group.member)

    def _step_together(self, group: Group) -> dict[int, Progress]:
        """Step by step with all trials: each says when it has epochs to train, and these are trained together."""
        found: dict[int, Progress] = {}
        waiting: dict[int, tuple[_Steps, Report]] = {}
        for trial, worker in self._taken.items():
            _go_on(trial, worker.steps(), None, waiting, found)
        while waiting:
            turn, waiting = waiting, {}
            for trial, error in self._train(group, {trial: hear for trial, (_, hear) in turn.items()}).items():
                if error is None:
                    self._taken[trial].pause()
                _go_on(trial, turn[trial][0], error, waiting, found)
        return found

    def _train(self, group: Group, reports: Mapping[int, Report]) -> dict[int, BaseException | None]:
        """Train these trials together, or the first of them by itself; what each has raised."""
        by_trial = {trial: self._members[trial] for trial in reports}
        try:
            raised = group.train({by_trial[trial]: hear for trial, hear in reports.items()})
        except (StoppedAtOnce, WorkerLost):
            raise
        except BaseException as error:  # the border to the user's code
            first, *others = reports
            if not others:
                return {first: error}
            short = memory.is_short(error)
            self._together = max(len(reports) // 2, 1) if short else 1
            why = f"{len(reports)} trials at once do not fit into memory" if short else first_line(error)
            self._notices.append(why)
            if isinstance(error, Apart):  # nothing is trained: the first one can be where it is
                return self._train(group, {first: reports[first]}) | {trial: Apart(why) for trial in others}
            # Nobody knows whose fault it is: each goes on by itself from its last checkpoint, and may fail there.
            self._spoilt = f"its trials failed together: {why}"
            return dict.fromkeys(reports, Apart(why))
        return {trial: raised.get(by_trial[trial]) for trial in reports}


def _go_on(
    trial: int,
    steps: _Steps,
    error: BaseException | None,
    waiting: dict[int, tuple[_Steps, Report]],
    found: dict[int, Progress],
) -> None:
    """Let a trial go on to where it has to be trained, or to the end of its step."""
    try:
        hear = next(steps) if error is None else steps.throw(error)
    except StopIteration as end:
        found[trial] = end.value
    else:
        waiting[trial] = steps, hear
