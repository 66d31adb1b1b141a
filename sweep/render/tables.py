"""Formats results as tables and lines of text.

Tables: rankings, finalists, lists of sweeps, configurations of a plan. Lines: costs, the efficiency of a search,
replays.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from sweep.analysis import LineageStep, Trial, verdict
from sweep.analysis.differences import list_varying_parameters
from sweep.analysis.ranking import RankedConfiguration, Ranking, Score, limit_interval
from sweep.analysis.verdict import SweepSummary
from sweep.events import Params, Status
from sweep.render import STYLES
from sweep.text import (
    counted,
    duration,
    format_setting,
    format_settings,
    in_one_line,
    moment,
    money,
    numbered,
    percent,
    printable,
    score,
    shortened,
    trials_named,
)

if TYPE_CHECKING:
    from sweep.analysis.confirmation import Confirmation, Confirmed
    from sweep.analysis.ranking import SamplingError
    from sweep.analysis.replay import Extreme, Replay, Spread
    from sweep.analysis.report_data import Costs
    from sweep.analysis.rung_ranks import RungRanks
    from sweep.analysis.search_efficiency import (
        BestByBudget,
        Control,
        RungPrediction,
        SearchEfficiency,
    )


GAP = "  "


@dataclass(frozen=True, slots=True)
class Grid:
    """The names of a table's columns and the texts of its cells, without a layout."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def print_table(grid: Grid, target: Console) -> None:
    """Print a table; on a terminal that is too narrow, print each row as a block of ``name  value`` lines.

    Columns whose cells are all empty are left out, and unprintable characters are escaped. Of a table without rows,
    only an empty line is printed.
    """
    grid = _escape_unprintable(remove_empty_columns(grid))
    columns = range(len(grid.columns))
    widths = [_compute_column_width(grid, at) for at in columns]
    table_width = sum(widths) + len(GAP) * (len(widths) - 1)
    if target.is_terminal and table_width > target.width:
        lines = _format_blocks(grid, columns)
    else:
        lines = _align_rows(grid, columns, widths)
    for line in lines:
        target.print(line, soft_wrap=True)


def remove_empty_columns(grid: Grid) -> Grid:
    """Return the table without columns whose cells are all empty; without rows, no column is left."""
    columns = []
    for at in range(len(grid.columns)):
        if _has_text(grid, at):
            columns.append(at)
    names = tuple(grid.columns[at] for at in columns)
    rows = []
    for row in grid.rows:
        rows.append(tuple(row[at] for at in columns))
    return Grid(names, tuple(rows))


def _has_text(grid: Grid, column: int) -> bool:
    """Return whether any cell of a column, apart from its name, has text."""
    return any(row[column] for row in grid.rows)


def _is_numeric(grid: Grid, column: int) -> bool:
    """Return whether each cell of a column is empty or begins like a number, so that the column is aligned right.

    The name of the column does not count.
    """
    # the first character; of an empty cell it is "", which is in every text
    return all(row[column][:1] in "-+.0123456789" for row in grid.rows)


def _compute_column_width(grid: Grid, column: int) -> int:
    """Return the width in characters of a column's longest cell or, if that is longer, of its name."""
    return max(cell_len(row[column]) for row in (grid.columns, *grid.rows))


def _escape_unprintable(grid: Grid) -> Grid:
    """Return the table with unprintable characters escaped, in names as well, and each cell in one line.

    A note, for example, may have several lines.
    """
    rows = []
    for row in grid.rows:
        rows.append(tuple(in_one_line(printable(cell)) for cell in row))
    return Grid(tuple(map(printable, grid.columns)), tuple(rows))


