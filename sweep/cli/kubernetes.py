"""``kube``: a sweep as a job of Kubernetes."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweep.cli import options, submitting
from sweep.errors import InputError, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

PROVIDERS = ("gke", "eks", "aks")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--image", required=True, help="Of all pods: with Python, Ray, TensorFlow and this package.")
@click.option("--results", required=True, metavar="URL", help="A place in an object store such as s3://bucket/prefix.")
@click.option("--name", help="Name of the sweep, instead of the file's.")
@options.assignments
@click.option("--run-cap", type=click.IntRange(min=1), metavar="N", help="At most N configurations.")
@click.option("--include", multiple=True, metavar="PATH", help="Send this too, though .gitignore names it; repeatable.")
@click.option("--workdir", metavar="PATH", help="Where the image has the code: none is sent.")
@click.option("--most", type=click.IntRange(min=1), default=8, show_default=True, help="Pods of trials at a time.")
@click.option("--memory", default="16Gi", show_default=True, help="Of each of them.")
@click.option("--spot", type=click.Choice(PROVIDERS), help="Run trials on this provider's spot nodes.")
@click.option("--secret", metavar="NAME", help="A secret whose values are environment variables of all pods.")
@click.option("--token", metavar="NAME", help="The secret that holds Ray's token.")
@click.option("--redis", metavar="HOST:PORT", help="Where the head keeps its state, to survive a restart.")
@click.option("--retries", type=click.IntRange(min=0), default=3, show_default=True, help="Of the whole job.")
@options.changes
def kube(
    file: Path, results: str, changes: Sequence[str], include: tuple[str, ...], workdir: str | None, **pods: Any
) -> None:
    """Print a sweep as a RayJob of Kubernetes, for `kubectl apply -f -`; nothing is sent."""
    from sweep.render.kubernetes import Pods, manifests
    from sweep.runner.code_package import CodePackage
    from sweep.spec import yaml_reader
    from sweep.store.object_store import check_url, is_url

    asked = submitting.checked(file, changes)
    if not is_url(results):
        what = f"{results!r} is no place in an object store, and pods share nothing else"
        raise InputError.one("--results", what, "write it as in s3://bucket/prefix")
    command = asked.command(check_url("--results", results))
    package = None if workdir else CodePackage.of(asked.root, include)
    if package is not None and package.left_out:
        click.echo(f"note: left out: {printable(', '.join(package.left_out))}", err=True)
    wanted = Pods(ray_version=version("ray"), workdir=workdir, **pods)
    click.echo(yaml_reader.write(manifests(asked.spec, command, package, wanted)), nl=False)
