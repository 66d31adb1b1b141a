"""Models and variables that the author's methods create for a trial, and the reuse of a program for another trial."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras

from trainables.state import constants
from trainables.state.origins import CreatedVariables
from trainables.state.program_variables import State, unwrap_variable


@dataclass(frozen=True)
class InitialModel:
    """A model with what it is compiled with, and the variables that the author's methods created, in order."""

    model: keras.Model
    optimizer: keras.optimizers.Optimizer
    options: Mapping[str, Any]  # of `compile`: the loss, the metrics
    loss_weights: Mapping[str, Any]  # live weights, by output
    created: tuple[Any, ...]
    record: CreatedVariables
    created_by_model: tuple[Any, ...] = ()  # those of `created` that model() has created
    constants: Sequence[Any] = ()  # constants in the model

    def assign_from(self, fresh: InitialModel, state: State, derived: Iterable[Any] = ()) -> bool:
        """Assign the initial values of ``fresh`` to the variables of these parts, which are all in ``state``.

        ``derived`` variables are skipped. Returns False without assigning anything if that is impossible: the methods
        have created other variables or constants than before, or a variable that is created later (in a trace) has
        drawn initial values.
        """
        if not constants.are_equal(self.constants, fresh.constants):
            return False
        slots, follows = self.optimizer.variables, self.optimizer_copies_weights(state)
        if follows:
            fresh.optimizer.build(fresh.model.trainable_variables)
        pairs = [
            _pair_variables(self.model.variables, fresh.model.variables),
            _pair_variables(list_untracked(self.created, self.model), list_untracked(fresh.created, fresh.model)),
            _pair_variables(slots, fresh.optimizer.variables) if follows else [],
        ]
        given = {id(unwrap_variable(mine)) for part in pairs for mine, _ in part or ()} | {
            id(unwrap_variable(v)) for v in derived
        }
        late = [raw for raw in self.record.created if id(raw) not in given and state.was_drawn(raw)]
        if late or any(part is None for part in pairs):
            return False
        for mine, theirs in (pair for part in pairs for pair in part or ()):
            if unwrap_variable(mine) is not unwrap_variable(theirs):
                state.copy_from(unwrap_variable(mine), unwrap_variable(theirs))
        return True

    def optimizer_copies_weights(self, state: State) -> bool:
        """Return whether any of the optimizer's own variables has a drawn initial value.

        This is so for ScheduleFreeAdamW, which copies the weights.
        """
        own = {id(raw) for raw in self.created} | {id(unwrap_variable(v)) for v in self.model.variables}
        return any(
            state.was_drawn(unwrap_variable(slot))
            for slot in self.optimizer.variables
            if id(unwrap_variable(slot)) not in own
        )


def _pair_variables(mine: Sequence[Any], theirs: Sequence[Any]) -> list[tuple[Any, Any]] | None:
    alike = len(mine) == len(theirs) and all(
        tuple(a.shape) == tuple(b.shape) and a.dtype == b.dtype for a, b in zip(mine, theirs, strict=True)
    )
    return list(zip(mine, theirs, strict=True)) if alike else None


def list_untracked(made: Iterable[Any], model: keras.Model) -> list[Any]:
    """Return the created variables that the model does not track: a `tf.Variable` in a layer, the state of a loss."""
    tracked = {id(unwrap_variable(variable)) for variable in model.variables}
    return [raw for raw in made if id(raw) not in tracked]
