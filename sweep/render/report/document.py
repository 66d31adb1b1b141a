"""The numbers of a report, as the JSON that its scripts read."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from sweep.analysis.account import Account, importance
from sweep.analysis.ranking import Ranking
from sweep.analysis.worth import Worth
from sweep.events import Status, Value
from sweep.render.figures import setting
from sweep.render.tables import filled, ranking_grid

SLICES = 24  # parameters drawn at most, those that matter most
AXES = 10  # of parallel coordinates at first; the reader may add others

_STATUSES = [status.value for status in Status]


def document(accounts: Sequence[Account], ranking: Ranking, worths: Sequence[Worth] = ()) -> dict[str, object]:
    """What `sweep/render/report/data.js` reads: columns by trial, of all sweeps one after the other."""
    trials = [trial for account in accounts for trial in account.sweep.trials]
    place = {id(trial): at for at, trial in enumerate(trials)}
    rank = [0] * len(trials)
    for row in ranking.rows:
        for trial in row.trials:
            rank[place[id(trial)]] = row.rank
    reasons = list(dict.fromkeys(["", *(trial.status_reason for trial in trials)]))
    number = {reason: at for at, reason in enumerate(reasons)}
    shares = importance(accounts, ranking.varying) if len(ranking.varying) > 1 else {}  # one has all of it
    first = shares.get(ranking.objectives[0][0], [])
    mattering = [one.param for one in first] or list(ranking.varying)
    grid = filled(ranking_grid(ranking))
    return {
        "sweeps": [{"name": one.sweep.folder.name, "trials": len(one.sweep.trials)} for one in accounts],
        "statuses": _STATUSES,
        "reasons": reasons,
        "most": {"slices": SLICES, "axes": AXES},
        "trials": {
            "sweep": [at for at, account in enumerate(accounts) for _ in account.sweep.trials],
            "trial": [trial.trial for trial in trials],
            "status": [_STATUSES.index(trial.status) for trial in trials],
            "reason": [number[trial.status_reason] for trial in trials],
            "epochs": [trial.epochs for trial in trials],
            "rank": rank,
        },
        "objectives": [
            _objective(metric, goal, [trial.metrics.get(metric) for trial in trials])
            for metric, goal in ranking.objectives
        ],
        "params": [_param(name, [trial.params for trial in trials], accounts) for name in mattering],
        "curves": _curves(accounts),
        "table": {
            "columns": grid.columns,
            "rows": grid.rows,
            "trials": [[place[id(trial)] for trial in row.trials] for row in ranking.rows],
        },
        "importance": [
            {"metric": metric, "rows": [_importance(one.param, one.share, one.low, one.high) for one in rows[:SLICES]]}
            for metric, rows in shares.items()
            if rows
        ],
        "timeline": _timeline(accounts),
        "budgets": _budgets(accounts, worths),
    }


def as_json(content: object) -> str:
    """JSON that can stand in a ``<script>``: ASCII, and nothing in it that HTML knows."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _budgets(accounts: Sequence[Account], worths: Sequence[Worth]) -> list[dict[str, object]]:
    """The best score by what was spent, by unit: of each sweep its place and its lines."""
    place = {one.sweep.folder.name: at for at, one in enumerate(accounts)}
    units = dict.fromkeys(found.unit for one in worths for found in one.budgets)
    return [
        {
            "unit": unit,
            "sweeps": [
                {
                    "sweep": place[one.sweep],
                    **{
                        name: [_number(value) for value in getattr(found, name)]
                        for name in ("budgets", "found", "expected", "low", "high")
                    },
                }
                for one in worths
                for found in one.budgets
                if found.unit == unit
            ],
        }
        for unit in units
    ]


def _objective(metric: str, goal: str, values: Sequence[float | None]) -> dict[str, object]:
    known = [value for value in values if value is not None and math.isfinite(value)]
    # Losses fall by powers of ten; accuracies do not rise so.
    log = bool(known) and goal == "minimize" and min(known) > 0 and max(known) / min(known) >= 100
    return {"name": metric, "goal": goal, "log": log, "values": list(map(_number, values))}


