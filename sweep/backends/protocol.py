"""What passes between a `Driver`, which hands out trials, and a `Backend`, which trains them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from sweep.contract import Assignment, Facts
from sweep.events import EpochReported, TrialEnded


@dataclass(frozen=True, slots=True)
class Order:
    """A trial that a worker is to train, and how."""

    assignment: Assignment
    # after which the driver may prune or pause the trial, in units of rungs
    decision_epochs: tuple[int, ...] = ()
    # loss (`Objective.constrained_loss`): a trial that ends with no lower one keeps no checkpoint
    to_beat: float | None = None
    whole: bool = False  # train all epochs, even if the target is reached
    # stop before training if the data have one of these fingerprints, for which earlier sweeps have results
    earlier_data: tuple[str, ...] = ()
    moved: bool = False  # it did not fit into another process
    copied: bool = False  # it continues from its parent's checkpoint, and cannot begin anew
    waits: bool = False  # save at each decision epoch, because the trial may pause there
    shares: bool = False  # its GPU share may change, in which case another worker continues it

    def __repr__(self) -> str:
        return f"trial {self.assignment.trial}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialStep:
    """What a worker reports after one step of a trial: the fields that all classes of `Progress` have."""

    epochs: tuple[EpochReported, ...] = ()  # trained in this step
    facts: Facts = field(default_factory=Facts)
    notices: tuple[str, ...] = ()  # lines for the user
    output: str = ""  # what was printed in the worker's process, see `OutputPrinted`
    worker: str = ""  # name of the worker, if there are several
    spoilt: str | None = None  # why the worker must not be used again

    @property
    def together(self) -> float:
        """Number of trials that were trained together in the last epoch of the step; 1.0 if it has no epochs."""
        if not self.epochs:
            return 1.0
        return self.epochs[-1].measures.get("together", 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Continues(TrialStep):
    """The worker can train the trial on, unless the driver ends or pauses it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SameData(TrialStep):
    """The trial has loaded data whose fingerprint is in `Order.earlier_data`, and can still be trained.

    The worker reports this once, and then trains the trial unless the driver takes it away.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Moves(TrialStep):
    """The worker gives the trial up; another one is to continue it from its last checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgrown(TrialStep):
    """The trial ran out of memory and must be trained in another process. This worker must not be used again."""

    accumulate: int  # number of micro-batches for each batch in the other process


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowded(TrialStep):
    """The trial ran out of memory and needs a larger share of a GPU, in another worker.

    The worker that reports this must not be used again.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends(TrialStep):
    """The trial has ended or was interrupted."""

    end: TrialEnded
    fault: str | None = None  # why the whole sweep cannot continue


Progress: TypeAlias = Continues | SameData | Moves | Outgrown | Crowded | Ends
"""The result of one step of a trial: one class for each way in which the trial can go on."""


def is_released(progress: Progress) -> bool:
    """Return whether the worker no longer has the trial of ``progress``, whatever the driver decides."""
    return not isinstance(progress, Continues | SameData)


@dataclass(frozen=True, slots=True)
class Steps:
    """Results of one step of a worker: the progress of each of its trials, by number."""

    found: Mapping[int, Progress]
    spoilt: str | None = None  # why the worker must not be used after its present trials
    together: int = 1  # number of trials to give this worker, and others like it, at once
    is_open: bool = False  # more trials may join while these are training


Lost: TypeAlias = Literal["worker", "node", "preempted"]
"""What was lost: a worker's process, its node, or its node because the cluster took it away."""


