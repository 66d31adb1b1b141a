"""Draws which trials were copied from which in a population-based search."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sweep.analysis import Trial, lineage_of
from sweep.analysis.ranking import Ranking
from sweep.render.tables import lineage_lines

WIDTH, ROW, LEFT, RIGHT, BELOW = (
    1100,
    14,
    14,
    40,
    30,
)  # sizes in pixels: of all, a row, and the margins
TICKS = 12  # about the number of labels below the drawing


@dataclass(frozen=True, slots=True)
class LineageLine:
    """The line of one trial in the drawing: vertical from its parent's line, then horizontal over its own epochs."""

    trial: int
    kind: str  # "best" if it trained epochs of the best trial, else "other"
    from_x: float
    from_y: float
    y: float
    to_x: float
    title: str


@dataclass(frozen=True, slots=True)
class LineageDrawing:
    """The coordinates and the caption of a lineage drawing, for the template of the report."""

    width: int
    height: int
    rows: tuple[LineageLine, ...]
    ticks: tuple[tuple[float, int], ...]  # labels below it: position and epoch
    words: str


def draw_lineage(trials: Sequence[Trial], ranking: Ranking) -> LineageDrawing | None:
    """Return the coordinates of a drawing that shows which trial was copied from which; None if no trial is a copy.

    ``trials`` are all trials of one sweep, drawn in this order. Those that trained epochs of its best trial, which
    ``ranking`` determines, are marked; none is if the best of all sweeps is of another one.
    """
    if not any(trial.parent is not None for trial in trials):
        return None
    # the right end of the drawing; not 0, by which `find_x` divides
    last_epoch = max(trial.epochs for trial in trials) or 1

    def find_x(epoch: int) -> float:
        """Return the horizontal position of an epoch."""
        return round(LEFT + (WIDTH - LEFT - RIGHT) * epoch / last_epoch, 1)

    y_by_trial = {trial.trial: ROW * row for row, trial in enumerate(trials, start=1)}
    best = next((row.trials[0] for row in ranking.best if row.sweep == trials[0].sweep), None)
    steps = () if best is None else lineage_of(trials, best.trial)
    ancestors = {step.trial for step in steps}
    rows = []
    for trial in trials:
        first_epoch = trial.parent_epoch or 0
        y = y_by_trial[trial.trial]
        # a parent whose start was lost with a damaged line of the log has no line
        parent_y = y if trial.parent is None else y_by_trial.get(trial.parent, y)
        title = f"trial {trial.trial}, {trial.status.value} after epoch {trial.epochs}"
        if trial.trial in ancestors:
            kind = "best"
        else:
            kind = "other"
        from_x, to_x = find_x(first_epoch), find_x(max(trial.epochs, first_epoch))
        rows.append(LineageLine(trial.trial, kind, from_x, parent_y, y, to_x, title))
    epochs_between_ticks = math.ceil(last_epoch / TICKS)
    ticks = tuple(
        (find_x(epoch), epoch) for epoch in range(0, last_epoch + 1, epochs_between_ticks)
    )
    # there is no line if the best trial is no copy, or is not in this sweep
    words = next(iter(lineage_lines(steps)), "").removeprefix("lineage  ") or "one trial alone"
    return LineageDrawing(WIDTH, ROW * len(trials) + BELOW, tuple(rows), ticks, words)
