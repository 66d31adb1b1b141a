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

from sweep.analysis import confirmation
from sweep.contract import Devices, Trainable, count_gpu_parts, end_trial
from sweep.errors import TrainableError, in_short
from sweep.events import EpochReported, Params
from sweep.functions import load_trainable
from sweep.runner.earlier_times import Timing, price, price_units
from sweep.runner.rehearsal import Landscape, Rehearsal, RehearsalSetting
from sweep.runner.trials import Terms
from sweep.schedulers import Scheduler
from sweep.searchers import Searcher
from sweep.space.objectives import Objective
from sweep.spec import Spec

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
    trials, at least one; if that is None, nothing is run, the rungs have no numbers, and the number of epochs is None.
    The seeds are fixed, so that the result is always the same. What the scheduler raises is passed on.

    Arguments:
        build: makes a new scheduler; called once for each run, and once before.
        epochs: length of a trial that is not stopped, with ``epoch_s`` seconds for each epoch.
        whole: whether the scheduler observes all epochs, instead of its decision epochs and the last one.
        method: makes the searcher that chooses configurations; None: the losses are random.
        workers: number of trials at once.
    """
    decisions = build().decision_epochs(epochs)
    if trials is None or not decisions:  # nothing to count, or no trial is ever stopped
        all_epochs = None if trials is None else trials * epochs
        return Course(tuple(ExpectedRung(epoch, None) for epoch in decisions), all_epochs)
    # the epochs that each trial reports
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
    # random numbers for all rehearsals; the seed is fixed, so that a plan is always the same
    numbers = random.Random(0)
    reached = Counter[int]()  # by epoch: trials of all rehearsals that have reported it
    # trials of all rehearsals: fewer than ``tried`` times ``rehearsals`` if the space has no more configurations
    begun = 0
    for number in range(rehearsals):
        searcher, landscapes = (None, numbers) if method is None else method(number)
        rehearsal = Rehearsal(setting, build(), landscapes)
        reached.update(rehearsal.run(searcher))
        begun += rehearsal.begun
    with_earlier = zip(reported, (0, *reported), strict=False)  # each report with the one before it
    trained = sum((epoch - before) * reached[epoch] for epoch, before in with_earlier)
    # scaled from the trials that were run to ``trials``
    return Course(
        tuple(ExpectedRung(epoch, reached[epoch] * trials / begun) for epoch in decisions),
        trained * trials / begun,
    )


def confirming(
    spec: Spec, configurations: int | None, epochs: float | None, longest: int
) -> Confirming | None:
    """Return the largest possible cost of the confirmation in trials and epochs; None without ``confirm`` in the file.

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
    share = spec.confirm.share()  # of the search's epochs; None without a budget
    each = longest * (spec.folds or 1)  # epochs of one seed of a finalist, with all folds
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
    an epoch from ``timing``; without that, its hours and cost are None, unless trials end by `minutes`. They are also
    None if ``trials`` is None and no budget limits them. All machines take the other times from ``timing``, or 0
    without it. ``per_trial`` is in the units of `Spec.length`. `budget.money` is spent at the machine's price.
    """
    estimate = price if spec.minutes is None else price_units
    found = []
    for machine in machines:
        # trials that use no GPU are counted as if each took one
        at_once = max(count_gpu_parts(machine.gpus, spec.resources.trial_gpus or 1.0), 1)
        machine_timing = timing
        if machine.epoch_s is not None:
            trial_s = 0.0 if timing is None else timing.trial_s
            start_s = 0.0 if timing is None else timing.start_s
            machine_timing = Timing(machine.epoch_s, trial_s, start_s, "given")
        # the price in the file is that of another machine
        resources = spec.resources.model_copy(update={"price_per_gpu_hour": machine.price})
        machine_spec = replace(spec, resources=resources)
        hours = estimate(machine_spec, trials, per_trial, machine_timing, at_once).hours
        cost = None if hours is None else hours * machine.gpus * machine.price
        found.append(Offer(machine, at_once, hours, cost))
    return found


def measure_epoch_times(
    spec: Spec, devices: Devices, import_folders: Sequence[Path], sample: Sequence[Params]
) -> Timing:
    """Train the first two configurations of ``sample`` in this process, up to two epochs of each phase, and time them.

    ``sample`` must have at least one. The trainable is searched in ``import_folders`` first. The result has the median
    of the two trials' mean seconds of an epoch, the seconds of the last of the trials besides its epochs, and by how
    much those of the first, which include the import, exceed them.

    Raises:
        TrainableError: if the trainable cannot be imported, or the training fails.
    """
    began = time.monotonic()  # of the import and the first trial, then of the second one
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
    """Train up to ``most`` epochs with a trainable that has begun a trial; return their reports.

    ``most`` must be at least 1. There are fewer if the trial ends before.
    """
    reported: list[EpochReported] = []

    def report(epoch: EpochReported) -> bool:
        """Keep a report of the trainable; return whether it is to train another epoch."""
        reported.append(epoch)
        return len(reported) < most

    trainable.train(report)
    return reported


def _time_epochs(trainable: Trainable, epochs: int) -> tuple[float, float]:
    """Train at most two epochs of each phase of a trial; return (seconds of these epochs, mean seconds of an epoch).

    The trainable must have begun a trial of ``epochs`` epochs, over which the mean is taken; without `try_phases`, they
    are one phase. Each epoch of a phase counts with the time of the last one that was trained, because the first may
    compile. Raises IndexError if the trainable reports no epoch of a phase.
    """
    # begins one phase after another, and yields the number of epochs of each
    try_phases: Callable[[], Iterable[int]] = getattr(trainable, "try_phases", lambda: [epochs])
    trained_s = 0.0  # of the epochs that are trained here
    total_s = 0.0  # of all epochs of the trial
    lengths = []
    for length in try_phases():
        trained = _train_epochs(trainable, min(length, 2))
        epoch_s = trained[-1].time_s  # the last one, because the first may compile
        trained_s += len(trained) * epoch_s
        total_s += length * epoch_s
        lengths.append(length)
    return trained_s, total_s / sum(lengths)
