"""A ranking as columns: a row for each configuration, for frames and files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sweep.analysis.ranking import Ranked, Ranking

_SAME = (
    *("rank", "sweep", "status", "completed", "epochs", "front"),
    *("verdict", "difference", "difference_low", "difference_high", "p", "p_holm", "p_any", "p_error"),
    *("more", "undecided"),
)
_TYPES = {
    **dict.fromkeys(("rank", "epochs", "front", "more"), "int"),
    **dict.fromkeys(("sweep", "status", "verdict", "undecided"), "text"),
}


@dataclass(frozen=True, slots=True)
class Columns:
    """Values by name; those of parameters may be of any type."""

    params: Mapping[str, Sequence[object]]
    numbers: Mapping[str, Sequence[float | None]]
    integers: Mapping[str, Sequence[int | None]]
    texts: Mapping[str, Sequence[str | None]]
    names: tuple[str, ...]  # of all, in their order


def columns(ranking: Ranking) -> Columns:
    """The rows of a ranking by column, as results/README.md lists them."""
    rows = ranking.rows
    params = dict.fromkeys(name for row in rows for name in row.params)
    numbers: dict[str, Sequence[float | None]] = {}
    integers: dict[str, Sequence[int | None]] = {}
    texts: dict[str, Sequence[str | None]] = {"trials": [_trials(row) for row in rows]}
    for name in _SAME:
        values = [getattr(row, name) for row in rows]
        match _TYPES.get(name):
            case "int":
                integers[name] = values
            case "text":
                texts[name] = [str(value) for value in values]
            case _:
                numbers[name] = values
    integers["seeds"] = [len(row.scores[0].values) if row.scores else 0 for row in rows]
    scores = []
    for at, (metric, _) in enumerate(ranking.objectives):
        known = [row.scores[at] if row.scores else None for row in rows]
        numbers[f"mean.{metric}"] = [None if one is None else one.mean for one in known]
        numbers[f"std.{metric}"] = [None if one is None else one.std for one in known]
        numbers[f"low.{metric}"] = [one.interval[0] if one and one.interval else None for one in known]
        numbers[f"high.{metric}"] = [one.interval[1] if one and one.interval else None for one in known]
        scores += [f"{word}.{metric}" for word in ("mean", "std", "low", "high")]
    by_param = {f"param.{name}": [row.params.get(name) for row in rows] for name in params}
    names = (*_SAME[:2], "trials", *_SAME[2:6], *by_param, "seeds", *scores, *_SAME[6:])
    return Columns(by_param, numbers, integers, texts, names)


def _trials(row: Ranked) -> str:
    return " ".join(str(number) for number in sorted(trial.trial for trial in row.trials))