def _align_rows(grid: Grid, columns: Sequence[int], widths: Sequence[int]) -> Iterator[Text]:
    """Yield the rows with aligned columns, the names of the columns first.

    ``columns`` are the indices of the columns to show, and ``widths`` their widths in characters, in the same order.
    Columns of numbers are aligned right. Names are bold, and cells such as statuses have the style in `STYLES`.
    """
    numeric = [_is_numeric(grid, at) for at in columns]
    for row in (grid.columns, *grid.rows):
        line = Text()
        for at, width, is_numeric in zip(columns, widths, numeric, strict=True):
            style = "bold" if row is grid.columns else STYLES.get(row[at], "")
            cell = Text(row[at], style)
            padding = width - cell.cell_len
            if is_numeric:
                cell.pad_left(padding)
            else:
                cell.pad_right(padding)
            line.append_text(cell).append(GAP)
        line.rstrip()
        yield line


def _format_blocks(grid: Grid, columns: Sequence[int]) -> Iterator[Text]:
    """Yield each row as an empty line and a block of ``name  value`` lines, in which empty cells are left out.

    ``columns`` are the indices of the columns to show, at least one.
    """
    width = max(cell_len(grid.columns[at]) for at in columns)
    for row in grid.rows:
        yield Text()
        for at in columns:
            if row[at]:
                name = grid.columns[at] + " " * (width - cell_len(grid.columns[at]))
                yield Text.assemble((name, "dim"), GAP, (row[at], STYLES.get(row[at], "")))


def ranking_grid(
    ranking: Ranking,
    limit: int | None = None,
    *,
    only: Sequence[RankedConfiguration] | None = None,
    whole_notes: bool = False,
) -> Grid:
    """Tabulate the best ``limit`` configurations, or the rows ``only``, with the parameters that vary in the ranking.

    All are tabulated if both are None; ``limit`` has no effect on ``only``. Notes are shortened to 40 characters unless
    ``whole_notes`` is set. Some columns may be empty.
    """
    if only is None:
        rows = ranking.rows[:limit]
    else:
        rows = tuple(only)
    sweeps = [row.sweep for row in rows]
    # `print_table` leaves out columns without text
    if len({row.sweep for row in ranking.rows}) == 1:
        sweeps = [""] * len(rows)
    ranks = [_format_rank(row) for row in rows]
    # the cells of each column by its name
    columns: dict[str, list[str]] = {
        "rank": ranks,
        "sweep": sweeps,
        "trial": [_format_trial_numbers(row) for row in rows],
        **_collect_mark_columns([row.trials for row in rows], whole_notes=whole_notes),
        "status": [_format_status(row) for row in rows],
        "epochs": [str(row.epochs) for row in rows],
        "batch in parts": [_format_parts(row) for row in rows],
        "front": [_format_optional(row.front) for row in rows],
    }
    verdicts = _collect_verdict_columns(rows, ranking)
    taken = {*columns, *verdicts}
    for index, (metric, _) in enumerate(ranking.objectives):
        scores = [_get_score(row, index) for row in rows]
        columns[_name_column(metric, "metric.", taken)] = [_format_mean(one) for one in scores]
        # columns need different names; the one of the first objective stays short
        if index == 0:
            interval_column = "95 %"
        else:
            interval_column = f"95 % of {metric}"
        columns[interval_column] = [_format_interval(one) for one in scores]
    return _add_parameter_columns(
        columns | verdicts,
        [row.params for row in rows],
        ranking.varying,
    )


NOTE_LENGTH = 40
"""Number of characters of a note in a table."""


def _collect_mark_columns(
    rows: Sequence[Sequence[Trial]], *, whole_notes: bool = False
) -> dict[str, list[str]]:
    """Return the columns "star", "added by", "space" and "note", with a cell for each configuration in ``rows``.

    A configuration is given by its trials. Notes are shortened unless ``whole_notes`` is set. Columns whose cells are
    all empty are left out.
    """
    columns = {
        "star": [_format_star(trials) for trials in rows],
        "added by": [_format_adder(trials) for trials in rows],
        "space": [_format_space_version(trials) for trials in rows],
        "note": [_format_notes(trials, whole=whole_notes) for trials in rows],
    }
    return {name: cells for name, cells in columns.items() if any(cells)}


