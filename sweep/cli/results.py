"""``list``, ``compare``, ``report`` and ``replay``: show the results of sweeps, also under another stopping rule."""

from __future__ import annotations

import dataclasses
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sweep.cli import options, submitting
from sweep.errors import InputError, Problem, RefusedError
from sweep.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sweep.spec import Spec


@click.command("list")
@options.results
@options.dashboard
@options.as_json
def list_sweeps(results: Path, address: str | None, as_json: bool) -> None:
    """List the sweeps of the results folder, or those that were submitted to a cluster."""
    if address is not None:
        submitting.print_submitted_sweeps(address, as_json=as_json)
        return
    from sweep.analysis import verdict
    from sweep.render import console, document
    from sweep.render.tables import print_table, sweeps_grid

    found = verdict.list_summaries(results)
    if as_json:
        click.echo(document(found))
    elif found:
        print_table(sweeps_grid(found), console())
    else:
        click.echo(f"no sweeps in {results}; start one: python -m sweep run FILE")


@click.command()
@click.argument("sweeps", nargs=-1, required=True)
@options.results
@click.option(
    "--limit", type=click.IntRange(min=1), metavar="N", help="Only the best N configurations."
)
@options.as_json
def compare(sweeps: tuple[str, ...], results: Path, limit: int | None, as_json: bool) -> None:
    """Rank the configurations of one or several sweeps, and say which differences are real."""
    from sweep import analysis
    from sweep.analysis import ranking, report_data, rung_ranks, search_efficiency, verdict
    from sweep.progress import SHARE
    from sweep.render import console, document
    from sweep.render.tables import (
        answered,
        cost_lines,
        efficiency_lines,
        held_out_lines,
        lineage_lines,
        print_table,
        ranking_grid,
        rung_lines,
        show_finalists,
        space_lines,
    )
    from sweep.store import reading
    from sweep.store.folder import ResultsFolder, name_uniquely

    folders = name_uniquely(ResultsFolder.open(results, name) for name in sweeps)
    # Only these are read of the tables of epochs, which can be large.
    columns = {*report_data.COLUMNS, "epoch", SHARE, *ranking.COLUMNS}
    sweeps_and_tables = []
    for unique_name, folder in folders.items():
        metrics = []
        for name, _ in folder.read_info().objectives:
            metrics.append(f"metric.{name}")
        tables = reading.read_tables(folder, [*columns, *metrics])
        sweeps_and_tables.append((analysis.make_sweep(folder, tables, unique_name), tables))
    ranked = ranking.rank([sweep for sweep, _ in sweeps_and_tables])
    answer = verdict.summarize_ranking(
        ranked,
        running=any(folder.is_running() for folder in folders.values()),
        addresses={name: folder.address for name, folder in folders.items()},
    )
    # The history of a copy, and the noise of its metrics, are those of a single sweep.
    steps: Sequence[analysis.LineageStep] = ()
    noise = None
    if len(sweeps_and_tables) == 1:
        ((only_sweep, only_tables),) = sweeps_and_tables
        if ranked.best:
            steps = analysis.lineage_of(only_sweep.trials, ranked.best[0].trials[0].trial)
        noise = ranking.find_sampling_error(ranked, only_tables)
    rungs = {
        sweep.name: rung_ranks.measure_rungs(sweep, tables) for sweep, tables in sweeps_and_tables
    }
    efficiencies = []
    for sweep, tables in sweeps_and_tables:
        efficiency = search_efficiency.measure_search_efficiency(sweep.name, ranked, tables)
        if efficiency is not None:
            efficiencies.append(efficiency)
    if as_json:
        # it imports libraries that take longer than the comparison
        from sweep.documents import (
            shapes,
        )

        shown = dataclasses.replace(ranked, rows=ranked.rows[:limit])
        more = {"answer": answer, "search": tuple(efficiencies), "rungs": rungs, "held_out": noise}
        click.echo(document(shapes.extend(shapes.ComparisonDocument, shown, **more)))
        return
    print_table(ranking_grid(ranked, limit), console())
    show_finalists(ranked, console())
    lines: list[str] = []
    for sweep, tables in sweeps_and_tables:
        lines += cost_lines(report_data.costs_of(sweep.name, tables))
    lines += efficiency_lines(efficiencies)
    lines += space_lines(ranked)
    for name, ranks in rungs.items():
        lines += [f"{name}: {line}" for line in rung_lines(ranks)]
    lines += [*held_out_lines(noise), *lineage_lines(steps)]
    lines += answered(ranked, answer)
    click.echo(printable("\n".join(lines)))


@click.command()
@click.argument("sweeps", nargs=-1, required=True)
@options.results
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File to write, instead of report.html in the (first) sweep's folder.",
)
@options.as_json
def report(sweeps: tuple[str, ...], results: Path, output: Path | None, as_json: bool) -> None:
    """Write one HTML file with linked charts, on one or several sweeps.

    Open it in a browser, or send it: it needs no network. Several sweeps must have the same objective.
    """
    from sweep.documents.shapes import ReportDocument
    from sweep.render import document
    from sweep.render.report import page
    from sweep.store.disk import replacing
    from sweep.store.folder import ResultsFolder, name_uniquely

    folders = [*name_uniquely(ResultsFolder.open(results, name) for name in sweeps).values()]
    target = output or folders[0].report
    html = page(folders)
    with replacing(target) as aside:
        # Names of files that are not UTF-8 contain surrogates, which cannot be encoded.
        aside.write_text(html, encoding="utf-8", errors="backslashreplace")
    if as_json:
        click.echo(document(ReportDocument(report=str(target))))
    else:
        click.echo(f"report   {target}")


