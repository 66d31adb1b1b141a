"""The resolved and checked sweep (`Spec`), and sweep files for single configurations of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from sweep.events import Params, Value, trial_epochs
from sweep.progress import UNBOUNDED_EPOCHS, count_length
from sweep.space import Space
from sweep.space.early_terminate import EarlyTermination, PopulationRules
from sweep.space.expressions import Expression
from sweep.space.initial_points import complete_starts_on_grid, count_points_off_grid
from sweep.space.objectives import Objective
from sweep.spec import parameters, sweep_file
from sweep.spec.blocks import (
    Block,
    Budget,
    Checkpoint,
    Confirm,
    Metric,
    Notify,
    Resources,
    StopWhen,
    Training,
)
from sweep.spec.search_methods import Method, find_method
from sweep.spec.validation import flow
from sweep.text import printable

FUSED, FUSED_OF_LEARNING = 32, 8
"""Trials that a worker may train at once with ``fuse: auto``; fewer for methods that learn.

Trials that start together cannot learn from each other's results.
"""


@dataclass(frozen=True, kw_only=True)
class Spec:
    """A resolved and checked sweep file.

    Its numbers of trials count configurations, each of which is trained `trials_each` times.
    """

    name: str  # also the name of the results folder
    description: str
    trainable: str  # "module:Name"
    method: str
    metrics: tuple[Metric, ...]  # at least one
    space: Space
    constraints: tuple[Expression, ...] = ()  # on metrics
    epochs: int  # `UNBOUNDED_EPOCHS` with minutes alone
    minutes: float | None = None  # of training, after which a trial is complete
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
    notify: tuple[Notify, ...] = ()
    start_with: tuple[Params, ...] = ()
    baseline: Params | None = None
    confirm: Confirm | None = None
    population: PopulationRules | None = None  # of a method that has one
    # whether the file has early_terminate.min_iter
    names_first_rung: bool = field(default=True, compare=False)
    # lines on the method and the rule that auto chose
    chosen: tuple[str, ...] = field(default=(), compare=False)
    # W&B's keys without effect, for one note
    ignored_keys: tuple[str, ...] = field(default=(), compare=False)
    # about settings that are valid but probably not intended
    notes: tuple[str, ...] = field(default=(), compare=False)
    # ``file:line: path`` of parameters and values, by name or path
    places: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def search_method(self) -> Method:
        """The row of the sweep's method in the table of methods."""
        return find_method(self.method)

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """The metrics as objectives, in the order of the file; the first one is the main objective.

        Each has its goal, what a failed trial counts as, the constraints on metrics, and the others by name and goal.
        """
        plain = []  # the metrics by name and goal alone, for the `others` of each
        for metric in self.metrics:
            plain.append(Objective(metric.name, metric.goal))
        objectives = []
        for metric in self.metrics:
            others = tuple(other for other in plain if other.name != metric.name)
            objectives.append(
                Objective(metric.name, metric.goal, metric.impute, self.constraints, others=others)
            )
        return tuple(objectives)

    @cached_property
    def trials(self) -> int | None:
        """The number of configurations to try: the smallest of `size` and the limits of the file (`caps`).

        None if none of them limits it. Raises InputError for a grid that is too large to count, even if it is limited.
        """
        if self.size is None:
            bounds = [*self.caps.values()]
        else:
            bounds = [self.size, *self.caps.values()]
        return min(bounds, default=None)

    @cached_property
    def size(self) -> int | None:
        """The number of configurations that the method would try without `run_cap` and budget; None if infinite.

        For a population it is the number of trials if no member fails. For a grid it is that of its points and of those
        configurations of `start_with` that are no points of it; InputError is raised if they are too many to count. For
        other methods it is the number of points of the space, and None as well if they are too many to count.
        """
        if self.population is not None:
            return self.population.most_trials
        if self.search_method.enumerates:
            # Starting configurations that are no points of the grid are tried in addition to it.
            more = count_points_off_grid(
                self.space, complete_starts_on_grid(self.space, self.start_with)
            )
            return self.space.grid_size() + more
        return self.space.cardinality

    @property
    def caps(self) -> dict[str, int]:
        """The limits that the file sets on the number of configurations, by key: `run_cap` and `budget.trials`, if set.

        The dict is empty for a population.
        """
        if self.population is not None:
            return {}
        caps = {}
        for name, cap in (("run_cap", self.run_cap), ("budget.trials", self.budget.trials)):
            if cap is not None:
                caps[name] = cap
        return caps

    @property
    def trials_each(self) -> int:
        """The number of trials of each configuration: `repeats` times `folds`."""
        return self.repeats * (self.folds or 1)

    @property
    def baseline_trials(self) -> int:
        """The number of trials of the baseline, which is `trials_each`; 0 without a baseline."""
        if self.baseline is None:
            return 0
        return self.trials_each

    @property
    def all_trials(self) -> int | None:
        """The number of trials of the search and the baseline, without `confirm`.

        None if nothing limits the number of configurations; a budget without ``trials`` does not.
        """
        if self.trials is None:
            return None
        return self.trials * self.trials_each + self.baseline_trials

    @property
    def together(self) -> int:
        """The maximum number of trials that a worker trains as one program; 1 without `fuse`.

        For ``fuse: auto`` it is `FUSED`, or `FUSED_OF_LEARNING` for a method that learns.
        """
        fuse = self.training.get("fuse", False)
        if fuse == "auto":
            if self.search_method.learns:
                return FUSED_OF_LEARNING
            return FUSED
        if isinstance(fuse, int) and fuse:  # False is an int, too
            return fuse
        return 1

    @property
    def endless(self) -> bool:
        """Whether neither the space nor `run_cap` nor the budget ever ends the sweep; `stop_when` is not considered."""
        return self.trials is None and not self.budget.bounds_time

    @property
    def data_seed(self) -> int:
        """The seed for loading data in all trials: `training.data_seed` or, without one, the sweep's `seed`."""
        seed = self.training.get("data_seed")
        if isinstance(seed, int):
            return seed
        return self.seed

    @property
    def counts_epochs(self) -> bool:
        """Whether trials end after a number of epochs; False if only `minutes` ends them."""
        return self.epochs < UNBOUNDED_EPOCHS

    @property
    def length(self) -> int:
        """The length of a trial without a parameter ``epochs``: its epochs, or 100 if only `minutes` ends it."""
        return count_length(self.epochs)

    def trial_epochs(self, params: Params) -> int:
        """Return the maximum number of epochs of a trial with these parameters: its ``epochs``, or the sweep's.

        It is `UNBOUNDED_EPOCHS` if only `minutes` ends the trial. Raises TypeError if the parameter ``epochs`` is no
        int, such as 2.0 or None.
        """
        return trial_epochs(params, self.epochs)

    def trial_length(self, params: Params) -> int:
        """Return the length of a trial with these parameters: its epochs, or 100 if only `minutes` ends it.

        Raises TypeError if the parameter ``epochs`` is no int.
        """
        return count_length(self.trial_epochs(params))

    def to_json_dict(self) -> dict[str, Value]:
        """Return the keys of a sweep file that resolves to an equal sweep, as plain data.

        Defaults are written out, and keys that are not set may be included with the value None.
        """
        stop_when = None
        if self.stop_when is not None:
            stop_when = self.stop_when.to_plain_data()
        keys: dict[str, Value] = {
            "name": self.name,
            "description": self.description,
            "trainable": self.trainable,
            "method": self.method,
            "metrics": [metric.to_plain_data() for metric in self.metrics],
            "parameters": {p.name: parameters.parameter_to_dict(p) for p in self.space.parameters},
            "constraints": [
                constraint.text for constraint in (*self.space.constraints, *self.constraints)
            ],
        }
        if self.counts_epochs:
            keys["epochs"] = self.epochs
        if self.minutes is not None:
            keys["minutes"] = self.minutes
        keys |= {
            "early_terminate": sweep_file.rule_to_dict(self.early_terminate),
            "run_cap": self.run_cap,
            "repeats": self.repeats,
            "folds": self.folds,
            "seed": self.seed,
            "training": dict(self.training),
            "resources": self.resources.to_plain_data(),
            "budget": self.budget.to_plain_data(),
            "stop_when": stop_when,
            "max_failures": self.max_failures,
            "max_restarts": self.max_restarts,
            "retries": self.retries,
            "checkpoint": self.checkpoint.to_plain_data(),
            "warm_start": list(self.warm_start),
            "start_with": [dict(start) for start in self.start_with],
        }
        # Only if they are set, so that the files of sweeps without them stay as in releases that did not have them.
        prior = _prior_to_dict(self.space)
        if prior:
            keys["prior"] = prior
        if self.baseline is not None:
            keys["baseline"] = dict(self.baseline)
        if self.population is not None:
            keys["population"] = _population_to_dict(self.population)
        if self.confirm is not None:
            keys["confirm"] = self.confirm.to_plain_data()
        keys |= _notify_to_dict(self.notify)
        return keys