def _format_star(trials: Sequence[Trial]) -> str:
    """Return "*" if a person has given one of the trials a star, otherwise ""."""
    has_star = any(trial.starred for trial in trials)
    return "*" if has_star else ""


def _format_adder(trials: Sequence[Trial]) -> str:
    """Return the name of the person who has added the configuration of ``trials``; "" if sweep has chosen it.

    If several have added it, the first trial that a person has added counts.
    """
    return next((trial.enqueued_by for trial in trials if trial.enqueued_by), "")


def _format_notes(trials: Sequence[Trial], *, whole: bool) -> str:
    """Return the notes on trials, joined, shortened to `NOTE_LENGTH` unless ``whole`` is set; "" without notes."""
    notes = "; ".join(trial.note for trial in trials if trial.note)
    return notes if whole else shortened(notes, NOTE_LENGTH)


def _format_space_version(trials: Sequence[Trial]) -> str:
    """Return how often the space had been changed when the configuration was first chosen; "" if it had not been."""
    version = min((trial.space_version for trial in trials), default=0)
    return str(version) if version else ""


def _format_optional(value: object) -> str:
    """Return a value as text; "" for None."""
    return "" if value is None else str(value)


def _get_score(row: RankedConfiguration, at: int) -> Score | None:
    """Return the score of a configuration in the objective with index ``at``; None if it has no scores."""
    return row.scores[at] if row.scores else None


def _format_trial_numbers(row: RankedConfiguration) -> str:
    """Return the numbers of a configuration's trials, with ranges, as in 1,3-5."""
    return numbered((trial.trial for trial in row.trials), ",", "-")


def answered(ranking: Ranking, answer: str) -> Iterator[str]:
    """Yield the lines below a ranking: the statistical method, if there is one, and the text ``answer``."""
    if ranking.method:
        yield f"method   {ranking.method}"
    yield f"answer   {answer}"


def _collect_verdict_columns(
    rows: Sequence[RankedConfiguration], ranking: Ranking
) -> dict[str, list[str]]:
    """Return the columns "to the best", "p" and "verdict" for ``rows``.

    Returns {} if each configuration of the ranking was trained only once.
    """
    if not any(len(score.values) > 1 for row in ranking.rows for score in row.scores):
        return {}
    return {
        "to the best": [_format_difference(row) for row in rows],
        "p": [_format_p_value(row) for row in rows],
        "verdict": [verdict.describe_verdict(row, ranking) for row in rows],
    }


def _format_p_value(row: RankedConfiguration) -> str:
    """Return the adjusted p-value of a configuration; "" if it has none."""
    if row.p_adjusted is None:
        return ""
    return f"{row.p_adjusted:.2g}"


def _format_difference(row: RankedConfiguration) -> str:
    """Format the difference to the best configuration, with its interval if it has one; "" if it has no difference."""
    if row.difference is None:
        return ""
    low = row.difference_low
    high = row.difference_high
    if low is None or high is None:
        return f"{row.difference:+.2g}"
    return f"{row.difference:+.2g} ({low:+.2g} .. {high:+.2g})"


def trials_grid(trials: Sequence[Trial], metric: str | None) -> Grid:
    """Tabulate trials in the given order, with the parameters in which they differ and their values of ``metric``.

    If ``metric`` is None, the cells of that column are empty. Notes are shortened to 40 characters, and reasons to 60.
    """
    columns = {
        "trial": [str(trial.trial) for trial in trials],
        **_collect_mark_columns([(trial,) for trial in trials]),
        "status": [trial.outcome for trial in trials],
        "epochs": [str(trial.epochs) for trial in trials],
    }
    after_metric = {
        "took": [_format_duration(trial.duration_s) for trial in trials],
        "reason": [shortened(trial.status_reason, 60) for trial in trials],
    }
    scores = [score(trial.metrics.get(metric or "")) for trial in trials]
    columns[_name_column(metric or "metric", "metric.", {*columns, *after_metric})] = scores
    columns |= after_metric
    configurations = [trial.params for trial in trials]
    return _add_parameter_columns(columns, configurations, list_varying_parameters(configurations))


