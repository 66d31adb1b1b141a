"""Collects the data of the report: the JSON inside the page, from which its scripts draw charts and the table."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from sweep.analysis.ranking import Ranking
from sweep.analysis.report_data import (
    EXAMPLES,
    NOT_KNOWN,
    RUNNING_NOW,
    TRAINING_TIME,
    Curves,
    ReportData,
    collect_domains,
    list_importances,
)
from sweep.analysis.search_efficiency import SearchEfficiency
from sweep.analysis.sweep_rows import Sweep
from sweep.events import Status, Value, is_number
from sweep.render.tables import ranking_grid, remove_empty_columns
from sweep.space.domains import Domain, Range, is_log, list_choices
from sweep.spec.validation import flow
from sweep.text import format_setting

if TYPE_CHECKING:
    from sweep.searchers.optuna_study import Importance

SLICES = 24  # the maximum number of parameters that are plotted, the most important ones
AXES = 10  # parallel coordinates that are shown at first; the reader can add others

_NO_LANES: Mapping[str, object] = {
    "lanes": [],
    "spans": {"row": [], "lane": [], "begin": [], "end": []},
    "open": [],
    "pauses": [],
    "ends": [],
}

_STATUSES = [status.value for status in Status]


def report_document(
    accounts: Sequence[ReportData],
    ranking: Ranking,
    worths: Sequence[SearchEfficiency] = (),
    *,
    names_nodes: bool,
) -> dict[str, object]:
    """Return the data that `sweep/render/report/data.js` reads.

    ``accounts`` are the sweeps of ``ranking``, which ranks them together, and ``worths`` the efficiencies of those for
    which one is known. ``names_nodes`` is whether the timeline has the names of nodes, which a report that is sent to
    others must not have; otherwise they are numbered. Columns of trials have one entry per trial: the trials of the
    first sweep, then those of the second, and so on. Other parts name a trial by its index among these, as do the
    ``trials`` of each row of the table.
    """
    trials = [trial for account in accounts for trial in account.sweep.trials]
    # by object, since each sweep has a trial 0
    index_by_id = {id(trial): index for index, trial in enumerate(trials)}
    rank: list[int | None] = [None] * len(trials)
    table_trials = []
    for row in ranking.rows:
        indices = [index_by_id[id(trial)] for trial in row.trials]
        table_trials.append(indices)
        for index in indices:
            rank[index] = row.rank if row.has_rank else None
    reasons = list(dict.fromkeys(["", *(trial.status_reason for trial in trials)]))
    index_of_reason = {reason: index for index, reason in enumerate(reasons)}
    # a single parameter has all the importance, which says nothing
    if len(ranking.varying) > 1:
        shares = list_importances(accounts, ranking.varying)
    else:
        shares = {}
    first_metric, _ = ranking.objectives[0]
    by_importance = [one.param for one in shares.get(first_metric, [])]
    # those whose importance is not known come last
    param_names = list(dict.fromkeys([*by_importance, *ranking.varying]))
    grid = remove_empty_columns(ranking_grid(ranking, whole_notes=True))
    domains = collect_domains(accounts)
    objectives = []
    for metric, goal in ranking.objectives:
        values = [trial.metrics.get(metric) for trial in trials]
        objectives.append(_encode_objective(metric, goal, values))
    all_params = [trial.params for trial in trials]
    importances = []
    for metric, shares_of_metric in shares.items():
        if shares_of_metric:
            rows = []
            for one in shares_of_metric[:SLICES]:
                rows.append(_encode_importance(one))
            importances.append({"metric": metric, "rows": rows})
    return {
        "sweeps": [{"name": one.sweep.name, "trials": len(one.sweep.trials)} for one in accounts],
        "statuses": _STATUSES,
        "reasons": reasons,
        "most": {"slices": SLICES, "axes": AXES},
        "trials": {
            "sweep": [
                index for index, account in enumerate(accounts) for _ in account.sweep.trials
            ],
            "trial": [trial.trial for trial in trials],
            "status": [_STATUSES.index(trial.status) for trial in trials],
            "reason": [index_of_reason[trial.status_reason] for trial in trials],
            "outcome": [trial.outcome for trial in trials],
            "epochs": [trial.epochs for trial in trials],
            "rank": rank,
        },
        "objectives": objectives,
        "params": [_encode_param(name, all_params, domains.get(name)) for name in param_names],
        "curves": _encode_curves([account.curves for account in accounts]),
        "table": {
            "columns": grid.columns,
            "rows": grid.rows,
            "trials": table_trials,
        },
        "importance": importances,
        "timeline": _collect_timeline(accounts, names_nodes=names_nodes),
        "budgets": _collect_budget_lines(accounts, worths),
    }


def trials_document(sweep: Sweep, curves: Curves) -> dict[str, object]:
    """Return a document in the form of `report_document` with the trials of ``sweep`` and their curves, and no more.

    It has all keys; parameters, table, importance, timeline and budgets are empty, and ranks are None.
    """
    trials = sweep.trials
    objectives = []
    for metric, goal in sweep.objectives:
        values = [trial.metrics.get(metric) for trial in trials]
        objectives.append(_encode_objective(metric, goal, values))
    return {
        "sweeps": [{"name": sweep.name, "trials": len(trials)}],
        "statuses": _STATUSES,
        "reasons": [trial.status_reason for trial in trials],
        "most": {"slices": 0, "axes": 0},
        "trials": {
            "sweep": [0] * len(trials),
            "trial": [trial.trial for trial in trials],
            "status": [_STATUSES.index(trial.status) for trial in trials],
            "reason": list(range(len(trials))),
            "outcome": [trial.outcome for trial in trials],
            "epochs": [trial.epochs for trial in trials],
            "rank": [None] * len(trials),
        },
        "objectives": objectives,
        "params": [],
        "curves": _encode_curves([curves]),
        "table": {"columns": [], "rows": [], "trials": []},
        "importance": [],
        "timeline": {**_NO_LANES, "start": None},
        "budgets": [],
    }


def as_json(content: object) -> str:
    """Return JSON that is safe inside a ``<script>``: ASCII, with ``<``, ``>`` and ``&`` escaped.

    Raises ValueError for NaN and infinities, and TypeError for values that JSON does not have.
    """
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _collect_budget_lines(
    accounts: Sequence[ReportData], worths: Sequence[SearchEfficiency]
) -> list[dict[str, object]]:
    """Return, for each unit of budget, such as epochs, the curves of the best score over the budget spent.

    Each entry has the ``unit`` and, as ``sweeps``, the curves of `_list_budget_lines`.
    """
    index_by_sweep = {}
    for index, account in enumerate(accounts):
        index_by_sweep[account.sweep.name] = index
    units = dict.fromkeys(curve.unit for one in worths for curve in one.budgets)
    return [
        {"unit": unit, "sweeps": _list_budget_lines(worths, unit, index_by_sweep)} for unit in units
    ]


def _list_budget_lines(
    worths: Sequence[SearchEfficiency], unit: str, index_by_sweep: Mapping[str, int]
) -> list[dict[str, object]]:
    """Return the curves of the sweeps in ``worths`` for one unit of budget, with numbers of seven digits.

    Each has, under ``sweep``, the index of its sweep, which ``index_by_sweep`` has by name, and five lists of the same
    length: the ``budgets``, the best score ``found`` with each, and the one ``expected`` of random orders, with its
    interval ``low`` and ``high``. A score that does not exist is None. Sweeps without a budget of this unit are left
    out.
    """
    lines = []
    for one in worths:
        for curve in one.budgets:
            if curve.unit != unit:
                continue
            line: dict[str, object] = {"sweep": index_by_sweep[one.sweep]}
            for name in ("budgets", "found", "expected", "low", "high"):
                line[name] = [_round_number(value) for value in getattr(curve, name)]
            lines.append(line)
    return lines


def _encode_objective(metric: str, goal: str, values: Sequence[float | None]) -> dict[str, object]:
    """Return name, goal and rounded values of an objective, and whether to draw it on a log scale.

    The keys are ``name``, ``goal``, ``values`` and ``log``; values that are absent, NaN or infinite become None. The
    scale is logarithmic if the objective is minimized and its finite values are positive and span at least a factor of
    100.
    """
    finite = []
    for value in values:
        if value is not None and math.isfinite(value):
            finite.append(value)
    # A loss may span powers of ten; an accuracy does not.
    spans_powers = bool(finite) and min(finite) > 0 and max(finite) / min(finite) >= 100
    log = goal == "minimize" and spans_powers
    return {"name": metric, "goal": goal, "log": log, "values": list(map(_round_number, values))}


def _encode_param(
    name: str, params: Sequence[Mapping[str, Value]], domain: Domain | None
) -> dict[str, object]:
    """Return a parameter for the plots: the number of each trial or, if it is not numeric, labels and their indices.

    ``params`` are the parameters of each trial, at least one of which has this one, and ``domain`` is its domain, None
    if unknown. Numbers are exact, under ``values``; ``log`` says whether to draw them on a log scale, ``listed``
    whether their domain is a list, tied or unknown. Otherwise ``labels`` has each value as text, ``written`` as a
    command line takes it (for labels are rounded and have no quotes), and ``values`` the index of each trial's label. A
    trial without the parameter has the number None, or the index -1.
    """
    values = [one[name] for one in params if name in one]
    numbers = []
    for value in values:
        if is_number(value):
            numbers.append(float(value))
    if len(numbers) == len(values):
        log = is_log(domain, numbers)
        listed = not isinstance(domain, Range)
        # not rounded: the page adds configurations from them
        exact = [_find_number(one.get(name)) for one in params]
        return {"name": name, "log": log, "listed": listed, "values": exact}
    choices = () if domain is None else list_choices(domain) or ()
    written_by_label = {format_setting(value): flow(value) for value in values}
    # in the order of the domain, without choices that no trial has
    labels = []
    for label in dict.fromkeys(map(format_setting, [*choices, *values])):
        if label in written_by_label:
            labels.append(label)
    index_by_label = {label: index for index, label in enumerate(labels)}
    indices = []
    for one in params:
        indices.append(index_by_label[format_setting(one[name])] if name in one else -1)
    written = [written_by_label[label] for label in labels]
    return {"name": name, "labels": labels, "written": written, "values": indices}


def _encode_curves(curves: Sequence[Curves]) -> dict[str, object]:
    """Return the curves of all trials as one array per metric, with the row at which each trial starts.

    ``curves`` has those of each sweep. A metric that a sweep lacks is NaN for its trials. Under ``across`` are the
    training time and the examples up to each row, each only if all sweeps have it. The last entry of ``starts`` is the
    number of rows. Arrays are encoded as in `_encode_numbers`.
    """
    # the row at which each sweep starts, and last the number of all rows
    offsets = np.cumsum([0, *(len(one.epochs) for one in curves)])
    starts = []
    for one, offset in zip(curves, offsets, strict=False):
        # without the last entry, which is the sweep's number of rows
        starts.append(one.starts[:-1] + offset)
    names = dict.fromkeys(name for one in curves for name in one.values)
    metrics = []
    for name in names:
        values = []
        for one in curves:
            values.append(one.values.get(name, np.full(len(one.epochs), np.nan, dtype=np.float32)))
        metrics.append({"name": name, "values": _encode_numbers(np.concatenate(values))})
    across = []
    for name in (TRAINING_TIME, EXAMPLES):
        if all(name in one.across for one in curves):
            summed = np.concatenate([one.across[name] for one in curves])
            across.append({"name": name, "values": _encode_numbers(summed)})
    return {
        "across": across,
        "starts": _encode_numbers(np.concatenate([*starts, offsets[-1:]]).astype(np.int32)),
        "epochs": _encode_numbers(np.concatenate([one.epochs for one in curves])),
        "metrics": metrics,
    }


def _collect_timeline(accounts: Sequence[ReportData], *, names_nodes: bool) -> dict[str, object]:
    """Return the timeline of all sweeps: when which trial ran in which lane, in seconds since the start of its sweep.

    The keys of the result are:

    - ``lanes``: the names of the lanes of all sweeps, in which nodes have numbers unless ``names_nodes``.
    - ``spans``: the times in which trials ran, as four lists of equal length. ``row`` is the index of the trial among
      the trials of all sweeps, ``lane`` the index of the lane; ``begin`` and ``end`` are times.
    - ``open``: the indices of the spans whose trial is still running.
    - ``pauses``: (begin, end) of each pause of the sweep; empty for several sweeps.
    - ``ends``: first 0, then the end of each sweep that has spans. A live page replaces the first one by the present
      time, and draws up to the greatest.
    - ``start``: the start of the sweep, in seconds since 1970; None for several sweeps.
    """
    lanes: list[str] = []
    spans: dict[str, list[float]] = {"row": [], "lane": [], "begin": [], "end": []}
    open_spans: list[int] = []
    pauses: list[tuple[float, float]] = []
    ends = [0.0]
    trials_before = 0  # number of trials of the sweeps before this one
    node_numbers: dict[str, str] = {}  # see `_number_nodes`
    for account in accounts:
        timeline = account.timeline
        start = account.sweep.history.started or 0.0
        if len(accounts) > 1:
            prefix = f"{account.sweep.name}: "
        else:
            prefix = ""
        for span in timeline.spans:
            if span.open:
                open_spans.append(len(spans["row"]))
            spans["row"].append(trials_before + span.row)
            spans["lane"].append(len(lanes) + span.lane)
            spans["begin"].append(round(max(span.begin - start, 0.0), 3))
            spans["end"].append(round(span.end - start, 3))
        for lane, nodes in zip(timeline.lanes, timeline.nodes, strict=True):
            # the name of a lane begins with its nodes
            shown = nodes if names_nodes else _number_nodes(nodes, node_numbers)
            lanes.append(f"{prefix}{shown}{lane.removeprefix(nodes)}")
        if timeline.spans:
            ends.append(max(span.end for span in timeline.spans) - start)
        if len(accounts) == 1:
            for begin, end in timeline.pauses:
                pauses.append((begin - start, end - start))
        trials_before += len(account.sweep.trials)
    # A page that is live draws the open ones on, by the time since the start of its only sweep.
    only_start = accounts[0].sweep.history.started if len(accounts) == 1 else None
    return {
        "lanes": lanes,
        "spans": spans,
        "open": open_spans,
        "pauses": pauses,
        "ends": ends,
        "start": only_start,
    }


def _number_nodes(nodes: str, numbered: dict[str, str]) -> str:
    """Return names such as "node 1, node 2" for the ``nodes`` of a lane, such as "a,b"; unknown nodes keep their text.

    ``numbered`` has the new name of each node so far; the names of further nodes are added to it.
    """
    if nodes in (NOT_KNOWN, RUNNING_NOW):
        return nodes
    names = []
    for node in nodes.split(","):
        names.append(numbered.setdefault(node, f"node {len(numbered) + 1}"))
    return ", ".join(names)


def _encode_importance(one: Importance) -> dict[str, object]:
    """Return name, share and interval of a parameter's importance as a dict, rounded to four decimals."""
    return {
        "param": one.param,
        **{name: round(getattr(one, name), 4) for name in ("share", "low", "high")},
    }


def _encode_numbers(numbers: npt.NDArray[np.generic]) -> str:
    """Encode an array as little-endian bytes in base64; its type and length are not part of them."""
    little_endian = numbers.astype(numbers.dtype.newbyteorder("<"))
    return base64.b64encode(little_endian.tobytes()).decode("ascii")


def _find_number(value: object) -> float | None:
    """Return a finite number or a boolean unchanged, and None for any other value."""
    return value if isinstance(value, int | float) and math.isfinite(value) else None


def _round_number(value: object) -> float | None:
    """Return a finite float rounded to seven significant digits, an integer unchanged, and None for any other value."""
    number = _find_number(value)
    if number is None or isinstance(number, int):
        return number
    return float(f"{number:.7g}")
