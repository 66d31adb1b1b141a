"""Models and variables that the author's methods create for a trial, and the reuse of a program for another trial."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras

from trainables.state import constants
from trainables.state.origins import CreatedVariables
from trainables.state.owned import State, raw_of


@dataclass(frozen=True)
class InitialModel:
    """A model with what it is compiled with, and the variables that the author's methods created, in order."""

    model: keras.Model
    optimizer: keras.optimizers.Optimizer
    options: Mapping[str, Any]  # of `compile`: the loss, the metrics
    loss_weights: Mapping[str, Any]  # live weights, by output
    made: tuple[Any, ...]
    record: CreatedVariables
    by_model: tuple[Any, ...] = ()  # those of `made` that model() has created
    constants: Sequence[Any] = ()  # constants in the model

    def give(self, fresh: InitialModel, state: State, derived: Iterable[Any] = ()) -> bool:
        """Assign the initial values of ``fresh`` to the variables of these parts, which are all in ``state``.

        ``derived`` variables are skipped. Returns False without assigning anything if that is impossible: the methods
        have created other variables or constants than before, or a variable that is created later (in a trace) has
        drawn initial values.
        """
        if not constants.same(self.constants, fresh.constants):
            return False
        slots, follows = self.optimizer.variables, self.follows(state)
        if follows:
            fresh.optimizer.build(fresh.model.trainable_variables)
        pairs = [
            _paired(self.model.variables, fresh.model.variables),
            _paired(untracked(self.made, self.model), untracked(fresh.made, fresh.model)),
            _paired(slots, fresh.optimizer.variables) if follows else [],
        ]
        given = {id(raw_of(mine)) for part in pairs for mine, _ in part or ()} | {id(raw_of(v)) for v in derived}
        late = [raw for raw in self.record.made if id(raw) not in given and state.is_drawn(raw)]
        if late or any(part is None for part in pairs):
            return False
        for mine, theirs in (pair for part in pairs for pair in part or ()):
            if raw_of(mine) is not raw_of(theirs):
                state.take(raw_of(mine), raw_of(theirs))
        return True

    def follows(self, state: State) -> bool:
        """Return whether any of the optimizer's own variables has a drawn initial value.

        This is so for ScheduleFreeAdamW, which copies the weights.
        """
        own = {id(raw) for raw in self.made} | {id(raw_of(v)) for v in self.model.variables}
        return any(state.is_drawn(raw_of(slot)) for slot in self.optimizer.variables if id(raw_of(slot)) not in own)


def _paired(mine: Sequence[Any], theirs: Sequence[Any]) -> list[tuple[Any, Any]] | None:
    alike = len(mine) == len(theirs) and all(
        tuple(a.shape) == tuple(b.shape) and a.dtype == b.dtype for a, b in zip(mine, theirs, strict=True)
    )
    return list(zip(mine, theirs, strict=True)) if alike else None


def untracked(made: Iterable[Any], model: keras.Model) -> list[Any]:
    """Return the created variables that the model does not track: a `tf.Variable` in a layer, the state of a loss."""
    tracked = {id(raw_of(variable)) for variable in model.variables}
    return [raw for raw in made if id(raw) not in tracked]