def _population_to_dict(rules: PopulationRules) -> dict[str, Value]:
    """Return the block `population` as plain data, with all its keys."""
    keys = ("size", "interval", "quantile", "resample")
    return {**{key: getattr(rules, key) for key in keys}, "perturb": list(rules.perturb)}


def _notify_to_dict(receivers: Sequence[Notify]) -> dict[str, Value]:
    """Return a mapping whose only key is `notify`, with a list of the receivers' blocks.

    It is empty without receivers, so that older sweeps stay unchanged. Keys of a receiver that have their default are
    left out.
    """
    if not receivers:
        return {}
    return {"notify": [_list_changed_keys(receiver) for receiver in receivers]}


def _prior_to_dict(space: Space) -> dict[str, Value]:
    """Return the block `prior` as plain data: value and confidence by parameter.

    Parameters without a belief are left out.
    """
    prior: dict[str, Value] = {}
    for parameter in space.parameters:
        belief = parameter.belief
        if belief:
            prior[parameter.name] = {"value": belief.value, "confidence": belief.confidence}
    return prior


def make_trial_file(
    spec: Spec, params: Params, seed: int, name: str, folds: int | None = None
) -> dict[str, Value]:
    """Return the keys of a sweep file that trains a single trial as this sweep has trained it.

    ``params`` and ``seed`` are those of the trial, and ``name`` is the new sweep's. If the trial was part of a
    cross-validation, pass its number of ``folds``; the new sweep then trains all of them. Left out are
    keys with an empty value, ``max_restarts`` and ``retries`` if they have their defaults, and all settings of the
    search, such as early stopping, the budget, repeats and constraints on parameters.
    """
    keys: dict[str, Value] = {
        "name": name,
        "description": spec.description,
        "trainable": spec.trainable,
        "method": "grid",  # each parameter has one value, so that there is one configuration
        **write_keys(spec, ["metrics"]),
        "parameters": {parameter: _write_constant(value) for parameter, value in params.items()},
        "constraints": [one.text for one in spec.constraints],
        "epochs": spec.epochs if spec.counts_epochs else None,
        "minutes": spec.minutes,
        "folds": folds,
        "seed": seed,
        "training": _resolve_training(spec, seed),
        "resources": _list_changed_keys(spec.resources),
        "max_restarts": spec.max_restarts,
        "retries": spec.retries,
        "checkpoint": _list_changed_keys(spec.checkpoint),
    }
    absent: tuple[Value, ...] = ({}, [], "", None)
    kept = {}
    for key, value in keys.items():
        has_default = _RETRY_DEFAULTS.get(key) == value  # of ``max_restarts`` and ``retries`` alone
        if value not in absent and not has_default:
            kept[key] = value
    return kept


