"""``replay``: what another stopping rule would have done with the curves of a sweep."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sweep.cli import options
from sweep.errors import InputError, Problem, printable

if TYPE_CHECKING:
    from sweep.spec import Spec


@click.command()
@click.argument("sweep")
@options.results
@click.option(
    "--early-terminate",
    "rule",
    metavar="RULE",
    help="A rule as in 'asha eta=4', none, or module:Name.  [default: the sweep's own]",
)
@click.option("--run-cap", type=click.IntRange(min=1), metavar="N", help="Only the first N configurations.")
@click.option(
    "--orderings",
    type=click.IntRange(1, 10_000),
    default=200,
    show_default=True,
    metavar="N",
    help="Number of orders of the configurations to replay.",
)
@options.as_json
def replay(sweep: str, results: Path, rule: str | None, run_cap: int | None, orderings: int, as_json: bool) -> None:
    """Apply another stopping rule to a sweep's curves: epochs saved, winner kept or lost."""
    from sweep.analysis import replay as replaying
    from sweep.render import summaries
    from sweep.render.formatting import document
    from sweep.runner import choosing, resuming
    from sweep.store import log
    from sweep.store.ledger import naming

    reopened = resuming.reopen(results, sweep)
    spec, folders = reopened.spec, reopened.import_folders
    other = spec if rule is None else _with_rule(spec, rule)
    choosing.check(other, folders)
    events = list(log.read(reopened.folder.log)) if reopened.folder.log.exists() else []
    with naming(reopened.folder.log):
        found = replaying.replay(
            events,
            spec.objectives[0],
            spec.trial_epochs,
            (_words(other), lambda: choosing.scheduler(other, folders)),
            (_words(spec), lambda: choosing.scheduler(spec, folders)),
            run_cap=run_cap,
            orderings=orderings,
        )
    if found is None:
        raise InputError.one(sweep, "no configuration has completed, so there is no winner to keep")
    if as_json:
        click.echo(document(found))
        return
    for line in summaries.replay_lines(found, spec.objectives[0].name):
        click.echo(printable(line))


def _with_rule(spec: Spec, text: str) -> Spec:
    """The sweep under a rule as it is written on a command line. Raises `InputError` that names the option."""
    from sweep.spec import parse

    try:
        kind, *keys = shlex.split(text) or [""]
    except ValueError as error:
        raise InputError.one("--early-terminate", f"{text!r} cannot be read: {error}") from error
    wrong = [key for key in keys if "=" not in key or key.startswith("=")]
    if not kind or "=" in kind or wrong:
        what = f"{text!r}, expected a rule and its keys"
        raise InputError.one("--early-terminate", what, "as in 'asha eta=4', 'median min_iter=2', none or module:Name")
    resolved = {key: value for key, value in spec.to_json_dict().items() if value is not None}
    own = ":" in kind
    changes = [f"early_terminate={kind}"] if own else ["early_terminate={}", f"early_terminate.type={kind}"]
    changes += [f"early_terminate.{key}" for key in keys]
    try:
        return parse(json.dumps(resolved), spec.name, changes)
    except InputError as error:
        raise InputError(
            Problem("--early-terminate", p.what.replace("early_terminate.", ""), p.hint) for p in error.problems
        ) from error


def _words(spec: Spec) -> str:
    """``asha min_iter=1 eta=4``."""
    from sweep.spec import sweep_file

    rule = sweep_file.rule_to_dict(spec.early_terminate)
    if not isinstance(rule, dict):
        return str(rule)
    return " ".join(
        [str(rule["type"]), *(f"{key}={json.dumps(value)}" for key, value in rule.items() if key != "type")]
    )
