"""Consecutive phases of a trial with different hyperparameters, such as transfer learning: first the head, then all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sweep.hyperparameters import Hyperparameters
from sweep.progress import UNBOUNDED_EPOCHS
from trainables.recipe.refusals import Refused


@dataclass(frozen=True)
class Phase:
    """Some epochs of a trial, or all that remain, with changed hyperparameters.

    A hyperparameter with the value None is removed. Each phase has its own optimizer, schedule and warm-up; the weights
    are passed on.
    """

    epochs: int | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Span:
    """The epochs of a phase: those after epoch ``first``, up to and including ``last`` (None: the end of the trial)."""

    number: int = 0
    first: int = 0
    last: int | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)

    def length(self, epochs: int) -> int:
        """Return how many epochs the phase has, if the trial has ``epochs`` epochs.

        A phase with an end of its own (`last`) is counted up to that end, even if the trial ends before. Any other
        phase is counted up to the end of the trial.
        """
        return (epochs if self.last is None else self.last) - self.first


def read_standard_phases(hp: Hyperparameters) -> list[Phase]:
    """Return the two phases of ``frozen_epochs``: that many epochs as the trial begins, then the rest.

    The second phase removes ``frozen_layers``, so that its layers are no longer frozen, and has the learning rate
    ``fine_tune_learning_rate``, if that is set. Without ``frozen_epochs``, there is one phase without changes.
    Raises: ValueError: if there is ``frozen_epochs`` without ``frozen_layers``. ValueError or TypeError: if a number is
    wrong.
    """
    if "frozen_epochs" not in hp:
        return [Phase()]
    if "frozen_layers" not in hp:
        raise ValueError(
            "frozen_epochs is set, expected frozen_layers beside it: what is frozen in these epochs"
        )
    tuned: dict[str, Any] = {"frozen_layers": None}
    if "fine_tune_learning_rate" in hp:
        tuned["learning_rate"] = hp.number("fine_tune_learning_rate", standard=True)
    return [Phase(hp.integer("frozen_epochs", standard=True)), Phase(None, tuned)]


def plan_spans(phases: Any, epochs: int, data: Mapping[str, object]) -> tuple[Span, ...]:
    """Return the spans of epochs of ``phases``, which an author's `phases` returned, in a trial of ``epochs`` epochs.

    The spans follow each other from epoch 0 on, also beyond the trial's end. The keys of ``data`` are the parameters
    that the trial's data depends on. Phases of 0 epochs are left out and not numbered; if no phase remains, there is
    one span without changes.
    Raises: Refused: if ``phases`` is empty or no sequence of `Phase`, a number of epochs is not a whole number from 0
    or is missing before the last phase, the last phase ends before the trial, or a phase changes ``epochs`` or one of
    ``data``.
    """
    if (
        not isinstance(phases, Sequence)
        or not phases
        or not all(isinstance(phase, Phase) for phase in phases)
    ):
        raise Refused(f"phases() returned {phases!r:.80}, expected a list of Phase")
    found: list[Span] = []
    first = 0
    for number, phase in enumerate(phases):
        if phase.epochs is None:
            last = None
        else:
            last = first + _check_epochs(phase.epochs, number)
        if last is None and number < len(phases) - 1:
            raise Refused(
                f"phase {number + 1} has no number of epochs, which only the last may lack"
            )
        # `epochs` is the length of the trial, and the data is loaded once for all phases.
        fixed = sorted({"epochs", *data} & set(phase.changes))
        if fixed:
            raise Refused(
                f"phase {number + 1} changes {', '.join(fixed)}, which holds for a whole trial: its data"
            )
        if last is None or last > first:
            found.append(Span(len(found), first, last, dict(phase.changes)))
        if last is not None:
            first = last
    if found and found[-1].last is not None and found[-1].last < epochs:
        if epochs >= UNBOUNDED_EPOCHS:
            length = "ends by its minutes"
        else:
            length = f"has {epochs}"
        raise Refused(
            f"phases() are over after {found[-1].last} epochs, and the trial {length}; give the last one no number"
        )
    return tuple(found) or (Span(),)


def check_changes(span: Span, hp: Hyperparameters, *, hooked: bool) -> None:
    """Raise Refused if a phase changes a hyperparameter that nothing has read.

    ``hp`` are the trial's hyperparameters with the phase's changes, which record what was read. With ``hooked``, which
    says that the trial has hooks, nothing is refused, because a hook may still read it.
    """
    if hooked:
        return
    unused = hp.unused_changes
    if unused:
        raise Refused(f"phase {span.number + 1} changes {', '.join(unused)}, which nothing reads")


def _check_epochs(epochs: Any, number: int) -> int:
    """Return ``epochs``, of the phase with the index ``number``; raise Refused unless it is a whole number from 0."""
    if isinstance(epochs, bool) or not isinstance(epochs, int) or epochs < 0:
        raise Refused(f"phase {number + 1} has {epochs!r} epochs, expected a whole number from 0")
    return epochs
