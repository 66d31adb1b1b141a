"""Checks a sweep before its first epoch and predicts what it will do, for the command `plan`.

Some settings are known to fail in every trial, even if the trainable reads all its parameters.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from pathlib import Path
from statistics import fmean

from sweep import standard_hyperparameters
from sweep.contract import Devices, cpus
from sweep.doctor import probes
from sweep.doctor.programs import run_command
from sweep.errors import InputError, Problem, SweepError, refuse
from sweep.events import Params, Value, is_number
from sweep.functions import RANKED_METHODS
from sweep.inspection import KERAS_TRAINABLE, Source, inspect
from sweep.inspection.unconditional import NameUse
from sweep.runner import methods, pricing, without_effect
from sweep.runner.power_analysis import Detectable, Known, detectable
from sweep.runner.rehearsal import Landscape
from sweep.schedulers import Scheduler
from sweep.searchers import Searcher
from sweep.searchers.points import random_search, uniform_draws
from sweep.space import Parameter, Space, domains
from sweep.space.domains import Categorical, Constant, Domain, Tied, key, list_choices
from sweep.space.early_terminate import AshaPromotion, Own
from sweep.space.feasible_points import estimate_feasible_fraction
from sweep.spec import Spec
from sweep.spec.automatic import stop_instead_of_pausing
from sweep.spec.validation import describe_value
from sweep.store import sweep_info
from sweep.text import did_you_mean, guess, printable

READ_BY_SWEEP = frozenset({"epochs"})


LOOKED_AT = 200  # configurations whose values a plan shows as histograms
LOOKED_AT_THIN = 20  # fewer if hardly any draw meets the constraints, as finding each then takes a while
THIN = 0.01
MOST_GRID = 10_000
ENDLESS = 50  # number of configurations priced for a sweep without an end


@dataclass(frozen=True, slots=True)
class Plan:
    """The predicted course and price of a sweep."""

    spec: Spec
    devices: Devices
    trials: int | None  # None: bounded by time or epochs alone, or unbounded
    lengths: tuple[int, int]  # epochs, or hundredths of minutes, of the shortest and of the longest trial
    epochs: int | None  # of all trials, at most; None if not known exactly
    concurrent: int | None  # trials at once on this machine or a cluster; None if not even one trial fits
    on_cluster: bool
    sample: tuple[Params, ...]
    rungs: tuple[pricing.ExpectedRung, ...]
    histograms: tuple[Histogram, ...]
    looked_at: str  # describes the configurations in the histograms
    timing: pricing.Timing | None
    price: pricing.Price
    confirming: pricing.Confirming | None  # in addition to the price
    allowed: float | None  # share of random points that meet the constraints; None without constraints
    choosing_s: float  # seconds to choose each configuration of the sample
    telling: Detectable
    offers: tuple[pricing.Offer, ...] = ()  # cost on other machines

    @property
    def gpu_hours(self) -> float | None:
        """GPU-hours of all trials; None if unknown."""
        return pricing.gpu_hours(self.spec, self.price, self.time_of_units)

    @property
    def time_of_units(self) -> pricing.Timing | None:
        """The times of trials, per epoch or, with minutes, per unit of `Spec.length`."""
        if self.spec.minutes is None:
            return self.timing
        return pricing.time_units(self.spec, self.timing)


def check_trainable(spec: Spec, where: str, folders: Sequence[Path], *, here: bool = True) -> Source:
    """Return the trainable's source after checking it.

    ``here``: the trials run on this machine, so a failing import is an error.

    Raises:
        InputError: if the source is missing or certainly cannot train as the sweep file says.
    """
    try:
        source = inspect(spec.trainable, folders, own_optimizers(spec))
    except InputError as error:
        raise InputError(Problem(f"{where}: {p.where}", p.what, p.hint) for p in error.problems) from error
    check_source(spec, where, source, here=here)
    return source


def adapt_to_source(spec: Spec, source: Source) -> Spec:
    """Return the sweep; if auto chose to pause trials, but they cannot be resumed, with a rule that stops them."""
    rule = spec.early_terminate
    was_chosen = len(spec.chosen) > 1 and bool(spec.chosen[1])
    if not was_chosen or not isinstance(rule, AshaPromotion) or not source.is_function:
        return spec
    if "restored" not in source.reads_of_its_trial_not(["restored"]):
        return spec
    stopping, line = stop_instead_of_pausing(rule)
    return replace(spec, early_terminate=stopping, chosen=(spec.chosen[0], line))


def own_optimizers(spec: Spec) -> tuple[str, ...]:
    """Return the values of the parameter ``optimizer`` that have the form ``module:Name``."""
    domains = []
    for parameter in spec.space.parameters:
        if parameter.name == "optimizer":
            domains.append(parameter.domain)
    values = [value for domain in domains for value in list_choices(domain) or ()]
    return tuple(value for value in values if isinstance(value, str) and ":" in value)


def check_source(spec: Spec, where: str, source: Source, *, here: bool = True) -> None:
    """Raise InputError for all that would go wrong in every trial; ``here`` is described in `check_trainable`."""
    if here:
        missing = [*not_importable(source), *without_effect.another_backend(where, source)]
    else:
        missing = []
    wrong = [
        *_unread(spec, where, source),
        *without_effect.find_idle_settings(spec, where, source),
        *_unreported(spec, where, source),
    ]
    refuse([*missing, *wrong, *infeasible(spec, where, source)])


def _unreported(spec: Spec, where: str, source: Source) -> Iterator[Problem]:
    """Yield the objectives, and the metrics in constraints, that the trainable certainly never reports."""
    possible = source.possible_metrics()
    if possible is None:
        return
    asked = []
    for index, metric in enumerate(spec.metrics):
        path = "metric.name" if len(spec.metrics) == 1 else f"metrics[{index}].name"
        asked.append((path, metric.name))
    for constraint in spec.constraints:
        for name in sorted(constraint.names):
            asked.append(("constraints", name))
    for path, name in asked:
        if not possible.may_report(name):
            what = f"{spec.trainable} reports no metric {name!r}"
            yield Problem(spec.places.get(path, f"{where}: {path}"), what, did_you_mean(name, possible.known))


def _unread(spec: Spec, where: str, source: Source) -> Iterator[Problem]:
    """Yield the parameters that the source certainly does not read."""
    known = source.reads | READ_BY_SWEEP
    for name in not_seen_read(spec, source):
        if not source.may_read(name):
            place = spec.places.get(name, f"{where}: parameters.{name}")
            yield Problem(place, f"nothing in {spec.trainable} reads it", did_you_mean(name, known))


def check_inline(spec: Spec, where: str) -> None:
    """Raise InputError if a single process cannot train the sweep; ``where`` names the option that asked for one."""
    workers = spec.resources.workers
    servers = spec.resources.servers
    if servers:
        what = (
            f"trains in a single process, but a trial has {servers} servers and {workers} workers (resources.servers)"
        )
        raise InputError.one(where, what, "leave it out, or the servers and strategy: parameter_server")
    if workers > 1:
        what = f"trains in a single process, but a trial has {workers} workers (resources.workers)"
        raise InputError.one(where, what, "leave it out, or set resources.workers to 1")


def not_seen_read(spec: Spec, source: Source) -> tuple[str, ...]:
    """Return the parameters whose reads cannot be found in the source."""
    return tuple(name for name in spec.space.names if name not in READ_BY_SWEEP and not source.reads_parameter(name))


def list_notes(spec: Spec, source: Source) -> list[str]:
    """Return notes on ignored keys of W&B sweep files, unusual settings and parameters that are perhaps not read."""
    unseen = not_seen_read(spec, source)
    found = []
    if spec.ignored_keys:
        found.append(f"{', '.join(spec.ignored_keys)}: without effect here")
    found += spec.notes
    if unseen:
        found.append(f"{', '.join(unseen)}: may be unused: no read found in the source; the first trial will check")
    return [printable(f"note: {note}") for note in found]


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """Information for a plan that is not in the sweep file."""

    timing: Callable[[Sequence[Params]], pricing.Timing | None] = lambda sample: None  # times the first configurations
    learn: Callable[[Searcher], None] = lambda searcher: None  # called with the searcher before it suggests anything
    folders: Sequence[Path] = ()  # searched for the user's own searcher or scheduler
    known: Known | None = None  # the metric's noise in an earlier sweep
    room: int | None = None  # trials at once on a cluster; None: on this machine
    machines: Sequence[pricing.Machine] = ()  # machines to compare


def count_concurrent_trials(spec: Spec, simulated_gpus: int | None, room: int | None = None) -> int:
    """Return how many trials run at once: on this machine, or those for which a cluster has ``room``."""
    if room is None:
        share = spec.resources.devices(simulated_gpus)
        gpus = len(sweep_info.gpus()) if simulated_gpus is None else simulated_gpus
        room = Devices(share.cpus * spec.resources.processes, spec.resources.trial_gpus).fits(cpus(), gpus)
    if spec.resources.max_concurrent == "auto":
        return room
    return min(room, spec.resources.max_concurrent)


def make_plan(spec: Spec, simulated_gpus: int | None, basis: Basis, *, sample: int = 5) -> Plan:
    """Predict the course and price of a sweep, based on its first ``sample`` configurations."""
    folders, room = basis.folders, basis.room
    share = spec.resources.devices(simulated_gpus)
    concurrent = count_concurrent_trials(spec, simulated_gpus, room)
    configurations = spec.trials
    trials = spec.all_trials
    searcher = methods.searcher(spec, folders)
    basis.learn(searcher)
    began = time.monotonic()
    first = tuple(_iterate_suggestions(searcher, min(sample, configurations or sample)))
    choosing_s = (time.monotonic() - began) / max(len(first), 1)
    draws = not spec.search_method.enumerates
    if spec.space.constraints and draws:
        allowed = estimate_feasible_fraction(spec.space)
    else:
        allowed = None
    looked_at, seen = _looked_at(spec, searcher, configurations, thin=allowed is not None and allowed < THIN)
    lengths = [spec.trial_length(params) for params in seen]
    alike = len(set(lengths)) == 1
    all_seen = len(seen) == configurations
    per_trial = lengths[0] if alike else fmean(lengths)
    members = None if spec.population is None else spec.population.size  # copies inherit epochs
    priced = members or (ENDLESS * spec.trials_each if spec.endless else trials)
    course = rehearse_course(spec, folders, max(lengths), priced if alike else None, max(concurrent, 1))
    if course.epochs is None or priced is None:
        pruned = per_trial
    else:
        pruned = course.epochs / priced
    measured = basis.timing(first)
    whole = None
    if trials is not None and (alike or all_seen) and spec.counts_epochs:
        whole = round((members or trials) * per_trial)
    price = pricing.price if spec.minutes is None else pricing.price_units
    priced_at = price(spec, priced, pruned, measured, max(concurrent, 1))
    if spec.minutes is None or priced_at.trials is None:
        searched = priced_at.epochs
    else:
        searched = priced_at.trials * pruned
    confirming = pricing.confirming(spec, configurations, searched, max(lengths))
    return Plan(
        spec=spec,
        devices=share,
        trials=trials,
        lengths=(min(lengths), max(lengths)),
        epochs=whole,
        concurrent=concurrent or None,
        on_cluster=room is not None,
        sample=first,
        rungs=course.rungs,
        histograms=histograms(spec.space, seen),
        looked_at=looked_at,
        timing=measured,
        price=priced_at,
        confirming=confirming,
        allowed=allowed,
        choosing_s=choosing_s,
        telling=detectable(spec, configurations, basis.known, confirming),
        offers=tuple(pricing.list_offers(spec, priced, pruned, measured, basis.machines)),
    )


def rehearse_course(
    spec: Spec, folders: Sequence[Path], epochs: int, trials: int | None, workers: int
) -> pricing.Course:
    """Return the expected course of a sweep under its method and its scheduler, without any training.

    ``epochs`` is the length of a trial that is not pruned. ``trials`` is None if their number or lengths are not known;
    then only the rungs are.
    """
    rehearsed = replace(spec, constraints=())  # on metrics, which rehearsed epochs do not have

    def build() -> Scheduler:
        return methods.scheduler(rehearsed, folders)

    def method(number: int) -> tuple[Searcher, Sequence[Landscape]]:
        searcher = methods.searcher(replace(rehearsed, seed=number), folders, spec.trials_each)
        return searcher, [Landscape(spec.space, f"{number} {metric.name}") for metric in spec.metrics]

    objective = rehearsed.objectives[0]
    own = isinstance(spec.early_terminate, Own)
    used = spec.search_method
    if used.learns and not used.is_own:  # one's own may take its time
        learning = method
    else:
        learning = None
    try:
        return pricing.rehearse_scheduler(build, objective, epochs, trials, whole=own, method=learning, workers=workers)
    except SweepError:
        raise
    except Exception:
        if not own:
            raise
        # A user's own scheduler may need something that rehearsed epochs lack, such as other metrics.
        rungs = pricing.rehearse_scheduler(build, objective, epochs, None).rungs
        return pricing.Course(rungs, trials and float(trials * epochs))


def _iterate_suggestions(searcher: Searcher, count: int) -> Iterator[Params]:
    for number in range(count):
        params = searcher.suggest(number)
        if params is None:
            return
        yield params


def _looked_at(spec: Spec, searcher: Searcher, configurations: int | None, *, thin: bool) -> tuple[str, list[Params]]:
    """Return a description of configurations and the configurations themselves, at least one.

    They are those to come or, if the method learns, random draws of the space.
    """
    enough = LOOKED_AT_THIN if thin else LOOKED_AT
    if spec.search_method.enumerates:
        enough = MOST_GRID
    few = configurations is not None and configurations <= enough
    if searcher.foresees:
        seen = list(_iterate_suggestions(searcher, min(configurations or enough, enough)))
        if few:
            description = f"all {len(seen)} configurations"
        else:
            description = f"the first {len(seen)} configurations"
        return description, seen
    if thin:
        points = _iterate_suggestions(random_search(spec.space, spec.seed), enough)
    else:
        draws = islice(uniform_draws(spec.seed, 0), 10 * LOOKED_AT)
        points = (point for draw in draws if (point := spec.space.feasible(draw)) is not None)
    seen = list(islice(points, enough))
    return f"{len(seen)} draws of the space", seen or list(_iterate_suggestions(searcher, 1))


BINS = 12
MOST_VALUES = 12  # distinct values that are shown one by one


@dataclass(frozen=True, slots=True)
class Bin:
    """Number of configurations with the value ``low``, or with a value from ``low`` up to ``high``."""

    low: Value
    high: float | None
    count: int


@dataclass(frozen=True, slots=True)
class Histogram:
    """Values of one parameter in ``of`` configurations; absent values are in no bin."""

    name: str
    bins: tuple[Bin, ...]
    of: int

    @property
    def present(self) -> int:
        """Number of configurations that have the parameter."""
        return sum(bin.count for bin in self.bins)


def histograms(space: Space, configurations: Sequence[Params]) -> tuple[Histogram, ...]:
    """Return a histogram of every parameter that varies among the configurations, in the order of the file."""
    found = []
    for parameter in space.parameters:
        found.append(_histogram(parameter, configurations))
    return tuple(one for one in found if len(one.bins) > 1 or 0 < one.present < one.of)


def _histogram(parameter: Parameter, configurations: Sequence[Params]) -> Histogram:
    values = []
    for params in configurations:
        if parameter.name in params:
            values.append(params[parameter.name])
    distinct = {key(value): value for value in values}
    numbers = [value for value in values if is_number(value)]
    continuous = list_choices(parameter.domain) is None and len(distinct) == len(values) > 3
    if len(numbers) < len(values) or (len(distinct) <= MOST_VALUES and not continuous):
        bins = _count_by_value(parameter, values)
    else:
        bins = _count_by_range(numbers, log=domains.is_log(parameter.domain, numbers))
    return Histogram(parameter.name, tuple(bins), len(configurations))


def _count_by_value(parameter: Parameter, values: Sequence[Value]) -> Iterator[Bin]:
    counts: dict[str, int] = {}
    numbers = sorted(value for value in values if isinstance(value, int | float))
    order = [*(list_choices(parameter.domain) or ()), *numbers, *values]
    for value in order:
        counts.setdefault(key(value), 0)
    for value in values:
        counts[key(value)] += 1
    known = {key(value): value for value in order}
    for text, count in counts.items():
        if count or len(counts) <= MOST_VALUES:
            yield Bin(known[text], None, count)


def _count_by_range(numbers: Sequence[float], *, log: bool) -> Iterator[Bin]:
    low = min(numbers)
    high = max(numbers)
    if log:
        scaled = (math.log(low), math.log(high))
    else:
        scaled = (low, high)
    inner_edges = []
    for step in range(1, BINS):
        inner_edges.append(scaled[0] + (scaled[1] - scaled[0]) * step / BINS)
    if log:
        inner_edges = [math.exp(edge) for edge in inner_edges]
    edges = [low, *inner_edges, high]
    for index, (left, right) in enumerate(pairwise(edges)):
        last = index == BINS - 1
        yield Bin(left, right, sum(left <= number and (number < right or last) for number in numbers))


SIGMAS = 5  # standard deviations of a normal; 1 draw in 1.7 million lies outside, and its trial is refused
PROBE_S = 300.0


def infeasible(spec: Spec, where: str, source: Source) -> Iterator[Problem]:
    """Yield everything that would fail in every trial.

    These are invalid values of standard hyperparameters, missing parameters, several workers or fused trials of a
    trainable that cannot have them, TPUs that TensorFlow cannot use, and settings without effect.
    """
    yield from _values(spec, where, source)
    yield from _lacking(spec, where, source)
    for one in (
        *_check_workers(spec, source),
        *_fused(spec, source),
        *_tpus(spec),
        *without_effect.ignored(spec, source),
    ):
        yield Problem(f"{where}: {one.where}", one.what, one.hint)


def _values(spec: Spec, where: str, source: Source) -> Iterator[Problem]:
    """Yield values outside the bounds of standard hyperparameters, if `KerasTrainable` itself certainly reads them.

    Tied parameters, and those that a constraint may keep within the bounds, are left to the trials.
    """
    if not source.derives_from(KERAS_TRAINABLE):
        return
    constrained = frozenset[str]().union(*(one.names for one in spec.space.constraints))
    names = [name for name in spec.space.names if _is_bound(name, source)]
    bound = {name: standard_hyperparameters.get_standard_bounds(name) for name in names}
    for parameter in spec.space.parameters:
        name = parameter.name
        if name in bound and name not in constrained and (what := _outside(parameter.domain, bound[name])):
            place = spec.places.get(name, f"{where}: parameters.{name}")
            yield Problem(place, f"{what}, expected {standard_hyperparameters.expected(bound[name])}")
    given: list[tuple[str, Params]] = []
    for index, one in enumerate(spec.start_with):
        given.append((f"start_with[{index}]", one))
    if spec.baseline:
        given.append(("baseline", spec.baseline))
    for place, params in given:
        for name, value in params.items():
            if name in bound and not bound[name].takes(value):
                path = f"{place}.{name}"
                what = f"{describe_value(value)}, expected {standard_hyperparameters.expected(bound[name])}"
                yield Problem(spec.places.get(path, f"{where}: {path}"), what)


def _lacking(spec: Spec, where: str, source: Source) -> Iterator[Problem]:
    """Yield the parameters that each trial reads without a default and that the file does not have."""
    there = spec.space.names
    first: dict[str, NameUse] = {}
    for place in source.reads_surely():
        if place.name not in standard_hyperparameters.LENGTHS:
            first.setdefault(place.name, place)
    for place in first.values():
        if not any(name == place.name or name.startswith(f"{place.name}.") for name in there):
            what = f"no {place.name!r}, which {source.where(place)} reads in every trial without a default"
            hint = guess(place.name, there) or f'add it, or read it as hp.get("{place.name}", ...)'
            yield Problem(f"{where}: parameters", what, hint)


def not_importable(source: Source) -> Iterator[Problem]:
    """Yield the modules that the trainable imports and that are not installed."""
    for place in source.not_found():
        what = f"imports {place.name!r}, and no such module is here"
        yield Problem(source.where(place), what, "install it, or leave it out")


def _is_bound(name: str, source: Source) -> bool:
    """Return whether `KerasTrainable` uses a parameter in its standard meaning, whatever the author's code does."""
    return name in standard_hyperparameters.FRAME or (
        standard_hyperparameters.is_standard(name) and not source.author_reads(name)
    )


