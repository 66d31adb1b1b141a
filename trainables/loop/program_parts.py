"""What a program is built of: what the author's methods have made, and how the trial is to be trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sweep.hyperparameters import Hyperparameters
from trainables.devices.placement import Placement
from trainables.loop.callbacks import Callbacks
from trainables.loop.update import Recipe
from trainables.loop.xla import Asked
from trainables.recipe.author import Author
from trainables.recipe.author_updates import Turn
from trainables.state.initial import Parts


@dataclass(frozen=True)
class Made:
    """What the author's methods have made for a trial."""

    author: Author
    hp: Hyperparameters
    parts: Parts
    turns: tuple[Turn, ...]  # of the author's own training step
    keeps_rate: bool  # whether the optimizer keeps the learning rate that it was made with
    by_itself: str  # which steps are the model's own, where it trains itself
    drew: bool  # whether the author's methods have drawn numbers of their own, which may be constants of the graph


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
