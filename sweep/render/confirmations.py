"""The finalists of a sweep as a table."""

from __future__ import annotations

from rich.console import Console

from sweep.analysis.confirmation import Confirmation
from sweep.analysis.ranking import Ranking
from sweep.analysis.trials import varying
from sweep.render.figures import score, setting
from sweep.render.tables import Grid, show


def show_finalists(ranking: Ranking, target: Console) -> None:
    """Print who was given fresh seeds, what was promised and what they kept; nothing where there were none."""
    if ranking.confirmed is not None:
        target.print()
        show(grid(ranking.confirmed), target)


def grid(found: Confirmation) -> Grid:
    """The finalists, the best first."""
    rows = found.rows
    columns: dict[str, list[str]] = {
        "place": [str(row.place) for row in rows],
        "finalist": ["baseline" if row.is_baseline else "" for row in rows],
        "verdict": [row.verdict for row in rows],
        "fresh seeds": [str(row.seeds) for row in rows],
        found.metric: [_number(row.mean) for row in rows],
        "in the search": [score(row.selected) for row in rows],
    }
    for name in dict.fromkeys(name for row in rows for name in row.tested):
        columns[f"test.{name}"] = [_number(row.tested.get(name)) for row in rows]
    for name in varying([row.params for row in rows]):
        cells = [setting(row.params[name]) if name in row.params else "" for row in rows]
        columns[f"param.{name}" if name in columns else name] = cells
    return Grid(tuple(columns), tuple(zip(*columns.values(), strict=True)))


def _number(value: float | None) -> str:
    return "" if value is None else score(value)
