"""Which configuration is best, in a sentence."""

from __future__ import annotations

from sweep.analysis.ranking import Ranked, Ranking, Score


def sentence(ranking: Ranking) -> str:
    """What the ranking allows to say of its first configuration; "" where none has completed."""
    rows = [row for row in ranking.rows if row.completed and row.scores]
    if not rows:
        return ""
    if len(ranking.objectives) > 1:
        front = len(ranking.best)
        return (
            f"{front} of {len(rows)} configurations are on the Pareto front: none of them is best in every objective."
        )
    first = rows[0]
    said = f"trial {first.trials[0].trial} has the best {first.scores[0].metric}, {_words(first.scores[0])}"
    if len(rows) == 1:
        return f"{said[0].upper()}{said[1:]}; no other configuration has completed."
    return f"{said[0].upper()}{said[1:]}, of {len(rows)} configurations; {_against(first, rows[1])}."


def _words(score: Score) -> str:
    if score.interval is None:
        return f"{score.mean:.6g}"
    low, high = score.interval
    return f"{score.mean:.6g} on average over {len(score.values)} seeds (95 % interval {low:.6g} to {high:.6g})"


def _against(first: Ranked, second: Ranked) -> str:
    one, other = first.scores[0], second.scores[0]
    gap = f"the next one, trial {second.trials[0].trial}, is {abs(one.mean - other.mean):.3g} behind"
    if one.interval is None or other.interval is None:
        return f"{gap}, and each was trained once: another seed may change their order"
    apart = one.interval[0] > other.interval[1] or one.interval[1] < other.interval[0]
    return f"{gap}, and their intervals {'do not overlap' if apart else 'overlap: it may be as good'}"
