"""The interface of all programs, which train by our own loop, by `Model.fit` or on parameter servers.

It also has what a program is built from, `AuthorParts` and `ProgramOptions`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import keras
import numpy as np

from sweep.hyperparameters import Hyperparameters
from trainables.data.chunks import Chunk
from trainables.data.passes import Examples, HeldOut, Walk
from trainables.data.share import Share
from trainables.devices.placement import Placement
from trainables.devices.replicas import Replicas
from trainables.loop.hooks import Callbacks
from trainables.loop.update import Recipe
from trainables.loop.xla import Asked
from trainables.numbers.live import Live
from trainables.recipe import author_updates, groups, refusals
from trainables.recipe.author import Author
from trainables.recipe.author_updates import Turn
from trainables.state.checkpoint import Shard
from trainables.state.initial import InitialModel
from trainables.state.program_variables import State

if TYPE_CHECKING:
    from trainables.recipe.averaging import Average


@dataclass(frozen=True)
class AuthorParts:
    """The model, optimizer, loss and metrics of a trial, as the author's methods have made them."""

    author: Author
    hp: Hyperparameters
    parts: InitialModel
    # of the author's `train_step`; a turn is a tuple of updates that are applied at once
    turns: tuple[Turn, ...]
    # whether the author made the optimizer; its weight decay is then left as it is
    own_optimizer: bool
    keeps_rate: bool  # whether the optimizer keeps the learning rate that it was made with
    by_itself: str  # which steps the model defines, if it trains itself
    read: frozenset[str]  # hyperparameters read to make the model and its optimizers
    drew: bool  # whether the author's methods drew numbers, which may be constants of the graph
    jit_compile: bool | None = None  # the author's argument of `compile`; None if there is none

    @property
    def follows_the_rate(self) -> bool:
        """Whether the learning rate that the loop sets has an effect.

        It has none if the model defines its own `compile`, or if all updates of a `train_step`, or all parts of a
        grouped optimizer, keep rates of their own. A single optimizer with a schedule counts as following.
        """
        own = refusals.list_overridden_methods(self.parts.model, "compile")
        by_turns = author_updates.follow_the_rate(self.turns)
        return not own and by_turns and groups.follows_the_rate(self.parts.optimizer)


@dataclass(frozen=True)
class ProgramOptions:
    """Options with which a program is built."""

    placement: Placement
    recipe: Recipe
    seed: int
    # called at each trace, for the hyperparameters of the present trial
    present: Callable[[], Hyperparameters]
    # the author's attributes, which may hold other networks and variables of hooks
    kept: Mapping[str, object]
    jit_compile: Asked  # whether updates go through XLA
    callbacks: Callbacks
    fit: bool  # the sweep file asks for `Model.fit`, which also trains what our loop cannot

    @property
    def whole(self) -> bool:
        """Whether each batch is computed as a whole, on one replica and without micro-batches."""
        return bool(self.placement.replicas.number * self.recipe.micro_batches == 1)


@dataclass(frozen=True)
class Trained:
    """Result of training one epoch."""

    metrics: dict[str, float]
    finite: bool  # whether all losses, gradients and weights are finite
    wait_s: float  # time spent waiting for data
    examples: int
    rate: float | None = None  # the last learning rate, if a callback has set it


class Evaluated(NamedTuple):
    """Result of an evaluation."""

    metrics: dict[str, float]
    # standard deviation of the loss over examples; NaN if it is no mean over them
    loss_std: float = math.nan


