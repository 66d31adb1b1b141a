"""Formats loaded sweeps for display: as a line at Python's prompt, as a table in a notebook."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape

from sweep.analysis import Sweep, verdict
from sweep.analysis.ranking import Ranking, rank
from sweep.errors import InputError, StoreError
from sweep.render.tables import counted_by, ranking_grid, remove_empty_columns
from sweep.text import duration, format_settings, printable, score

ROWS = 5


def line(sweeps: Sequence[Sweep]) -> str:
    """Return one line per sweep, with its state, counts, duration and best trial, joined by line feeds.

    An example is ``<sweep wine: finished; 12 completed; 41.3 s; best val_accuracy 0.9888, trial 3 units=64>``. The best
    trial is left out if the sweep cannot be ranked or no trial has completed. Terminal escape sequences are removed.
    """
    return printable(
        "\n".join(f"<sweep {one.name}: {'; '.join(_list_facts(one))}>" for one in sweeps)
    )


def html(sweeps: Sequence[Sweep]) -> str:
    """Format the state and the best trial of each sweep, and the first rows of the ranking, as HTML.

    All sweeps share one ranking. It is left out if they cannot be ranked together, such as with different objectives.
    """
    heads = "".join(
        f"<div><b>{_escape_text(one.name)}</b>: {_escape_text('; '.join(_list_facts(one)))}</div>"
        for one in sweeps
    )
    return f"<div>{heads}{''.join(_format_ranking(sweeps))}</div>"


def _list_facts(one: Sweep) -> Iterator[str]:
    """Yield the state, the counts, the duration and the best trial of a sweep, as far as there are any.

    The best trial is left out if the sweep cannot be ranked or no trial has completed. It has the mean scores of its
    configuration, the parameters that vary in the sweep and, if the configuration was repeated, the verdict on that. Of
    several configurations on the Pareto front, their number is said and the first one is shown.
    """
    yield one.state
    yield counted_by(Counter(trial.status for trial in one.trials)) or "no trials yet"
    if one.history.active_s:
        yield duration(one.history.active_s)
    ranking = _rank_if_possible([one])
    if ranking is None or not ranking.best:
        return
    best = ranking.best[0]  # a configuration with all its trials
    scores = ", ".join(f"{each.metric} {score(each.mean)}" for each in best.scores)
    if len(ranking.best) > 1:
        what = f"{len(ranking.best)} on the Pareto front, one of them"
    else:
        what = "best"
    settings = format_settings(best.params, ranking.varying)
    fact = f"{what} {scores}, trial {best.trials[0].trial} {settings}".rstrip()
    if len(best.trials) > 1:
        fact += f" ({verdict.describe_verdict(best, ranking)})"
    yield fact


def _rank_if_possible(sweeps: Sequence[Sweep]) -> Ranking | None:
    """Return the common ranking of sweeps; None if objectives differ or a sweep.json cannot be read."""
    try:
        return rank(sweeps)
    except (InputError, StoreError):  # such as for sweeps with different objectives
        return None


def _format_ranking(sweeps: Sequence[Sweep]) -> Iterator[str]:
    """Yield the parts of an HTML table with the first five rows of the ranking, without columns that are empty.

    A line with the number of further rows follows, if there are any. Yields nothing if the sweeps cannot be ranked
    together or have no trials.
    """
    ranking = _rank_if_possible(sweeps)
    if ranking is None or not ranking.rows:
        return
    grid = remove_empty_columns(ranking_grid(ranking, ROWS))
    yield "<table><thead><tr>"
    yield from (f"<th>{_escape_text(name)}</th>" for name in grid.columns)
    yield "</tr></thead><tbody>"
    for row in grid.rows:
        yield f"<tr>{''.join(f'<td>{_escape_text(cell)}</td>' for cell in row)}</tr>"
    yield "</tbody></table>"
    if len(ranking.rows) > ROWS:
        yield f"<div>and {len(ranking.rows) - ROWS} more: <code>.ranking()</code>, <code>.trials</code></div>"


def _escape_text(text: str) -> str:
    return escape(printable(text))