class Driver(Protocol):
    """Hands out trials and receives their progress. A backend calls these methods and does what they return."""

    @property
    def running(self) -> int:
        """Number of trials that have a worker, or wait until `lose` is called for one that must not be used again."""

    @property
    def room(self) -> int | None:
        """Number of trials that may run at once if the driver chooses their GPU shares; else None: as many as fit."""

    @property
    def left(self) -> int | None:
        """Number of trials that are still to be handed out, for the first time or again; None if unknown.

        It is what is known now: even if it is 0, `next` may return a trial, such as one that has lost its worker.
        """

    @property
    def stopping(self) -> str | None:
        """Why no more trials are handed out and running ones end early; None if the sweep is not being stopped."""

    def next(self, worker: str = "") -> Order | None:
        """Return the order to train the next trial, for the worker ``worker``; None if there is none to start now.

        ``worker`` is a name, ``""`` for a new worker. After None, there may be a trial later as long as others are
        running, because one of them may pause or lose its worker.
        """

    def begun(self, trial: int) -> None:
        """Record that a worker has begun the trial with this number, and count the trial's timeouts from now."""

    def tick(self) -> list[int]:
        """Check timeouts and limits; return the trials that ended since the last call and whose workers must be killed.

        Called in every turn of the backend's loop.
        """

    def take(self, trial: int, progress: Progress) -> bool:
        """Process the progress of a trial's step; return whether the same worker is to train the trial further.

        It is not if the trial has ended, pauses, continues elsewhere, or is no longer this worker's. After `Outgrown`
        and `Crowded`, True only means that the trial has not ended: this worker has given it up, and `lose` must be
        called.
        """

    def lose(self, trial: int, reason: str, lost: Lost = "worker", output: str = "") -> bool:
        """Handle that a trial's worker is gone or must not be used again; call it for each trial of such a worker.

        It must also be called after `Outgrown` and `Crowded` if the worker stays for other trials. ``lost`` says what
        was lost, ``reason`` why, and ``output`` is what the worker had printed since its last step. Returns whether the
        user must be told that another worker retries the trial. It is False if the trial has ended or ends now, and if
        the worker is not lost but only must not be used again.
        """


def request_orders(driver: Driver, worker: str, most: int, idle: int) -> list[Order]:
    """Request at most ``most`` trials for a worker from the driver and return them.

    ``worker`` is the worker's name, ``""`` for a new worker. If few trials are left, they are divided among the
    ``idle`` workers, this one included, each of which gets at least one. The list is empty if there is no trial to
    start now.
    """
    left = driver.left
    if left is not None:
        # Rounded up, so that the workers together can take all. Even if 0 are left, the driver is asked for one:
        # `Driver.next` itself says whether there is one.
        most = min(most, max(-(-left // max(idle, 1)), 1))
    found: list[Order] = []
    while len(found) < most and (order := driver.next(worker)) is not None:
        found.append(order)
    return found


def refill(driver: Driver, worker: str, steps: Steps, going: int, workers: int) -> list[Order]:
    """Request new trials for a worker that trains several, if a quarter of its places or more are free; return them.

    ``steps`` are the results of its last step, in which `Steps.together` is the number of its places. ``going`` is the
    number of its trials that continue. If few trials are left to hand out, they are divided among ``workers`` workers.
    The list may be empty, as when none of the trials continues or no trials may join them.
    """
    room = steps.together - going
    # A quarter at a time, because trials that join at other epochs cost another trace of the program.
    if going and steps.is_open and room * 4 >= steps.together:
        return request_orders(driver, worker, room, workers)
    return []


class Backend(Protocol):
    """Trains the trials of a session."""

    def train(self, driver: Driver) -> None:
        """Train all trials that the driver hands out; return when it hands out no more."""

    def at_once(self, gpus: float) -> int:
        """Return how many trials can run at once now if each has ``gpus`` GPUs, at least 1."""

    def limit(self, most: int | None) -> None:
        """Run at most ``most`` trials at once from now on, None for as many as fit; running trials continue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepStatus:
    """The status of a sweep for Ray's dashboard and metrics; None for what is not known yet."""

    trials: Mapping[str, int]  # number of trials by status, for every status
    total: int | None  # number of trials, if known
    epochs: int  # trained in all sessions
    epochs_per_s: float
    metric: str  # name of the first objective
    goal: str
    best: float | None = None  # best value among completed trials
    best_trials: tuple[int, ...] = ()  # several if the best value is the mean of repeats
    left_s: float | None = None  # estimated seconds left

    @property
    def finished(self) -> int:
        """Number of trials that have ended; running, paused and waiting ones have not."""
        return sum(
            count
            for status, count in self.trials.items()
            if status not in ("running", "interrupted")
        )


@dataclass(frozen=True, slots=True)
class WorkerNode:
    """The machine on which a worker runs.

    ``labels`` determine the price of its GPUs. ``leaving`` returns why trials must continue on another machine, because
    this one is about to be taken away, or None if they may stay.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    leaving: Callable[[], str | None] = lambda: None