class Program(ABC):
    """A model that is ready to train; subclasses override what they do in another way."""

    model: keras.Model
    parts: InitialModel
    live: Live
    """Hyperparameters in variables, which each trial sets; programs that are not kept may have none."""
    state: State
    """All variables; set by `compile`."""
    kept = False
    """True if other trials can use the program, and single updates can be trained."""
    spent = False
    """True if a hook has changed the program, so that no other trial can use it."""
    served = False
    """True if the weights are on parameter servers."""
    sets_no_rate = False
    """True if the optimizers have learning rates of their own."""
    optimizer_is_idle = False
    """True if the model trains itself without the trial's optimizer."""
    idle_numbers: Sequence[str] = ()
    """Names of hyperparameters that are read as live numbers (kept in variables) and not used in training."""
    validates_as_it_trains = False
    """True if validation always has batches of the training's size."""
    differs = ""
    """Why training again with the same seed gives other numbers; empty if it gives the same."""
    callbacks: Iterable[keras.callbacks.Callback] = ()
    """Keras callbacks of the present trial; `FitProgram` calls them before and after each update."""
    hook_variables: Sequence[Any] = ()
    """Variables that hooks between epochs may use although no graph does, set by `compile`; `state` includes them."""
    list_hook_variables: Callable[[], Sequence[Any]] = list
    """Returns the present `hook_variables`; tracing may create some of them, so `compile` calls it afterwards."""

    @abstractmethod
    def compile(
        self,
        train: Examples,
        validation: Examples | None,
        replicas: Replicas,
        *,
        loose: bool = False,
    ) -> None:
        """Trace training and evaluation once without changing any variable, and set `state`.

        Evaluation is not traced if ``validation`` is None, but `evaluate` must work then, for test data. With
        ``loose``, chunks may have different lengths, and one trace must accept all of them. May raise Refused.
        """

    @abstractmethod
    def train_epoch(
        self,
        walk: Walk,
        rates: np.ndarray[Any, Any],
        *,
        epoch: int,
        profile_into: Path | None = None,
    ) -> Trained:
        """Train one epoch (from 1), with one learning rate per update, and return the result.

        It may end early if a number is not finite, which the result says. A profile of some updates is written into
        ``profile_into``, if given and supported.
        """

    @abstractmethod
    def evaluate(self, data: HeldOut, *, seed: int, epoch: int) -> Evaluated:
        """Return the loss and metrics over validation or test data, by names without ``val_``.

        Random draws depend on ``seed`` and ``epoch``. Metrics are reset before or after it, and weights stay the same.
        """

    @abstractmethod
    def trace_anew(self, train: Examples) -> None:
        """Trace training again after layers were frozen or unfrozen; `compile` must have been called before."""

    @property
    def networks(self) -> Sequence[Any]:
        """The model and all other networks of the trial."""
        return [self.model]

    @property
    def optimizers(self) -> Sequence[Any]:
        """The trial's optimizer first, and then the optimizers of updates that have their own."""
        return [self.model.optimizer]

    @property
    def rated(self) -> Sequence[Any]:
        """The optimizers whose learning rate follows the trial's; empty if `sets_no_rate`."""
        if self.sets_no_rate:
            return []
        return self.optimizers

    @property
    def averages(self) -> list[Average]:
        """All averages of the weights that the program maintains."""
        return []

    @property
    def tables(self) -> dict[str, list[Shard]]:
        """The shards on parameter servers, by the path of the variable."""
        return {}

    @property
    def numerics(self) -> dict[str, str]:
        """The trial's columns ``loop`` (what trains the model, if not our loop) and ``xla`` (what it compiles).

        Each is left out if there is nothing to tell.
        """
        return {}

    @property
    def live_names(self) -> Iterable[str]:
        """The names of the hyperparameters that the program keeps in variables, which each trial sets."""
        if not hasattr(self, "live"):
            return ()
        return self.live.names

    @property
    def called_with(self) -> Any:
        """Zeros like the inputs with which the model's own steps call it, as a batch of one.

        None if the model has no own steps, or if none has called it; always None by default.
        """
        return None

    def begin_as(self, fresh: InitialModel) -> bool:
        """Replace the initial values of all variables by those that the author's methods made for another seed.

        Return False, and change nothing, if not all of them can be replaced; a new program is needed then. Always False
        by default.
        """
        return False

    def reset_metrics(self) -> None:
        """Reset the metrics, as an evaluation in a hook or callback may have counted some; do nothing by default."""
        return

    def check_phases(self) -> None:
        """Raise Refused if the trial has something that cannot be reset between phases; do nothing by default."""
        return

    def compile_updates(self, walk: Walk) -> bool:
        """Compile updates for a trial's batches by XLA if it was asked for; return whether it was asked for.

        ``walk`` is over the trial's training data. Variables are restored afterwards. Raises Refused if XLA must be
        used and fails. By default, nothing is compiled, and the result is False.
        """
        return False

    def depends_on_batch_size(self, data: HeldOut, *, seed: int) -> bool:
        """Return whether validation gives other metrics in batches of the training's size than in larger ones.

        Always False by default.
        """
        return False

    def shares(self, rank: int) -> tuple[Share | None, Share | None]:
        """Return which part of each batch the process of rank ``rank`` must load, for training and for validation.

        A part is None if the process loads the whole batch; both are None by default.
        """
        return None, None

    def one_update(
        self, chunk: Chunk, rate: float, *, batch_size: int, seed: int, number: int
    ) -> float:
        """Train on a chunk's first batch; return its mean loss before the update, or NaN if a number is not finite.

        Weights are changed, so `state.will_train` must have been called before. ``number`` is the number of the update,
        on which random draws depend. Only for programs whose `kept` is True; others raise NotImplementedError.
        """
        raise NotImplementedError  # only called if `kept` is True


def flatten_metrics(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return metrics as floats; an array such as F1 by class becomes ``f1_score_0``, ``f1_score_1`` and so on.

    Arrays of several axes are numbered in row-major order; an empty array gives nothing, and one of one element
    ``name_0``. If two names are the same then, the last one counts. Raises TypeError or ValueError for a value that is
    no number.
    """
    found: dict[str, float] = {}
    for name, value in metrics.items():
        elements = np.asarray(value).reshape(-1)
        if np.ndim(value) == 0:
            found[name] = float(elements[0])
            continue
        for i, element in enumerate(elements):
            found[f"{name}_{i}"] = float(element)
    return found
