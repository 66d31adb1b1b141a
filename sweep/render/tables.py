"""What sweeps found as tables and lines on a terminal, and as plain text elsewhere.

Rankings, finalists, lists of sweeps and plans as tables; costs, how much of its budget a search needed, and replays in
a few lines.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from sweep.analysis import Step, varying, verdict
from sweep.analysis.confirmation import Confirmation
from sweep.analysis.ranking import Ranked, Ranking, Score
from sweep.analysis.verdict import Listed
from sweep.events import Params, Status
from sweep.render import STYLES
from sweep.text import counted, duration, moment, money, numbered, printable, score, setting, settings, trials_named

if TYPE_CHECKING:
    from sweep.analysis.ranking import HeldOut
    from sweep.analysis.replay import Extreme, Replay, Spread
    from sweep.analysis.report_data import Costs
    from sweep.analysis.rung_ranks import RungRanks
    from sweep.analysis.search_efficiency import Found, Rung, SearchEfficiency


GAP = "  "


@dataclass(frozen=True, slots=True)
class Grid:
    """A table before it meets a terminal: texts by column name."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def show(grid: Grid, target: Console) -> None:
    """Print a table; where the terminal is too narrow for it, each row as a block of ``name  value`` lines.

    Columns without any content are left out.
    """
    grid = _printable(filled(grid))
    columns = range(len(grid.columns))
    widths = [max(cell_len(row[at]) for row in (grid.columns, *grid.rows)) for at in columns]
    if target.is_terminal and sum(widths) + len(GAP) * (len(widths) - 1) > target.width:
        lines = _blocks(grid, columns)
    else:
        lines = _aligned(grid, columns, widths)
    for line in lines:
        target.print(line, soft_wrap=True)


def filled(grid: Grid) -> Grid:
    """Without the columns that hold nothing."""
    columns = [at for at in range(len(grid.columns)) if any(row[at] for row in grid.rows)]
    rows = tuple(tuple(row[at] for at in columns) for row in grid.rows)
    return Grid(tuple(grid.columns[at] for at in columns), rows)


def _printable(grid: Grid) -> Grid:
    return Grid(tuple(map(printable, grid.columns)), tuple(tuple(map(printable, row)) for row in grid.rows))


def _aligned(grid: Grid, columns: Sequence[int], widths: Sequence[int]) -> Iterator[Text]:
    numeric = [all(row[at][:1] in "-+.0123456789" for row in grid.rows) for at in columns]
    for row in (grid.columns, *grid.rows):
        line = Text()
        for at, width, right in zip(columns, widths, numeric, strict=True):
            cell = Text(row[at], "bold" if row is grid.columns else STYLES.get(row[at], ""))
            (cell.pad_left if right else cell.pad_right)(width - cell.cell_len)
            line.append_text(cell).append(GAP)
        line.rstrip()
        yield line


def _blocks(grid: Grid, columns: Sequence[int]) -> Iterator[Text]:
    width = max(cell_len(grid.columns[at]) for at in columns)
    for row in grid.rows:
        yield Text()
        for at in columns:
            if row[at]:
                name = grid.columns[at] + " " * (width - cell_len(grid.columns[at]))
                yield Text.assemble((name, "dim"), GAP, (row[at], STYLES.get(row[at], "")))


def ranking_grid(ranking: Ranking, limit: int | None = None) -> Grid:
    """Return the best ``limit`` configurations, with the parameters that tell them apart."""
    rows = ranking.rows[:limit]
    several = len({row.sweep for row in ranking.rows}) > 1
    columns: dict[str, list[str]] = {
        "rank": [str(row.rank) for row in rows],
        "sweep": [row.sweep if several else "" for row in rows],
        "trial": [numbered((trial.trial for trial in row.trials), ",", "-") for row in rows],
        "status": [_status(row) for row in rows],
        "epochs": [str(row.epochs) for row in rows],
        "batch in parts": [_parts(row) for row in rows],
        "front": ["" if row.front is None else str(row.front) for row in rows],
    }
    for at, (metric, _) in enumerate(ranking.objectives):
        scores = [row.scores[at] if row.scores else None for row in rows]
        columns[metric] = ["" if one is None else _mean(one) for one in scores]
        columns[f"95 % of {metric}" if at else "95 %"] = [_interval(one) for one in scores]
    return _with_params(columns | _verdicts(rows, ranking), [row.params for row in rows], ranking.varying)