def sweeps_grid(listed: Iterable[SweepSummary]) -> Grid:
    """Tabulate the sweeps of a results folder in the given order; notes are shortened to 40 characters."""
    rows = list(listed)
    return grid_of(
        {
            "sweep": [row.name for row in rows],
            "state": [row.state for row in rows],
            "trials": [counted_by(row.trials) for row in rows],
            "metric": [row.metric or "" for row in rows],
            "best": [score(row.best) for row in rows],
            "by trial": [_format_optional(row.best_trial) for row in rows],
            "started": [_format_moment(row.started) for row in rows],
            "took": [_format_duration(row.duration_s) for row in rows],
            "note": [shortened(row.note, NOTE_LENGTH) for row in rows],
            "reason": [row.reason for row in rows],
        }
    )


def _format_moment(time: float | None) -> str:
    """Return a time, in seconds since 1970, as text; "" for None."""
    return "" if time is None else moment(time)


def _format_duration(seconds: float | None) -> str:
    """Return a duration as text; "" for None."""
    if seconds is None:
        return ""
    return duration(seconds)


def jobs_grid(jobs: Iterable[tuple[str, str, str, float | None, str]]) -> Grid:
    """Tabulate submitted jobs: sweep, state, id, start and results folder of each, in this order.

    The start is in seconds since 1970, or None if the job has not started.
    """
    names = ("sweep", "job is", "job", "started", "results")
    rows = []
    for sweep, state, job, started, results in jobs:
        rows.append((sweep, state, job, _format_moment(started), results))
    return Grid(names, tuple(rows))


def configurations_grid(configurations: Sequence[Params]) -> Grid:
    """Tabulate the configurations of a plan with their numbers, from 0, and the parameters in which they differ."""
    columns = {"trial": [str(number) for number in range(len(configurations))]}
    return _add_parameter_columns(columns, configurations, list_varying_parameters(configurations))


def _add_parameter_columns(
    columns: dict[str, list[str]], configurations: Sequence[Params], names: Iterable[str]
) -> Grid:
    """Add a column for each parameter in ``names`` to ``columns``, the cells by column, and return the table.

    ``configurations`` has the parameters of each row; a cell is empty if a row lacks the parameter. A parameter with
    the name of another column is prefixed with ``param.``.
    """
    taken = set(columns)
    for name in names:
        cells = []
        for params in configurations:
            cells.append(_format_setting_or(params, name, ""))
        columns[_name_column(name, "param.", taken)] = cells
    return grid_of(columns)


_ON_THE_PAGE = frozenset({"star", "note"})  # columns that the live page adds to a ranking


def _name_column(name: str, prefix: str, taken: Collection[str]) -> str:
    """Return the name of the column of a metric or a parameter: ``name``, with ``prefix`` if that name is taken.

    The names in `_ON_THE_PAGE` always count as taken.
    """
    return f"{prefix}{name}" if name in taken or name in _ON_THE_PAGE else name


def _format_setting_or(params: Params, name: str, absent: str) -> str:
    """Format the value of a parameter, or return ``absent`` if the configuration lacks it."""
    if name in params:
        return format_setting(params[name])
    return absent


def grid_of(columns: Mapping[str, Sequence[str]]) -> Grid:
    """Return a table from ``columns``, which has the cells of each column by its name, in their order.

    Raises ValueError if the columns have different numbers of cells.
    """
    return Grid(tuple(columns), tuple(zip(*columns.values(), strict=True)))


