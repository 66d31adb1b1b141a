"""What fresh seeds have confirmed, in sentences: what beats the baseline, which is best, how much of it was luck."""

from __future__ import annotations

from sweep.analysis.confirmation import Confirmation, Confirmed
from sweep.analysis.race import BROKEN
from sweep.space.objectives import objective


def sentences(found: Confirmation, named: str) -> list[str]:
    """The answer: what beats the baseline and by how much, which is best, and how much of its score was luck."""
    told = [_against_baseline(found)] if found.baseline else []
    told.append(_standing(found, named))
    if luck := _luck(found):
        told.append(luck)
    return told


def _against_baseline(found: Confirmation) -> str:
    """Whether the best one that the search found beats the author's own configuration."""
    baseline, best = found.baseline, found.best
    if baseline is None or baseline.mean is None:
        return "The baseline has no fresh seeds yet."
    if baseline is best:
        others = [row for row in found.rows if row is not best and row.difference is not None]
        if not others:
            return "No configuration of the search completed its fresh seeds: nothing is known to beat the baseline."
        near = min(others, key=lambda row: abs(row.difference or 0.0), default=None)
        behind = f": the nearest is {_gap(near)} behind" if near else ""
        return f"Nothing that the search found beats the baseline{behind}."
    if baseline.difference is None:
        return f"The baseline {baseline.reason}, and cannot be compared."
    gap = f"{_gap(baseline)} over {baseline.seeds} fresh seeds"
    if baseline.verdict == "worse":
        return f"The best configuration beats the baseline by {gap}."
    return f"The best configuration does not beat the baseline: it is ahead by {gap}, which may be luck."


def _standing(found: Confirmation, named: str) -> str:
    left = [row for row in found.rows if not row.reason]
    why = f" ({found.over})" if found.over else ""
    if not left:
        return f"No finalist is left{why}."
    broken = sum(row.reason == BROKEN for row in found.rows)
    if broken:
        named_so = f"{broken} finalist{'s' * (broken > 1)} did not complete with a fresh seed"
        why = f"{why}; {named_so}"
    told = len(found.rows) - 1 - broken
    if found.decided and told:
        return f"Best is {named}, told apart from {told} other finalist{'s' * (told > 1)}{why}."
    if found.decided:
        return f"Left is {named}{why}."
    many = f"{len(left)} of {len(found.rows)} finalists could be the best"
    going = "" if found.over else ", and the race goes on"
    return f"First is {named}, but {many}{why}{going}."


def _luck(found: Confirmation) -> str:
    best = found.best
    if best.mean is None:
        return ""
    told = f"Its {found.metric} was {_score(best.selected)} in the search and is {_score(best.mean)} with fresh seeds"
    if found.metric in best.tested or _bare(found.metric) in best.tested:
        tested = best.tested.get(_bare(found.metric), best.tested.get(found.metric, 0.0))
        told += f", {_score(tested)} on the test data"
    gap = objective(found.metric, found.goal).to_loss(best.mean - best.selected)
    if abs(gap) < 1e-9 * max(abs(best.mean), 1.0):
        return f"{told}: the search promised no more."
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


def _score(value: float) -> str:
    return f"{value:#.4g}" if 1e-4 <= abs(value) < 1e4 else f"{value:.4g}"
