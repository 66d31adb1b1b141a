"""What is known of a sweep before its first event, as far as it takes to say where it stands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sweep.events import Params
from sweep.space import stopping_rules
from sweep.space.objectives import Objective, objective
from sweep.space.stopping_rules import EarlyTermination, NoTermination

if TYPE_CHECKING:  # the live view is imported without pydantic and NumPy
    from sweep.spec import Spec


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Budgets that may end it before its trials do; ``gpus`` are those of one trial."""

    hours: float | None = None
    gpu_hours: float | None = None
    epochs: int | None = None
    money: float | None = None
    gpus: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """A sweep file, in so few words."""

    name: str = ""
    metric: str = ""  # the first objective
    goal: str = ""
    objectives: int = 1
    varying: tuple[str, ...] = ()  # the parameters worth showing
    total: int | None = None  # trials, where known
    repeats: int = 1
    epochs: int = 1  # of a trial whose parameters do not say
    decisions: tuple[int, ...] = ()  # epochs at which trials can be pruned
    rule: EarlyTermination = field(default_factory=NoTermination)
    limits: Limits = Limits()

    @classmethod
    def of(cls, spec: Spec) -> Outline:
        """Return that of a sweep file."""
        from sweep.space.domains import Constant

        configurations = spec.trials()
        first = spec.objectives[0]
        budget = spec.budget
        return cls(
            name=spec.name,
            metric=first.name,
            goal=first.goal,
            objectives=len(spec.objectives),
            varying=tuple(p.name for p in spec.space.parameters if not isinstance(p.domain, Constant)),
            total=None if configurations is None else configurations * spec.trials_each,
            repeats=spec.trials_each,
            epochs=spec.epochs,
            decisions=stopping_rules.decision_epochs(spec.early_terminate, spec.epochs),
            rule=spec.early_terminate,
            limits=Limits(
                hours=budget.hours,
                gpu_hours=budget.gpu_hours,
                epochs=budget.epochs,
                money=budget.money,
                gpus=spec.resources.trial_gpus,
            ),
        )

    @property
    def objective(self) -> Objective:
        """The first objective."""
        return objective(self.metric, self.goal)

    def epochs_of(self, params: Params) -> int:
        """Return the epochs that a trial with these parameters trains."""
        epochs = params.get("epochs", self.epochs)
        return epochs if isinstance(epochs, int) else self.epochs
