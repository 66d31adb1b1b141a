"""Predicts the cost of a sweep: the trials that reach each rung, the total number of epochs, and the time."""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TypeAlias

from sweep import prices
from sweep.analysis import confirmation
from sweep.contract import Devices, Trainable, count_parts, end_trial
from sweep.errors import StoreError, TrainableError, in_short
from sweep.events import EpochReported, Event, Params, TrialEnded, TrialStarted, Value
from sweep.functions import load_trainable
from sweep.runner.rehearsal import Landscape, Rehearsal, RehearsalSetting
from sweep.runner.trials import Terms
from sweep.schedulers import Scheduler
from sweep.searchers import Searcher
from sweep.space.objectives import Objective
from sweep.spec import Spec
from sweep.store import log as store_log
from sweep.store.folder import ResultsFolder, list_begun_sweeps

REHEARSED = 3000  # trials in all rehearsals of a rule together
MOST_REHEARSED = 1000  # trials in one rehearsal; results are scaled up to more
FEWEST_REHEARSED = 50
REPORTED = 100_000  # epochs in all rehearsals together, which take about 0.2 s
LEARNING = 200  # trials in all rehearsals with a method that learns, about 0.02 s each
MOST_LEARNING = 100  # trials in one rehearsal with a method that learns


@dataclass(frozen=True, slots=True)
class ExpectedRung:
    """An epoch at which trials can be pruned or pause, and how many trials are expected to reach it."""

    epoch: int
    trials: float | None


@dataclass(frozen=True, slots=True)
class Timing:
    """Measured seconds: of an epoch, of a trial besides its epochs, and of a worker's start before its first trial."""

    epoch_s: float
    trial_s: float
    start_s: float
    source: str  # origin of the figures, for the reader


@dataclass(frozen=True, slots=True)
class Price:
    """The expected cost of a sweep; ``hours`` is None if no times were measured."""

    trials: float | None
    epochs: float | None
    hours: float | None
    trained_s: float | None = None  # seconds of all epochs together; None without a `Timing`


@dataclass(frozen=True, slots=True)
class Confirming:
    """The largest possible cost of confirming finalists; it is less if some drop out early."""

    finalists: int  # including the baseline
    seeds: int  # as many as the budget allows for all finalists
    trials: int
    epochs: int


@dataclass(frozen=True, slots=True)
class Course:
    """How many trials are expected to reach which epoch under a sweep's scheduler."""

    rungs: tuple[ExpectedRung, ...]
    epochs: float | None  # of all trials together
    lacks_times: bool = False  # the rule looks at the time of epochs, which is not known


RehearsedMethod: TypeAlias = Callable[[int], tuple[Searcher, Sequence[Landscape]]]
"""A function that returns the searcher of the rehearsal with a given number, and a `Landscape` for each objective."""


