"""Predicts what a sweep will do, for the command `plan`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from pathlib import Path
from statistics import fmean

from sweep.contract import Devices
from sweep.errors import SweepError
from sweep.events import Params, Value, is_number
from sweep.runner import earlier_times, methods, pricing
from sweep.runner.power_analysis import Detectable, Known, detectable
from sweep.runner.rehearsal import Landscape
from sweep.schedulers import Scheduler
from sweep.searchers import Searcher
from sweep.searchers.points import random_search, uniform_draws
from sweep.space import Parameter, Space, domains
from sweep.space.domains import key, list_choices
from sweep.space.early_terminate import Own
from sweep.space.feasible_points import estimate_feasible_fraction
from sweep.spec import Spec

LOOKED_AT = 200  # configurations whose values a plan shows as histograms
# fewer if hardly any draw meets the constraints, as finding each then takes a while
LOOKED_AT_THIN = 20
THIN = 0.01
MOST_GRID = 10_000
ENDLESS = 50  # number of configurations priced for a sweep without an end


@dataclass(frozen=True, slots=True)
class Plan:
    """The predicted course and price of a sweep, as `plan` prints them."""

    spec: Spec
    devices: Devices
    trials: int | None  # None: bounded by time or epochs alone, or unbounded
    # epochs, or hundredths of minutes, of the shortest and of the longest trial
    lengths: tuple[int, int]
    epochs: int | None  # of all trials, at most; None if not known exactly
    # trials at once on this machine or a cluster; None if not even one trial fits
    concurrent: int | None
    on_cluster: bool
    sample: tuple[Params, ...]
    rungs: tuple[pricing.ExpectedRung, ...]
    lacks_times: bool  # the stopping rule looks at the time of epochs, which is not known
    histograms: tuple[Histogram, ...]
    looked_at: str  # describes the configurations in the histograms
    timing: earlier_times.Timing | None
    price: earlier_times.Price
    # cost of the confirmation, which is not part of the price
    confirming: pricing.Confirming | None
    allowed: float | None  # share of random points that meet the constraints; None if not estimated
    choosing_s: float  # seconds to choose each configuration of the sample
    telling: Detectable
    offers: tuple[pricing.Offer, ...] = ()  # cost on other machines

    @property
    def gpu_hours(self) -> float | None:
        """GPU-hours of all trials; None if unknown, or if trials use no GPU."""
        return earlier_times.gpu_hours(self.spec, self.price, self.time_of_units)

    @property
    def time_of_units(self) -> earlier_times.Timing | None:
        """The measured times, None if there are none; with `minutes`, ``epoch_s`` is that of a unit of `Spec.length`.

        With `minutes`, there are times even if nothing was measured.
        """
        if self.spec.minutes is None:
            return self.timing
        return earlier_times.time_units(self.spec, self.timing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """What a plan needs besides the sweep file."""

    # times the first configurations
    timing: Callable[[Sequence[Params]], earlier_times.Timing | None] = lambda sample: None
    # called with the searcher before it suggests anything
    learn: Callable[[Searcher], None] = lambda searcher: None
    folders: Sequence[Path] = ()  # searched for the user's own searcher or scheduler
    known: Known | None = None  # the metric's noise in an earlier sweep
    room: int | None = None  # trials at once on a cluster; None: on this machine
    machines: Sequence[pricing.Machine] = ()  # machines to compare


def make_plan(spec: Spec, simulated_gpus: int | None, basis: Basis, *, sample: int = 5) -> Plan:
    """Predict the course and the price of a sweep.

    ``sample`` is the number of first configurations that the plan shows; ``basis.timing`` may train some of them.
    ``simulated_gpus`` is the number of CPU devices that stand in for GPUs; None for real ones. The price of a sweep
    without an end is that of `ENDLESS` configurations, with the baseline. Raises `InputError` if the user's own
    searcher or scheduler cannot be built, and what ``basis.timing`` and ``basis.learn`` raise.
    """
    concurrent = earlier_times.count_concurrent_trials(spec, simulated_gpus, basis.room)
    configurations = spec.trials
    trials = spec.all_trials
    searcher = methods.searcher(spec, basis.folders)
    basis.learn(searcher)
    began = time.monotonic()
    shown = min(sample, configurations or sample)  # ``configurations`` is None without a limit
    first = tuple(_iterate_suggestions(searcher, shown))
    choosing_s = (time.monotonic() - began) / max(len(first), 1)
    feasible_share = _estimate_feasible_share(spec)
    is_thin = feasible_share is not None and feasible_share < THIN
    # ``looked_at`` says in words which configurations ``seen`` are
    looked_at, seen = _sample_configurations(spec, searcher, configurations, thin=is_thin)
    lengths = [spec.trial_length(params) for params in seen]
    alike = len(set(lengths)) == 1
    mean_length = lengths[0] if alike else fmean(lengths)
    members = None if spec.population is None else spec.population.size
    # a population trains the epochs of its members once: copies have those of their parents and train only the rest
    trials_priced = members or (ENDLESS * spec.trials_each if spec.endless else trials)
    timing = basis.timing(first)
    course = rehearse_course(
        spec,
        basis.folders,
        epochs=max(lengths),
        # with several lengths, there is no telling how many reach a rung
        trials=trials_priced if alike else None,
        workers=max(concurrent, 1),
        epoch_s=_find_epoch_s(spec, timing),
    )
    if course.epochs is None or trials_priced is None:
        epochs_per_trial = mean_length
    else:
        epochs_per_trial = course.epochs / trials_priced
    # the baseline may be trained for other epochs than any configuration of the space
    baseline_lengths = [] if spec.baseline is None else [spec.trial_length(spec.baseline)]
    if baseline_lengths and trials_priced is not None:
        more = spec.baseline_trials * (baseline_lengths[0] - mean_length)
        epochs_per_trial += more / trials_priced
    all_epochs = None
    # known only if trials have epochs, and either all have the same number or all configurations were looked at
    knows_lengths = alike or (searcher.foresees and len(seen) == configurations)
    if trials is not None and knows_lengths and spec.counts_epochs:
        all_epochs = round((members or trials - spec.baseline_trials) * mean_length)
        all_epochs += sum(baseline_lengths) * spec.baseline_trials
    compute_price = earlier_times.price if spec.minutes is None else earlier_times.price_units
    price = compute_price(spec, trials_priced, epochs_per_trial, timing, max(concurrent, 1))
    # for the confirmation, whose budget is a share of it: in the same units as ``lengths``, unlike `Price.epochs`
    if spec.minutes is None or price.trials is None:
        epochs_searched = price.epochs
    else:
        epochs_searched = price.trials * epochs_per_trial
    confirming = pricing.confirming(spec, configurations, epochs_searched, max(lengths))
    return Plan(
        spec=spec,
        devices=spec.resources.devices(simulated_gpus),
        trials=trials,
        lengths=(min(lengths + baseline_lengths), max(lengths + baseline_lengths)),
        epochs=all_epochs,
        concurrent=concurrent or None,
        on_cluster=basis.room is not None,
        sample=first,
        rungs=course.rungs,
        lacks_times=course.lacks_times,
        histograms=histograms(spec.space, seen),
        looked_at=looked_at,
        timing=timing,
        price=price,
        confirming=confirming,
        allowed=feasible_share,
        choosing_s=choosing_s,
        telling=detectable(spec, configurations, basis.known, confirming),
        offers=tuple(
            pricing.list_offers(spec, trials_priced, epochs_per_trial, timing, basis.machines)
        ),
    )


def _estimate_feasible_share(spec: Spec) -> float | None:
    """Return the estimated share, from 0 to 1, of random configurations that meet the constraints of the space.

    Return None if the space has no constraints, or if the method enumerates configurations.
    """
    if not spec.space.constraints or spec.search_method.enumerates:
        return None
    return estimate_feasible_fraction(spec.space)


def _find_epoch_s(spec: Spec, measured: earlier_times.Timing | None) -> float | None:
    """Return the seconds of an epoch or, if trials end by `minutes`, of a unit of `Spec.length`; None if not known.

    A unit is a hundredth of the minutes or, if the epochs are limited too, an epoch; its seconds are known even if
    ``measured`` is None.
    """
    if spec.minutes is not None:
        return earlier_times.time_units(spec, measured).epoch_s
    if measured is None:
        return None
    return measured.epoch_s


SHORT_EPOCH_S, LONG_EPOCH_S = 1e-3, 1e6
"""Seconds of very short and very long epochs; a scheduler that decides by times treats them differently."""


def rehearse_course(
    spec: Spec,
    folders: Sequence[Path],
    epochs: int,
    trials: int | None,
    workers: int,
    epoch_s: float | None = None,
) -> pricing.Course:
    """Simulate a sweep's method and stopping rule with made-up trials; return how many reach which epoch.

    A method that does not learn, or is the user's own, is replaced by random losses. If a user's own scheduler fails,
    or needs the seconds of an epoch, which are unknown, all trials are expected to train all their epochs; in the
    second case, `Course.lacks_times` is True. Raises `InputError` if the scheduler cannot be built, and any
    `SweepError` of the scheduler itself.

    Arguments:
        folders: where the user's own scheduler is searched before the installed modules.
        epochs: the length of a trial that is not pruned.
        trials: number of trials; None if their number or lengths are unknown: the rungs then have no numbers.
        workers: number of trials at once.
        epoch_s: seconds of an epoch; None if unknown.
    """
    rehearsed = replace(spec, constraints=())  # on metrics, which rehearsed epochs do not have

    def build() -> Scheduler:
        """Return a new scheduler of the sweep."""
        return methods.scheduler(rehearsed, folders)

    def method(number: int) -> tuple[Searcher, Sequence[Landscape]]:
        """Return a new searcher of the sweep for rehearsal ``number``, and what makes up the values of each metric."""
        # another seed and another landscape for each rehearsal, since their results are averaged
        searcher = methods.searcher(replace(rehearsed, seed=number), folders, spec.trials_each)
        return searcher, [
            Landscape(spec.space, f"{number} {metric.name}") for metric in spec.metrics
        ]

    objective = rehearsed.objectives[0]
    # may look at every epoch, and fail where built-in rules cannot
    own = isinstance(spec.early_terminate, Own)
    used = spec.search_method
    if used.learns and not used.is_own:  # a user's own method may be slow
        learning = method
    else:
        learning = None

    def rehearse(epoch_s: float) -> pricing.Course:
        """Return the simulated course if each epoch takes ``epoch_s`` seconds."""
        return pricing.rehearse_scheduler(
            build,
            objective,
            epochs,
            trials,
            whole=own,
            method=learning,
            workers=workers,
            epoch_s=epoch_s,
        )

    def expect_all_epochs(*, lacks_times: bool) -> pricing.Course:
        """Return the course in which no trial is stopped; its rungs have no numbers."""
        # without trials, none is rehearsed
        rungs = pricing.rehearse_scheduler(build, objective, epochs, None).rungs
        # None without ``trials``
        return pricing.Course(rungs, trials and float(trials * epochs), lacks_times)

    if not own:
        return rehearse(epoch_s or SHORT_EPOCH_S)
    try:
        course = rehearse(epoch_s or SHORT_EPOCH_S)
        if epoch_s is None and _depends_on_times(rehearse, course):
            return expect_all_epochs(lacks_times=True)
    except SweepError:
        raise
    except Exception:  # it may need something that rehearsed epochs lack, such as other metrics
        return expect_all_epochs(lacks_times=False)
    return course


def _depends_on_times(
    rehearse: Callable[[float], pricing.Course], with_short_epochs: pricing.Course
) -> bool:
    """Return whether a rule decides by the seconds of an epoch: long epochs lead to another course than short ones.

    ``rehearse`` returns the simulated course if an epoch takes so many seconds; it has returned ``with_short_epochs``
    for `SHORT_EPOCH_S`. Return False for a rule that decides at random.
    """
    # another course although nothing is different: at random, so that a comparison would show nothing
    if rehearse(SHORT_EPOCH_S) != with_short_epochs:
        return False
    return rehearse(LONG_EPOCH_S) != with_short_epochs


def _iterate_suggestions(searcher: Searcher, count: int) -> Iterator[Params]:
    """Yield the suggestions of a searcher for the first ``count`` trials, up to the first for which it has none."""
    for number in range(count):
        params = searcher.suggest(number)
        if params is None:
            return
        yield params


def _sample_configurations(
    spec: Spec, searcher: Searcher, configurations: int | None, *, thin: bool
) -> tuple[str, list[Params]]:
    """Return (description, configurations) for a plan's histograms: at least one configuration, if there is any.

    The configurations are the first ones that the searcher suggests or, if its suggestions depend on results, random
    draws from the space that meet the constraints. If none does, it is the first suggestion. ``configurations`` is the
    number of the sweep, None if unlimited. At most `LOOKED_AT` configurations are returned, `LOOKED_AT_THIN` if
    ``thin`` says that hardly any draw meets the constraints, or `MOST_GRID` if the method enumerates configurations.
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
        # random search also looks for points that meet the constraints when none of its draws does
        points = _iterate_suggestions(random_search(spec.space, spec.seed), enough)
    else:
        # more draws than configurations that are looked at, as some do not meet the constraints
        draws = islice(uniform_draws(spec.seed, 0), 10 * LOOKED_AT)
        points = (
            point for draw in draws if (point := spec.space.complete_if_feasible(draw)) is not None
        )
    seen = list(islice(points, enough))
    return f"{len(seen)} draws of the space", seen or list(_iterate_suggestions(searcher, 1))


