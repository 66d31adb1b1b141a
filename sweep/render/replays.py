"""A replay in lines."""

from __future__ import annotations

import math

from sweep.analysis.replay import Extreme, Replay, Spread
from sweep.analysis.trials import varying
from sweep.render.figures import score, settings


def lines(found: Replay, metric: str) -> list[str]:
    """What a stopping rule would have done, for a reader."""
    trials = f"trial {found.winner[0]}" if len(found.winner) == 1 else f"trials {', '.join(map(str, found.winner))}"
    named = settings(found.winner_params, varying([found.winner_params, {}]))
    capped = "" if found.run_cap is None else f", the first {found.run_cap} configurations of an ordering"
    told = [
        f"rule     {found.rule}, with the curves of {found.trials} trials that ran under {found.ran}{capped}",
        f"winner   {trials} ({named})",
        f"as it ran  {found.ran_epochs} epochs; {found.whole_epochs} with all trials trained whole",
    ]
    if found.same_as_live is not None:
        same = "the same" if found.same_as_live else "NOT the same"
        told.append(f"check    in the log's order its {found.live_decisions} decisions are {same} as when it ran")
    kept = "kept" if found.log_order_kept else "stopped or left out"
    told.append(f"in the log's order  {found.log_order_epochs} of the log's epochs, the winner {kept}")
    over = f"over {found.orderings} orderings, {found.at_once} trials at a time"
    if found.if_worse == found.if_better:
        return [*told, f"{over}: {_extreme(found.if_better, found, metric)}"]
    went_on = f"{_spread(found.went_on)} of the {found.cut} trials that were cut short would have gone on"
    return [
        *told,
        f"{over}: {went_on}; nobody knows how",
        f"  were they as bad as the worst   {_extreme(found.if_worse, found, metric)}",
        f"  were they as good as the best   {_extreme(found.if_better, found, metric)}",
    ]


def _extreme(one: Extreme, found: Replay, metric: str) -> str:
    saved = 100 * (1 - one.epochs.median / found.whole_epochs) if found.whole_epochs else 0.0
    told = f"{_spread(one.epochs)} epochs ({saved:.0f} % saved), winner kept in {100 * one.winner_kept:.0f} %"
    return told if one.winner_kept == 1 else f"{told}, {metric} lost {_spread(one.lost)}"


def _spread(spread: Spread) -> str:
    """``120 (100 to 140)``: the median and the middle 95 %."""
    if spread.low == spread.high:
        return _number(spread.median)
    return f"{_number(spread.median)} ({_number(spread.low)} to {_number(spread.high)})"


def _number(value: float) -> str:
    if math.isinf(value):
        return "all"  # nothing that it keeps is comparable
    return f"{value:.0f}" if value == int(value or 0) and abs(value) < 1e9 else score(value)