@click.command()
@click.argument("sweep")
@options.results
@click.option(
    "--early-terminate",
    "rule",
    metavar="RULE",
    help="A rule as in 'asha eta=4', none, or module:Name.  [default: the sweep's own]",
)
@click.option(
    "--run-cap", type=click.IntRange(min=1), metavar="N", help="Only the first N configurations."
)
@click.option(
    "--orderings",
    type=click.IntRange(1, 10_000),
    default=200,
    show_default=True,
    metavar="N",
    help="Number of orders of the configurations to replay.",
)
@options.as_json
def replay(
    sweep: str, results: Path, rule: str | None, run_cap: int | None, orderings: int, as_json: bool
) -> None:
    """Apply another stopping rule to a sweep's curves: epochs saved, winner kept or lost.

    Nothing is trained. Sweeps of a population, or with trials that end after some minutes, are refused.
    """
    from sweep.analysis import replay as replaying
    from sweep.documents import shapes
    from sweep.render import document, tables
    from sweep.runner import methods, resuming
    from sweep.space.early_terminate import NoTermination
    from sweep.store import log
    from sweep.store.ledger import naming

    reopened = resuming.reopen(results, sweep)
    spec = reopened.spec
    folders = reopened.import_folders
    if spec.population is not None:
        what = "is of a population, whose members depend on each other"
        raise InputError.one(sweep, what, "replay is for sweeps whose trials train apart")
    if spec.minutes is not None:
        what = "has trials that end after some minutes, and how long their epochs take under another rule is not known"
        raise InputError.one(
            sweep, what, "replay is for sweeps whose trials train a number of epochs"
        )
    if rule is None:
        other = spec
    else:
        other = _replace_rule(spec, rule)
    if len(spec.metrics) > 1 and not isinstance(other.early_terminate, NoTermination):
        what = "needs a single metric, but its metrics are several: there is no one winner that a rule keeps or loses"
        raise InputError.one(sweep, what, "compare shows its Pareto front")
    methods.check_author_methods(other, folders)
    # otherwise nothing has been trained yet, which is refused below
    if reopened.folder.log.exists():
        events = list(log.read(reopened.folder.log))
    else:
        events = []
    with naming(reopened.folder.log):
        found = replaying.replay_rule(
            events,
            spec,
            (_format_rule(other), lambda: methods.scheduler(other, folders)),
            (_format_rule(spec), lambda: methods.scheduler(spec, folders)),
            run_cap=run_cap,
            orderings=orderings,
        )
    if found is None:
        raise RefusedError.one(
            sweep, "no configuration has completed, so there is no winner to keep"
        )
    if as_json:
        click.echo(document(shapes.extend(shapes.ReplayDocument, found)))
        return
    for line in tables.replay_lines(found, spec.objectives[0].name):
        click.echo(printable(line))


def _replace_rule(spec: Spec, text: str) -> Spec:
    """Return a copy of the sweep's spec with the stopping rule ``text``, such as ``asha eta=4`` or ``module:Name``.

    Keys of the rule that ``text`` does not give have their defaults, not those of the sweep's own rule. Raises
    `InputError`, which names ``--early-terminate``, if the text is no rule or the rule does not fit the sweep.
    """
    from sweep.spec import parse_spec

    try:
        kind, *keys = shlex.split(text) or [""]
    except ValueError as error:
        raise InputError.one("--early-terminate", f"{text!r} cannot be read: {error}") from error
    wrong = []
    for key in keys:
        if "=" not in key or key.startswith("="):
            wrong.append(key)
    if not kind or "=" in kind or wrong:
        what = f"{text!r}, expected a rule and its keys"
        raise InputError.one(
            "--early-terminate",
            what,
            "as in 'asha eta=4', 'median min_iter=2', none or module:Name",
        )
    resolved = {}  # without the keys that are not set, because not all may be null in a file
    for key, value in spec.to_json_dict().items():
        if value is not None:
            resolved[key] = value
    if ":" in kind:  # module:Name, the user's own
        changes = [f"early_terminate={kind}"]
    else:
        changes = [
            "early_terminate={}",  # removes the keys of the sweep's own rule
            f"early_terminate.type={kind}",
        ]
    changes += [f"early_terminate.{key}" for key in keys]
    try:
        return parse_spec(json.dumps(resolved), spec.name, changes)
    except InputError as error:
        problems = []
        for problem in error.problems:
            # the user has typed the keys without the block
            what = problem.what.replace("early_terminate.", "")
            problems.append(Problem("--early-terminate", what, problem.hint))
        raise InputError(problems) from error


def _format_rule(spec: Spec) -> str:
    """Return the stopping rule of a sweep as text, as in ``asha min_iter=1 eta=4``.

    It is ``module:Name`` for the user's own rule, and ``none`` without a rule.
    """
    from sweep.spec import sweep_file

    rule = sweep_file.rule_to_dict(spec.early_terminate)
    if not isinstance(rule, dict):
        return str(rule)
    return " ".join(
        [
            str(rule["type"]),
            *(f"{key}={json.dumps(value)}" for key, value in rule.items() if key != "type"),
        ]
    )
