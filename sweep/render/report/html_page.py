"""Creates the page of the report: the values that its template shows, and its content security policy.

`page` returns the whole file. `sections` returns its parts for a page that is served and updated while the sweep runs.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

import jinja2
from markupsafe import Markup

from sweep.analysis import rung_ranks, search_efficiency, verdict
from sweep.analysis.differences import list_varying_parameters
from sweep.analysis.ranking import Ranking, find_sampling_error, rank
from sweep.analysis.report_data import POINTS, ReportData
from sweep.events import LOST, Status
from sweep.render.report.lineage import draw_lineage
from sweep.render.report.page_data import SLICES, as_json, report_document
from sweep.render.tables import counted_by, held_out_lines, rung_lines, space_lines
from sweep.render.tables import efficiency_lines as worth_lines
from sweep.store.folder import ResultsFolder, name_uniquely
from sweep.store.sweep_info import SweepInfo
from sweep.text import counted, duration, format_setting, format_settings, moment, money, printable

SCRIPTS = (
    *(
        "echarts.min.js",
        "data.js",
        "selection.js",
        "theme.js",
        "plot.js",
        "lines.js",
        "curves.js",
        "points.js",
    ),
    *("timeline.js", "budget.js", "table.js", "controls.js", "main.js"),
)
"""The scripts that draw a report, in the order in which they are loaded; a served page uses the same ones."""
START = "start.js"
PRIVATE = ("hostname", "command")  # not in the report, which is sent to others; sweep.json has them
FACTS = ("trials", "varied", "trained", "cost", "started", "took", "note", "ended")
"""Headings of the facts about a sweep as a whole, in their order."""
FAILURES = 50  # maximum number of tracebacks
MOST_PARTS = 6  # of a fact about the provenance that are shown unasked
NAMED = 12  # maximum number of parameters in a list


@dataclass(frozen=True, slots=True)
class Sections:
    """The body of a report as HTML, and the data from which its scripts draw the charts."""

    html: str
    data: Mapping[str, object]
    log_bytes: int  # of the first sweep's log that it was made from


def page(folders: Sequence[ResultsFolder]) -> str:
    """Return the report on one sweep, or on several with the same objectives, as a complete HTML page.

    Nodes in the timeline are numbered, since the report may be sent to others. ``folders`` must not be empty. Raises
    `InputError` if the objectives of sweeps differ, and `StoreError` if a sweep is damaged.
    """
    values, content, _ = _collect_values(folders, names_nodes=False)
    scripts = []
    for name in (*SCRIPTS, START):
        scripts.append(Markup(read_asset(name)))  # trusted: sweep's own, and ECharts
    style = Markup(read_asset("report.css"))  # trusted: sweep's own
    return (
        _make_environment()
        .get_template("report.html.jinja")
        .render(
            policy=_make_policy(scripts, style),
            scripts=scripts,
            style=style,
            data=Markup(as_json(content)),  # safe: no character that is special in HTML
            **values,
        )
    )


def sections(folders: Sequence[ResultsFolder]) -> Sections:
    """Return the body and the data of the report as it is now, for a page that is served.

    Raises the errors of `page`.
    """
    values, content, accounts = _collect_values(folders, names_nodes=True)
    html = _make_environment().get_template("sections.html.jinja").render(**values)
    return Sections(html, content, accounts[0].tables.history.log_bytes)


def _make_environment() -> jinja2.Environment:
    """Return the Jinja environment of the report's templates, which escapes all values that are not `Markup`."""
    return jinja2.Environment(
        loader=jinja2.PackageLoader("sweep.render.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _collect_values(
    folders: Sequence[ResultsFolder], *, names_nodes: bool
) -> tuple[dict[str, object], dict[str, object], list[ReportData]]:
    """Return the values for the templates, the data for the scripts, and the data of each sweep.

    The data of sweeps are in the order of ``folders``. ``names_nodes`` is as for `report_document`. Raises the errors
    of `page`.
    """
    from sweep.analysis import report_data

    # so that the page of several sweeps is not larger than that of one
    points_per_sweep = POINTS // len(folders)
    accounts = []
    for name, folder in name_uniquely(folders).items():
        accounts.append(report_data.read_report_data(folder, points_per_sweep, name))
    ranking = rank([one.sweep for one in accounts])
    efficiencies = []
    for account in accounts:
        efficiency = search_efficiency.measure_search_efficiency(
            account.sweep.name, ranking, account.tables
        )
        if efficiency is not None:
            efficiencies.append(efficiency)
    if len(accounts) == 1:
        sampling_error = find_sampling_error(ranking, accounts[0].tables)
    else:
        sampling_error = None
    rung_texts = []
    for account in accounts:
        for line in rung_lines(rung_ranks.measure_rungs(account.sweep, account.tables)):
            rung_texts.append(f"{account.sweep.name}: {line}")
    content = report_document(accounts, ranking, efficiencies, names_nodes=names_nodes)
    failures = list(_list_failures(accounts, ranking))
    facts = [list(_list_sweep_facts(one, ranking)) for one in accounts]
    known_facts = {heading for of_sweep in facts for heading, _ in of_sweep}
    # the keys are the names in the templates
    values: dict[str, object] = {
        "title": " · ".join(one.sweep.name for one in accounts),
        "objectives": ranking.objectives,
        "answer": verdict.summarize_ranking(ranking, running=any(one.running for one in accounts)),
        "running": any(one.running for one in accounts),
        "method": ranking.method,
        "other_space": bool(ranking.other_space),
        "worth": [
            *worth_lines(efficiencies),
            *space_lines(ranking),
            *rung_texts,
            *held_out_lines(sampling_error),
        ],
        "budgets": any(one.budgets for one in efficiencies),
        "sweeps": list(map(_make_template_values, accounts, facts)),
        "fact_names": [name for name in FACTS if name in known_facts],
        "trials": sum(len(one.sweep.trials) for one in accounts),
        "curves": any(len(one.curves.epochs) for one in accounts),
        "thinned": [one.curves.thinned for one in accounts if one.curves.thinned],
        "left_out": sorted({name for one in accounts for name in one.curves.left_out}),
        "counted": _describe_end_marks(accounts),
        "lineages": [
            drawn for one in accounts if (drawn := draw_lineage(one.sweep.trials, ranking))
        ],
        "params": len(ranking.varying),
        "undrawn": max(len(ranking.varying) - SLICES, 0),
        "importance": bool(content["importance"]),
        "timeline": any(one.timeline.lanes for one in accounts),
        "utilisation": list(_describe_utilisation(accounts)),
        "failures": failures[:FAILURES],
        "more_failures": max(len(failures) - FAILURES, 0),
        "most_parts": MOST_PARTS,
    }
    return values, content, accounts


def read_asset(name: str) -> str:
    """Return the text of a script or style sheet in the package `sweep.render.report`, by its file name.

    Raises FileNotFoundError if there is no such file.
    """
    return resources.files("sweep.render.report").joinpath(name).read_text(encoding="utf-8")


def _make_policy(scripts: Sequence[str], style: str) -> str:
    """Return a content security policy that allows only ``scripts`` and ``style``, and no network access.

    Both are given by their texts, and allowed by the hashes of these.
    """
    script_hashes = " ".join(map(_format_hash, scripts))
    style_hash = _format_hash(style)
    allowed = f"script-src {script_hashes}; style-src {style_hash}"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


def _format_hash(text: str) -> str:
    """Return the SHA-256 of a script or style as a content security policy names it, in quotes and base64."""
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def _make_template_values(
    account: ReportData, facts: Sequence[tuple[str, str]]
) -> dict[str, object]:
    """Return the values that the template shows for one sweep, with the ``facts`` of `_list_sweep_facts`.

    The keys are the names in the template. ``starving`` has the trials that waited much for data, by number,
    each with the share of its training time in percent, and ``text`` the sweep file.
    """
    return {
        "name": account.sweep.name,
        "question": account.question,
        "facts": facts,
        "shares": list(_list_time_shares(account)),
        "starving": {
            trial: f"{100 * share:.0f} %" for trial, share in account.costs.starving.items()
        },
        "provenance": list(_list_provenance(account.info)),
        "text": account.text,
    }


def _list_sweep_facts(account: ReportData, ranking: Ranking) -> Iterator[tuple[str, str]]:
    """Yield (heading, text) for each fact about a sweep as a whole that is known; headings are those in `FACTS`.

    At most `NAMED` of the parameters that vary are named.
    """
    history = account.sweep.history
    yield "trials", counted_by(account.counts) or "none"
    varying = list_varying_parameters([trial.params for trial in account.sweep.trials])
    if varying:
        more = len(varying) - NAMED
        names = printable(", ".join(varying[:NAMED]))
        if more > 0:
            names += f" and {more} more"
        yield "varied", names
    epochs = sum(trial.epochs for trial in account.sweep.trials)
    yield "trained", f"{epochs:,} epochs, {duration(account.costs.train_s)} of training"
    if account.costs.money is not None:
        yield "cost", money(account.costs.money)
    if history.started is not None:
        yield "started", moment(history.started)
    if account.lasted_s is not None:
        yield "took", duration(account.lasted_s)
    if history.note:
        yield "note", printable(history.note)
    yield "ended", "it is running" if account.running else history.ended or "its process was killed"


def _describe_end_marks(accounts: Sequence[ReportData]) -> str:
    """Describe the marks at the ends of curves and how many curves of all sweeps have each; "" if no curve has one."""
    pruned = 0
    by_hand = 0
    lost = 0
    for one in accounts:
        for trial in one.sweep.trials:
            if trial.status is Status.PRUNED:
                pruned += 1
                # the outcome is the status in words: "stopped by hand" if a person has asked for the end
                if trial.outcome != Status.PRUNED:
                    by_hand += 1
            if trial.status in LOST:
                lost += 1
    parts = []
    if pruned:
        of_these = f", {by_hand:,} of them by hand" if by_hand else ""
        parts.append(f"{pruned:,} end in a ring: pruned{of_these}")
    if lost:
        parts.append(
            f"{lost:,} in a cross: diverged, out of memory or failed, where they had begun"
        )
    return "; ".join(parts)


def _describe_utilisation(accounts: Sequence[ReportData]) -> Iterator[str]:
    """Yield, for each sweep with a timeline that has any time, a sentence on how long its lanes were busy and idle.

    With several sweeps, it begins with the name of the sweep.
    """
    for one in accounts:
        timeline = one.timeline
        total_s = timeline.busy_s + timeline.idle_s
        if not timeline.lanes or not total_s:
            continue
        if len(accounts) > 1:
            prefix = f"{one.sweep.name}: "
        else:
            prefix = ""
        lanes = f"{counted(len(timeline.lanes), 'lane')}"
        idle = f"{duration(timeline.idle_s)} idle ({100 * timeline.idle_s / total_s:.0f} %)"
        yield f"{prefix}{lanes}, {duration(timeline.busy_s)} busy and {idle}, start-up of the sweep included."


def _list_time_shares(account: ReportData) -> Iterator[tuple[str, str, float]]:
    """Yield (name, formatted duration, percentage of all) of training and of each overhead.

    Training comes first, then the overheads, the longest first. Those that took no time are left out.
    """
    parts = {"training": account.costs.train_s, **account.costs.overhead_s}
    total_s = sum(parts.values())

    def get_order(part: tuple[str, float]) -> tuple[bool, float]:
        name, took_s = part
        return name != "training", -took_s

    for name, took_s in sorted(parts.items(), key=get_order):
        if total_s and took_s > 0:
            yield name, duration(took_s), 100 * took_s / total_s


def _list_failures(
    accounts: Sequence[ReportData], ranking: Ranking
) -> Iterator[dict[str, str | None]]:
    """Yield, for each trial that diverged, failed or ran out of memory, the values that the template shows.

    They are ``trial`` (with the sweep, if there are several), ``status``, ``settings`` (the first `NAMED` parameters
    that vary), ``reason`` and ``error``, which is the traceback or None.
    """
    for account in accounts:
        if len(accounts) > 1:
            of_sweep = f" of {account.sweep.name}"
        else:
            of_sweep = ""
        for trial in account.sweep.trials:
            if trial.status in LOST:
                yield {
                    "trial": f"trial {trial.trial}{of_sweep}",
                    "status": trial.status.value,
                    "settings": printable(format_settings(trial.params, ranking.varying[:NAMED])),
                    "reason": trial.status_reason,
                    "error": account.errors.get(trial.trial),
                }


@dataclass(frozen=True, slots=True)
class ProvenanceFact:
    """A name with its value, such as a version, or with named parts, such as the versions of packages."""

    name: str
    text: str = ""
    parts: tuple[ProvenanceFact, ...] = ()

    @property
    def is_hash(self) -> bool:
        """Whether the value is a hash of at least 32 hexadecimal digits, of which the page shows the beginning."""
        return re.fullmatch(r"[0-9a-f]{32,}", self.text) is not None


def _list_provenance(info: SweepInfo) -> Iterator[ProvenanceFact]:
    """Yield versions, commit, machine and code of a sweep; the host name and the command line are left out.

    Facts and parts without a value are left out too.
    """
    facts = {**info.provenance, **info.source}
    if "packages" in info.provenance:
        # not those of `source`, a much longer list
        facts["packages"] = info.provenance["packages"]
    for name, value in facts.items():
        if name in PRIVATE:
            continue
        heading = {"sha256": "code sha256", "modules": "code"}.get(name, name)
        if isinstance(value, Mapping):  # of several parts, such as versions by package
            parts = [
                ProvenanceFact(str(key), _format_provenance_value(one))
                for key, one in value.items()
            ]
            known = tuple(part for part in parts if part.text)
            if known:
                yield ProvenanceFact(heading, parts=known)
        elif text := _format_provenance_value(value):
            yield ProvenanceFact(heading, text)


def _format_provenance_value(value: object) -> str:
    """Return a value of the provenance as text, a list with spaces between its items.

    Returns "" for None and for an empty list.
    """
    if value is None:  # as the commit outside of a repository
        return ""
    if isinstance(value, list):
        return " ".join(map(_format_provenance_value, value))
    if isinstance(value, str | int | float | bool):
        return format_setting(value)
    return str(value)