def write_keys(spec: Spec, keys: Iterable[str]) -> dict[str, Value]:
    """Return the values of top-level keys in the form of a sweep file.

    Keys with an empty value are left out, except a ``confirm`` with its defaults. Defaults within ``resources``,
    ``budget``, ``stop_when``, ``checkpoint``, ``confirm``, ``notify`` and each metric are left out, but not those of
    other keys, of ``training``, and a metric's goal. With the key "metrics", a single metric is returned as ``metric``.
    """
    content = spec.to_json_dict()
    # those that are written without their defaults
    blocks: dict[str, Block | None] = {
        "resources": spec.resources,
        "budget": spec.budget,
        "stop_when": spec.stop_when,
        "checkpoint": spec.checkpoint,
        "confirm": spec.confirm,
    }
    absent: tuple[Value, ...] = ({}, [], "", None)
    found: dict[str, Value] = {}
    for key in keys:
        value = content.get(key)
        block = blocks.get(key)
        if block is not None:
            value = _list_changed_keys(block)
        if key == "metrics":
            metrics: list[Value] = [
                {"name": one.name, "goal": one.goal, **_list_changed_keys(one)}
                for one in spec.metrics
            ]
            # The name and the goal are written even if the goal is the default.
            key, value = ("metric", metrics[0]) if len(metrics) == 1 else ("metrics", metrics)
        # An empty `confirm` is not absent: it confirms with its defaults.
        if value not in absent or (key == "confirm" and block is not None):
            found[key] = value
    return found


def format_sweep_file(keys: Mapping[str, Value], comments: Sequence[str]) -> str:
    """Return the text of a sweep file: comments, then a line for each key and each parameter.

    Each line of a comment gets ``# `` in front, and what is unprintable in it is removed or escaped (`printable`).
    Keys keep their order. The text ends with a line break.
    """
    lines = []
    for comment in comments:
        for line in printable(comment).splitlines():
            lines.append(f"# {line}")
    for key, value in keys.items():
        if key != "parameters" or not isinstance(value, dict):
            lines.append(f"{key}: {flow(value)}")
            continue
        lines.append("parameters:")
        for name, block in value.items():
            lines.append(f"  {flow(name)}: {flow(block)}")
    return "\n".join(lines) + "\n"


def _resolve_training(spec: Spec, seed: int) -> Value:
    """Return the keys of `training` that differ from their default.

    If the data seed of the sweep is not ``seed``, it is among them as ``data_seed``, even if the sweep's file does not
    set it.
    """
    changed = {}
    for key, value in spec.training.items():
        if value != _DEFAULT_TRAINING.get(key):
            changed[key] = value
    if spec.data_seed == seed:
        return changed
    return {**changed, "data_seed": spec.data_seed}


def _write_constant(value: Value) -> Value:
    """Return the block of a parameter with this one value.

    For a text that begins with "=" it names the distribution, without which such a text would be an expression.
    """
    if isinstance(value, str) and value.startswith("="):
        return {"distribution": "constant", "value": value}
    return {"value": value}


def _list_changed_keys(block: Block) -> dict[str, Value]:
    """Return the keys of a block that differ from their default."""
    changed: dict[str, Value] = block.model_dump(mode="json", exclude_defaults=True)
    return changed


_DEFAULT_TRAINING: dict[str, Value] = Training().to_plain_data()
_RETRY_DEFAULTS: dict[str, Value] = {}
for _key in ("max_restarts", "retries"):
    _RETRY_DEFAULTS[_key] = sweep_file.SweepFile.model_fields[_key].default