def _format_rank(row: RankedConfiguration) -> str:
    """Return the rank of a configuration, or "" if it has none."""
    return str(row.rank) if row.has_rank else ""


def _format_status(row: RankedConfiguration) -> str:
    """Return the outcome of a configuration's trials; if they differ, the number of trials for each outcome.

    The numbers are also given if the configuration has another status, as when some of its repeats are missing.
    """
    counts = Counter(trial.status for trial in row.trials)
    outcomes = Counter(trial.outcome for trial in row.trials)
    if list(counts) == [row.status] and len(outcomes) == 1:
        return next(iter(outcomes))
    return counted_by(outcomes)


def _format_parts(row: RankedConfiguration) -> str:
    """Return the number of micro-batches that batches were split into to fit into memory; "" if they were not split.

    If trials differ, all numbers above 1 are listed. They are shown because batch statistics are computed for each
    micro-batch.
    """
    numbers = {trial.accumulate or 1 for trial in row.trials}
    return ", ".join(str(number) for number in sorted(numbers - {1}))


def counted_by(counts: Mapping[str, int] | Mapping[Status, int]) -> str:
    """Format counts by status: ``1,200 completed, 3 pruned``; "" if there are none."""
    return ", ".join(f"{count:,} {status}" for status, count in counts.items())


def _format_mean(one: Score | None) -> str:
    """Format the mean of a score, with the standard deviation over seeds if there are several; "" for None."""
    if one is None:
        return ""
    if one.std is None:
        spread = ""
    else:
        spread = f" ± {one.std:.2g} (n={len(one.values)})"
    return score(one.mean) + spread


def _format_interval(one: Score | None) -> str:
    """Return the interval of a score, within the values that the metric can have; "" if there is none."""
    if one is None or one.interval is None:
        return ""
    low, high = limit_interval(one.metric, one.values, one.interval)
    return f"{score(low)} .. {score(high)}"


def show_finalists(ranking: Ranking, target: Console) -> None:
    """Print an empty line and the finalists with their scores; nothing if the ranking has no confirmation.

    The scores are those in the search and with fresh seeds.
    """
    if ranking.confirmed is not None:
        target.print()
        print_table(finalists_grid(ranking.confirmed), target)


def finalists_grid(confirmation: Confirmation) -> Grid:
    """Tabulate the finalists of a confirmation in its order, best first, with the parameters in which they differ.

    Among the columns are the mean scores with fresh seeds and in the search and, if the finalists were tested, a column
    ``test.NAME`` for each metric of the tests.
    """
    rows = confirmation.rows
    columns: dict[str, list[str]] = {
        "place": [str(row.place) for row in rows],
        "finalist": [_format_finalist(row) for row in rows],
        "verdict": [row.verdict for row in rows],
        "fresh seeds": [str(row.seeds) for row in rows],
    }
    scores = [score(row.mean) for row in rows]
    columns[_name_column(confirmation.metric, "metric.", columns)] = scores
    columns["in the search"] = [score(row.selected) for row in rows]
    for name in dict.fromkeys(name for row in rows for name in row.tested):
        columns[f"test.{name}"] = [score(row.tested.get(name)) for row in rows]
    configurations = [row.params for row in rows]
    return _add_parameter_columns(columns, configurations, list_varying_parameters(configurations))


def _format_finalist(row: Confirmed) -> str:
    """Return "baseline" for the baseline, otherwise ""."""
    return "baseline" if row.is_baseline else ""


NAMED_TRIALS = 5


