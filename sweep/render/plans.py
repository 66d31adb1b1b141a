"""Show a plan, its histograms and a learning-rate range test on a terminal, or return them as plain data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from rich.cells import cell_len
from rich.console import Console

from sweep import prices
from sweep.events import Params, Value
from sweep.render import has_blocks
from sweep.render.tables import Grid, configurations_grid, grid_of, show
from sweep.runner.lr_range_test import RATE, Curve
from sweep.runner.planning import Bin, Histogram, Plan
from sweep.runner.power_analysis import Detectable
from sweep.runner.pricing import Offer, Rung
from sweep.runner.throughput import Measured, Throughput, Way
from sweep.space import DRAWS
from sweep.space.early_terminate import FreezeThaw, Pasha, PausingRule
from sweep.spec import Spec
from sweep.statistics import FIRST_SEEDS
from sweep.text import counted, duration, money, score, setting, settings

WIDTH, HEIGHT = 64, 10
MARKS = {"steepest": "^", "diverged": "x"}


def rates_as_dict(curve: Curve) -> dict[str, Value]:
    return {**asdict(curve), "tenth_of_diverged": curve.tenth}


def rates_lines(curve: Curve) -> list[str]:
    """Return the curve as text: smoothed losses over the logarithm of the rate, and the two suggestions."""
    title = f"{RATE} of {settings(curve.params, curve.params) or 'the first configuration'}"
    if len(curve.rates) < 2:
        return [title, f"  it diverged at {curve.diverged:.2g} already" if curve.diverged else "  nothing was tried"]
    return [title, *_plot(curve), *_said(curve)]


def _plot(curve: Curve) -> list[str]:
    first, last = math.log10(curve.rates[0]), math.log10(curve.diverged or curve.rates[-1])
    low = min(curve.smoothed)
    high = max(curve.smoothed[: max(len(curve.smoothed) // 2, 1)])
    high = max(high + (high - low) * 0.5, low + 1e-12)
    grid = [[" "] * WIDTH for _ in range(HEIGHT)]
    for rate, loss in zip(curve.rates, curve.smoothed, strict=True):
        row = round((min(loss, high) - low) / (high - low) * (HEIGHT - 1))
        grid[HEIGHT - 1 - row][_column(rate, first, last)] = "•"
    labels = {0: f"{high:.4g}", HEIGHT - 1: f"{low:.4g}"}
    rows = [f"{labels.get(i, ''):>10} │{''.join(line).rstrip()}" for i, line in enumerate(grid)]
    marks = [" "] * WIDTH
    for name, mark in MARKS.items():
        rate = getattr(curve, name)
        if rate is not None:
            marks[_column(rate, first, last)] = mark
    ends = f"{curve.rates[0]:.0e}".ljust(WIDTH - 8) + f"{10**last:.0e}".rjust(8)
    return [*rows, f"{'':>10} └{'─' * WIDTH}", f"{'':>12}{''.join(marks).rstrip()}", f"{'':>12}{ends}"]


def _column(rate: float, first: float, last: float) -> int:
    share = (math.log10(rate) - first) / max(last - first, 1e-9)
    return min(max(round(share * (WIDTH - 1)), 0), WIDTH - 1)


def _said(curve: Curve) -> list[str]:
    falls = "nowhere" if curve.steepest is None else f"at {curve.steepest:.2g}"
    up_to = f"{curve.rates[-1]:.2g}"
    rises = f"not up to {up_to}" if curve.diverged is None else f"at {curve.diverged:.2g}, a tenth: {curve.tenth:.2g}"
    return [f"  ^ falls fastest {falls}", f"  x diverges {rises}"]


_BARS = {False: " ▁▂▃▄▅▆▇█", True: " .:-=+*%@"}  # for a terminal that has ASCII alone
_MANY_RUNGS = 8


def throughput_as_dict(found: Throughput) -> dict[str, Value]:
    """Return what was measured for JSON: all ways in their order, and the fastest."""
    return {"tried": [_way(one) for one in found.tried], "fastest": _way(found.fastest)}


def _way(one: Measured) -> dict[str, Value]:
    memory = one.memory_bytes
    numbers: dict[str, Value] = {"examples_per_s": one.examples_per_s if one.fits else None, "memory_bytes": memory}
    return {**asdict(one.way), **numbers, "failed": one.failed}


def show_throughput(found: Throughput, params: Params, target: Console) -> None:
    """Print the ways that were tried, and what to write for the fastest."""
    file, fastest = found.tried[0], found.fastest
    target.print("examples a second, from what the file says, changed step by step", soft_wrap=True)
    columns: dict[str, list[str]] = {
        "batch_size": [str(one.way.batch_size) for one in found.tried],
        "precision": [one.way.precision for one in found.tried],
        "micro_batches": [str(one.way.micro_batches) for one in found.tried],
        "replicas": [str(one.way.replicas) for one in found.tried],
        "examples_per_s": [f"{one.examples_per_s:,.0f}" if one.fits else one.failed for one in found.tried],
        "times": [f"{one.examples_per_s / file.examples_per_s:.2f}" if one.fits else "" for one in found.tried],
        "memory": ["" if one.memory_bytes is None else f"{one.memory_bytes / 1e6:,.0f} MB" for one in found.tried],
    }
    show(grid_of(columns), target)
    for line in _advice(file.way, fastest.way, found.times, params):
        target.print(line, soft_wrap=True)


def _advice(file: Way, fastest: Way, times: float, params: Params) -> Iterator[str]:
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
        rate = " and lr_scaling says how it follows" if "lr_scaling" in params else ""
        yield f"         Another batch size trains another model: search the learning rate with it{rate}."
    if fastest.replicas != file.replicas:
        yield "         Several replicas end each trial sooner, but a sweep trains more if each GPU has its own trial."


def show_plan(plan: Plan, target: Console) -> None:
    """Print what a sweep will do."""
    spec, share = plan.spec, plan.devices
    target.print(f"{spec.name}: {spec.method} over {spec.trainable}", soft_wrap=True)
    gpus = "a GPU, shared as measured" if spec.resources.gpus == "auto" else f"{share.gpus:g} GPU"
    each = f"{share.cpus:g} CPU" + (f", {gpus}" if share.gpus else "")
    times = [f"{spec.folds} folds"] if spec.folds else []
    times += [f"{spec.repeats} repeats"] if spec.repeats > 1 else []
    repeats = f" ({' and '.join(times)} of each configuration)" if times else ""
    method, rule = spec.chosen or ("", "")
    lines = {
        "method": method,
        "rule": rule,
        "trials": f"{_trials(plan)}{repeats}",
        "constraints": _constraints(plan),
        "epochs": _epochs(plan),
        "rungs": _rungs(plan),
        "resources": f"{_workers(spec, each)} a trial" + (" (simulated)" if share.simulated else ""),
        "numbers": "never the same twice: workers train asynchronously" if spec.resources.servers else "",
        f"at once {'there' if plan.on_cluster else 'here'}": _at_once(plan),
        "objective": ", ".join(f"{o.goal} {o.name}" for o in spec.objectives),
        "prior": _prior(spec),
        "feasible": ", ".join(one.text for one in spec.constraints),
        "ends": _ends(spec),
        "takes": _hours(plan),
        "costs": _cost(plan),
        "baseline": _baseline(plan),
        "confirms": _confirms(plan),
        "tells": "" if spec.population else _tells(plan.telling),
        "held out": _held_out(plan.telling),
    }
    for name, text in lines.items():
        if text:
            target.print(f"  {name:<12} {text}", soft_wrap=True)
    if plan.offers:
        target.print("on other machines")
        show(offers_grid(plan.offers), target)
    target.print("first configurations")
    show(configurations_grid(plan.sample), target)
    if plan.histograms:
        target.print(f"values in {plan.looked_at}")
        for line in _histogram_lines(
            plan.histograms, counts=plan.spec.method == "grid", ascii_only=not has_blocks(target.encoding)
        ):
            target.print(line, soft_wrap=True)


def price_line(plan: Plan) -> str:
    """Return what a sweep trains, takes and costs, as far as that is known, in a line."""
    parts = [f"trials {_trials(plan)}", f"epochs {_epochs(plan)}", _hours(plan) if plan.timing else "", _cost(plan)]
    return "; ".join(part for part in parts if part)


def as_dict(plan: Plan) -> dict[str, Value]:
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
    bins: list[Value] = []
    for bin in one.bins:
        place: dict[str, Value] = {"value": bin.low} if bin.high is None else {"from": bin.low, "to": bin.high}
        bins.append({**place, "count": bin.count})
    return {"of": one.of, "present": one.present, "bins": bins}


def _at_once(plan: Plan) -> str:
    if not plan.concurrent:
        return "none: this machine has too little for a trial"
    more = ", or more if several fit on a GPU and run faster together" if plan.spec.resources.gpus == "auto" else ""
    if plan.spec.together > 1:
        auto = " where that is faster" if plan.spec.training.get("fuse") == "auto" else ""
        more = f" workers, each with up to {plan.spec.together} trials of one structure{auto}"
    return f"{plan.concurrent}{more}"


def _workers(spec: Spec, each: str) -> str:
    workers, servers = spec.resources.workers, spec.resources.servers
    if servers:
        cpus = f"{spec.resources.cpus:g} CPU"
        named = f"{counted(workers, 'worker')} of {each}, {counted(servers, 'server')}"
        return f"{named} and a coordinator of {cpus}"
    return each if workers == 1 else f"{workers} workers of {each}"


def _trials(plan: Plan) -> str:
    rules = plan.spec.population
    if rules is not None:
        return f"{rules.size} members, and up to {rules.most_trials - rules.size} copies"
    if plan.trials is not None:
        return str(plan.trials)
    expected = plan.price.trials
    if plan.spec.endless:
        return f"until you stop it; what follows is for {expected:.0f}"
    return "no fixed number" + ("" if expected is None else f", about {expected:.0f} within the budget")


def _constraints(plan: Plan) -> str:
    if plan.allowed is None:
        return ""
    met = f"about 1 random point in {1 / plan.allowed:,.3g}" if plan.allowed else f"hardly a random point of {DRAWS:,}"
    return f"met by {met}; a configuration takes {score(plan.choosing_s)} s to choose"


def _prior(spec: Spec) -> str:
    beliefs = {one.name: one.belief for one in spec.space.parameters if one.belief is not None}
    return ", ".join(f"{name} {setting(one.value)} ({one.confidence})" for name, one in beliefs.items())


def _epochs(plan: Plan) -> str:
    shortest, longest = plan.lengths
    each = str(longest) if shortest == longest else f"{shortest} to {longest}"
    text = f"{each} a trial" + ("" if plan.epochs is None else f", {plan.epochs} in all")
    expected = plan.price.epochs
    if expected is not None and round(expected) != plan.epochs:
        text += f", about {expected:.0f} expected"
        text += ", more where trials change ranks" if isinstance(plan.spec.early_terminate, Pasha | FreezeThaw) else ""
    return text


def _rungs(plan: Plan) -> str:
    rungs, do = plan.rungs, "pause" if isinstance(plan.spec.early_terminate, PausingRule) else "be pruned"
    if not rungs:
        return ""
    if len(rungs) > _MANY_RUNGS:
        return f"trials can {do} at {len(rungs)} epochs from {rungs[0].epoch} to {rungs[-1].epoch}"
    reached = " (trials expected to reach it)" if rungs[0].trials is not None else ""
    return f"trials can {do} at epoch {', '.join(map(_rung, rungs))}{reached}"


def _rung(rung: Rung) -> str:
    return str(rung.epoch) + ("" if rung.trials is None else f" ({rung.trials:.0f})")


def _ends(spec: Spec) -> str:
    """Return what may end the sweep before its trials do."""
    budget, metric = spec.budget, spec.metrics[0]
    bounds = (
        (budget.hours, "hours"),
        (budget.gpu_hours, "GPU hours"),
        (budget.epochs, "epochs"),
        (budget.money, "in money"),
    )
    reasons = [f"after {bound:g} {unit}" for bound, unit in bounds if bound is not None]
    if metric.target is not None:
        reasons.append(f"when {metric.name} reaches {metric.target:g}")
    if spec.stop_when is not None:
        reasons.append(f"after {spec.stop_when.no_improvement} trials without a better one")
    return " or ".join(reasons)


def _hours(plan: Plan) -> str:
    timing, hours = plan.timing, plan.price.hours
    if timing is None:
        return "not known: time one epoch with --time, or name earlier results with --results DIR"
    measured = f"{score(timing.epoch_s)} s an epoch, {score(timing.trial_s)} s more a trial ({timing.source})"
    return measured if hours is None else f"about {duration(hours * 3600)}: {measured}"


def _cost(plan: Plan) -> str:
    """Return what the GPUs of a sweep cost, where they have a price."""
    price, hours = plan.spec.resources.price, plan.gpu_hours
    if price is None or not plan.devices.gpus:
        return ""
    low, high = prices.bounds(price)
    each = f"{money(low)} a GPU hour" if low == high else f"{money(low)} to {money(high)} a GPU hour"
    if hours is None:
        return each
    total = money(hours * low) if low == high else f"{money(hours * low)} to {money(hours * high)}"
    return f"about {total}: {hours:.3g} GPU hours at {each}"


def offers_grid(offers: Sequence[Offer]) -> Grid:
    """Return what a sweep would take on other machines."""
    rows = [
        [
            one.machine.name,
            f"{one.machine.gpus:g}",
            str(one.at_once),
            score(one.machine.epoch_s),
            "not known" if one.hours is None else duration(one.hours * 3600),
            "not known" if one.cost is None else money(one.cost),
        ]
        for one in offers
    ]
    return Grid(("machine", "GPUs", "at once", "s an epoch", "takes", "costs"), tuple(map(tuple, rows)))


def _baseline(plan: Plan) -> str:
    spec = plan.spec
    if spec.baseline is None:
        return ""
    times = f"{counted(spec.baseline_trials, 'trial')} of its own"
    return f"{settings(spec.baseline, spec.baseline)}: {times}"


def _confirms(plan: Plan) -> str:
    """Return what fresh seeds for the finalists take at most."""
    found, confirm = plan.confirming, plan.spec.confirm
    if found is None or confirm is None:
        return ""
    if found.seeds < FIRST_SEEDS:
        return (
            f"nothing: {confirm.budget} of the search allows {found.seeds} fresh seeds for {found.finalists} finalists"
        )
    bound = f", for {confirm.budget} of the search allows no more" if found.seeds < confirm.seeds else ""
    timed = plan.timing and plan.timing.trial_s * found.trials + plan.timing.epoch_s * found.epochs
    takes = f", about {duration(timed / max(plan.concurrent or 1, 1))}" if timed else ""
    finalists = f"{found.finalists} finalists, {found.seeds} fresh seeds each{bound}"
    return f"at most {found.trials} trials and {found.epochs} epochs more{takes}: {finalists}"


def _tells(one: Detectable) -> str:
    """Return which differences are told from luck."""
    if one.configurations == 1:
        return ""
    if one.seeds < one.needed:
        number = "two" if one.configurations is None else str(one.configurations)
        times = "one seed" if one.seeds == 1 else f"{one.seeds} seeds"
        need = f"{number} configurations need {one.needed} seeds each, and have {times}"
        return f"no difference: to tell one from luck, {need}"
    seeds = f"up to {one.seeds} fresh seeds of each finalist" if one.confirmed else f"{one.seeds} seeds each"
    if one.by_seeds is None or one.known is None:
        return f"differences of unknown size, by {seeds}: no earlier sweep shows the spread over seeds"
    spread = f"a spread of {score(one.known.spread or 0.0)} (sweep {one.known.sweep})"
    return f"differences from {one.by_seeds:.2g} on, by {seeds} and {spread}"


def _held_out(one: Detectable) -> str:
    """Return what the examples that validate hide, whatever the seeds."""
    if one.examples is None or one.known is None:
        return ""
    found = one.examples
    text = (
        f"{found.examples} validation examples: at {found.metric} {score(found.level)} (sweep {one.known.sweep}), "
        f"differences below {found.difference:.2g} may be due to the choice of examples"
    )
    more = one.examples_needed
    return text + ("" if more is None else f"; about {more:,} examples would match what the seeds can detect")


def _histogram_lines(found: tuple[Histogram, ...], *, counts: bool, ascii_only: bool) -> Iterator[str]:
    width = max(cell_len(one.name) for one in found)
    for one in found:
        text = _shares(one, counts=counts) if one.bins[0].high is None else _bars(one.bins, ascii_only=ascii_only)
        share = "" if one.present == one.of else f", in {100 * one.present / one.of:.0f} % of them"
        yield f"{one.name}{' ' * (width - cell_len(one.name))}  {text}{share}"


def _bars(bins: tuple[Bin, ...], *, ascii_only: bool) -> str:
    most, heights = max(bin.count for bin in bins), _BARS[ascii_only]
    bars = "".join(heights[-(-bin.count * (len(heights) - 1) // most)] for bin in bins)
    return f"{setting(bins[0].low)} {bars} {setting(bins[-1].high)}"


def _shares(one: Histogram, *, counts: bool) -> str:
    cells = [
        f"{setting(bin.low)} " + (f"x{bin.count}" if counts else f"{100 * bin.count / max(one.present, 1):.0f} %")
        for bin in one.bins
    ]
    return ", ".join(cells)
