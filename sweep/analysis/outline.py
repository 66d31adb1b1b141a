"""The outline of a sweep file: what is known of a sweep before its first event and is needed to show its progress."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING

from sweep.events import EpochReported, Params, trial_epochs
from sweep.space import early_terminate
from sweep.space.early_terminate import EarlyTermination, NoTermination
from sweep.space.objectives import Objective, objective

if TYPE_CHECKING:
    from sweep.spec import Spec

_NO_RULE = NoTermination()


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetLimits:
    """The budgets of a sweep; ``gpus`` is the number of GPUs of one trial."""

    hours: float | None = None
    gpu_hours: float | None = None
    epochs: int | None = None
    money: float | None = None
    gpus: float = 0.0
    shared: bool = False  # trials share GPUs; each epoch measures its part of one

    @classmethod
    def of(cls, spec: Spec) -> BudgetLimits:
        """Return the budgets of a sweep file."""
        return cls(
            hours=spec.budget.hours,
            gpu_hours=spec.budget.gpu_hours,
            epochs=spec.budget.epochs,
            money=spec.budget.money,
            gpus=spec.resources.trial_gpus,
            shared=spec.resources.gpus == "auto",
        )

    def gpu_s(self, epoch: EpochReported) -> float:
        """Return the GPU-seconds of an epoch, over all GPUs of its trial; 0 for a trial without GPUs.

        If trials share GPUs, only the part of a GPU that the epoch has measured counts, or all if it has measured none.
        """
        part = epoch.measures.get("gpus", 1.0) if self.shared else 1.0
        return epoch.time_s * self.gpus * part


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """The part of a sweep file that views of the sweep need before its first event."""

    name: str = ""
    metric: str = ""  # of the first objective
    goal: str = ""
    objectives: int = 1
    varying: tuple[str, ...] = ()  # the parameters that differ between configurations
    total: int | None = None  # number of trials of the search and the baseline, if known
    repeats: int = 1
    # of a trial whose parameters do not set it; hundredths of its minutes with these alone
    epochs: int = 1
    # the largest length of a trial of the search; None: the largest of the lengths below
    max_length: int | None = None
    drawn_lengths: tuple[int, ...] = ()  # of random trials of the search; empty: all have `epochs`
    minutes: float | None = None  # of training, after which a trial is complete
    counts_epochs: bool = True  # whether a trial ends after a number of epochs
    decisions: tuple[int, ...] = ()  # epochs at which trials can be pruned
    rule: EarlyTermination = _NO_RULE
    limits: BudgetLimits = BudgetLimits()
    # if the sweep file itself is known
    spec: Spec | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, spec: Spec) -> Outline:
        """Return the outline of a sweep file.

        For ``drawn_lengths``, it draws random configurations of the space, the same in each call.
        """
        from sweep.spec.work import draw_lengths, find_max_length

        first = spec.objectives[0]
        max_length = find_max_length(spec)
        return cls(
            name=spec.name,
            metric=first.name,
            goal=first.goal,
            objectives=len(spec.objectives),
            varying=tuple(spec.space.varying),
            total=spec.all_trials,
            repeats=spec.trials_each,
            epochs=spec.length,
            max_length=max_length,
            drawn_lengths=tuple(draw_lengths(spec)),
            minutes=spec.minutes,
            counts_epochs=spec.counts_epochs,
            decisions=early_terminate.compute_decision_epochs(spec.early_terminate, max_length),
            rule=spec.early_terminate,
            limits=BudgetLimits.of(spec),
            spec=spec,
        )

    @property
    def objective(self) -> Objective:
        """The first objective, without its constraints."""
        return objective(self.metric, self.goal)

    @property
    def expected_length(self) -> float:
        """The expected length of a trial that has not begun, in epochs or in hundredths of its minutes.

        It is the mean of the drawn lengths, or `epochs` if none were drawn.
        """
        return fmean(self.drawn_lengths) if self.drawn_lengths else self.epochs

    def epochs_of(self, params: Params) -> int:
        """Return how long a trial with parameters ``params`` trains, in epochs or in hundredths of its minutes.

        A parameter ``epochs`` takes precedence; raises TypeError if that is not an int.
        """
        return trial_epochs(params, self.epochs)
