"""``plan`` and ``schema``: everything about a sweep that can be known without running it."""

from __future__ import annotations

import json
from pathlib import Path

import click

from sweep.cli import options


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@options.assignments
@options.simulate_gpus
@options.as_json
def plan(file: Path, assignments: tuple[str, ...], simulate_gpus: int | None, as_json: bool) -> None:
    """Validate a sweep file and say what running it takes; nothing runs."""
    from rich.console import Console

    from sweep import spec as specs
    from sweep.render.plans import as_dict, show_plan
    from sweep.runner import planning

    spec = specs.load(file, assignments)
    planning.check(spec, str(file), planning.import_folders(file))
    planned = planning.plan(spec, simulate_gpus)
    if as_json:
        click.echo(json.dumps(as_dict(planned), indent=2))
    else:
        show_plan(planned, Console())


@click.command()
def schema() -> None:
    """Print the JSON Schema of sweep files, for completion in editors."""
    from sweep import spec as specs

    click.echo(json.dumps(specs.json_schema(), indent=2))
