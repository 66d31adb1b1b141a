"""Whether a search was worth it, in a few lines for each sweep."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from sweep.analysis.held_out import HeldOut
from sweep.analysis.worth import Found, Rung, Worth
from sweep.render.figures import score

FEW = 5  # configurations below which a correlation tells nothing


def lines(worths: Sequence[Worth]) -> Iterator[str]:
    """What a part of the budget would have found, the control of one epoch, and what early epochs told."""
    epochs = [one.budgets[0] for one in worths if one.budgets and one.budgets[0].unit == "epochs"]
    common = min((one.budgets[-1] for one in epochs), default=0.0)
    for one in worths:
        if one.budgets and one.budgets[0].unit == "epochs":
            yield f"{one.sweep}: {_spent(one, one.budgets[0], common / 2)}"
        if one.control is not None:
            control = one.control
            behind = f"{control.behind:.2g} behind" if control.behind else "with the same score"
            which = "the best" if control.rank == 1 else f"rank {control.rank}, {behind}"
            yield (
                f"{one.sweep}: the first after epoch 1 came out as {which}, for {control.epochs} of "
                f"{control.of_epochs} epochs"
            )
        told = [_rung(rung) for rung in one.rungs if rung.of_best is not None]
        if told:
            yield f"{one.sweep}: the best was {', '.join(told)}"


def held_out_lines(one: HeldOut | None) -> Iterator[str]:
    """How far the examples that validated can be trusted."""
    if one is not None:
        yield (
            f"held out: {one.metric} {score(one.level)} on {one.examples} examples is {score(one.low)} .. "
            f"{score(one.high)} on others (95 %, {one.method}); "
            f"differences below {one.difference:.2g} may be these examples'"
        )


def _spent(worth: Worth, found: Found, budget: float) -> str:
    at = min(range(len(found.budgets)), key=lambda place: abs(found.budgets[place] - budget))
    head = f"{found.budgets[at]:.0f} of {found.budgets[-1]:.0f} epochs found"
    if math.isnan(found.expected[at]):
        return f"{head} nothing"
    own = "nothing" if math.isnan(found.found[at]) else f"{worth.metric} {score(found.found[at])}"
    spread = f"{score(found.expected[at])} in random order ({score(found.low[at])} .. {score(found.high[at])})"
    last = next(value for value in reversed(found.found) if not math.isnan(value))
    return f"{head} {own}, {spread}; all of them {score(last)}"


def _rung(rung: Rung) -> str:
    place = f"{_ordinal(rung.of_best or 0)} of {rung.configurations} after epoch {rung.epoch}"
    if rung.correlation is None or rung.correlation.count < FEW:
        return place
    return f"{place} (rank correlation with the end {rung.correlation.value:.2f})"


def _ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number % 100 not in (11, 12, 13) else "th"
    return f"{number}{ending}"
