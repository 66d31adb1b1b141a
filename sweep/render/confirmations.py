"""What fresh seeds have confirmed, in lines and as a table."""

from __future__ import annotations

from sweep.analysis.confirmation import Confirmation, Confirmed
from sweep.analysis.trials import varying
from sweep.render.figures import score, setting
from sweep.render.tables import Grid


def sentences(found: Confirmation) -> list[str]:
    """The answer: what beats the baseline and by how much, which is best, and how much of its score was luck."""
    told = [_against_baseline(found)] if found.baseline else []
    told.append(_standing(found))
    if luck := _luck(found):
        told.append(luck)
    return told


def grid(found: Confirmation) -> Grid:
    """The finalists, the best first."""
    rows = found.rows
    columns: dict[str, list[str]] = {
        "place": [str(row.place) for row in rows],
        "finalist": ["baseline" if row.is_baseline else "" for row in rows],
        "verdict": [row.verdict for row in rows],
        "fresh seeds": [str(row.seeds) for row in rows],
        found.metric: [_number(row.mean) for row in rows],
        "behind": [_number(None if row.difference is None else abs(row.difference)) for row in rows],
        "95 %": [_interval(row) for row in rows],
        "in the search": [score(row.selected) for row in rows],
    }
    for name in dict.fromkeys(name for row in rows for name in row.tested):
        columns[f"test.{name}"] = [_number(row.tested.get(name)) for row in rows]
    for name in varying([row.params for row in rows]):
        cells = [setting(row.params[name]) if name in row.params else "" for row in rows]
        columns[f"param.{name}" if name in columns else name] = cells
    return Grid(tuple(columns), tuple(zip(*columns.values(), strict=True)))


def _against_baseline(found: Confirmation) -> str:
    """Whether the best one that the search found beats the author's own configuration."""
    baseline, best = found.baseline, found.best
    if baseline is None or baseline.mean is None:
        return "The baseline has no fresh seeds yet."
    if baseline is best:
        others = [row for row in found.rows if row is not best and row.difference is not None]
        near = min(others, key=lambda row: abs(row.difference or 0.0), default=None)
        behind = f": the nearest is {_gap(near)} behind" if near else ""
        return f"Nothing that the search found beats the baseline{behind}."
    if baseline.difference is None:
        return f"The baseline {baseline.reason}, and cannot be compared."
    gap = f"{_gap(baseline)} over {baseline.seeds} fresh seeds"
    if baseline.verdict == "worse":
        return f"The best configuration beats the baseline by {gap}."
    return f"The best configuration does not beat the baseline: it is ahead by {gap}, which may be luck."


def _standing(found: Confirmation) -> str:
    left = [row for row in found.rows if not row.reason]
    ended = f" ({found.over})" if found.over else ""
    if not found.over:
        return f"The race goes on: {len(left)} of {len(found.rows)} finalists are left."
    if found.decided:
        return f"It is told apart from all other {len(found.rows) - 1} finalists{ended}."
    if not left:
        return f"No finalist is left{ended}."
    return f"{len(left)} of {len(found.rows)} finalists could be the best{ended}."


def _luck(found: Confirmation) -> str:
    best = found.best
    if best.mean is None:
        return ""
    told = f"Its {found.metric} was {score(best.selected)} in the search and is {score(best.mean)} with fresh seeds"
    if found.metric in best.tested or _bare(found.metric) in best.tested:
        tested = best.tested.get(_bare(found.metric), best.tested.get(found.metric, 0.0))
        told += f", {score(tested)} on the test data"
    gap = (best.selected - best.mean) * (1 if found.goal == "maximize" else -1)
    return f"{told}: the search was {abs(gap):.2g} too {'hopeful' if gap >= 0 else 'modest'}."


def _bare(metric: str) -> str:
    return metric.removeprefix("val_")


def _gap(row: Confirmed) -> str:
    """``0.012 (0.004 to 0.020)``, as what it lacks."""
    size = f"{abs(row.difference or 0.0):.2g}"
    if row.low is None or row.high is None:
        return size
    sign = -1 if (row.difference or 0.0) < 0 else 1
    low, high = sorted((sign * row.low, sign * row.high))
    return f"{size} ({low:.2g} to {high:.2g})"


def _interval(row: Confirmed) -> str:
    if row.low is None or row.high is None:
        return ""
    sign = -1 if (row.difference or 0.0) < 0 else 1
    low, high = sorted((sign * row.low, sign * row.high))
    return f"{low:.2g} to {high:.2g}"


def _number(value: float | None) -> str:
    return "" if value is None else score(value)
