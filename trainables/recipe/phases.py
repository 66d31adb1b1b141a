"""The parts that a trial has one after the other, as in transfer learning: the head first, then all of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sweep.hyperparameters import Hyperparameters
from trainables.recipe.refusals import Refused


@dataclass(frozen=True)
class Phase:
    """Some epochs of a trial, or all that are left, with some hyperparameters changed (None: not there).

    Each phase has an optimizer, a schedule and a warm-up of its own; weights go on.
    """

    epochs: int | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Span:
    """Where a phase lies: it begins after ``first`` epochs and is over after ``last``; None: with the trial."""

    number: int = 0
    first: int = 0
    last: int | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)

    def length(self, epochs: int) -> int:
        """Its epochs, in a trial of so many."""
        return (epochs if self.last is None else self.last) - self.first


def standard(hp: Hyperparameters) -> list[Phase]:
    """What ``frozen_epochs`` says: so many with ``frozen_layers``, then all at ``fine_tune_learning_rate``."""
    if "frozen_epochs" not in hp:
        return [Phase()]
    if "frozen_layers" not in hp:
        raise ValueError("frozen_epochs is set, expected frozen_layers beside it: what is frozen in these epochs")
    tuned: dict[str, Any] = {"frozen_layers": None}
    if "fine_tune_learning_rate" in hp:
        tuned["learning_rate"] = hp.number("fine_tune_learning_rate", standard=True)
    return [Phase(hp.integer("frozen_epochs", standard=True)), Phase(None, tuned)]


def spans(given: Any, epochs: int, data: Mapping[str, object]) -> tuple[Span, ...]:
    """Where the phases lie in a trial of so many epochs; ``data``: the parameters that its data were made of.

    A phase without epochs is left out. Raises Refused for what makes no sense.
    """
    if not isinstance(given, Sequence) or not given or not all(isinstance(phase, Phase) for phase in given):
        raise Refused(f"phases() returned {given!r:.80}, expected a list of Phase")
    found: list[Span] = []
    first = 0
    for number, phase in enumerate(given):
        last = None if phase.epochs is None else first + _checked(phase.epochs, number)
        if last is None and number < len(given) - 1:
            raise Refused(f"phase {number + 1} has no number of epochs, which only the last may lack")
        fixed = sorted({"epochs", *data} & set(phase.changes))
        if fixed:
            raise Refused(f"phase {number + 1} changes {', '.join(fixed)}, which holds for a whole trial: its data")
        if last is None or last > first:
            found.append(Span(len(found), first, last, dict(phase.changes)))
            first = last or first
    if found and found[-1].last is not None and found[-1].last < epochs:
        raise Refused(
            f"phases() are over after {found[-1].last} epochs, and the trial has {epochs}; give the last one no number"
        )
    return tuple(found) or (Span(),)


def check_changes(span: Span, hp: Hyperparameters, *, hooked: bool) -> None:
    """Raise Refused for a change that nothing has asked for; a hook may still do so."""
    unused = () if hooked else hp.unused_changes
    if unused:
        raise Refused(f"phase {span.number + 1} changes {', '.join(unused)}, which nothing reads")


def _checked(epochs: Any, number: int) -> int:
    if isinstance(epochs, bool) or not isinstance(epochs, int) or epochs < 0:
        raise Refused(f"phase {number + 1} has {epochs!r} epochs, expected a whole number from 0")
    return epochs
