"""``plan`` and ``schema``: check and price a sweep before it runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sweep.cli import options

if TYPE_CHECKING:
    from sweep.events import Params
    from sweep.runner import earlier_times, pricing
    from sweep.runner.lr_range_test import RateCurve
    from sweep.runner.planning import Plan
    from sweep.runner.throughput import Throughput
    from sweep.searchers import Searcher
    from sweep.spec import Spec


STANDARD_INPUT = Path("/dev/stdin")


def _parse_machines(
    context: click.Context, option: click.Parameter, given: tuple[str, ...]
) -> tuple[pricing.Machine, ...]:
    """Return the machines that the values of ``--compare-prices`` describe; () if there are none.

    A value is NAME=GPUS:PRICE or NAME=GPUS:PRICE:SECONDS: the number of GPUs, the price of a GPU-hour and, if given,
    the seconds of an epoch, which must be above 0. Raises click's BadParameter for any other value.
    """
    from sweep.runner.pricing import Machine

    machines = []
    for text in given:
        name, _, rest = text.partition("=")
        try:
            gpus, price, *epoch_s = map(float, rest.split(":"))
            is_valid = (
                name
                and len(epoch_s) < 2
                and gpus >= 0
                and price >= 0
                and isfinite(gpus + price)
                and all(0 < value < inf for value in epoch_s)
            )
        except ValueError:  # no number, or only one
            is_valid = False
        if not is_valid:
            raise click.BadParameter(
                f"{text!r} is no machine, expected NAME=GPUS:PRICE or NAME=GPUS:PRICE:SECONDS, as in A100=1:1.29:30"
            )
        machines.append(Machine(name, gpus, price, *epoch_s))
    return tuple(machines)


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@options.assignments
@options.results
@options.simulate_gpus
@click.option(
    "--address",
    envvar="RAY_ADDRESS",
    show_envvar=True,
    metavar="HOST:PORT",
    help="Say what fits on this Ray cluster, not on this machine.",
)
@click.option(
    "--time", "timed", is_flag=True, help="Train two epochs of two trials to predict the hours."
)
@click.option(
    "--find-lr",
    is_flag=True,
    help="Try rising learning rates on the first configurations; changes no result.",
)
@click.option(
    "--tune-throughput",
    is_flag=True,
    help="Measure the examples a second by batch size, precision and replicas; changes no result.",
)
@click.option(
    "--compare-prices",
    "machines",
    multiple=True,
    metavar="NAME=GPUS:PRICE[:SECONDS]",
    callback=_parse_machines,
    help="Show time and cost on a machine with this many GPUs, at this price for each GPU-hour and, if given, these "
    "seconds per epoch; repeatable.",
)
@click.option(
    "--stdin",
    "from_stdin",
    is_flag=True,
    hidden=True,
    help="Read the text of FILE from standard input.",
)
@options.as_json
def plan(
    file: Path,
    assignments: tuple[str, ...],
    results: Path,
    simulate_gpus: int | None,
    address: str | None,
    timed: bool,
    find_lr: bool,
    tune_throughput: bool,
    machines: tuple[pricing.Machine, ...],
    from_stdin: bool,
    as_json: bool,
) -> None:
    """Check a sweep file and price it; nothing is trained or kept.

    Hours are predicted from an earlier sweep of the same trainable in the results folder, or from --time. Only --time,
    --find-lr and --tune-throughput train something, for a short time.
    """
    from sweep import runner
    from sweep.runner import (
        checking,
        connecting,
        earlier_times,
        lr_range_test,
        methods,
        planning,
        power_analysis,
        pricing,
        sweep_files,
    )
    from sweep.spec import read_text

    # that of an editor may differ from the file's
    text = read_text(STANDARD_INPUT if from_stdin else file)
    spec = sweep_files.parse_file(text, file, assignments)
    folders = sweep_files.import_folders(file)
    source = checking.check_trainable(spec, str(file), folders, here=address is None)
    spec = checking.adapt_to_source(spec, source)
    # These train in this process, which is impossible for trials of several processes.
    trains = {"--time": timed, "--find-lr": find_lr, "--tune-throughput": tune_throughput}
    for option in (name for name, is_wanted in trains.items() if is_wanted):
        checking.check_inline(spec, option)

    # Called by `make_plan`, with the configurations that it has chosen.
    def timing(sample: Sequence[Params]) -> earlier_times.Timing | None:
        """Return the times of epochs, measured with ``--time`` or taken from earlier sweeps; None if unknown."""
        if not timed:
            return earlier_times.find_earlier_times(results, spec.trainable, simulate_gpus, sample)
        with runner.silence_libraries():
            return pricing.measure_epoch_times(
                spec, spec.resources.devices(simulate_gpus), folders, sample
            )

    # Called by `make_plan` before the searcher suggests anything, so that the plan has the configurations that `run`
    # would begin with.
    def learn(searcher: Searcher) -> None:
        """Teach the searcher the results of earlier sweeps that ``warm_start`` names; print notes on them."""
        taken = methods.record_warm_start(spec.warm_start, results)
        methods.learn_warm_start(
            searcher, taken, lambda text: click.echo(f"note: {text}", err=True), spec, results
        )

    for note in checking.list_notes(spec, source):
        click.echo(note, err=True)
    known = power_analysis.find_earlier_results(results, spec)
    room = None  # the number of trials that fit on a cluster; None: on this machine, where the plan counts it
    if address is not None:
        with runner.silence_libraries():
            room = connecting.count_trials_that_fit_cluster(
                address, spec.resources.devices(simulate_gpus), spec.resources
            )
    basis = planning.Basis(
        timing=timing, learn=learn, folders=folders, known=known, room=room, machines=machines
    )
    planned = planning.make_plan(spec, simulate_gpus, basis)
    curves = []
    if find_lr:
        with runner.silence_libraries():
            curves = lr_range_test.find_learning_rates(
                spec, spec.resources.devices(simulate_gpus), folders, planned.sample
            )
    speeds = None
    if tune_throughput:
        speeds = _measure_throughput(spec, folders, simulate_gpus, planned.sample[0])
    if as_json:
        click.echo(
            json.dumps(_describe_plan(planned, curves if find_lr else None, speeds), indent=2)
        )
    else:
        _print_plan(planned, curves, speeds)


def _measure_throughput(
    spec: Spec, folders: Sequence[Path], simulate_gpus: int | None, params: Params
) -> Throughput:
    """Measure the examples per second of different settings, with at most as many replicas as there are GPUs.

    ``params`` is the configuration that is trained. A trial that gets only a share of a GPU, or none, has one replica.
    ``simulate_gpus`` is the number of simulated GPUs, None for the machine's own. Raises what
    `throughput.measure_throughput` raises.
    """
    from sweep import runner
    from sweep.runner import throughput
    from sweep.store import sweep_info

    share = spec.resources.devices(simulate_gpus)
    max_replicas = 1
    if share.gpus >= 1:  # a trial with a share of a GPU, or without one, has a single replica
        max_replicas = simulate_gpus or len(sweep_info.gpus())
    with runner.silence_libraries():
        return throughput.measure_throughput(spec, share, folders, params, max_replicas)


def _describe_plan(
    planned: Plan, curves: Sequence[RateCurve] | None, speeds: Throughput | None
) -> dict[str, object]:
    """Return a plan as the dictionary of a `PlanDocument`.

    ``curves`` and ``speeds`` are None if they were not asked for, and then ``find_lr`` and ``throughput`` are None.
    """
    from sweep.render import plans as drawn

    content: dict[str, object] = {
        "version": 1,
        **drawn.as_dict(planned),
        "find_lr": None,
        "throughput": None,
    }
    if curves is not None:
        content["find_lr"] = [drawn.rates_as_dict(curve) for curve in curves]
    if speeds is not None:
        content["throughput"] = drawn.throughput_as_dict(speeds)
    return content


def _print_plan(planned: Plan, curves: Sequence[RateCurve], speeds: Throughput | None) -> None:
    """Print a plan for people, then the learning-rate range tests and the measured throughput, if there are any."""
    from sweep.render import console
    from sweep.render import plans as drawn

    drawn.show_plan(planned, console())
    for curve in curves:
        click.echo("\n" + "\n".join(drawn.rates_lines(curve)))
    if speeds is not None:
        click.echo()
        drawn.show_throughput(speeds, planned.sample[0], console())


@click.command()
@click.argument("name", default="file", metavar="[file|COMMAND|error|event]")
@options.as_json
def schema(name: str, as_json: bool) -> None:
    """Print the JSON Schema of sweep files, for editors, or of what a command prints with --json.

    `error` is what each command prints with --json if it fails, `event` is a line of a sweep's log.
    """
    from sweep.documents import schemas

    click.echo(json.dumps(schemas.find_schema(name), indent=2))
