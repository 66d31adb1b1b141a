"""What the author's methods make for one trial, and how a used program takes over what they make for another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras

from trainables.state import constants
from trainables.state.origins import Record
from trainables.state.owned import State, raw_of


@dataclass(frozen=True)
class Parts:
    """A model and what it is compiled with, with the variables that the author's methods made, in order."""

    model: keras.Model
    optimizer: keras.optimizers.Optimizer
    options: Mapping[str, Any]  # of `compile`: the loss, the metrics
    loss_weights: Mapping[str, Any]  # live ones, by output
    made: tuple[Any, ...]
    record: Record
    by_model: tuple[Any, ...] = ()  # what of that model() has made
    constants: Sequence[Any] = ()  # that the model holds

    def give(self, fresh: Parts, state: State, derived: Iterable[Any] = ()) -> bool:
        """Assign what ``fresh`` begins with to these parts' variables, which are all of ``state``.

        ``derived`` ones are left out. False where that is not possible: the methods made other variables than
        before, or constants that follow from these, or one that is made later (a variable of a trace) begins with drawn
        numbers.
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
        """Whether the optimizer begins with drawn numbers: the momentum of ScheduleFreeAdamW with the weights."""
        own = {id(raw) for raw in self.made} | {id(raw_of(v)) for v in self.model.variables}
        return any(state.is_drawn(raw_of(slot)) for slot in self.optimizer.variables if id(raw_of(slot)) not in own)


def _paired(mine: Sequence[Any], theirs: Sequence[Any]) -> list[tuple[Any, Any]] | None:
    alike = len(mine) == len(theirs) and all(
        tuple(a.shape) == tuple(b.shape) and a.dtype == b.dtype for a, b in zip(mine, theirs, strict=True)
    )
    return list(zip(mine, theirs, strict=True)) if alike else None


def untracked(made: Iterable[Any], model: keras.Model) -> list[Any]:
    """What was made and is none of the model's own variables: a `tf.Variable` in a layer, a loss's state."""
    tracked = {id(raw_of(variable)) for variable in model.variables}
    return [raw for raw in made if id(raw) not in tracked]