def _outside(domain: Domain, bounds: standard_hyperparameters.Bounds) -> str | None:
    """Return the values of a domain that lie outside the bounds, in words; None if there are none."""
    match domain:
        case Tied():
            return None
        case Constant() | Categorical():
            return next(
                (describe_value(value) for value in domains.list_choices(domain) or () if not bounds.takes(value)), None
            )
    low, high = (domains.snap(domain, end) for end in domains.get_finite_bounds(domain, SIGMAS))
    number = bounds.number if isinstance(bounds, standard_hyperparameters.Names) else bounds
    step = domains.quantum(domain)
    if isinstance(number, standard_hyperparameters.Number) and number.whole and (step is None or step != int(step)):
        return "numbers that are not whole"
    if bounds.takes(low) and bounds.takes(high):
        return None
    return f"numbers from {low:g} to {high:g}"


def _fused(spec: Spec, source: Source) -> Iterator[Problem]:
    if spec.together == 1 or not source.lacks("group"):
        return
    what = f"{spec.training['fuse']}, and {spec.trainable} trains one trial at a time"
    if source.is_function:
        what += ": it is a function"
    else:
        what += ": it has no group()"
    hint = "derive it from trainables.keras_trainable.KerasTrainable, or leave fuse out"
    yield Problem("training.fuse", what, hint)