def _param(name: str, params: Sequence[Mapping[str, Value]], accounts: Sequence[Account]) -> dict[str, object]:
    """A number's values, or the codes of a choice (-1 where a trial has no such parameter) and what they mean."""
    values = [one[name] for one in params if name in one]
    declared = next((found for one in accounts if isinstance(found := one.info.parameters.get(name), dict)), {})
    numbers = [float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v)]
    if len(numbers) == len(values):
        log = min(numbers) > 0 and max(numbers) / min(numbers) >= 10 and _is_log(declared, sorted(numbers))
        listed = declared.get("distribution", "categorical") == "categorical"
        return {"name": name, "log": log, "listed": listed, "values": [_number(one.get(name)) for one in params]}
    choices = declared.get("values")
    labels = list(dict.fromkeys(map(setting, [*(choices if isinstance(choices, list) else []), *values])))
    labels = [label for label in labels if label in set(map(setting, values))]
    code = {label: at for at, label in enumerate(labels)}
    return {"name": name, "labels": labels, "values": [code[setting(p[name])] if name in p else -1 for p in params]}


def _is_log(declared: Mapping[str, object], ordered: Sequence[float]) -> bool:
    """By its distribution; what is chosen from a list, or not declared, by whether most lies at the low end."""
    distribution = str(declared.get("distribution", "categorical"))
    if distribution not in ("categorical", "constant"):
        return "log" in distribution
    median = ordered[len(ordered) // 2]
    return median - ordered[0] < 0.4 * (ordered[-1] - ordered[0])


def _curves(accounts: Sequence[Account]) -> dict[str, object]:
    curves = [account.curves for account in accounts]
    offsets = np.cumsum([0, *(len(one.epochs) for one in curves)])
    starts = [one.starts[:-1] + offset for one, offset in zip(curves, offsets, strict=False)]
    names = dict.fromkeys(name for one in curves for name in one.values)
    return {
        "starts": _packed(np.concatenate([*starts, offsets[-1:]]).astype(np.int32)),
        "epochs": _packed(np.concatenate([one.epochs for one in curves])),
        "metrics": [
            {
                "name": name,
                "values": _packed(
                    np.concatenate(
                        [one.values.get(name, np.full(len(one.epochs), np.nan, dtype=np.float32)) for one in curves]
                    )
                ),
            }
            for name in names
        ],
    }


def _timeline(accounts: Sequence[Account]) -> dict[str, object]:
    """All lanes, in seconds since the start of their sweep."""
    lanes: list[str] = []
    spans: dict[str, list[float]] = {"row": [], "lane": [], "begin": [], "end": []}
    pauses: list[tuple[float, float]] = []
    offset, ends = 0, [0.0]
    for account in accounts:
        found, history = account.timeline, account.sweep.history
        start = history.started or 0.0
        named = f"{account.sweep.folder.name}: " if len(accounts) > 1 else ""
        for span in found.spans:
            spans["row"].append(offset + span.row)
            spans["lane"].append(len(lanes) + span.lane)
            spans["begin"].append(round(max(span.begin - start, 0.0), 3))
            spans["end"].append(round(span.end - start, 3))
        lanes += [named + lane for lane in found.lanes]
        ends += [max(span.end for span in found.spans) - start] if found.spans else []
        pauses += [(begin - start, end - start) for begin, end in found.pauses] if len(accounts) == 1 else []
        offset += len(account.sweep.trials)
    return {"lanes": lanes, "spans": spans, "pauses": pauses, "ends": ends}


def _importance(param: str, share: float, low: float, high: float) -> dict[str, object]:
    return {"param": param, "share": round(share, 4), "low": round(low, 4), "high": round(high, 4)}


def _packed(numbers: npt.NDArray[np.generic]) -> str:
    return base64.b64encode(numbers.astype(numbers.dtype.newbyteorder("<")).tobytes()).decode("ascii")


def _number(value: object) -> float | None:
    """Seven digits are what is seen; JSON knows no NaN."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value if isinstance(value, int) else float(f"{value:.7g}")