def answered(ranking: Ranking, answer: str) -> Iterator[str]:
    """Yield what follows a table: how verdicts were reached, and the answer."""
    if ranking.method:
        yield f"method   {ranking.method}"
    yield f"answer   {answer}"


def _verdicts(rows: Sequence[Ranked], ranking: Ranking) -> dict[str, list[str]]:
    """Return what the repeats say; nothing of one training each."""
    if not any(len(score.values) > 1 for row in ranking.rows for score in row.scores):
        return {}
    return {
        "to the best": [_difference(row) for row in rows],
        "p": ["" if row.p_adjusted is None else f"{row.p_adjusted:.2g}" for row in rows],
        "verdict": [verdict.words(row, ranking) for row in rows],
    }


def _difference(row: Ranked) -> str:
    if row.difference is None:
        return ""
    low, high = row.difference_low, row.difference_high
    return f"{row.difference:+.2g}" + ("" if low is None or high is None else f" ({low:+.2g} .. {high:+.2g})")


def sweeps_grid(listed: Iterable[Listed]) -> Grid:
    """Return the sweeps of a results folder."""
    rows = list(listed)
    return grid_of(
        {
            "sweep": [row.name for row in rows],
            "state": [row.state for row in rows],
            "trials": [counted_by(row.trials) for row in rows],
            "metric": [row.metric or "" for row in rows],
            "best": [score(row.best) for row in rows],
            "by trial": ["" if row.best_trial is None else str(row.best_trial) for row in rows],
            "started": ["" if row.started is None else moment(row.started) for row in rows],
            "took": ["" if row.duration_s is None else duration(row.duration_s) for row in rows],
            "reason": [row.reason for row in rows],
        }
    )


def jobs_grid(jobs: Iterable[tuple[str, str, str, float | None, str]]) -> Grid:
    """Return the jobs of sweeps: name, state, id, start and results of each."""
    names = ("sweep", "job is", "job", "started", "results")
    rows = [(sweep, state, job, "" if at is None else moment(at), results) for sweep, state, job, at, results in jobs]
    return Grid(names, tuple(rows))


def configurations_grid(configurations: Sequence[Params]) -> Grid:
    """Configurations of a plan, by number; only what is not the same in all of them."""
    columns = {"trial": [str(number) for number in range(len(configurations))]}
    return _with_params(columns, configurations, varying(configurations))


def _with_params(columns: dict[str, list[str]], configurations: Sequence[Params], names: Iterable[str]) -> Grid:
    """Return a table with the parameters after the other columns, from which ``param.`` tells one of the same name."""
    for name in names:
        cells = [setting(one[name]) if name in one else "" for one in configurations]
        columns[f"param.{name}" if name in columns else name] = cells
    return grid_of(columns)


def grid_of(columns: Mapping[str, Sequence[str]]) -> Grid:
    """Return a table of its columns by name."""
    return Grid(tuple(columns), tuple(zip(*columns.values(), strict=True)))


def _status(row: Ranked) -> str:
    """Return the status; of repeats with different ones, how many have which."""
    counts = Counter(trial.status for trial in row.trials)
    return row.status.value if list(counts) == [row.status] else counted_by(counts)


def _parts(row: Ranked) -> str:
    """Into how many parts batches were cut that did not fit into memory: batch statistics are those of a part."""
    return ", ".join(str(count) for count in sorted({trial.accumulate or 1 for trial in row.trials} - {1}))


def counted_by(counts: Mapping[str, int] | Mapping[Status, int]) -> str:
    """Return ``12 completed, 3 pruned``."""
    return ", ".join(f"{count} {status}" for status, count in counts.items())


def _mean(one: Score) -> str:
    spread = "" if one.std is None else f" ± {one.std:.2g} (n={len(one.values)})"
    return score(one.mean) + spread


def _interval(one: Score | None) -> str:
    if one is None or one.interval is None:
        return ""
    low, high = one.interval
    return f"{score(low)} .. {score(high)}"


def show_finalists(ranking: Ranking, target: Console) -> None:
    """Print who was given fresh seeds, what was promised and what they kept; nothing where there were none."""
    if ranking.confirmed is not None:
        target.print()
        show(finalists_grid(ranking.confirmed), target)


