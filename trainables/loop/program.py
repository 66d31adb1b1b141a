"""What trains a trial: our own loop, `Model.fit`, or workers beside servers, seen alike; and what one is made of."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

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
from trainables.recipe.averaging import Average
from trainables.state.checkpoint import Shard
from trainables.state.initial import Parts
from trainables.state.owned import State


@dataclass(frozen=True)
class Made:
    """What the author's methods have made for a trial."""

    author: Author
    hp: Hyperparameters
    parts: Parts
    turns: tuple[Turn, ...]  # of the author's own training step
    own_optimizer: bool  # whether the trial's optimizer is the author's: what it decays is his to say
    keeps_rate: bool  # whether the optimizer keeps the learning rate that it was made with
    by_itself: str  # which steps are the model's own, where it trains itself
    read: frozenset[str]  # what the author has read to make a model and its optimizers
    drew: bool  # whether the author's methods have drawn numbers of their own, which may be constants of the graph

    @property
    def follows_the_rate(self) -> bool:
        """Whether the loop's learning rate has an effect: not on what only brings rates or schedules of its own."""
        own = refusals.own_methods(self.parts.model, "compile")
        by_turns = author_updates.follow_the_rate(self.turns)
        return not own and by_turns and groups.follows_the_rate(self.parts.optimizer)


@dataclass(frozen=True)
class Wanted:
    """How a trial is to be trained."""

    placement: Placement
    recipe: Recipe
    seed: int
    present: Callable[[], Hyperparameters]  # those of the trial at each trace
    kept: Mapping[str, object]  # the author's attributes, which may hold other networks and what hooks count in
    jit_compile: Asked  # whether updates go through XLA
    callbacks: Callbacks
    fit: bool  # the sweep file wants `Model.fit`, which also trains what our loop cannot

    @property
    def whole(self) -> bool:
        """Whether each batch is computed at once, in one place."""
        return bool(self.placement.replicas.number * self.recipe.micro_batches == 1)


@dataclass(frozen=True)
class Trained:
    """What training an epoch brought."""

    metrics: dict[str, float]
    finite: bool  # all losses, gradients and weights
    wait_s: float  # spent waiting for data
    examples: int
    rate: float | None = None  # the last one, where a callback has set it


class Evaluated(NamedTuple):
    """What an evaluation found."""

    metrics: dict[str, float]
    loss_std: float = math.nan  # of the loss over examples; NaN where it is no mean over them


class Program(ABC):
    """A model that is ready to train; each kind says what of this it does in another way."""

    model: keras.Model
    parts: Parts
    live: Live
    """Numbers that each trial sets; of what is kept between trials."""
    state: State
    """All variables; there after `compile`."""
    kept = False
    """Whether other trials may be served by it, and single updates tried."""
    spent = False
    """Whether a hook has changed it, so that it serves no other trial."""
    served = False
    """Whether weights lie on servers."""
    sets_no_rate = False
    """Whether the optimizers bring rates of their own."""
    optimizer_is_idle = False
    """Whether the model trains itself without the trial's optimizer."""
    idle_numbers: Sequence[str] = ()
    """Parameters whose live numbers training does not use."""
    validates_as_it_trains = False
    """Whether validation is always in batches of the training's size."""
    differs = ""
    """Why the same seed gives other numbers."""
    callbacks: Iterable[keras.callbacks.Callback] = ()
    """Those that hear single updates; each trial sets its own."""
    hook_variables: Sequence[Any] = ()
    """Variables that only hooks count in."""

    @abstractmethod
    def compile(self, train: Examples, validation: Examples | None, replicas: Replicas, *, loose: bool = False) -> None:
        """Trace training and evaluation once, which changes nothing; ``loose``: parts of chunks will come."""

    @abstractmethod
    def train_epoch(
        self, walk: Walk, rates: np.ndarray[Any, Any], *, epoch: int, profile_into: Path | None = None
    ) -> Trained:
        """Train one epoch (from 1), one rate per update."""

    @abstractmethod
    def evaluate(self, data: HeldOut, *, seed: int, epoch: int) -> Evaluated:
        """Return the loss and metrics over validation data."""

    @abstractmethod
    def trace_anew(self, train: Examples) -> None:
        """Trace training once more: other layers are trainable."""

    @property
    def networks(self) -> Sequence[Any]:
        """The model, and what else takes part."""
        return [self.model]

    @property
    def optimizers(self) -> Sequence[Any]:
        """The trial's own, and what else takes part."""
        return [self.model.optimizer]

    @property
    def rated(self) -> Sequence[Any]:
        """The optimizers whose learning rate the loop sets."""
        return [] if self.sets_no_rate else self.optimizers

    @property
    def averages(self) -> list[Average]:
        """All averages of the weights that it takes."""
        return []

    @property
    def tables(self) -> dict[str, list[Shard]]:
        """What lies on servers in parts."""
        return {}

    @property
    def numerics(self) -> dict[str, str]:
        """Who trains, and what goes through XLA, for their columns; nothing where that is what was asked for."""
        return {}

    def begin_as(self, fresh: Parts) -> bool:
        """Begin with what the author's methods made for another seed; return whether all of it could be taken over."""
        return False

    def check_phases(self) -> None:
        """Raise Refused for what could not be made anew between the phases of a trial."""
        return

    def compile_updates(self, walk: Walk) -> bool:
        """Let XLA compile for the batches of a trial that begins, where it is asked to; changes no state."""
        return False

    def depends_on_the_batch(self, data: HeldOut, *, seed: int) -> bool:
        """Return whether the loss of the first examples is another one in batches of the training's size."""
        return False

    def shares(self, rank: int) -> tuple[Share | None, Share | None]:
        """Return what a process needs of each batch, in training and in validation; None: all of it."""
        return None, None

    def one_update(self, chunk: Chunk, rate: float, *, batch_size: int, seed: int, number: int) -> float:
        """Train the first batch of a chunk; return its mean loss, NaN where anything of it is not finite."""
        raise NotImplementedError  # asked for where `kept` allows single updates


def scalars(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return metrics as numbers; a vector, such as F1 by class, is one for each element: f1_score_0, f1_score_1."""
    found: dict[str, float] = {}
    for name, value in metrics.items():
        flat = np.asarray(value).reshape(-1)
        if np.ndim(value) == 0:
            found[name] = float(flat[0])
        else:
            found |= {f"{name}_{i}": float(element) for i, element in enumerate(flat)}
    return found