def cost_lines(costs: Costs) -> Iterator[str]:
    """Yield a line about training time, overhead, cost and fused trials, and one about trials that waited for data.

    Each begins with the name of the sweep. Overheads below 0.05 s, a cost that is not known and, without fused trials,
    their number are left out. The second line follows only if there are such trials; the `NAMED_TRIALS` that waited
    most are named.
    """
    overhead = sum(costs.overhead_s.values())
    parts = sorted(costs.overhead_s.items(), key=lambda part: -part[1])
    # less than 0.05 s would be shown as 0.0 s
    listed = ", ".join(f"{name} {duration(seconds)}" for name, seconds in parts if seconds >= 0.05)
    line = f"{costs.sweep}: trained {duration(costs.train_s)}, overhead {duration(overhead)}"
    if listed:
        line += f" ({listed})"
    if costs.money is not None:
        line += f", cost {money(costs.money)}"
    if costs.fused:  # number of trials by the size of their group
        line += f", fused {counted(sum(costs.fused.values()), 'trial')}, up to {max(costs.fused)} at once"
    yield line
    if costs.starving:
        by_share = sorted(costs.starving.items(), key=lambda item: -item[1])
        named = ", ".join(f"{trial} ({percent(share)})" for trial, share in by_share[:NAMED_TRIALS])
        if len(by_share) > NAMED_TRIALS:
            more = f" and {len(by_share) - NAMED_TRIALS} more"
        else:
            more = ""
        yield f"{costs.sweep}: starved of data: trial {named}{more}; see docs/data.md"


FEW = 5  # with fewer configurations or trials, no correlation is shown


def efficiency_lines(efficiencies: Sequence[SearchEfficiency]) -> Iterator[str]:
    """Yield lines about the efficiency of searches.

    For each sweep, as far as it is known: what half of the smallest budget in epochs of all sweeps would have found,
    how the leader after epoch 1 ended, and how well the scores at early epochs predicted the final ones.
    """
    by_epochs = [_get_best_by_epochs(one) for one in efficiencies]
    # the whole budget of the smallest sweep, which all have spent, so that half of it compares them
    smallest = min((spent.budgets[-1] for spent in by_epochs if spent is not None), default=0.0)
    for one, spent in zip(efficiencies, by_epochs, strict=True):
        if spent is not None:
            yield f"{one.sweep}: {_describe_budget(one, spent, smallest / 2)}"
        if one.control is not None:
            yield f"{one.sweep}: {_describe_control(one.control)}"
        ranks_of_best = [_describe_rung(rung) for rung in one.rungs if rung.of_best is not None]
        if ranks_of_best:
            yield f"{one.sweep}: the best was {', '.join(ranks_of_best)}"


def _get_best_by_epochs(efficiency: SearchEfficiency) -> BestByBudget | None:
    """Return the best score by the number of epochs spent; None if it is not known.

    If it is known, it is the first of the budgets.
    """
    if efficiency.budgets and efficiency.budgets[0].unit == "epochs":
        return efficiency.budgets[0]
    return None


def _describe_control(control: Control) -> str:
    """Describe how the configuration that led after epoch 1 ended, and how few epochs training only it would take."""
    if control.behind:
        behind = f"{control.behind:.2g} behind"
    else:
        behind = "with the same score"
    if control.rank == 1:
        which = "the best"
    else:
        which = f"rank {control.rank}, {behind}"
    return (
        f"the leader after epoch 1 ended as {which}; training only it takes {control.epochs} of "
        f"{control.of_epochs} epochs"
    )


def space_lines(ranking: Ranking) -> Iterator[str]:
    """Yield a warning about the lines of `efficiency_lines` if the space of a sweep was changed; nothing otherwise.

    These lines compare the search with random orders of its configurations. The warning says that this does not show
    what a random search would have found, because the configurations are from different spaces.
    """
    if ranking.other_space:
        yield (
            "the space was changed: the random orders mix configurations of different spaces, and do not show what a "
            "random search would have found"
        )