def finalists_grid(found: Confirmation) -> Grid:
    """Return the finalists, the best first."""
    rows = found.rows
    columns: dict[str, list[str]] = {
        "place": [str(row.place) for row in rows],
        "finalist": ["baseline" if row.is_baseline else "" for row in rows],
        "verdict": [row.verdict for row in rows],
        "fresh seeds": [str(row.seeds) for row in rows],
        found.metric: [score(row.mean) for row in rows],
        "in the search": [score(row.selected) for row in rows],
    }
    for name in dict.fromkeys(name for row in rows for name in row.tested):
        columns[f"test.{name}"] = [score(row.tested.get(name)) for row in rows]
    configurations = [row.params for row in rows]
    return _with_params(columns, configurations, varying(configurations))


NAMED_TRIALS = 5


def cost_lines(costs: Costs) -> Iterator[str]:
    """Training and overhead, what was fused, and the trials that starve."""
    overhead = sum(costs.overhead_s.values())
    parts = sorted(costs.overhead_s.items(), key=lambda part: -part[1])
    listed = ", ".join(f"{name} {duration(seconds)}" for name, seconds in parts if seconds >= 0.05)
    yield (
        f"{costs.sweep}: trained {duration(costs.train_s)}, overhead {duration(overhead)}"
        + (f" ({listed})" if listed else "")
        + ("" if costs.money is None else f", cost {money(costs.money)}")
        + (
            f", fused {counted(sum(costs.fused.values()), 'trial')}, up to {max(costs.fused)} at once"
            if costs.fused
            else ""
        )
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
                f"{one.sweep}: the leader after epoch 1 ended as {which}; training only it takes {control.epochs} of "
                f"{control.of_epochs} epochs"
            )
        told = [_rung_line(rung) for rung in one.rungs if rung.of_best is not None]
        if told:
            yield f"{one.sweep}: the best was {', '.join(told)}"


def rung_lines(ranks: Sequence[RungRanks]) -> Iterator[str]:
    """Yield how well the rungs of a sweep rank: a line for each objective, and one where a rung ranks poorly."""
    for metric in dict.fromkeys(one.metric for one in ranks):
        known = [one for one in ranks if one.metric == metric and one.value is not None]
        if not known:
            continue
        rungs = ", ".join(f"{one.value:.2f} at epoch {one.epoch} ({counted(one.trials, 'trial')})" for one in known)
        yield f"rank correlation of {metric} with the last epoch: {rungs}"
    poor = [one for one in ranks if one.is_poor]
    if poor:
        last = max(poor, key=lambda one: one.epoch)
        yield (
            f"at epoch {last.epoch} {last.metric} says little about the last epoch (correlation below "
            f"{last.high:.2f}): let early_terminate begin later (min_iter)"
        )


def held_out_lines(one: HeldOut | None) -> Iterator[str]:
    """Yield how far the examples that validated can be trusted."""
    if one is not None:
        yield (
            f"held out: {one.metric} {score(one.level)} on {one.examples} examples is {score(one.low)} .. "
            f"{score(one.high)} on others (95 %, {one.method}); "
            f"differences below {one.difference:.2g} may be due to the choice of these examples"
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
    named = settings(found.winner_params, varying([found.winner_params, {}]))
    capped = "" if found.run_cap is None else f", the first {found.run_cap} configurations of an ordering"
    told = [
        f"rule     {found.rule}, with the curves of {found.trials} trials that ran under {found.ran}{capped}",
        f"winner   {trials_named(found.winner)} ({named})",
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
    went_on = f"{_spread(found.went_on)} of the {found.cut} trials that were cut short would have continued"
    return [
        *told,
        f"{over}: {went_on}, with unknown results",
        f"  if as bad as the worst   {_extreme(found.if_worse, found, metric)}",
        f"  if as good as the best   {_extreme(found.if_better, found, metric)}",
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


def lineage_lines(steps: Sequence[Step]) -> list[str]:
    """Return who trained the best trial, with what; nothing where that is one trial."""
    if len(steps) < 2:
        return []
    trained = ", ".join(f"{step.trial} to epoch {step.last}" for step in steps)
    schedules = [
        f"{name} {', '.join(setting(step.params[name]) if name in step.params else '-' for step in steps)}"
        for name in varying([step.params for step in steps])
    ]
    return [f"lineage  trial {trained}: {'; '.join(schedules)}"]
