"""A sweep as one HTML file that needs nothing else: no script, no network, every text escaped."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

import jinja2

from sweep.analysis.account import Account
from sweep.analysis.ranking import Ranked
from sweep.analysis.trials import Trial
from sweep.events import Status
from sweep.render import charts
from sweep.render.charts import Axis, Chart, Series
from sweep.render.figures import duration, moment, score, setting, settings
from sweep.render.tables import filled, ranking_grid

CURVES = 200  # drawn at most, the best trials'
HIGHLIGHTED = 5
PARAMETERS = 24  # charts at most
FAILURES = 50  # tracebacks at most

_DRAWN = {Status.COMPLETED: "completed", Status.PRUNED: "pruned", Status.RUNNING: "running"}


@dataclass(frozen=True, slots=True)
class Share:
    """A part of the time of all trials."""

    name: str
    took: str
    percent: float


@dataclass(frozen=True, slots=True)
class Failure:
    """A trial that came to nothing."""

    trial: int
    status: str
    reason: str
    settings: str
    error: str | None


def page(account: Account) -> str:
    """The report on a sweep."""
    env = jinja2.Environment(
        loader=jinja2.PackageLoader("sweep.render", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    metric, goal = account.sweep.objectives[0]
    curves = _curves(account)
    failures = list(_failures(account))
    return env.get_template("report.html.jinja").render(
        name=account.sweep.folder.name,
        metric=metric,
        goal=goal,
        facts=list(_facts(account)),
        ranking=filled(ranking_grid(account.ranking)),
        curves=curves,
        left_out=max(len(account.curves) - CURVES, 0),
        parameters=list(islice(_parameters(account), PARAMETERS)),
        shares=_shares(account),
        starving={trial: f"{share:.0%}" for trial, share in account.costs.starving.items()},
        failures=failures[:FAILURES],
        more_failures=max(len(failures) - FAILURES, 0),
        text=account.text,
        provenance=list(_provenance(account.info)),
        width=charts.WIDTH,
        height=charts.HEIGHT,
        left=charts.LEFT,
        right=charts.WIDTH - charts.RIGHT,
        top=charts.TOP,
        bottom=charts.HEIGHT - charts.BOTTOM,
    )


def _facts(account: Account) -> Iterator[tuple[str, str]]:
    history = account.sweep.history
    counts = ", ".join(f"{count} {status.value}" for status, count in account.counts.items())
    yield "trials", counts or "none"
    for best in account.ranking.best[:1]:
        yield "best", f"{score(best.scores[0].mean)} in trial {best.trials[0].trial}"
        yield "with", settings(best.params, account.ranking.varying) or "the only configuration"
    if history.started is not None:
        yield "started", moment(history.started)
    if account.lasted_s is not None:
        yield "took", duration(account.lasted_s)
    yield "ended", history.ended or "it runs, or was killed"


def _curves(account: Account) -> Chart | None:
    """The objective of each trial by epoch; the best trials are drawn last, above the others."""
    ranked = [(row, trial) for row in account.ranking.rows for trial in row.trials if trial.trial in account.curves]
    series: list[Series] = []
    for at, (row, trial) in reversed(list(enumerate(ranked[:CURVES]))):
        highlighted = at < HIGHLIGHTED and row.status is Status.COMPLETED
        kind = f"best best{at}" if highlighted else _DRAWN.get(trial.status, "other")
        series.append((account.curves[trial.trial], kind, _title(account, row, trial)))
    points = [point for _, trial in ranked[:CURVES] for point in account.curves[trial.trial]]
    if not points:
        return None
    epochs = charts.numbers([0.0, float(max(epoch for epoch, _ in points))])
    values = _objective_axis(account, [value for _, value in points])
    return charts.chart("epoch", account.sweep.objectives[0][0], epochs, values, series)


def _parameters(account: Account) -> Iterator[Chart]:
    """The last objective of each trial by each parameter that differs between them."""
    metric = account.sweep.objectives[0][0]
    for name in account.ranking.varying:
        series: list[Series] = []
        known = [
            (row, trial, account.curves[trial.trial][-1][1])
            for row in reversed(account.ranking.rows)
            for trial in row.trials
            if name in trial.params and trial.trial in account.curves
        ]
        if not known:
            continue
        across = [trial.params[name] for _, trial, _ in known]
        as_numbers = charts.are_numbers(across)
        axis = charts.numbers([float(str(one)) for one in across], decades=1) if as_numbers else charts.choices(across)
        for row, trial, value in known:
            own = axis if as_numbers else charts.beside(axis, trial.trial)
            kind = "best" if row.rank == 1 else _DRAWN.get(trial.status, "other")
            series.append((((own.scale(trial.params[name]), value),), kind, _title(account, row, trial)))
        values = _objective_axis(account, [value for _, _, value in known])
        shares = Axis(lambda share: float(str(share)), axis.ticks)  # each trial has been put on its own axis
        yield charts.chart(name, metric, shares, values, series)


def _objective_axis(account: Account, values: list[float]) -> Axis:
    """Losses fall by powers of ten; accuracies do not rise so."""
    goal = account.sweep.objectives[0][1]
    return charts.numbers(values, decades=2 if goal == "minimize" else math.inf, cut=True)


def _title(account: Account, row: Ranked, trial: Trial) -> str:
    value = account.curves[trial.trial][-1][1]
    named = settings(trial.params, account.ranking.varying)
    return f"trial {trial.trial}, {trial.status.value}, {score(value)} {named} (rank {row.rank})"


def _shares(account: Account) -> list[Share]:
    parts = {"training": account.costs.train_s, **account.costs.overhead_s}
    total = sum(parts.values())
    ordered = sorted(parts.items(), key=lambda part: (part[0] != "training", -part[1]))
    return [Share(name, duration(took), 100 * took / total) for name, took in ordered if total and took > 0]


def _failures(account: Account) -> Iterator[Failure]:
    for trial in account.sweep.trials:
        if trial.status in (Status.FAILED, Status.OOM, Status.DIVERGED):
            named = settings(trial.params, account.ranking.varying)
            yield Failure(trial.trial, trial.status.value, trial.status_reason, named, account.errors.get(trial.trial))


def _provenance(info: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """What the numbers come from, flat: versions, commit, machine, command."""
    about = info.get("provenance")
    source = info.get("source")
    for group in (about, {"source": source}):
        for name, value in group.items() if isinstance(group, Mapping) else ():
            if isinstance(value, Mapping):
                told = ", ".join(f"{key} {_word(one)}" for key, one in value.items())
            else:
                told = _word(value)
            if told:
                yield name, told


def _word(value: object) -> str:
    if isinstance(value, list):
        return " ".join(map(_word, value))
    return setting(value) if isinstance(value, str | int | float | bool) else str(value)