def rung_lines(ranks: Sequence[RungRanks]) -> Iterator[str]:
    """Yield, for each objective, the correlation of the ranks at the rungs with the final ranks.

    Rungs with fewer than five trials or without a correlation are left out, as is an objective without other rungs.
    Another line follows if the ranks at a rung predict little, about the last such rung.
    """
    for metric in dict.fromkeys(one.metric for one in ranks):
        texts = []
        for one in ranks:
            if one.metric == metric and one.value is not None and one.trials >= FEW:
                texts.append(
                    f"{one.value:.2f} at {_name_rung(one)} ({counted(one.trials, 'trial')})"
                )
        if texts:
            yield f"rank correlation of {metric} with the last epoch: {', '.join(texts)}"
    poor = [one for one in ranks if one.is_poor]
    if poor:
        last = poor[-1]
        yield (
            f"at {_name_rung(last)} {last.metric} says little about the last epoch (correlation below "
            f"{last.high:.2f}): let early_terminate begin later (min_iter)"
        )


def _name_rung(one: RungRanks) -> str:
    """Return "epoch 3" for a rung, or "10 % of the minutes" if only these limit trials.

    If both minutes and epochs limit them, it is "10 % of the budget".
    """
    if one.share is None:
        return f"epoch {one.epoch}"
    if one.counts_epochs:
        return f"{100 * one.share:.3g} % of the budget"
    return f"{100 * one.share:.3g} % of the minutes"


def held_out_lines(one: SamplingError | None) -> Iterator[str]:
    """Yield a line with the 95 % interval of the best score over validation examples; nothing if ``one`` is None."""
    if one is not None:
        yield (
            f"validation data: {one.metric} {score(one.level)} on these {one.examples} examples, by which the best was "
            f"chosen, is {score(one.low)} .. {score(one.high)} on others (95 %, {one.method}); "
            f"differences below {one.difference:.2g} may be due to the choice of these examples"
        )


def _describe_budget(efficiency: SearchEfficiency, spent: BestByBudget, budget: float) -> str:
    """Describe the best score found with about ``budget`` epochs, compared to the same configurations in random order.

    ``spent`` is the efficiency's result for epochs; the budget in it that is nearest to ``budget`` is described. The
    text also has the best score of the whole search.
    """
    nearest = min(range(len(spent.budgets)), key=lambda index: abs(spent.budgets[index] - budget))
    head = f"{spent.budgets[nearest]:.0f} of {spent.budgets[-1]:.0f} epochs found"
    if math.isnan(spent.expected[nearest]):  # in no order has a configuration a score by then
        return f"{head} nothing"
    if math.isnan(spent.found[nearest]):
        own = "nothing"
    else:
        own = f"{efficiency.metric} {score(spent.found[nearest])}"
    low = score(spent.low[nearest])
    high = score(spent.high[nearest])
    in_random_order = f"{score(spent.expected[nearest])} in random order ({low} .. {high})"
    best = next(value for value in reversed(spent.found) if not math.isnan(value))
    return f"{head} {own}, {in_random_order}; all of them {score(best)}"


def _describe_rung(rung: RungPrediction) -> str:
    """Describe the rank that the finally best configuration had after an epoch, with the correlation to the end.

    The correlation is left out if it is of fewer than `FEW` configurations.
    """
    place = (
        f"{_format_ordinal(rung.of_best or 0)} of {rung.configurations} after epoch {rung.epoch}"
    )
    if rung.correlation is None or rung.correlation.count < FEW:
        return place
    return f"{place} (rank correlation with the end {rung.correlation.value:.2f})"


