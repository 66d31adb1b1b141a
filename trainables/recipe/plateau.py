"""What a trial does when its objective stops getting better: stop early, or lower its learning rate."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sweep.hyperparameters import Hyperparameters

State = dict[str, float | None]


@dataclass
class Plateau:
    """Counts the epochs since the objective was at its best."""

    maximize: bool
    best: float | None = None
    waited: int = 0

    def hear(self, value: float) -> None:
        """Count one epoch in; NaN is no improvement."""
        better = self.best is None or (value > self.best if self.maximize else value < self.best)
        if better and not math.isnan(value):
            self.best, self.waited = value, 0
        else:
            self.waited += 1

    def state(self) -> State:
        """What a checkpoint must hold."""
        return {"best": self.best, "waited": self.waited}

    def restore(self, state: State) -> None:
        """Go on from a checkpoint."""
        self.best, self.waited = state["best"], int(state["waited"] or 0)


@dataclass
class Reduction:
    """Lowers the learning rate by ``factor`` after ``patience`` epochs without a better objective.

    As Keras's ReduceLROnPlateau; the factor so far is state, for it depends on the epochs that were seen.
    """

    plateau: Plateau
    factor: float
    patience: int
    final: float
    scale: float = 1.0

    def hear(self, value: float) -> None:
        """Count one epoch in."""
        self.plateau.hear(value)
        if self.plateau.waited >= self.patience:
            self.scale = max(self.scale * self.factor, self.final)
            self.plateau.waited = 0

    def state(self) -> State:
        """What a checkpoint must hold."""
        return {**self.plateau.state(), "scale": self.scale}

    def restore(self, state: State) -> None:
        """Go on from a checkpoint."""
        self.plateau.restore(state)
        self.scale = state["scale"] or self.scale


def reduction(hp: Hyperparameters, *, maximize: bool) -> Reduction | None:
    """The reduction of a trial whose ``lr_schedule`` is plateau.

    Reads ``lr_patience`` (5 epochs), ``lr_drop_factor`` (0.1) and ``lr_final`` (lowest share of the rate, 0).
    """
    if hp.text("lr_schedule", "constant") != "plateau":
        return None
    return Reduction(
        Plateau(maximize),
        factor=hp.number("lr_drop_factor", 0.1, standard=True),
        patience=hp.integer("lr_patience", 5, standard=True),
        final=hp.number("lr_final", 0.0, standard=True),
    )