def _check_workers(spec: Spec, source: Source) -> Iterator[Problem]:
    workers = spec.resources.workers
    if workers > 1:
        missing = source.lacks(*RANKED_METHODS)
    else:
        missing = ()
    if not missing:
        return
    what = f"a trial has {workers} workers, and {spec.trainable} "
    if source.is_function:
        what += "is a function, which trains in one process"
    else:
        what += f"trains in one process: it has no {' and no '.join(f'{name}()' for name in missing)}"
    hint = "derive it from trainables.keras_trainable.KerasTrainable, give it the methods of sweep.contract.Ranked, "
    yield Problem("resources.workers", what, f"{hint}or leave workers out")


def _tpus(spec: Spec) -> Iterator[Problem]:
    if spec.training.get("strategy") != "tpu":
        return
    found = probes.probe_tpu(run_command, PROBE_S)
    if isinstance(found, probes.ProbeFailure):
        what = f"tpu, and TensorFlow does not say whether it has TPUs: {found.reason}"
        yield Problem("training.strategy", what, "python -m sweep doctor looks at the machine")
    elif found:
        hint = (
            "install a TensorFlow that was built for TPUs (tensorflow-tpu, on a machine that has some), or write auto"
        )
        yield Problem("training.strategy", f"tpu, but {' and '.join(found)}", hint)
