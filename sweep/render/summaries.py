"""Summaries in a few lines: costs, how much of its budget a search needed, replays, the doctor's findings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from sweep.analysis.ranking import HeldOut
from sweep.analysis.replay import Extreme, Replay, Spread
from sweep.analysis.report_data import Costs
from sweep.analysis.search_efficiency import Found, Rung, SearchEfficiency
from sweep.analysis.trials import Step, changed_params, varying
from sweep.doctor.probe import Finding, Level
from sweep.render.formatting import duration, money, score, setting, settings

NAMED_TRIALS = 5


def cost_lines(costs: Costs) -> Iterator[str]:
    """Training and overhead, and the trials that starve."""
    overhead = sum(costs.overhead_s.values())
    parts = sorted(costs.overhead_s.items(), key=lambda part: -part[1])
    listed = ", ".join(f"{name} {duration(seconds)}" for name, seconds in parts if seconds >= 0.05)
    yield (
        f"{costs.sweep}: trained {duration(costs.train_s)}, overhead {duration(overhead)}"
        + (f" ({listed})" if listed else "")
        + ("" if costs.money is None else f", cost {money(costs.money)}")
    )
    if costs.starving:
        worst = sorted(costs.starving.items(), key=lambda trial: -trial[1])
        named = ", ".join(f"{trial} ({share:.0%})" for trial, share in worst[:NAMED_TRIALS])
        more = f" and {len(worst) - NAMED_TRIALS} more" if len(worst) > NAMED_TRIALS else ""
        yield f"{costs.sweep}: starved of data: trial {named}{more}; see docs/data.md"


FEW = 5  # configurations below which a correlation tells nothing


def efficiency_lines(worths: Sequence[SearchEfficiency]) -> Iterator[str]:
    """Yield what a part of the budget would have found, the control of one epoch, and what early epochs told."""
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
        told = [_rung_line(rung) for rung in one.rungs if rung.of_best is not None]
        if told:
            yield f"{one.sweep}: the best was {', '.join(told)}"


def held_out_lines(one: HeldOut | None) -> Iterator[str]:
    """Yield how far the examples that validated can be trusted."""
    if one is not None:
        yield (
            f"held out: {one.metric} {score(one.level)} on {one.examples} examples is {score(one.low)} .. "
            f"{score(one.high)} on others (95 %, {one.method}); "
            f"differences below {one.difference:.2g} may be these examples'"
        )


def _spent(worth: SearchEfficiency, found: Found, budget: float) -> str:
    at = min(range(len(found.budgets)), key=lambda place: abs(found.budgets[place] - budget))
    head = f"{found.budgets[at]:.0f} of {found.budgets[-1]:.0f} epochs found"
    if math.isnan(found.expected[at]):
        return f"{head} nothing"
    own = "nothing" if math.isnan(found.found[at]) else f"{worth.metric} {score(found.found[at])}"
    spread = f"{score(found.expected[at])} in random order ({score(found.low[at])} .. {score(found.high[at])})"
    last = next(value for value in reversed(found.found) if not math.isnan(value))
    return f"{head} {own}, {spread}; all of them {score(last)}"


def _rung_line(rung: Rung) -> str:
    place = f"{_ordinal(rung.of_best or 0)} of {rung.configurations} after epoch {rung.epoch}"
    if rung.correlation is None or rung.correlation.count < FEW:
        return place
    return f"{place} (rank correlation with the end {rung.correlation.value:.2f})"


def _ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number % 100 not in (11, 12, 13) else "th"
    return f"{number}{ending}"


def replay_lines(found: Replay, metric: str) -> list[str]:
    """Return what a stopping rule would have done, for a reader."""
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
    """Return ``120 (100 to 140)``: the median and the middle 95 %."""
    if spread.low == spread.high:
        return _count(spread.median)
    return f"{_count(spread.median)} ({_count(spread.low)} to {_count(spread.high)})"


def _count(value: float) -> str:
    if math.isinf(value):
        return "all"  # nothing that it keeps is comparable
    return f"{value:.0f}" if value == int(value or 0) and abs(value) < 1e9 else score(value)


LEVEL_STYLES = {Level.OK: "green", Level.NOTE: "cyan", Level.WARNING: "yellow", Level.ERROR: "red"}


def show_finding(finding: Finding, target: Console) -> None:
    """Print one finding in a line, and what to do in the next."""
    level = Text(f"{finding.level.value:<9}", LEVEL_STYLES[finding.level])
    target.print(Text.assemble(level, f"{finding.check:<15}{finding.found}"), soft_wrap=True)
    if finding.todo:
        target.print(Text.assemble(" " * 24, ("to do: ", "bold"), finding.todo), soft_wrap=True)


def lineage_lines(steps: Sequence[Step]) -> list[str]:
    """Return who trained the best trial, with what; nothing where that is one trial."""
    if len(steps) < 2:
        return []
    trained = ", ".join(f"{step.trial} to epoch {step.last}" for step in steps)
    schedules = [
        f"{name} {', '.join(setting(step.params[name]) if name in step.params else '-' for step in steps)}"
        for name in changed_params(steps)
    ]
    return [f"lineage  trial {trained}: {'; '.join(schedules)}"]
