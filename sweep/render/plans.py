"""Formats plans, histograms, learning-rate range tests and throughput measurements as text or plain data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from rich.cells import cell_len
from rich.console import Console

from sweep import prices
from sweep.events import Params, Value
from sweep.render import has_blocks
from sweep.render.tables import Grid, configurations_grid, print_table
from sweep.runner.confirming import ConfirmingPlan
from sweep.runner.lr_range_test import RATE, RateCurve
from sweep.runner.planning import Bin, Histogram, Plan
from sweep.runner.power_analysis import Detectable
from sweep.runner.pricing import ExpectedRung, Offer
from sweep.runner.throughput import Measured, SettingsCombination, Throughput
from sweep.space.feasible_points import DRAWS
from sweep.spec import Spec
from sweep.spec.blocks import StopWhen
from sweep.statistics.racing import FIRST_SEEDS
from sweep.text import counted, duration, format_setting, format_settings, money, score

WIDTH, HEIGHT = 64, 10
MARKS = {"steepest": "^", "diverged": "x"}


def rates_as_dict(curve: RateCurve) -> dict[str, Value]:
    """Return a learning-rate range test as plain data: its fields, and a tenth of the rate at which it diverged.

    The tenth is under ``tenth_of_diverged``; None if it did not diverge.
    """
    return {**asdict(curve), "tenth_of_diverged": curve.tenth}


def rates_lines(curve: RateCurve) -> list[str]:
    """Return lines that draw a learning-rate range test as text: smoothed losses over the logarithm of the rate.

    The last two lines have the suggested rates. If fewer than two rates were tried, only a title and one line that says
    why are returned.
    """
    title = f"{RATE} of {format_settings(curve.params, curve.params) or 'the first configuration'}"
    if len(curve.rates) < 2:
        return [
            title,
            f"  it diverged at {curve.diverged:.2g} already"
            if curve.diverged
            else "  nothing was tried",
        ]
    return [title, *_draw_curve(curve), *_describe_suggestions(curve)]


def _draw_curve(curve: RateCurve) -> list[str]:
    """Return the rows of the chart, with an axis and marks for the suggested rates below it.

    Losses far above those of the first half are drawn in the top row.
    """
    # the ends of the horizontal axis, as logarithms
    first = math.log10(curve.rates[0])
    last = math.log10(curve.diverged or curve.rates[-1])
    # The ends of the vertical axis. The upper one is half a range above the losses of the first half, because the
    # losses of a divergence would make all others look equal.
    low = min(curve.smoothed)
    high_of_first_half = max(curve.smoothed[: max(len(curve.smoothed) // 2, 1)])
    high = max(high_of_first_half + (high_of_first_half - low) * 0.5, low + 1e-12)
    grid = [[" "] * WIDTH for _ in range(HEIGHT)]  # rows of characters, the top row first
    for rate, loss in zip(curve.rates, curve.smoothed, strict=True):
        rows_above_bottom = round((min(loss, high) - low) / (high - low) * (HEIGHT - 1))
        grid[HEIGHT - 1 - rows_above_bottom][_compute_chart_column(rate, first, last)] = "•"
    labels = {0: f"{high:.4g}", HEIGHT - 1: f"{low:.4g}"}  # of the top and the bottom row
    rows = []
    for row, characters in enumerate(grid):
        rows.append(f"{labels.get(row, ''):>10} │{''.join(characters).rstrip()}")
    marks = [" "] * WIDTH
    for name, mark in MARKS.items():
        rate = getattr(curve, name)
        if rate is not None:
            marks[_compute_chart_column(rate, first, last)] = mark
    axis = "─" * WIDTH
    left_end = f"{curve.rates[0]:.0e}".ljust(WIDTH - 8)
    right_end = f"{10**last:.0e}".rjust(8)
    indent = " " * 12
    return [
        *rows,
        f"{'':>10} └{axis}",
        indent + "".join(marks).rstrip(),
        f"{indent}{left_end}{right_end}",
    ]


def _compute_chart_column(rate: float, first: float, last: float) -> int:
    """Return the column of a rate in the chart, from 0; the first or the last one for a rate beyond the ends.

    ``first`` and ``last`` are the decimal logarithms of the chart's ends.
    """
    share = (math.log10(rate) - first) / max(last - first, 1e-9)
    return min(max(round(share * (WIDTH - 1)), 0), WIDTH - 1)


def _describe_suggestions(curve: RateCurve) -> list[str]:
    """Return two lines: at which rate the loss falls fastest, and at which it diverges, each if it does at all."""
    if curve.steepest is None:
        falls = "nowhere"
    else:
        falls = f"at {curve.steepest:.2g}"
    up_to = f"{curve.rates[-1]:.2g}"
    rises = f"not up to {up_to}"
    if curve.diverged is not None:
        rises = f"at {curve.diverged:.2g}, a tenth: {curve.tenth:.2g}"
    return [f"  ^ falls fastest {falls}", f"  x diverges {rises}"]


_BARS = {False: " ▁▂▃▄▅▆▇█", True: " .:-=+*%@"}  # True: for a terminal that has only ASCII
_MANY_RUNGS = 8


def throughput_as_dict(found: Throughput) -> dict[str, Value]:
    """Return measurements of throughput as plain data: all combinations of settings in order, and the fastest one.

    The keys are ``tried`` and ``fastest``.
    """
    return {
        "tried": [_measured_as_dict(one) for one in found.tried],
        "fastest": _measured_as_dict(found.fastest),
    }


def _measured_as_dict(one: Measured) -> dict[str, Value]:
    """Return a measured combination of settings as plain data: the settings, and what was measured.

    ``examples_per_s`` is None if the combination failed, for the reason in ``failed``, which is otherwise "".
    """
    measured: dict[str, Value] = {
        "examples_per_s": one.examples_per_s if one.fits else None,
        "memory_bytes": one.memory_bytes,
    }
    return {**asdict(one.way), **measured, "failed": one.failed}


def show_throughput(found: Throughput, params: Params, target: Console) -> None:
    """Print the measured settings, and what to write in the sweep file to get the fastest one.

    ``params`` are the parameters of the measured configuration.
    """
    file, fastest = found.tried[0], found.fastest  # the setting of the sweep file is measured first
    target.print("examples a second, from what the file says, changed step by step", soft_wrap=True)
    names = (
        "batch_size",
        "precision",
        "micro_batches",
        "replicas",
        "examples_per_s",
        "times",
        "memory",
    )
    print_table(Grid(names, tuple(_make_measured_row(one, file) for one in found.tried)), target)
    for line in _list_advice(file.way, fastest.way, found.times, params):
        target.print(line, soft_wrap=True)


def _make_measured_row(measured: Measured, file: Measured) -> tuple[str, ...]:
    """Return the cells of a measured setting; its speed is compared to ``file``, the setting of the sweep file.

    They are the four settings, the examples a second, how many times those of ``file`` they are, and the memory in MB.
    If the setting failed, the cell of the speed has the error, and the one after it is empty.
    """
    way = measured.way
    speed = measured.failed
    times = ""
    if measured.fits:
        speed = f"{measured.examples_per_s:,.0f}"
        times = f"{measured.examples_per_s / file.examples_per_s:.2f}"
    if measured.memory_bytes is None:
        memory = ""
    else:
        memory = f"{measured.memory_bytes / 1e6:,.0f} MB"
    return (
        str(way.batch_size),
        way.precision,
        str(way.micro_batches),
        str(way.replicas),
        speed,
        times,
        memory,
    )


def _list_advice(
    file: SettingsCombination, fastest: SettingsCombination, times: float, params: Params
) -> Iterator[str]:
    """Yield lines that say what to write in the sweep file to get the fastest setting.

    ``times`` is how many times as fast it is as the setting ``file`` of the sweep file, ``params`` are the parameters
    of the measured configuration. If ``fastest`` is that setting, a single line says so. Otherwise further lines say
    what to consider if the batch size or the number of replicas is another.
    """
    if fastest == file:
        yield "fastest  what the file says"
        return
    lines = []
    if fastest.batch_size != file.batch_size:
        lines.append(f"batch_size: {{value: {fastest.batch_size}}}")
    if fastest.micro_batches != file.micro_batches:
        lines.append(f"micro_batches: {{value: {fastest.micro_batches}}}")
    if fastest.precision != file.precision:
        lines.append(f"training: {{precision: {fastest.precision}}}")
    if fastest.replicas != file.replicas:
        lines.append(f"resources: {{gpus: {fastest.replicas}}}")
    yield f"fastest  {times:.1f} times the examples a second with {', '.join(lines)}"
    if fastest.batch_size != file.batch_size:
        if "lr_scaling" in params:
            rate = " and lr_scaling says how it follows"
        else:
            rate = ""
        yield f"         Another batch size trains another model: search the learning rate with it{rate}."
    if fastest.replicas != file.replicas:
        yield "         Several replicas end each trial sooner, but a sweep trains more if each GPU has its own trial."


def show_plan(plan: Plan, target: Console) -> None:
    """Print a plan: its facts, its price on other machines, the first configurations, and the distributions of values.

    Facts that do not apply are left out. ``target`` is the console to print to.
    """
    spec = plan.spec
    target.print(f"{spec.name}: {spec.method} over {spec.trainable}", soft_wrap=True)
    method, rule = spec.chosen or ("", "")
    lines = {
        "method": method,
        "rule": rule,
        "trials": f"{_describe_trial_count(plan)}{_describe_repeats(spec)}",
        "constraints": _describe_constraints(plan),
        "epochs": _describe_epochs(plan),
        "rungs": _describe_rungs(plan),
        "resources": _describe_resources(plan),
        "numbers": "never the same twice: workers train asynchronously"
        if spec.resources.servers
        else "",
        f"at once {'there' if plan.on_cluster else 'here'}": _describe_concurrency(plan),
        "objective": ", ".join(f"{o.goal} {o.name}" for o in spec.objectives),
        "prior": _describe_prior(spec),
        "feasible": ", ".join(one.text for one in spec.constraints),
        "ends": _describe_limits(spec),
        "takes": _describe_hours(plan),
        "costs": _describe_cost(plan),
        "baseline": _describe_baseline(plan),
        "confirms": _describe_confirmation(plan),
        "tells": "" if spec.population else _describe_detectable(plan.telling),
        "held out": _describe_held_out(plan.telling),
    }
    for name, text in lines.items():
        if text:
            target.print(f"  {name:<12} {text}", soft_wrap=True)
    if plan.offers:
        target.print("on other machines")
        print_table(offers_grid(plan.offers), target)
    target.print("first configurations")
    print_table(configurations_grid(plan.sample), target)
    if plan.histograms:
        target.print(f"values in {plan.looked_at}")
        ascii_only = not has_blocks(target.encoding)
        for line in _histogram_lines(
            plan.histograms, counts=spec.search_method.enumerates, ascii_only=ascii_only
        ):
            target.print(line, soft_wrap=True)


def _describe_repeats(spec: Spec) -> str:
    """Describe how often each configuration is trained, in parentheses after a space; "" if it is trained once."""
    times = []
    if spec.folds:
        times.append(f"{spec.folds} folds")
    if spec.repeats > 1:
        times.append(f"{spec.repeats} repeats")
    if not times:
        return ""
    return f" ({' and '.join(times)} of each configuration)"


def _describe_resources(plan: Plan) -> str:
    """Describe the CPUs, GPUs and workers of a trial, and whether its GPUs are simulated."""
    spec, devices = plan.spec, plan.devices
    of_worker = f"{devices.cpus:g} CPU"
    if devices.gpus:
        if spec.resources.gpus == "auto":
            of_worker += ", a GPU, shared as measured"
        else:
            of_worker += f", {devices.gpus:g} GPU"
    text = f"{_describe_workers(spec, of_worker)} a trial"
    if devices.simulated:
        return f"{text} (simulated)"
    return text


def price_line(plan: Plan) -> str:
    """Summarize trials, epochs, time and cost of a plan in one line; leave out time and cost that are not known."""
    parts = [
        f"trials {_describe_trial_count(plan)}",
        f"epochs {_describe_epochs(plan)}",
        _describe_hours(plan) if plan.time_of_units else "",
        _describe_cost(plan),
    ]
    return "; ".join(part for part in parts if part)


def as_dict(plan: Plan) -> dict[str, Value]:
    """Return a plan as plain data, as `sweep plan --json` prints it.

    Among the values are the sweep file, the expected trials, epochs, hours and GPU hours, the first configurations
    under ``sample``, and ``histograms`` by parameter. What is unknown or does not apply is None or empty.
    """
    timing = plan.timing
    return {
        "sweep": plan.spec.to_json_dict(),
        "auto": list(plan.spec.chosen),
        "trials": plan.trials,
        "epochs": plan.epochs,
        "allowed": plan.allowed,
        "choosing_s": plan.choosing_s,
        "concurrent": plan.concurrent,
        "resources": {
            "cpus": plan.devices.cpus,
            "gpus": plan.spec.resources.gpus,
            "workers": plan.spec.resources.workers,
            "servers": plan.spec.resources.servers,
            "simulated": plan.devices.simulated,
        },
        "rungs": [{"epoch": rung.epoch, "expected_trials": rung.trials} for rung in plan.rungs],
        "expected": {
            "trials": plan.price.trials,
            "epochs": plan.price.epochs,
            "hours": plan.price.hours,
            "gpu_hours": plan.gpu_hours,
        },
        "confirm": None if plan.confirming is None else asdict(plan.confirming),
        "timing": None if timing is None else asdict(timing),
        "telling": asdict(plan.telling),
        "offers": [asdict(one) for one in plan.offers],
        "sample": [dict(params) for params in plan.sample],
        "looked_at": plan.looked_at,
        "histograms": {one.name: _histogram_dict(one) for one in plan.histograms},
    }


def _histogram_dict(one: Histogram) -> Value:
    """Return a histogram as plain data: ``of`` configurations, ``present`` have the parameter, ``bins`` their values.

    A bin has a ``count``, and either a ``value`` or the range ``from`` and ``to``.
    """
    bins: list[Value] = []
    for bin in one.bins:
        if bin.high is None:
            bins.append({"value": bin.low, "count": bin.count})
        else:
            bins.append({"from": bin.low, "to": bin.high, "count": bin.count})
    return {"of": one.of, "present": one.present, "bins": bins}


def _describe_concurrency(plan: Plan) -> str:
    """Describe how many trials are trained at once; with fused trials, how many workers there are for them."""
    if not plan.concurrent:
        return "none: this machine has too little for a trial"
    if plan.spec.resources.gpus == "auto":
        more = ", or more if several fit on a GPU and run faster together"
    else:
        more = ""
    if plan.spec.together > 1:
        if plan.spec.training.get("fuse") == "auto":
            condition = " where that is faster"
        else:
            condition = ""
        # then the number is that of workers
        more = f" workers, each with up to {plan.spec.together} trials of one structure{condition}"
    return f"{plan.concurrent}{more}"


def _describe_workers(spec: Spec, each: str) -> str:
    """Describe the processes of a trial, where ``each`` describes what one worker has; ``each`` alone for one worker.

    Servers are those of the parameter server strategy, which also has a coordinator.
    """
    workers = spec.resources.workers
    servers = spec.resources.servers
    if servers:
        cpus = f"{spec.resources.cpus:g} CPU"
        named = f"{counted(workers, 'worker')} of {each}, {counted(servers, 'server')}"
        return f"{named} and a coordinator of {cpus}"
    if workers == 1:
        return each
    return f"{workers} workers of {each}"


def _describe_trial_count(plan: Plan) -> str:
    """Describe the number of trials; if it is not fixed, the number that is expected within the budget, if known."""
    population = plan.spec.population
    if population is not None:
        copies = population.most_trials - population.size
        return f"{population.size} members, and up to {copies} copies"
    if plan.trials is not None:
        return str(plan.trials)
    expected = plan.price.trials
    if plan.spec.endless:
        return f"until you stop it; what follows is for {expected:.0f}"
    if expected is None:
        return "no fixed number"
    return f"no fixed number, about {expected:.0f} within the budget"


def _describe_constraints(plan: Plan) -> str:
    """Describe how rarely random points meet the constraints of the space; "" if that was not estimated.

    That is so for a space without constraints.
    """
    if plan.allowed is None:
        return ""
    if plan.allowed:
        share = f"about 1 random point in {1 / plan.allowed:,.3g}"
    else:  # none was found
        share = f"hardly a random point of {DRAWS:,}"
    return f"met by {share}; a configuration takes {score(plan.choosing_s)} s to choose"


def _describe_prior(spec: Spec) -> str:
    """List the values that the sweep file believes to be good, with their confidence; "" if there are none."""
    described = []
    for parameter in spec.space.parameters:
        belief = parameter.belief
        if belief is not None:
            described.append(
                f"{parameter.name} {format_setting(belief.value)} ({belief.confidence})"
            )
    return ", ".join(described)


def _describe_epochs(plan: Plan) -> str:
    """Describe the epochs of a trial, and those of all trials: at most, and as expected if that differs."""
    if plan.spec.minutes is not None:
        return _describe_minutes(plan, plan.spec.minutes)
    shortest, longest = plan.lengths
    if shortest == longest:
        each = str(longest)
    else:
        each = f"{shortest} to {longest}"
    text = f"{each} a trial" + ("" if plan.epochs is None else f", {plan.epochs} in all")
    expected = plan.price.epochs
    if expected is not None and round(expected) != plan.epochs:
        text += f", about {expected:.0f} expected"
    return text


def _describe_minutes(plan: Plan, minutes: float) -> str:
    """Describe the length of trials that end after ``minutes`` of training, and the expected epochs if they are known.

    If a number of epochs ends them as well, that is named first.
    """
    many = f"as many as {minutes:g} minutes of training allow"
    text = f"{many} a trial"
    if plan.epochs is not None:
        text = f"{plan.lengths[1]} a trial, or {many}; {plan.epochs} in all at most"
    expected = plan.price.epochs
    if expected is None:
        return text
    return f"{text}, about {expected:.0f} expected"


def _describe_rungs(plan: Plan) -> str:
    """Describe at which epochs trials can be pruned or pause, and how many are expected to get there; "" if none can.

    Of many epochs, only the number, the first and the last are named. Rungs of trials that only minutes limit are
    shares of these, of which the first `_MANY_RUNGS` are named.
    """
    rungs = plan.rungs
    if not rungs:
        return ""
    if plan.spec.early_terminate.pauses:
        what = "pause"
    else:
        what = "be pruned"
    if not plan.spec.counts_epochs:
        shares = ", ".join(map(_format_share, rungs[:_MANY_RUNGS]))
        return f"trials can {what} after {shares} of their minutes"
    if len(rungs) > _MANY_RUNGS:
        return (
            f"trials can {what} at {len(rungs)} epochs from {rungs[0].epoch} to {rungs[-1].epoch}"
        )
    if plan.lacks_times:
        reached = "; the rule decides by the time of epochs, which is not known: --time measures it"
    elif rungs[0].trials is None:
        reached = ""
    else:
        reached = " (trials expected to reach it)"
    return f"trials can {what} at epoch {', '.join(map(_format_rung, rungs))}{reached}"


def _format_rung(rung: ExpectedRung) -> str:
    """Return the epoch of a rung and, if it is known, the number of trials that are expected to reach it."""
    return str(rung.epoch) + ("" if rung.trials is None else f" ({rung.trials:.0f})")


def _format_share(rung: ExpectedRung) -> str:
    """Return the percentage of the minutes at which a rung is and, if known, the number of trials to reach it."""
    return f"{rung.epoch} %" + ("" if rung.trials is None else f" ({rung.trials:.0f})")


def _describe_limits(spec: Spec) -> str:
    """Describe the limits that may end the sweep before all trials have been trained; "" if there are none."""
    budget = spec.budget
    limits = (
        (budget.hours, "hours"),
        (budget.gpu_hours, "GPU hours"),
        (budget.epochs, "epochs"),
        (budget.money, "in money"),
    )
    reasons = []
    for limit, unit in limits:
        if limit is not None:
            reasons.append(f"after {limit:g} {unit}")
    metric = spec.metrics[0]  # a target of another one has no effect
    if metric.target is not None:
        reasons.append(f"when {metric.name} reaches {metric.target:g}")
    if spec.stop_when is not None:
        reasons += _describe_stop(spec.stop_when)
    return " or ".join(reasons)


def _describe_stop(when: StopWhen) -> list[str]:
    """Return descriptions of the conditions of `stop_when`, under which the search ends early, one for each."""
    reasons = []
    if when.no_improvement is not None:
        reasons.append(f"after {when.no_improvement} trials without a better one")
    too_little_gain = "once the next 8 configurations promise less than"
    if when.gain is not None:
        if when.gain == "auto":
            least = "seeds and examples can tell"
        else:
            least = f"{when.gain:g}"
        reasons.append(f"{too_little_gain} {least}")
    if when.gain_per_hour is not None:
        reasons.append(f"{too_little_gain} {when.gain_per_hour:g} for an hour of training")
    return reasons


def _describe_hours(plan: Plan) -> str:
    """Describe how long the sweep will take, and the times of epochs and trials from which that was computed.

    If these are not known, say how to measure them. The text is never empty.
    """
    timing, hours = plan.timing, plan.price.hours
    if plan.spec.minutes is not None and hours is not None:
        if timing is None:
            each = "besides what trials take to start"
            source = ""
        else:
            each = f"{score(timing.trial_s)} s to start a trial"
            source = f" ({timing.source})"
        most = f"{plan.spec.minutes:g} minutes of training a trial at most"
        return f"about {duration(hours * 3600)}: {most}, {each}{source}"
    if timing is None:
        return "not known: time one epoch with --time, or name earlier results with --results DIR"
    measured = f"{score(timing.epoch_s)} s an epoch, {score(timing.trial_s)} s more a trial ({timing.source})"
    if hours is None:
        return measured
    return f"about {duration(hours * 3600)}: {measured}"


def _describe_cost(plan: Plan) -> str:
    """Describe the cost of the GPUs; "" if no price is set or trials use no GPU."""
    price = plan.spec.resources.price
    hours = plan.gpu_hours
    if price is None or not plan.devices.gpus:
        return ""
    low, high = prices.find_price_bounds(price)
    if low == high:
        each = f"{money(low)} a GPU hour"
    else:
        each = f"{money(low)} to {money(high)} a GPU hour"
    if hours is None:
        return each
    if low == high:
        total = money(hours * low)
    else:
        total = f"{money(hours * low)} to {money(hours * high)}"
    return f"about {total}: {hours:.3g} GPU hours at {each}"


def offers_grid(offers: Sequence[Offer]) -> Grid:
    """Tabulate time and cost of the sweep on other machines, one row for each, in the given order."""
    names = ("machine", "GPUs", "at once", "s an epoch", "takes", "costs")
    return Grid(names, tuple(_offer_row(offer) for offer in offers))


def _offer_row(offer: Offer) -> tuple[str, ...]:
    """Return the cells of one machine in `offers_grid`: name, GPUs, trials at once, seconds an epoch, time and cost.

    A time or cost that cannot be estimated is ``not known``.
    """
    machine = offer.machine
    if offer.hours is None:
        takes = "not known"
    else:
        takes = duration(offer.hours * 3600)
    if offer.cost is None:
        costs = "not known"
    else:
        costs = money(offer.cost)
    return (
        machine.name,
        f"{machine.gpus:g}",
        str(offer.at_once),
        score(machine.epoch_s),
        takes,
        costs,
    )


def _describe_baseline(plan: Plan) -> str:
    """Describe the parameters of the baseline, and how many trials train it; "" if the sweep has none."""
    spec = plan.spec
    if spec.baseline is None:
        return ""
    times = f"{counted(spec.baseline_trials, 'trial')} of its own"
    return f"{format_settings(spec.baseline, spec.baseline)}: {times}"


def _describe_confirmation(plan: Plan) -> str:
    """Describe the largest confirmation that the budget allows: trials, epochs, time, finalists and seeds.

    Returns "" if the sweep has no confirmation. If the budget allows fewer than `FIRST_SEEDS` fresh seeds, nothing is
    confirmed, and the text says so. The time is left out if it is not known.
    """
    largest = plan.confirming
    confirm = plan.spec.confirm
    if largest is None or confirm is None:
        return ""
    finalists = f"{largest.finalists} finalists"
    if largest.seeds < FIRST_SEEDS:
        return f"nothing: {confirm.budget} of the search allows {counted(largest.seeds, 'fresh seed')} for {finalists}"
    if largest.seeds < confirm.seeds:
        limited = f", for {confirm.budget} of the search allows no more"
    else:
        limited = ""
    takes = ""
    timing = plan.time_of_units
    if timing is not None:
        total_s = timing.trial_s * largest.trials + timing.epoch_s * largest.epochs
        if total_s:
            takes = f", about {duration(total_s / max(plan.concurrent or 1, 1))}"
    more = f"{largest.trials} trials and {largest.epochs} epochs more"
    if plan.spec.minutes is not None:
        more = f"{largest.trials} trials of at most {plan.spec.minutes:g} minutes more"
    return f"at most {more}{takes}: {finalists}, {largest.seeds} fresh seeds each{limited}"


def describe_confirming(plan: ConfirmingPlan, name: str) -> str:
    """Describe in one line what `confirm` will train at most, and the time and cost of it as far as they are known.

    ``name`` is the name of the sweep. If nothing is left to train, the line says why. If the budget limits the number
    of seeds, the line says so and, if it is known, which larger budget would be enough.
    """
    if not plan.trials:
        return f"{name}: nothing to train: {plan.over}"
    if plan.minutes is None:
        what = (
            f"{counted(plan.trials, 'training')} with fresh seeds, {counted(plan.epochs, 'epoch')}"
        )
    else:
        what = f"{counted(plan.trials, 'training')} of {plan.minutes:g} minutes with fresh seeds"
    if plan.hours is not None:
        what += f", about {duration(plan.hours * 3600)}"
    if plan.cost is not None:
        low, high = plan.cost
        what += f", about {money(low)}" if low == high else f", about {money(low)} to {money(high)}"
    text = f"{name}: at most {what}: {plan.finalists} finalists, {counted(plan.seeds, 'seed')} each"
    if plan.budget:
        text += f", for {plan.budget} of the search allows no more"
    if plan.larger:
        text += f"; that is too few to tell them apart, which --budget {plan.larger} would allow"
    return text


def _describe_detectable(one: Detectable) -> str:
    """Describe which differences between configurations the seeds can detect; "" for a single configuration.

    If there are too few seeds, or if no earlier sweep shows the spread over seeds, the text says that.
    """
    if one.configurations == 1:
        return ""
    if one.seeds < one.needed:
        if one.configurations is None:
            number = "two"
        else:
            number = str(one.configurations)
        if one.seeds == 1:
            times = "one seed"
        else:
            times = f"{one.seeds} seeds"
        need = f"{number} configurations need {one.needed} seeds each, and have {times}"
        return f"no difference: to tell one from luck, {need}"
    if one.confirmed:
        seeds = f"up to {one.seeds} fresh seeds of each finalist"
    else:
        seeds = f"{one.seeds} seeds each"
    if one.by_seeds is None or one.known is None:
        return (
            f"differences of unknown size, by {seeds}: no earlier sweep shows the spread over seeds"
        )
    spread = f"a spread of {score(one.known.spread or 0.0)} (sweep {one.known.sweep})"
    return f"differences from {one.by_seeds:.2g} on, by {seeds} and {spread}"


def _describe_held_out(one: Detectable) -> str:
    """Describe which differences may be due to the choice of validation examples; "" if unknown.

    More seeds do not make this error smaller.
    """
    if one.examples is None or one.known is None:
        return ""
    error = one.examples  # the error of a score that is due to the choice of examples
    text = (
        f"{error.examples} validation examples: at {error.metric} {score(error.level)} (sweep {one.known.sweep}), "
        f"differences below {error.difference:.2g} may be due to the choice of examples"
    )
    if one.examples_needed is None:
        return text
    return f"{text}; about {one.examples_needed:,} examples would match what the seeds can detect"


def _histogram_lines(
    found: tuple[Histogram, ...], *, counts: bool, ascii_only: bool
) -> Iterator[str]:
    """Yield a line for each parameter: its name, then bars for a range, or shares for a choice.

    With ``counts``, choices have counts instead of percentages; with ``ascii_only``, bars are drawn with ASCII
    characters. For a parameter that only some configurations have, the line ends with their share; if none has it, the
    line only says that. ``found`` must not be empty.
    """
    width = max(cell_len(one.name) for one in found)
    for one in found:
        if not one.present:
            text = "in none of them"
        elif one.bins[0].high is None:  # a choice, whose bins are single values
            text = _format_shares(one, counts=counts)
        else:
            text = _draw_bars(one.bins, ascii_only=ascii_only)
        if one.present in (0, one.of):
            share = ""
        else:
            share = f", in {100 * one.present / one.of:.0f} % of them"
        yield f"{one.name}{' ' * (width - cell_len(one.name))}  {text}{share}"


def _draw_bars(bins: tuple[Bin, ...], *, ascii_only: bool) -> str:
    """Return a character for each bin, by its count relative to the largest, between the ends of the range.

    At least one bin must have a count.
    """
    highest = max(bin.count for bin in bins)
    heights = _BARS[ascii_only]
    bars = ""
    for bin in bins:
        # rounded up, so that only an empty bin has no bar
        height = math.ceil(bin.count * (len(heights) - 1) / highest)
        bars += heights[height]
    return f"{format_setting(bins[0].low)} {bars} {format_setting(bins[-1].high)}"


def _format_shares(one: Histogram, *, counts: bool) -> str:
    """Return each value of a choice with its share of the configurations that have the parameter.

    With ``counts``, it is the number of configurations instead.
    """
    cells = []
    for bin in one.bins:
        if counts:
            share = f"x{bin.count}"
        else:
            share = f"{100 * bin.count / one.present:.0f} %"
        cells.append(f"{format_setting(bin.low)} {share}")
    return ", ".join(cells)
