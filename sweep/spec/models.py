"""The resolved sweep: everything that a file and its overrides say, checked and ready for use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from sweep.events import Params, Value
from sweep.space import starting
from sweep.space.objectives import Objective
from sweep.space.space import Space
from sweep.space.termination import EarlyTermination
from sweep.spec import parameters, stopping
from sweep.spec.blocks import Budget, Checkpoint, Confirm, Metric, Resources, StopWhen


@dataclass(frozen=True, kw_only=True)
class Spec:
    """A sweep. Its numbers of trials count configurations, each of which is trained `trials_each` times."""

    name: str  # also the name of the results folder
    description: str
    trainable: str  # "module:Name"
    method: str
    metrics: tuple[Metric, ...]  # at least one
    space: Space
    epochs: int
    early_terminate: EarlyTermination
    run_cap: int | None
    repeats: int
    folds: int | None
    seed: int
    training: Mapping[str, Value]
    resources: Resources
    budget: Budget
    stop_when: StopWhen | None
    max_failures: int
    max_restarts: int
    retries: int
    checkpoint: Checkpoint
    warm_start: tuple[str, ...]
    start_with: tuple[Params, ...] = ()
    baseline: Params | None = None
    confirm: Confirm | None = None
    ignored_keys: tuple[str, ...] = field(default=(), compare=False)  # W&B's, for one notice
    notes: tuple[str, ...] = field(default=(), compare=False)  # what is valid and hardly meant
    places: Mapping[str, str] = field(default_factory=dict, compare=False)  # ``file:line: path``, by parameter or path

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """The metrics and their directions, the first one first."""
        return tuple(Objective(metric.name, metric.goal, metric.impute) for metric in self.metrics)

    def trials(self) -> int | None:
        """The number of configurations to try, None where only time or epochs bound it."""
        return self._trials

    @property
    def trials_each(self) -> int:
        """The trials of a configuration: each fold of each repeat."""
        return self.repeats * (self.folds or 1)

    @property
    def baseline_trials(self) -> int:
        """The trials of the baseline beside those of the search, as many as of any configuration."""
        return 0 if self.baseline is None else self.trials_each

    @property
    def all_trials(self) -> int | None:
        """Trials of the search and of the baseline, None where only time or epochs bound them."""
        configurations = self.trials()
        return None if configurations is None else configurations * self.trials_each + self.baseline_trials

    @property
    def endless(self) -> bool:
        """Whether it goes on until somebody stops it, or it is no longer worth it."""
        budget = self.budget
        return self.trials() is None and not (budget.hours or budget.gpu_hours or budget.epochs)

    @property
    def data_seed(self) -> int:
        """The seed under which data are loaded, the same for all trials."""
        seed = self.training.get("data_seed")
        return seed if isinstance(seed, int) else self.seed

    def trial_epochs(self, params: Params) -> int:
        """The epochs that a trial with these parameters trains."""
        epochs = params.get("epochs", self.epochs)
        if not isinstance(epochs, int):
            raise TypeError(f"epochs must be a whole number, got {epochs!r}")
        return epochs

    def to_json_dict(self) -> dict[str, Value]:
        """The sweep as plain data, itself a sweep file that resolves to an equal sweep."""
        return {
            "name": self.name,
            "description": self.description,
            "trainable": self.trainable,
            "method": self.method,
            "metrics": [metric.model_dump(mode="json") for metric in self.metrics],
            "parameters": {p.name: parameters.to_dict(p) for p in self.space.parameters},
            "constraints": [constraint.text for constraint in self.space.constraints],
            "epochs": self.epochs,
            "early_terminate": stopping.to_dict(self.early_terminate),
            "run_cap": self.run_cap,
            "repeats": self.repeats,
            "folds": self.folds,
            "seed": self.seed,
            "training": dict(self.training),
            "resources": self.resources.described(),
            "budget": self.budget.model_dump(mode="json"),
            "stop_when": None if self.stop_when is None else self.stop_when.model_dump(mode="json"),
            "max_failures": self.max_failures,
            "max_restarts": self.max_restarts,
            "retries": self.retries,
            "checkpoint": self.checkpoint.model_dump(mode="json"),
            "warm_start": list(self.warm_start),
            "start_with": [dict(start) for start in self.start_with],
            **({} if self.baseline is None else {"baseline": dict(self.baseline)}),
            **({} if self.confirm is None else {"confirm": self.confirm.model_dump(mode="json")}),
        }

    @cached_property
    def _trials(self) -> int | None:
        if self.method == "grid":
            more = starting.beside_grid(self.space, starting.on_grid(self.space, self.start_with))
            size: int | None = self.space.grid_size() + more
        else:
            size = self.space.cardinality()
        bounds = [bound for bound in (size, self.run_cap, self.budget.trials) if bound is not None]
        return min(bounds, default=None)
