"""Rankings, finalists, lists of sweeps and plans as tables on a terminal, and as plain text elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from sweep.analysis import verdict
from sweep.analysis.confirmation import Confirmation
from sweep.analysis.listing import Listed
from sweep.analysis.ranking import Ranked, Ranking, Score
from sweep.analysis.trials import varying
from sweep.errors import printable
from sweep.events import Params
from sweep.render.formatting import STYLES, duration, moment, score, setting

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
        "trial": [_trials(row) for row in rows],
        "status": [_status(row) for row in rows],
        "epochs": [str(row.epochs) for row in rows],
        "batch in parts": [_parts(row) for row in rows],
        "front": ["" if row.front is None else str(row.front) for row in rows],
    }
    for at, (metric, _) in enumerate(ranking.objectives):
        scores = [row.scores[at] if row.scores else None for row in rows]
        columns[metric] = ["" if one is None else _mean(one) for one in scores]
        columns[f"95 % of {metric}" if at else "95 %"] = [_interval(one) for one in scores]
    columns |= _verdicts(rows, ranking)
    for name in ranking.varying:
        cells = [setting(row.params[name]) if name in row.params else "" for row in rows]
        columns[f"param.{name}" if name in columns else name] = cells
    return _grid(columns)


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
    return _grid(
        {
            "sweep": [row.name for row in rows],
            "state": [row.state for row in rows],
            "trials": [_counts(row.trials) for row in rows],
            "metric": [row.metric or "" for row in rows],
            "best": ["" if row.best is None else score(row.best) for row in rows],
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
    for name in varying(configurations):
        columns[name] = [setting(one[name]) if name in one else "" for one in configurations]
    return _grid(columns)


def _grid(columns: Mapping[str, Sequence[str]]) -> Grid:
    return Grid(tuple(columns), tuple(zip(*columns.values(), strict=True)))


def _trials(row: Ranked) -> str:
    numbers = sorted(trial.trial for trial in row.trials)
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]}-{numbers[-1]}"
    return ",".join(map(str, numbers))


def _status(row: Ranked) -> str:
    """Return the status; of repeats with different ones, how many have which."""
    counts: dict[str, int] = {}
    for trial in row.trials:
        counts[trial.status] = counts.get(trial.status, 0) + 1
    alike = list(counts) == [row.status]
    return row.status.value if alike else _counts(counts)


def _parts(row: Ranked) -> str:
    """Into how many parts batches were cut that did not fit into memory: batch statistics are those of a part."""
    return ", ".join(str(count) for count in sorted({trial.accumulate or 1 for trial in row.trials} - {1}))


def _counts(counts: Mapping[str, int]) -> str:
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
        found.metric: [_mean_or_nothing(row.mean) for row in rows],
        "in the search": [score(row.selected) for row in rows],
    }
    for name in dict.fromkeys(name for row in rows for name in row.tested):
        columns[f"test.{name}"] = [_mean_or_nothing(row.tested.get(name)) for row in rows]
    for name in varying([row.params for row in rows]):
        cells = [setting(row.params[name]) if name in row.params else "" for row in rows]
        columns[f"param.{name}" if name in columns else name] = cells
    return Grid(tuple(columns), tuple(zip(*columns.values(), strict=True)))


def _mean_or_nothing(value: float | None) -> str:
    return "" if value is None else score(value)