BINS = 12
MOST_VALUES = 12  # distinct values that are shown one by one


@dataclass(frozen=True, slots=True)
class Bin:
    """How many configurations have the value ``low``, or one from ``low`` up to ``high``."""

    low: Value
    high: float | None
    count: int


@dataclass(frozen=True, slots=True)
class Histogram:
    """How often the values of a parameter occur in ``of`` configurations; those without it are in no bin."""

    name: str
    bins: tuple[Bin, ...]
    of: int

    @property
    def present(self) -> int:
        """Number of configurations that have the parameter."""
        return sum(bin.count for bin in self.bins)


def histograms(space: Space, configurations: Sequence[Params]) -> tuple[Histogram, ...]:
    """Return a histogram of each parameter that has several bins or that some or all configurations lack.

    They are in the order of the sweep file. A parameter with few choices has a bin for each, so it has a histogram even
    if all configurations have the same choice.
    """
    found = []
    for parameter in space.parameters:
        found.append(_make_histogram(parameter, configurations))
    return tuple(one for one in found if len(one.bins) > 1 or one.present < one.of)


def _make_histogram(parameter: Parameter, configurations: Sequence[Params]) -> Histogram:
    """Return the histogram of one parameter: a bin for each value if they are few or not all numbers, else for ranges.

    At most `MOST_VALUES` different values are few. If the domain is continuous, more than three numbers that are all
    different get bins for ranges too. Configurations without the parameter are in no bin; if all lack it, there are no
    bins, or one with the count 0 for each of its few choices.
    """
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
    """Yield a bin for each value that occurs, choices first, then numbers in ascending order, then other values.

    If there are at most `MOST_VALUES` different values, unused choices included, these choices get a bin with the count
    0.
    """
    counts: dict[str, int] = {}  # by the key of the value
    numbers = sorted(value for value in values if isinstance(value, int | float))
    order = [*(list_choices(parameter.domain) or ()), *numbers, *values]
    for value in order:  # a dict keeps this order, which is that of the bins
        counts.setdefault(key(value), 0)
    for value in values:
        counts[key(value)] += 1
    value_by_key = {key(value): value for value in order}
    for value_key, count in counts.items():
        if count or len(counts) <= MOST_VALUES:
            yield Bin(value_by_key[value_key], None, count)


def _count_by_range(numbers: Sequence[float], *, log: bool) -> Iterator[Bin]:
    """Yield `BINS` bins of equal width, or of equal ratio if ``log``, from the smallest to the largest number.

    There must be a number, and all must be above 0 if ``log``. The last bin includes its upper end; a bin may be empty.
    """
    low = min(numbers)
    high = max(numbers)
    if log:
        first, last = math.log(low), math.log(high)
    else:
        first, last = low, high
    inner_edges = []
    for step in range(1, BINS):
        inner_edges.append(first + (last - first) * step / BINS)
    if log:
        inner_edges = [math.exp(edge) for edge in inner_edges]
    # the ends as they are, without rounding, so that both numbers are in a bin
    edges = [low, *inner_edges, high]
    for index, (left, right) in enumerate(pairwise(edges)):
        is_last = index == BINS - 1
        yield Bin(
            left, right, sum(left <= number and (number < right or is_last) for number in numbers)
        )
