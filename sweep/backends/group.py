"""The trials of a worker: one, or several of one structure that are trained together.

Each trial has its own `Worker`, which begins, reports, saves and ends it. If several are trained together, the `Group`
of the trainable trains them all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

from sweep.backends import Job, Moves, Order, Progress, Steps, is_released, memory
from sweep.backends.worker import Worker
from sweep.contract import Apart, Group, Trainable
from sweep.errors import StoppedAtOnce, WorkerLost, first_line
from sweep.functions import load_trainable


class WorkerGroup:
    """Trains the trials of a process step by step: one, or several together.

    ``make`` returns a new worker, given a function that creates the worker's trainable, or None for the job's own. If
    the trainable has no ``group``, trials are trained one at a time.
    """

    def __init__(self, job: Job, make: Callable[[Callable[[], Trainable] | None], Worker]) -> None:
        self._job, self._make = job, make
        self._group: Group | None = None
        self._free: list[Worker] = []
        self._workers: dict[int, Worker] = {}  # by trial
        # of the group, by trial: a worker drops the trainable of a failed one
        self._members: dict[int, Trainable] = {}
        # why this process must not be used again after its present trials
        self._spoilt: str | None = None
        self._has_apart_trial = False  # a trial did not fit together with the present ones
        self._together = job.together  # number of trials to ask for; lower if so many did not fit
        self._notices: list[str] = []  # about all trials, to be sent with the next progress
        self._sent_notices: set[str] = set()

    def take(self, orders: Iterable[Order]) -> None:
        """Accept trials from the driver; nothing is trained before the next step.

        If the job allows to train trials together, the first call imports and creates the trainable, and raises what
        that raises.
        """
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
        """Release all trials except those with the numbers ``trials``; their workers are used for later trials.

        Numbers of trials that are not here are ignored.
        """
        kept_trials = set(trials)
        # listed first, because the loop removes them
        for trial in [trial for trial in self._workers if trial not in kept_trials]:
            worker = self._workers.pop(trial)
            worker.release()
            if self._group is not None:
                self._group.leave(self._members.pop(trial))
            self._free.append(worker)

    def step(self) -> Steps:
        """Train one step of all trials, and return its results, with the progress by trial number.

        There must be at least one trial. Trials that end in this step, or that another worker must continue, are
        released. If there are several trials, the reason why the process must not be used again is only in the result's
        `spoilt`, because it still trains the others. Only `StoppedAtOnce` and `WorkerLost` are raised: any other
        exception of the trainable ends trials or moves them to other workers.
        """
        progress = self._train_step()
        self._note_spoilt(progress)  # before the next lines remove the reason
        if len(self._workers) > 1:
            # otherwise, a trial that continues elsewhere would wait until this process ends
            for trial in progress:
                progress[trial] = dataclasses.replace(progress[trial], spoilt=None)
        self.keep([trial for trial in progress if not is_released(progress[trial])])
        self._note_apart_trials(progress)  # after `keep`, because it asks whether any trial is left
        for trial in progress:
            progress[trial] = self._remove_repeated_notices(progress[trial])
        return Steps(
            progress,
            spoilt=self._spoilt,
            together=self._together,
            is_open=self._may_join(),
        )

    @property
    def is_idle(self) -> bool:
        """Whether there is no trial to train."""
        return not self._workers

    def _remove_repeated_notices(self, progress: Progress) -> Progress:
        """Return a copy of ``progress`` with this object's own notices in front, which are then forgotten.

        If trials are trained together, notices that were sent before are left out, also those of other trials.
        """
        new = []
        for text in (*self._notices, *progress.notices):
            # The workers of a group would all say the same, such as that nothing has read a parameter.
            if self._group is None or text not in self._sent_notices:
                new.append(text)
        self._sent_notices.update(new)
        self._notices.clear()
        return dataclasses.replace(progress, notices=tuple(new))

    @property
    def idle_worker(self) -> Worker | None:
        """A worker without a trial, which may still have the trainable of earlier trials; None if there is none.

        Of several, it is the one that was released last.
        """
        return self._free[-1] if self._free else None

    def close(self) -> None:
        """Release all trials, stop receiving messages from the driver, and stop seeding imported modules."""
        for worker in (*self._workers.values(), *self._free):
            worker.close()

    # ---- internals

    def _create_worker(self) -> Worker:
        """Return a new worker, whose trainable is a member of the `Group` if there is one.

        If `Job.together` is above 1, the first call imports and creates the trainable to find out whether it has a
        ``group``, and raises what that raises. If it has none, a notice is added, and trials are trained one at a time.
        """
        if self._job.together <= 1:
            return self._make(None)  # the worker creates the job's own trainable
        if self._group is None:
            trainable = load_trainable(
                self._job.trainable,
                self._job.import_folders,
                self._job.given,
                seed=self._job.data_seed,
            )()
            group = getattr(trainable, "group", None)
            if group is None:
                self._notices.append(
                    f"{self._job.trainable} has no group(): its trials are trained one at a time"
                )
                # so that later calls do not ask again
                self._job = dataclasses.replace(self._job, together=1)
                self._together = 1
                return self._make(None)
            self._group = group()
        return self._make(self._group.member)

    def _train_step(self) -> dict[int, Progress]:
        """Train one step of each trial, one after another or all together; return the progress by trial number."""
        if self._group is not None:
            # Any worker will do: folder, streams and settings belong to the process, in which all trials train at once.
            with next(iter(self._workers.values())).surroundings.inside(anyhow=True):
                return self._train_step_together(self._group)
        progress = {}
        for trial, worker in self._workers.items():
            progress[trial] = worker.step()
        return progress

    def _train_step_together(self, group: Group) -> dict[int, Progress]:
        """Train one step of all trials together; return their progress by number, in the order in which steps ended.

        Each worker does what it does in `Worker.step`, except that the group trains the trials. Trials whose training
        must be repeated, as after memory ran out, are trained until none is left. The caller must be inside a worker's
        surroundings.
        """
        ended: dict[int, Progress] = {}  # of the trials whose step is over
        to_train = []
        for trial, worker in self._workers.items():
            progress = worker.begin_step()
            if progress is None:
                to_train.append(trial)
            else:
                ended[trial] = progress
        while to_train:
            errors = self._train(group, to_train)
            to_train = []
            for trial, error in errors.items():
                progress = self._end_training(self._workers[trial], error)
                if progress is None:  # it must be trained once more
                    to_train.append(trial)
                else:
                    ended[trial] = progress
        return ended

    def _end_training(self, worker: Worker, error: BaseException | None) -> Progress | None:
        """Call `Worker.end_training` after the group has trained, and return its result, the step's progress.

        The result is None if the trial must be trained once more. ``error`` is what its training raised; if that is
        None, `Worker.pause` is called before.
        """
        # the report of one trial pauses all; one that trains no further has raised `Stopped`
        if error is None:
            worker.pause()
        return worker.end_training(error)

    def _train(self, group: Group, trials: Sequence[int]) -> dict[int, BaseException | None]:
        """Train ``trials`` together; return, by trial number, the exception that each raised, or None.

        If `Group.train` itself raises an exception, the result depends on the number of trials: a single trial gets
        that exception; for several trials, the result of `_train_apart` is returned. `StoppedAtOnce` and `WorkerLost`
        are not caught.
        """
        reports = {}
        for trial in trials:
            reports[self._members[trial]] = self._workers[trial].report
        try:
            raised = group.train(reports)
        except (StoppedAtOnce, WorkerLost):
            raise
        except BaseException as error:  # any error of the user's code
            if len(trials) == 1:  # it is this trial's error
                return {trials[0]: error}
            return self._train_apart(group, trials, error)
        return {trial: raised.get(self._members[trial]) for trial in trials}

    def _train_apart(
        self, group: Group, trials: Sequence[int], error: BaseException
    ) -> dict[int, BaseException | None]:
        """Return the exception of each trial after training ``trials``, at least two, together raised ``error``.

        If ``error`` is `Apart`, the group refused them before it trained anything: the first one is trained here alone,
        and the others get `Apart`. Otherwise all get `Apart`, so that each continues in another process, and this
        process must not be used again. In both cases, fewer trials are asked for from now on.
        """
        first, *others = trials
        why = self._ask_for_fewer_trials(len(trials), error)
        if isinstance(error, Apart):
            return self._train(group, [first]) | {trial: Apart(why) for trial in others}
        # It is unclear which trial caused this: each continues alone from its last checkpoint, and may fail there.
        self._spoilt = f"its trials failed together: {why}"
        return dict.fromkeys(trials, Apart(why))

    def _ask_for_fewer_trials(self, count: int, error: BaseException) -> str:
        """Ask for fewer trials from now on, after ``count`` could not be trained together; return the reason.

        Half of them, rounded down but at least one, are asked for if memory ran out, otherwise one. The reason is also
        sent to the driver as a notice.
        """
        if memory.is_out_of_memory(error):
            self._together = max(count // 2, 1)
            why = f"{count} trials at once do not fit into memory"
        else:
            self._together = 1
            why = first_line(error)
        self._notices.append(why)
        return why

    def _note_spoilt(self, progress: Mapping[int, Progress]) -> None:
        """Store the first reason in ``progress`` why this process must not be used again, if none is stored yet."""
        for step in progress.values():
            if self._spoilt is None:
                self._spoilt = step.spoilt

    def _note_apart_trials(self, progress: Mapping[int, Progress]) -> None:
        """Record whether any trial has moved to another worker; reset this once no trial is left."""
        if not self._workers:
            self._has_apart_trial = False
        elif any(isinstance(step, Moves) for step in progress.values()):
            self._has_apart_trial = True

    def _may_join(self) -> bool:
        """Return whether more trials may join while the present ones train on.

        They may not if there is no `Group`, if a trial has moved to another worker since this process last had no
        trial, or if this process must not be used again. Otherwise the group says whether they may.
        """
        if self._group is None or self._has_apart_trial or self._spoilt is not None:
            return False
        return self._group.is_open
