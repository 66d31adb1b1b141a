"""The page around the charts: what is told in words, and a policy that lets nothing in but what is written here."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

import jinja2
from markupsafe import Markup

from sweep.analysis import held_out, verdict, worth
from sweep.analysis.account import Account
from sweep.analysis.curves import POINTS
from sweep.analysis.ranking import Ranking, rank
from sweep.errors import printable
from sweep.events import Status
from sweep.render.figures import duration, moment, setting, settings
from sweep.render.report.document import SLICES, as_json, document
from sweep.render.worth import held_out_lines
from sweep.render.worth import lines as worth_lines
from sweep.store.folder import ResultsFolder
from sweep.store.sweep_info import SweepInfo

SCRIPTS = (
    *("echarts.min.js", "data.js", "selection.js", "theme.js", "plot.js", "lines.js", "points.js"),
    *("timeline.js", "budget.js", "table.js", "controls.js", "main.js"),
)
PRIVATE = ("hostname", "command")  # a report is sent to others; they stay in sweep.json
FAILURES = 50  # tracebacks at most
NAMED = 12  # parameters in a list


@dataclass(frozen=True, slots=True)
class Share:
    """A part of the time of all trials."""

    name: str
    took: str
    percent: float


@dataclass(frozen=True, slots=True)
class Failure:
    """A trial that came to nothing."""

    trial: str
    status: str
    reason: str
    settings: str
    error: str | None


@dataclass(frozen=True, slots=True)
class Told:
    """What is said of one sweep."""

    name: str
    question: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    shares: tuple[Share, ...]
    starving: Mapping[int, str]
    provenance: tuple[tuple[str, str], ...]
    text: str


def page(folders: Sequence[ResultsFolder]) -> str:
    """The report on one sweep, or on several with the same objectives.

    Raises `InputError` where their objectives differ, and `StoreError` for a damaged one.
    """
    from sweep.analysis import account

    accounts = [account.of(folder, POINTS // len(folders)) for folder in folders]
    ranking = rank([one.sweep for one in accounts])
    worths = [found for one in accounts if (found := worth.of(one.sweep.folder.name, ranking, one.tables))]
    noise = held_out.of(ranking, accounts[0].tables) if len(accounts) == 1 else None
    content = document(accounts, ranking, worths)
    scripts = [Markup(_asset(name)) for name in SCRIPTS]  # ours, and ECharts
    style = Markup(_asset("report.css"))  # ours
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
        data=Markup(as_json(content)),  # has no character that HTML knows
        title=" · ".join(one.sweep.folder.name for one in accounts),
        objectives=ranking.objectives,
        answer=verdict.sentence(ranking, running=any(one.running for one in accounts)),
        method=ranking.method,
        worth=[*worth_lines(worths), *held_out_lines(noise)],
        budgets=any(one.budgets for one in worths),
        sweeps=[_told(one, ranking) for one in accounts],
        trials=sum(len(one.sweep.trials) for one in accounts),
        curves=any(len(one.curves.epochs) for one in accounts),
        thinned=[one.curves.thinned for one in accounts if one.curves.thinned],
        left_out=sorted({name for one in accounts for name in one.curves.left_out}),
        counted=_counted(accounts),
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
    """Nothing may be fetched, sent, framed or run but these scripts and this style, known by their hashes."""
    allowed = " ".join(map(_hash, scripts))
    return f"default-src 'none'; script-src {allowed}; style-src {_hash(style)}; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def _told(account: Account, ranking: Ranking) -> Told:
    return Told(
        account.sweep.folder.name,
        account.question,
        tuple(_facts(account, ranking)),
        tuple(_shares(account)),
        {trial: f"{share:.0%}" for trial, share in account.costs.starving.items()},
        tuple(_provenance(account.info)),
        account.text,
    )


def _facts(account: Account, ranking: Ranking) -> Iterator[tuple[str, str]]:
    history = account.sweep.history
    counts = ", ".join(f"{count} {status.value}" for status, count in account.counts.items())
    yield "trials", counts or "none"
    if ranking.varying:
        more = len(ranking.varying) - NAMED
        yield "varied", printable(", ".join(ranking.varying[:NAMED])) + (f" and {more} more" if more > 0 else "")
    epochs = sum(trial.epochs for trial in account.sweep.trials)
    yield "trained", f"{epochs:,} epochs, {duration(account.costs.train_s)} of training"
    if history.started is not None:
        yield "started", moment(history.started)
    if account.lasted_s is not None:
        yield "took", duration(account.lasted_s)
    yield "ended", "it is running" if account.running else history.ended or "its driver was killed"


def _counted(accounts: Sequence[Account]) -> str:
    """How many curves are marked as what."""
    trials = [trial for one in accounts for trial in one.sweep.trials]
    pruned = sum(trial.status is Status.PRUNED for trial in trials)
    lost = sum(trial.status in (Status.DIVERGED, Status.OOM, Status.FAILED) for trial in trials)
    parts = [f"{pruned} end in a ring: pruned"] * bool(pruned)
    parts += [f"{lost} in a cross: diverged, out of memory or failed, where they had begun"] * bool(lost)
    return "; ".join(parts)


def _utilisation(accounts: Sequence[Account]) -> Iterator[str]:
    for one in accounts:
        line, total = one.timeline, one.timeline.busy_s + one.timeline.idle_s
        if line.lanes and total:
            of = f"{one.sweep.folder.name}: " if len(accounts) > 1 else ""
            lanes = f"{len(line.lanes)} lane{'s' * (len(line.lanes) > 1)}"
            idle = f"{duration(line.idle_s)} idle ({line.idle_s / total:.0%})"
            yield f"{of}{lanes}, {duration(line.busy_s)} busy and {idle}, start-up of the sweep included."


def _shares(account: Account) -> Iterator[Share]:
    parts = {"training": account.costs.train_s, **account.costs.overhead_s}
    total = sum(parts.values())
    for name, took in sorted(parts.items(), key=lambda part: (part[0] != "training", -part[1])):
        if total and took > 0:
            yield Share(name, duration(took), 100 * took / total)


def _failures(accounts: Sequence[Account], ranking: Ranking) -> Iterator[Failure]:
    for account in accounts:
        of = f" of {account.sweep.folder.name}" if len(accounts) > 1 else ""
        for trial in account.sweep.trials:
            if trial.status in (Status.FAILED, Status.OOM, Status.DIVERGED):
                named = printable(settings(trial.params, ranking.varying[:NAMED]))
                error = account.errors.get(trial.trial)
                yield Failure(f"trial {trial.trial}{of}", trial.status.value, trial.status_reason, named, error)


def _provenance(info: SweepInfo) -> Iterator[tuple[str, str]]:
    """What the numbers come from, flat: versions, commit, machine, code; nothing that names a person's machine."""
    groups = {**info.provenance, **info.source}
    if "packages" in info.provenance:
        groups["packages"] = info.provenance["packages"]  # the code's own list is much longer
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