def rehearse_scheduler(
    build: Callable[[], Scheduler],
    objective: Objective,
    epochs: int,
    trials: int | None,
    *,
    whole: bool = False,
    method: RehearsedMethod | None = None,
    workers: int = 1,
    epoch_s: float = 1.0,
) -> Course:
    """Run a scheduler several times on made-up trials, and return how many reach each rung on average.

    The result also has the number of epochs that all trials train together. The numbers are scaled to ``trials``
    trials, at least one; if that is None, the rungs are returned without numbers.

    Arguments:
        build: makes a new scheduler.
        epochs: length of a trial that is not stopped, with ``epoch_s`` seconds for each epoch.
        whole: whether the scheduler observes all epochs, instead of its decision epochs and the last one.
        method: makes the searcher that chooses configurations; None: the losses are random.
        workers: number of trials at once.
    """
    decisions = build().decision_epochs(epochs)
    if trials is None or not decisions:  # nothing to count, or no trial is ever stopped
        return Course(
            tuple(ExpectedRung(epoch, None) for epoch in decisions),
            None if trials is None else trials * epochs,
        )
    if whole:
        reported = tuple(range(1, epochs + 1))
    else:
        reported = (*decisions, epochs)
    # as many trials and rehearsals as take a moment: reports take the time or, if a method learns, its suggestions
    if method is None:
        tried = min(trials, MOST_REHEARSED, max(REPORTED // len(reported), FEWEST_REHEARSED))
        rehearsals = max(min(REHEARSED // tried, REPORTED // (tried * len(reported))), 1)
    else:
        tried = min(trials, MOST_LEARNING)
        rehearsals = max(LEARNING // tried, 1)
    setting = RehearsalSetting(
        objective=objective,
        epochs=epochs,
        reported=reported,
        trials=tried,
        workers=min(workers, tried),
        epoch_s=epoch_s,
    )
    # of all rehearsals; the seed is fixed, so that a plan is always the same
    numbers = random.Random(0)
    reached = Counter[int]()
    begun = 0  # fewer than ``tried`` times ``rehearsals`` if the space has no more configurations
    for number in range(rehearsals):
        searcher, landscapes = (None, numbers) if method is None else method(number)
        rehearsal = Rehearsal(setting, build(), landscapes)
        reached.update(rehearsal.run(searcher))
        begun += rehearsal.begun
    lengths = zip(reported, (0, *reported), strict=False)  # each report with the one before it
    trained = sum((epoch - before) * reached[epoch] for epoch, before in lengths)
    return Course(
        tuple(ExpectedRung(epoch, reached[epoch] * trials / begun) for epoch in decisions),
        trained * trials / begun,
    )


def confirming(
    spec: Spec, configurations: int | None, epochs: float | None, longest: int
) -> Confirming | None:
    """Return the largest possible cost of the confirmation; None if the sweep file has no ``confirm``.

    Finalists are dropped until the budget allows three seeds for each, but two of them stay, or one beside a baseline.
    With a small budget, ``seeds`` of the result may therefore be less than three, even 0.

    Arguments:
        configurations: number of configurations of the search; None if unknown: then there are as many finalists as the
            sweep file allows.
        epochs: epochs of the whole search, of which the budget is a share; None if unknown: then there is no limit.
        longest: epochs that each confirming trial is taken to train.
    """
    if spec.confirm is None:
        return None
    share = spec.confirm.share()
    each = longest * (spec.folds or 1)
    baseline = []  # takes part in addition to the finalists
    if spec.baseline is not None:
        baseline.append(each)
    finalists = min(spec.confirm.finalists, configurations or spec.confirm.finalists)
    if share is None or epochs is None:
        allowed = math.inf
    else:
        allowed = share * epochs
    racers = confirmation.count_affordable([each] * finalists, baseline, allowed) + len(baseline)
    if math.isinf(allowed):  # the quotient below would be infinite, which `int` refuses
        seeds = spec.confirm.seeds
    else:
        seeds = min(spec.confirm.seeds, int(allowed // (racers * each)))
    return Confirming(racers, seeds, racers * seeds * (spec.folds or 1), racers * seeds * each)


def price(
    spec: Spec, trials: int | None, per_trial: float, timing: Timing | None, concurrent: int
) -> Price:
    """Return the expected cost of ``trials`` trials of ``per_trial`` epochs each, at most the sweep's budget.

    ``concurrent`` is the number of trials at once, at least 1. Without ``timing``, the hours are None, and budgets of
    time and money do not count. A budget of money is spent at the highest price. If ``trials`` is None, only the budget
    determines the cost. The number of trials in the result may be a fraction.
    """
    budget = spec.budget
    gpus = spec.resources.trial_gpus
    if trials is None:
        epochs = None
    else:
        epochs = trials * per_trial
    if budget.epochs is not None and (epochs is None or epochs > budget.epochs):
        epochs = float(budget.epochs)
        trials_left: float | None = epochs / per_trial
    else:
        trials_left = trials
    if timing is None:
        return Price(trials_left, epochs, None)
    each_s = timing.trial_s + per_trial * timing.epoch_s
    seconds, at_once = math.inf, float(concurrent)
    if trials_left is not None:
        at_once = max(min(concurrent, trials_left), 1)
        # a whole trial at least
        seconds = timing.start_s + max(trials_left * each_s / at_once, each_s)
    # budgets as seconds of the sweep; those of GPU hours and money are spent by all concurrent trials together
    limits = [budget.hours * 3600] if budget.hours else []
    if budget.gpu_hours and gpus:
        limits.append(budget.gpu_hours * 3600 / (gpus * at_once))
    if (
        budget.money
        and gpus
        and spec.resources.price is not None
        and (most := prices.find_price_bounds(spec.resources.price)[1])
    ):
        limits.append(budget.money * 3600 / (gpus * at_once * most))
    if limits and min(limits) < seconds:
        seconds = min(limits)
        trials_left = max((seconds - timing.start_s) * at_once / each_s, 0)
        epochs = trials_left * per_trial
    if epochs is None:
        trained_s = None
    else:
        trained_s = epochs * timing.epoch_s
    return Price(trials_left, epochs, seconds / 3600 if math.isfinite(seconds) else None, trained_s)


def time_units(spec: Spec, measured: Timing | None) -> Timing:
    """Return the times of trials that end after `minutes`, with the seconds of a unit of `Spec.length` as ``epoch_s``.

    A unit is a hundredth of the minutes or, if the epochs are limited too, an epoch, which is at most its part of the
    minutes. Without ``measured``, the epochs are taken to fill the minutes, and the other times are 0.
    """
    unit_s = 60 * (spec.minutes or 0.0) / spec.length
    if measured is None:
        return Timing(unit_s, 0.0, 0.0, "by minutes")
    if spec.counts_epochs:
        unit_s = min(unit_s, measured.epoch_s)
    return Timing(unit_s, measured.trial_s, measured.start_s, measured.source)


def price_units(
    spec: Spec, trials: int | None, per_trial: float, measured: Timing | None, concurrent: int
) -> Price:
    """Return the expected cost of trials that end after `minutes`, as `price` does for trials that end after epochs.

    ``per_trial`` is in the units of `Spec.length`, and ``measured`` has the seconds of epochs. The epochs of the result
    are None if no epoch was measured.
    """
    timing = time_units(spec, measured)
    epochs = None
    if measured is not None and spec.budget.epochs is not None:
        # the budget in units
        epochs = max(round(spec.budget.epochs * measured.epoch_s / timing.epoch_s), 1)
    in_units = replace(spec, budget=spec.budget.model_copy(update={"epochs": epochs}))
    found = price(in_units, trials, per_trial, timing, concurrent)
    if measured is None or found.trained_s is None:
        trained = None
    else:
        trained = found.trained_s / measured.epoch_s
    return replace(found, epochs=trained)


def gpu_hours(spec: Spec, price: Price, timing: Timing | None) -> float | None:
    """Return the GPU-hours of all trials of a sweep, without the starts of workers.

    Return None if the times or the number of trials are unknown, or if trials use no GPU.
    """
    if timing is None or price.trials is None or price.trained_s is None or not spec.resources.gpus:
        return None
    return (price.trials * timing.trial_s + price.trained_s) * spec.resources.trial_gpus / 3600


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine to compare: number of GPUs and the price of each."""

    name: str
    gpus: float
    price: float  # per GPU-hour
    epoch_s: float | None = None  # seconds per epoch; None: as fast as here


@dataclass(frozen=True, slots=True)
class Offer:
    """Expected time and cost of a sweep on a machine."""

    machine: Machine
    at_once: int  # number of concurrent trials
    hours: float | None
    cost: float | None


def list_offers(
    spec: Spec,
    trials: int | None,
    per_trial: float,
    timing: Timing | None,
    machines: Sequence[Machine],
) -> list[Offer]:
    """Return the expected hours and cost of a sweep on each machine, all of whose GPUs are paid for all the time.

    As many trials run at once as its GPUs allow, at least one. A machine whose ``epoch_s`` is None takes the seconds of
    an epoch from ``timing``; without that, its hours and cost are None. All machines take the other times from
    ``timing``, or 0 without it. ``per_trial`` is in the units of `Spec.length`.
    """
    found = []
    for machine in machines:
        at_once = max(count_parts(machine.gpus, spec.resources.trial_gpus or 1.0), 1)
        there = timing
        if machine.epoch_s is not None:
            if timing is None:
                beside = (0.0, 0.0)
            else:
                beside = (timing.trial_s, timing.start_s)
            there = Timing(machine.epoch_s, *beside, "given")
        price_there = price if spec.minutes is None else price_units
        hours = price_there(spec, trials, per_trial, there, at_once).hours
        cost = None if hours is None else hours * machine.gpus * machine.price
        found.append(Offer(machine, at_once, hours, cost))
    return found


EPOCH_LENGTH = "steps_per_epoch"


def find_earlier_times(
    results: Path, trainable: str, simulated_gpus: int | None, sample: Sequence[Params]
) -> Timing | None:
    """Return the times in the most recent sweep of ``trainable`` in the folder ``results``; None if there is none.

    The most recent sweep is the one whose log has changed last. Only sweeps with the same number of simulated GPUs are
    considered, and only epochs whose ``steps_per_epoch`` occurs in ``sample``. Sweeps without such epochs and damaged
    ones are skipped.
    """
    # with other lengths, epochs take other times
    lengths = [params.get(EPOCH_LENGTH) for params in sample]
    for folder in list_begun_sweeps(results):
        try:
            info = folder.read_info()
            if info.trainable != trainable or info.simulated_gpus != simulated_gpus:
                continue
            found = measure_sweep(folder, lengths)
        except StoreError:  # damaged; commands that read it for its own sake report that
            continue
        if found is not None:
            return found
    return None


MEASURED_EVENTS = 3_000
"""Events of a log after which `measure_sweep` has read enough, once a trial has ended."""


def measure_sweep(
    folder: ResultsFolder, lengths: Sequence[Value | None] | None = None
) -> Timing | None:
    """Return the median seconds of an epoch and of a trial besides its epochs; None if no epoch is used.

    The log is read up to the first end of a trial after `MEASURED_EVENTS` events. The start of a worker is the largest
    time of a trial besides its epochs, minus the median. With ``lengths``, epochs are used only if their
    ``steps_per_epoch`` (None if not set) is among them. Raises `StoreError` if the log is missing or damaged.
    """
    events: list[Event] = []
    for event in store_log.read(folder.log):
        events.append(event)
        if len(events) >= MEASURED_EVENTS and isinstance(event, TrialEnded):
            break
    length = {
        event.trial: event.params.get(EPOCH_LENGTH)
        for event in events
        if isinstance(event, TrialStarted)
    }
    epochs = []
    overheads = {}
    for event in events:
        if isinstance(event, EpochReported) and (
            lengths is None or length.get(event.trial) in lengths
        ):
            epochs.append(event.time_s)
        if isinstance(event, TrialEnded) and event.facts.overhead_s:
            overheads[event.trial] = sum(event.facts.overhead_s.values())
    if not epochs:
        return None
    each_s = median(overheads.values()) if overheads else 0.0
    first_s = max(overheads.values(), default=0.0) - each_s
    return Timing(median(epochs), each_s, first_s, f"sweep {folder.name}")


def measure_epoch_times(
    spec: Spec, devices: Devices, import_folders: Sequence[Path], sample: Sequence[Params]
) -> Timing:
    """Train the first two configurations of ``sample`` in this process, up to two epochs of each phase, and time them.

    ``sample`` must have at least one. The trainable is searched in ``import_folders`` first.

    Raises:
        TrainableError: if the trainable cannot be imported, or the training fails.
    """
    began = time.monotonic()
    terms = Terms(spec)
    try:
        trainable = load_trainable(spec.trainable, import_folders, seed=spec.data_seed)()
        # of each trial: seconds besides the epochs, which for the first include the import, and seconds per epoch
        spent: list[tuple[float, float]] = []
        for trial, params in enumerate(sample[:2]):
            assignment = terms.trial(trial, params, devices)
            trainable.begin(assignment)
            trained_s, epoch_s = _time_epochs(trainable, assignment.epochs)
            spent.append((time.monotonic() - began - trained_s, epoch_s))
            began = time.monotonic()
        end_trial(trainable)
    except Exception as error:
        raise TrainableError(f"the timed trial failed: {in_short(error)}") from error
    # not below 0, since the epochs count with the time of the last of their phase
    first_s = max(spent[0][0], 0.0)
    trial_s = max(spent[-1][0], 0.0)
    return Timing(
        median(epoch_s for _, epoch_s in spent), trial_s, max(first_s - trial_s, 0.0), "timed now"
    )


def _train_epochs(trainable: Trainable, most: int) -> list[EpochReported]:
    """Train up to ``most`` epochs with a trainable that has begun a trial; return their reports."""
    reported: list[EpochReported] = []

    def report(epoch: EpochReported) -> bool:
        reported.append(epoch)
        return len(reported) < most

    trainable.train(report)
    return reported


def _time_epochs(trainable: Trainable, epochs: int) -> tuple[float, float]:
    """Train at most two epochs of each phase of a trial; return (seconds of these epochs, mean seconds of an epoch).

    The trainable must have begun a trial of ``epochs`` epochs, over which the mean is taken; without `try_phases`, they
    are one phase. Each epoch of a phase counts with the time of the last one that was trained, because the first may
    compile.
    """
    phases: Callable[[], Iterable[int]] = getattr(trainable, "try_phases", lambda: [epochs])
    trained_s = total_s = 0.0
    lengths = []
    for length in phases():
        trained = _train_epochs(trainable, min(length, 2))
        epoch_s = trained[-1].time_s  # the last one, because the first may compile
        trained_s += len(trained) * epoch_s
        total_s += length * epoch_s
        lengths.append(length)
    return trained_s, total_s / sum(lengths)
