"""The answer of a sweep in a sentence or two: what came out best, and how far that can be trusted."""

from __future__ import annotations

from collections.abc import Sequence

from sweep.analysis.ranking import Ranked, Ranking
from sweep.errors import printable
from sweep.events import Value

NAMED = 8  # parameters of a configuration that are written out


def sentence(ranking: Ranking, *, running: bool = False) -> str:
    """What to say of a ranking, as plain text.

    It claims no more than the ranking holds: of one training each nothing is known about luck, and of two
    configurations whose intervals overlap neither is called better.
    """
    if not ranking.rows:
        return "No trial has begun, so there is no answer yet."
    if not ranking.best:
        return f"No trial has completed{' yet' if running else ''}, so there is no answer."
    begin = "It still runs, and this may change. " if running else ""
    several = len(ranking.objectives) > 1 and ranking.best[0].front == 1
    return begin + (_front(ranking) if several else _single(ranking))


def _front(ranking: Ranking) -> str:
    rows, of = ranking.best, sum(bool(row.completed) for row in ranking.rows)
    names = " and ".join(metric for metric, _ in ranking.objectives)
    if len(rows) == 1:
        return f"{_named(rows[0], ranking)} is best in {names} at once, of {of} configurations that completed."
    ends = []
    for at, (metric, goal) in enumerate(ranking.objectives):
        best = (max if goal == "maximize" else min)(rows, key=lambda row: row.scores[at].mean)
        ends.append(f"{metric} {_score(best.scores[at].mean)} with {_named(best, ranking)}")
    return (
        f"{len(rows)} of the {of} configurations that completed are on the Pareto front of {names}: no other is better "
        f"in all of these, so the choice between them is yours. At its ends: {'; '.join(ends)}."
    )


def _single(ranking: Ranking) -> str:
    best = ranking.best[0]
    score = best.scores[0]
    repeats = len(score.values)
    reached = f"The best was {_named(best, ranking)} with {score.metric} {_score(score.mean)}"
    if repeats > 1:
        reached += f" on average over {repeats} repeats{_interval(best)}"
    if best.completed < 1:
        reached += ", although not all of its repeats completed"
    others = [row for row in ranking.rows if row is not best and row.completed and row.scores]
    return f"{reached}. {_beside(best, others, ranking)}"


def _beside(best: Ranked, others: Sequence[Ranked], ranking: Ranking) -> str:
    """How the best stands to the next one."""
    if not others:
        return "No other configuration completed to compare it with."
    score, follower = best.scores[0], others[0]
    next_score = follower.scores[0]
    equal = sum(row.scores[0].mean == score.mean for row in others)
    if equal:
        told = f"{equal} other configuration{'s' * (equal > 1)} reached the same score"
    else:
        gap = abs(score.mean - next_score.mean)
        told = f"The next, {_named(follower, ranking)}, is {gap:.2g} behind{_interval(follower, repeats=True)}"
    if len(score.values) < 2 or len(next_score.values) < 2:
        return (
            f"{told}. With one seed it cannot be told from luck; repeats: 3 in the sweep file trains each three times."
        )
    if equal:
        return f"{told}: the repeats do not tell them apart."
    low, high = score.interval or (score.mean, score.mean)
    tied = [row for row in others if row.scores[0].interval and _overlap((low, high), row.scores[0].interval)]
    if tied:
        more = f" ({len(tied)} configurations in all)" if len(tied) > 1 else ""
        return f"{told}. Its interval overlaps that of the best{more}: the repeats do not tell them apart."
    return f"{told}, and the intervals do not overlap."


def _overlap(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


def _named(row: Ranked, ranking: Ranking) -> str:
    parts = [f"{name}={_setting(row.params[name])}" for name in ranking.varying if name in row.params]
    more = f" and {len(parts) - NAMED} more parameters" if len(parts) > NAMED else ""
    told = ", ".join(parts[:NAMED]) + more
    trials = sorted(trial.trial for trial in row.trials)
    together = len(trials) > 2 and trials[-1] - trials[0] == len(trials) - 1
    numbers = f"{trials[0]} to {trials[-1]}" if together else ", ".join(map(str, trials))
    where = f"trial {numbers}" if len(trials) == 1 else f"trials {numbers}"
    if len({one.sweep for one in ranking.rows}) > 1:
        where = f"{where} of {row.sweep}"
    return printable(f"{told} ({where})") if told else f"the only configuration ({where})"


def _interval(row: Ranked, *, repeats: bool = False) -> str:
    interval = row.scores[0].interval
    if interval is None:
        return ""
    named = f"{len(row.scores[0].values)} repeats, " if repeats else ""
    return f" ({named}95 % interval {_score(interval[0])} to {_score(interval[1])})"


def _score(value: float) -> str:
    return f"{value:#.4g}" if 1e-4 <= abs(value) < 1e4 else f"{value:.4g}"


def _setting(value: Value) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
