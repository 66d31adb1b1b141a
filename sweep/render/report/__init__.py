"""The HTML report: its data as JSON, its page template, and its content security policy."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING

import jinja2
import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from sweep.analysis import Trial, lineage_of, rung_ranks, search_efficiency, verdict
from sweep.analysis.ranking import Ranking, noise_of, rank
from sweep.analysis.report_data import POINTS, ReportData, domains, importance
from sweep.analysis.search_efficiency import SearchEfficiency
from sweep.events import LOST, Status, Value, is_number
from sweep.render.tables import counted_by, filled, held_out_lines, lineage_lines, ranking_grid, rung_lines
from sweep.render.tables import efficiency_lines as worth_lines
from sweep.space.domains import Domain, Range, choices, is_log
from sweep.store.folder import ResultsFolder, told_apart
from sweep.store.sweep_info import SweepInfo
from sweep.text import counted, duration, moment, money, printable, setting, settings

if TYPE_CHECKING:
    from sweep.searchers.optuna_study import Importance

SLICES = 24  # the maximum number of parameters that are plotted, the most important ones
AXES = 10  # parallel coordinates that are shown at first; the reader can add others

_STATUSES = [status.value for status in Status]


def report_document(
    accounts: Sequence[ReportData], ranking: Ranking, worths: Sequence[SearchEfficiency] = ()
) -> dict[str, object]:
    """Return the data that `sweep/render/report/data.js` reads: columns over the trials of all sweeps in turn."""
    trials = [trial for account in accounts for trial in account.sweep.trials]
    place = {id(trial): at for at, trial in enumerate(trials)}
    rank = [0] * len(trials)
    for row in ranking.rows:
        for trial in row.trials:
            rank[place[id(trial)]] = row.rank
    reasons = list(dict.fromkeys(["", *(trial.status_reason for trial in trials)]))
    number = {reason: at for at, reason in enumerate(reasons)}
    # a single one has all the importance
    shares = importance(accounts, ranking.varying) if len(ranking.varying) > 1 else {}
    first = shares.get(ranking.objectives[0][0], [])
    mattering = [one.param for one in first] or list(ranking.varying)
    grid, known = filled(ranking_grid(ranking)), domains(accounts)
    return {
        "sweeps": [{"name": one.sweep.name, "trials": len(one.sweep.trials)} for one in accounts],
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
        "params": [_param(name, [trial.params for trial in trials], known.get(name)) for name in mattering],
        "curves": _curves(accounts),
        "table": {
            "columns": grid.columns,
            "rows": grid.rows,
            "trials": [[place[id(trial)] for trial in row.trials] for row in ranking.rows],
        },
        "importance": [
            {"metric": metric, "rows": list(map(_importance, rows[:SLICES]))} for metric, rows in shares.items() if rows
        ],
        "timeline": _timeline(accounts),
        "budgets": _budgets(accounts, worths),
    }


def as_json(content: object) -> str:
    """Return JSON that is safe inside a ``<script>``: ASCII without any character that is special in HTML."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _budgets(accounts: Sequence[ReportData], worths: Sequence[SearchEfficiency]) -> list[dict[str, object]]:
    """Return the best score over the budget spent: for each unit, the lines of each sweep."""
    place = {one.sweep.name: at for at, one in enumerate(accounts)}
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
    # A loss may span powers of ten; an accuracy does not.
    log = bool(known) and goal == "minimize" and min(known) > 0 and max(known) / min(known) >= 100
    return {"name": metric, "goal": goal, "log": log, "values": list(map(_number, values))}


def _param(name: str, params: Sequence[Mapping[str, Value]], domain: Domain | None) -> dict[str, object]:
    """Return the values of a number, or the codes of a choice with their labels; code -1 means no such parameter."""
    values = [one[name] for one in params if name in one]
    numbers = [float(value) for value in values if is_number(value)]
    if len(numbers) == len(values):
        log, listed = is_log(domain, numbers), not isinstance(domain, Range)
        return {"name": name, "log": log, "listed": listed, "values": [_number(one.get(name)) for one in params]}
    possible = () if domain is None else choices(domain) or ()
    labels = list(dict.fromkeys(map(setting, [*possible, *values])))
    labels = [label for label in labels if label in set(map(setting, values))]
    code = {label: at for at, label in enumerate(labels)}
    return {"name": name, "labels": labels, "values": [code[setting(p[name])] if name in p else -1 for p in params]}


def _curves(accounts: Sequence[ReportData]) -> dict[str, object]:
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


def _timeline(accounts: Sequence[ReportData]) -> dict[str, object]:
    """Return all lanes, in seconds since the start of their sweep."""
    lanes: list[str] = []
    spans: dict[str, list[float]] = {"row": [], "lane": [], "begin": [], "end": []}
    pauses: list[tuple[float, float]] = []
    offset, ends = 0, [0.0]
    for account in accounts:
        found, history = account.timeline, account.sweep.history
        start = history.started or 0.0
        named = f"{account.sweep.name}: " if len(accounts) > 1 else ""
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