def _format_ordinal(number: int) -> str:
    """Format a number as an ordinal: "3rd"."""
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def replay_lines(replay: Replay, metric: str) -> list[str]:
    """Return lines on the effect that another stopping rule would have had: epochs saved, winner kept or lost.

    ``metric`` is the name of the objective.
    """
    # all parameters of the winner: compared with a configuration that has none, each of them varies
    winner_names = list_varying_parameters([replay.winner_params, {}])
    winner_settings = format_settings(replay.winner_params, winner_names)
    if replay.run_cap is None:
        capped = ""
    else:
        capped = f", the first {replay.run_cap} configurations of an ordering"
    lines = [
        f"rule     {replay.rule}, with the curves of {replay.trials} trials that ran under {replay.ran}{capped}",
        f"winner   {trials_named(replay.winner)} ({winner_settings})",
        f"as it ran  {replay.ran_epochs} epochs; {replay.whole_epochs} with all trials trained whole",
    ]
    if replay.same_as_live is not None:
        if replay.same_as_live:
            same = "the same"
        else:
            same = "NOT the same"
        lines.append(
            f"check    in the log's order its {replay.live_decisions} decisions are {same} as when it ran"
        )
    if replay.log_order_kept:
        kept = "kept"
    else:
        kept = "stopped or left out"
    lines.append(
        f"in the log's order  {replay.log_order_epochs} of the log's epochs, the winner {kept}"
    )
    over = f"over {replay.orderings} orderings, {replay.at_once} trials at a time"
    if replay.if_worse == replay.if_better:  # nothing depends on how trials would have continued
        return [*lines, f"{over}: {_describe_extreme(replay.if_better, replay, metric)}"]
    went_on = f"{_format_spread(replay.went_on)} of the {replay.cut} trials that were cut short would have continued"
    return [
        *lines,
        f"{over}: {went_on}, with unknown results",
        f"  if as bad as the worst   {_describe_extreme(replay.if_worse, replay, metric)}",
        f"  if as good as the best   {_describe_extreme(replay.if_better, replay, metric)}",
    ]


def _describe_extreme(extreme: Extreme, replay: Replay, metric: str) -> str:
    """Describe the result of a replay under one assumption on the unknown rest of the curves.

    The text has the epochs, the share of those of all trials trained whole that is saved, in how many orderings the
    winner is kept and, unless that is in all, by how much the ``metric`` of the one that ranks first is worse.
    """
    if replay.whole_epochs:
        saved = 100 * (1 - extreme.epochs.median / replay.whole_epochs)
    else:
        saved = 0.0
    epochs = f"{_format_spread(extreme.epochs)} epochs ({saved:.0f} % saved)"
    text = f"{epochs}, winner kept in {100 * extreme.winner_kept:.0f} %"
    if extreme.winner_kept == 1:
        return text
    return f"{text}, {metric} lost {_format_spread(extreme.lost)}"


def _format_spread(spread: Spread) -> str:
    """Format the median and the middle 95 %, as in ``120 (100 to 140)``; the median alone if both bounds are equal.

    An infinite number becomes "all".
    """
    if spread.low == spread.high:
        return _format_count(spread.median)
    return f"{_format_count(spread.median)} ({_format_count(spread.low)} to {_format_count(spread.high)})"


def _format_count(value: float) -> str:
    """Format a whole number without decimals, another one like a score, and an infinite one as "all"."""
    if math.isinf(value):
        return "all"  # nothing that is kept can be compared
    if value == int(value or 0) and abs(value) < 1e9:
        return f"{value:.0f}"
    return score(value)


def lineage_lines(steps: Sequence[LineageStep]) -> list[str]:
    """Return a line that says which trials trained the epochs of the best one, and with which parameters.

    Only parameters in which the trials differ are named. ``steps`` are in the order of the epochs. If an ancestor is
    not known, the line says so. Returns [] if all epochs were trained by one trial, because the best is not a copy.
    """
    is_known = not steps or steps[0].first == 1
    if len(steps) < 2 and is_known:
        return []
    parts = [f"{step.trial} to epoch {step.last}" for step in steps]
    if not is_known:
        parts.insert(0, f"unknown to epoch {steps[0].first - 1}")
    trained = ", ".join(parts)
    line = f"lineage  trial {trained}"
    schedules = []
    for name in list_varying_parameters([step.params for step in steps]):
        values = [_format_setting_or(step.params, name, "-") for step in steps]
        schedules.append(f"{name} {', '.join(values)}")
    if schedules:
        line += f": {'; '.join(schedules)}"
    return [line]
