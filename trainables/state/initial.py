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
    """A model with its optimizer, loss and metrics, and the variables that the author's methods created, in order."""

    model: keras.Model
    optimizer: keras.optimizers.Optimizer
    options: Mapping[str, Any]  # arguments of `compile`, such as the loss and the metrics
    loss_weights: Mapping[str, Any]  # live weights, by output
    created: tuple[Any, ...]
    record: CreatedVariables
    created_by_model: tuple[Any, ...] = ()  # the variables among `created` that model() has created
    constants: Sequence[Any] = ()  # constants in the model

    def assign_from(self, fresh: InitialModel, state: State, derived: Iterable[Any] = ()) -> bool:
        """Assign the initial values of ``fresh``'s variables to those of this model; return whether it was possible.

        Returns False, and assigns nothing, if the methods have created variables of other shapes or types, or other
        constants, than before, or if a variable that is created later (in a trace) has drawn initial values. All
        variables of this model are in ``state``; those in ``derived`` follow from others and need no values. The
        optimizer of ``fresh`` is built if the one of this model copies weights.
        """
        if not constants.are_equal(self.constants, fresh.constants):
            return False  # the constants are part of the graph
        pairs = [
            _pair_variables(self.model.variables, fresh.model.variables),
            _pair_variables(
                list_untracked(self.created, self.model), list_untracked(fresh.created, fresh.model)
            ),
        ]
        if self.optimizer_copies_weights(state):
            fresh.optimizer.build(fresh.model.trainable_variables)
            pairs.append(_pair_variables(self.optimizer.variables, fresh.optimizer.variables))
        assignments = []
        for paired in pairs:
            if paired is None:
                return False
            for mine, theirs in paired:
                assignments.append((unwrap_variable(mine), unwrap_variable(theirs)))
        assigned = {id(mine) for mine, _ in assignments} | {id(unwrap_variable(v)) for v in derived}
        # Of variables without a counterpart, initial values that were drawn would remain those of another seed.
        if any(id(raw) not in assigned and state.was_drawn(raw) for raw in self.record.created):
            return False
        for mine, theirs in assignments:
            if mine is not theirs:
                state.copy_from(mine, theirs)
        return True

    def optimizer_copies_weights(self, state: State) -> bool:
        """Return whether ``state`` holds a variable of the optimizer's own whose initial values are not all equal.

        ScheduleFreeAdamW has such variables, because it copies the weights.
        """
        created = {id(raw) for raw in self.created} | {
            id(unwrap_variable(v)) for v in self.model.variables
        }
        slots = []
        for slot in self.optimizer.variables:
            slots.append(unwrap_variable(slot))
        return any(state.was_drawn(slot) for slot in slots if id(slot) not in created)


def _pair_variables(mine: Sequence[Any], theirs: Sequence[Any]) -> list[tuple[Any, Any]] | None:
    """Return the variables of two lists in pairs, by their order; None if their number, shapes or types differ."""
    if len(mine) != len(theirs):
        return None
    pairs = list(zip(mine, theirs, strict=True))
    for a, b in pairs:
        if tuple(a.shape) != tuple(b.shape) or a.dtype != b.dtype:
            return None
    return pairs


def list_untracked(made: Iterable[Any], model: keras.Model) -> list[Any]:
    """Return those variables in ``made`` that the model does not track, in order.

    Examples are a `tf.Variable` in a layer and the state of a loss. ``made`` has TensorFlow's variables.
    """
    tracked = set()
    for variable in model.variables:
        tracked.add(id(unwrap_variable(variable)))
    return [raw for raw in made if id(raw) not in tracked]