def _importance(one: Importance) -> dict[str, object]:
    return {"param": one.param, **{name: round(getattr(one, name), 4) for name in ("share", "low", "high")}}


def _packed(numbers: npt.NDArray[np.generic]) -> str:
    return base64.b64encode(numbers.astype(numbers.dtype.newbyteorder("<")).tobytes()).decode("ascii")


def _number(value: object) -> float | None:
    """Round to the seven digits that a plot can show; None for NaN and infinities, which JSON lacks."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value if isinstance(value, int) else float(f"{value:.7g}")


SCRIPTS = (
    *("echarts.min.js", "data.js", "selection.js", "theme.js", "plot.js", "lines.js", "points.js"),
    *("timeline.js", "budget.js", "table.js", "controls.js", "main.js"),
)
PRIVATE = ("hostname", "command")  # not in the report, which is sent to others; sweep.json has them
FAILURES = 50  # maximum number of tracebacks
NAMED = 12  # maximum number of parameters in a list


def page(folders: Sequence[ResultsFolder]) -> str:
    """Return the report on one sweep, or on several with the same objectives.

    Raises `InputError` if their objectives differ, and `StoreError` if a sweep is damaged.
    """
    from sweep.analysis import report_data

    points = POINTS // len(folders)
    accounts = [report_data.read(folder, points, name) for name, folder in told_apart(folders).items()]
    ranking = rank([one.sweep for one in accounts])
    worths = [found for one in accounts if (found := search_efficiency.of(one.sweep.name, ranking, one.tables))]
    noise = noise_of(ranking, accounts[0].tables) if len(accounts) == 1 else None
    rungs = {one.sweep.name: rung_ranks.measure(one.sweep, one.tables) for one in accounts}
    rung_texts = [f"{name}: {line}" for name, found in rungs.items() for line in rung_lines(found)]
    content = report_document(accounts, ranking, worths)
    scripts = [Markup(_asset(name)) for name in SCRIPTS]  # trusted: sweep's own, and ECharts
    style = Markup(_asset("report.css"))  # trusted: sweep's own
    failures = list(_failures(accounts, ranking))
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("sweep.render.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(
        "report.html.jinja"
    ).render(
        policy=_policy(scripts, style),
        scripts=scripts,
        style=style,
        data=Markup(as_json(content)),  # safe: no character that is special in HTML
        title=" · ".join(one.sweep.name for one in accounts),
        objectives=ranking.objectives,
        answer=verdict.sentence(ranking, running=any(one.running for one in accounts)),
        method=ranking.method,
        worth=[*worth_lines(worths), *rung_texts, *held_out_lines(noise)],
        budgets=any(one.budgets for one in worths),
        sweeps=[_told(one, ranking) for one in accounts],
        trials=sum(len(one.sweep.trials) for one in accounts),
        curves=any(len(one.curves.epochs) for one in accounts),
        thinned=[one.curves.thinned for one in accounts if one.curves.thinned],
        left_out=sorted({name for one in accounts for name in one.curves.left_out}),
        counted=_counted(accounts),
        lineages=[drawn for one in accounts if (drawn := _lineages(one.sweep.trials, ranking))],
        params=len(ranking.varying),
        undrawn=max(len(ranking.varying) - SLICES, 0),
        importance=bool(content["importance"]),
        timeline=any(one.timeline.lanes for one in accounts),
        utilisation=list(_utilisation(accounts)),
        failures=failures[:FAILURES],
        more_failures=max(len(failures) - FAILURES, 0),
    )


def _asset(name: str) -> str:
    return resources.files("sweep.render.report").joinpath(name).read_text(encoding="utf-8")


def _policy(scripts: Sequence[str], style: str) -> str:
    """Return a policy that allows only these scripts and this style, by hash, and no network access or frames."""
    allowed = " ".join(map(_hash, scripts))
    return f"default-src 'none'; script-src {allowed}; style-src {_hash(style)}; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def _told(account: ReportData, ranking: Ranking) -> dict[str, object]:
    """Return the values that the template shows for one sweep."""
    return {
        "name": account.sweep.name,
        "question": account.question,
        "facts": list(_facts(account, ranking)),
        "shares": list(_shares(account)),
        "starving": {trial: f"{share:.0%}" for trial, share in account.costs.starving.items()},
        "provenance": list(_provenance(account.info)),
        "text": account.text,
    }


def _facts(account: ReportData, ranking: Ranking) -> Iterator[tuple[str, str]]:
    history = account.sweep.history
    yield "trials", counted_by(account.counts) or "none"
    if ranking.varying:
        more = len(ranking.varying) - NAMED
        yield "varied", printable(", ".join(ranking.varying[:NAMED])) + (f" and {more} more" if more > 0 else "")
    epochs = sum(trial.epochs for trial in account.sweep.trials)
    yield "trained", f"{epochs:,} epochs, {duration(account.costs.train_s)} of training"
    if account.costs.money is not None:
        yield "cost", money(account.costs.money)
    if history.started is not None:
        yield "started", moment(history.started)
    if account.lasted_s is not None:
        yield "took", duration(account.lasted_s)
    yield "ended", "it is running" if account.running else history.ended or "its driver was killed"


def _counted(accounts: Sequence[ReportData]) -> str:
    """Describe how many curves have which end mark."""
    trials = [trial for one in accounts for trial in one.sweep.trials]
    pruned = sum(trial.status is Status.PRUNED for trial in trials)
    lost = sum(trial.status in LOST for trial in trials)
    parts = [f"{pruned} end in a ring: pruned"] * bool(pruned)
    parts += [f"{lost} in a cross: diverged, out of memory or failed, where they had begun"] * bool(lost)
    return "; ".join(parts)


def _utilisation(accounts: Sequence[ReportData]) -> Iterator[str]:
    for one in accounts:
        line, total = one.timeline, one.timeline.busy_s + one.timeline.idle_s
        if line.lanes and total:
            of = f"{one.sweep.name}: " if len(accounts) > 1 else ""
            lanes = f"{counted(len(line.lanes), 'lane')}"
            idle = f"{duration(line.idle_s)} idle ({line.idle_s / total:.0%})"
            yield f"{of}{lanes}, {duration(line.busy_s)} busy and {idle}, start-up of the sweep included."


def _shares(account: ReportData) -> Iterator[tuple[str, str, float]]:
    """Yield the parts of the time of all trials: name, duration, percent."""
    parts = {"training": account.costs.train_s, **account.costs.overhead_s}
    total = sum(parts.values())
    for name, took in sorted(parts.items(), key=lambda part: (part[0] != "training", -part[1])):
        if total and took > 0:
            yield name, duration(took), 100 * took / total


def _failures(accounts: Sequence[ReportData], ranking: Ranking) -> Iterator[dict[str, str | None]]:
    """Yield the values that the template shows for each trial without a result."""
    for account in accounts:
        of = f" of {account.sweep.name}" if len(accounts) > 1 else ""
        for trial in account.sweep.trials:
            if trial.status in LOST:
                named = printable(settings(trial.params, ranking.varying[:NAMED]))
                error = account.errors.get(trial.trial)
                told = {"trial": f"trial {trial.trial}{of}", "status": trial.status.value, "settings": named}
                yield {**told, "reason": trial.status_reason, "error": error}


def _provenance(info: SweepInfo) -> Iterator[tuple[str, str]]:
    """Yield the provenance as flat pairs: versions, commit, machine, code; nothing that names a person or host."""
    groups = {**info.provenance, **info.source}
    if "packages" in info.provenance:
        groups["packages"] = info.provenance["packages"]  # not those of `source`, a much longer list
    for name, value in groups.items():
        if isinstance(value, Mapping):
            told = ", ".join(f"{key} {_word(one)}" for key, one in value.items())
        else:
            told = _word(value)
        if told and name not in PRIVATE:
            yield {"sha256": "code sha256", "modules": "code"}.get(name, name), told


def _word(value: object) -> str:
    if isinstance(value, list):
        return " ".join(map(_word, value))
    return setting(value) if isinstance(value, str | int | float | bool) else str(value)


WIDTH, ROW, LEFT, RIGHT, BELOW = 1100, 14, 14, 40, 30
TICKS = 12


@dataclass(frozen=True, slots=True)
class Row:
    """The line of a trial in the lineage: down from its parent, then to the right."""

    trial: int
    kind: str  # "best" if it trained epochs of the best trial, else "other"
    from_x: float
    from_y: float
    y: float
    to_x: float
    title: str


@dataclass(frozen=True, slots=True)
class Drawn:
    """A lineage as the template draws it."""

    width: int
    height: int
    rows: tuple[Row, ...]
    ticks: tuple[tuple[float, int], ...]  # labels below it: position and epoch
    words: str


def _lineages(trials: Sequence[Trial], ranking: Ranking) -> Drawn | None:
    """Return the lineage drawing of a sweep; None if no trial is a copy of another."""
    if not any(trial.parent is not None for trial in trials):
        return None
    last = max(trial.epochs for trial in trials) or 1
    place = {trial.trial: ROW * (at + 1) for at, trial in enumerate(trials)}
    best = next((row.trials[0] for row in ranking.best if row.sweep == trials[0].sweep), None)
    steps = () if best is None else lineage_of(trials, best.trial)
    ancestors = {step.trial for step in steps}

    def at(epoch: int) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * epoch / last, 1)

    rows = []
    for trial in trials:
        began, y = trial.parent_epoch or 0, place[trial.trial]
        above = y if trial.parent is None else place[trial.parent]
        title = f"trial {trial.trial}, {trial.status.value} after epoch {trial.epochs}"
        kind = "best" if trial.trial in ancestors else "other"
        rows.append(Row(trial.trial, kind, at(began), above, y, at(max(trial.epochs, began)), title))
    step = max(-(-last // TICKS), 1)
    ticks = tuple((at(epoch), epoch) for epoch in range(0, last + 1, step))
    words = next(iter(lineage_lines(steps)), "").removeprefix("lineage  ") or "one trial alone"
    return Drawn(WIDTH, ROW * len(trials) + BELOW, tuple(rows), ticks, words)
