"""What a sweep costs: how many trials reach each rung, how many epochs that makes, how long it takes."""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TypeAlias

from sweep import prices
from sweep.analysis import confirmation
from sweep.contract import Devices, Trainable, parts
from sweep.errors import StoreError, TrainableError, in_short
from sweep.events import EpochReported, Params, TrialEnded, TrialStarted
from sweep.functions import FunctionTrainable, load_trainable
from sweep.runner.rehearsal import Landscape, Rehearsal, Setting
from sweep.runner.trials import Terms
from sweep.schedulers import Scheduler
from sweep.searchers import Searcher
from sweep.space.objectives import Objective
from sweep.spec import Spec
from sweep.store import log as store_log
from sweep.store.folder import newest

REHEARSED = 3000  # trials in all rehearsals of a rule together
MOST_REHEARSED = 1000  # in one; what they do is scaled up to more
FEWEST_REHEARSED = 50
REPORTED = 100_000  # epochs in all rehearsals, which take about 0.2 s
LEARNING = 200  # trials in all rehearsals with a method that learns, which takes about 0.02 s for each
MOST_LEARNING = 100


@dataclass(frozen=True, slots=True)
class Rung:
    """An epoch at which trials can be pruned, or pause; ``trials`` is how many are expected to reach it."""

    epoch: int
    trials: float | None


@dataclass(frozen=True, slots=True)
class Timing:
    """What was measured: seconds an epoch, beside them for each trial, and for the first one of a worker."""

    epoch_s: float
    trial_s: float
    start_s: float
    source: str  # where the figures come from, for the reader


@dataclass(frozen=True, slots=True)
class Price:
    """What a sweep is expected to take; ``hours`` is None without a `Timing`."""

    trials: float | None
    epochs: float | None
    hours: float | None


@dataclass(frozen=True, slots=True)
class Confirming:
    """What fresh seeds for the finalists take at most; it is less where some are told apart early."""

    finalists: int  # with the baseline
    seeds: int  # that the budget allows for all of them
    trials: int
    epochs: int


@dataclass(frozen=True, slots=True)
class Course:
    """How a sweep is expected to go under its rule."""

    rungs: tuple[Rung, ...]
    epochs: float | None  # of all trials together


Method: TypeAlias = Callable[[int], tuple[Searcher, Sequence[Landscape]]]
"""Makes the searcher of a rehearsal, by its number, and how good configurations are in it by each objective."""


def course(
    build: Callable[[], Scheduler],
    objective: Objective,
    epochs: int,
    trials: int | None,
    *,
    whole: bool = False,
    method: Method | None = None,
    workers: int = 1,
) -> Course:
    """Return what a scheduler makes of ``trials`` trials of ``epochs`` epochs.

    The mean of rehearsals, with the configurations of a ``method`` that learns, or else with trials that are good by
    chance. The scheduler hears of the epochs at which it decides, or of all where the ``whole`` trial matters to it.
    """
    decisions = build().decision_epochs(epochs)
    if trials is None or not decisions:
        return Course(tuple(Rung(epoch, None) for epoch in decisions), None if trials is None else trials * epochs)
    reported = tuple(range(1, epochs + 1)) if whole else (*decisions, epochs)
    if method is None:
        tried = min(trials, MOST_REHEARSED, max(REPORTED // len(reported), FEWEST_REHEARSED))
        rehearsals = max(min(REHEARSED // tried, REPORTED // (tried * len(reported))), 1)
    else:
        tried = min(trials, MOST_LEARNING)
        rehearsals = max(LEARNING // tried, 1)
    setting = Setting(objective=objective, epochs=epochs, reported=reported, trials=tried, workers=min(workers, tried))
    numbers, reached, begun = random.Random(0), Counter[int](), 0
    for number in range(rehearsals):
        searcher, landscapes = (None, numbers) if method is None else method(number)
        rehearsal = Rehearsal(setting, build(), landscapes)
        reached.update(rehearsal.run(searcher))
        begun += rehearsal.begun
    lengths = zip(reported, (0, *reported), strict=False)
    trained = sum((epoch - before) * reached[epoch] for epoch, before in lengths)
    return Course(tuple(Rung(epoch, reached[epoch] * trials / begun) for epoch in decisions), trained * trials / begun)


def confirming(spec: Spec, configurations: int | None, epochs: float | None, longest: int) -> Confirming | None:
    """What `confirm:` asks for, after a search of so many ``epochs``; None where nothing is asked for."""
    if spec.confirm is None:
        return None
    share, each = spec.confirm.share(), longest * (spec.folds or 1)
    own = int(spec.baseline is not None)
    racers = min(spec.confirm.finalists, configurations or spec.confirm.finalists) + own
    allowed = math.inf if share is None or epochs is None else share * epochs
    while racers > 2 and confirmation.AFFORDED * racers * each > allowed:
        racers -= 1
    seeds = spec.confirm.seeds if math.isinf(allowed) else min(spec.confirm.seeds, int(allowed // (racers * each)))
    return Confirming(racers, seeds, racers * seeds * (spec.folds or 1), racers * seeds * each)


def price(spec: Spec, trials: int | None, per_trial: float, timing: Timing | None, concurrent: int) -> Price:
    """What ``trials`` trials of ``per_trial`` epochs each take, within the sweep's budget."""
    budget, gpus = spec.budget, spec.resources.trial_gpus
    epochs = None if trials is None else trials * per_trial
    if budget.epochs is not None and (epochs is None or epochs > budget.epochs):
        epochs = float(budget.epochs)
        trials_left: float | None = epochs / per_trial
    else:
        trials_left = trials
    if timing is None:
        return Price(trials_left, epochs, None)
    each_s = timing.trial_s + per_trial * timing.epoch_s
    seconds = math.inf
    if trials_left is not None:
        at_once = max(min(concurrent, trials_left), 1)
        seconds = timing.start_s + max(trials_left * each_s / at_once, each_s)
    limits = [budget.hours * 3600] if budget.hours else []
    if budget.gpu_hours and gpus:
        limits.append(budget.gpu_hours * 3600 / (gpus * concurrent))
    if budget.money and gpus and spec.resources.price is not None and (most := prices.bounds(spec.resources.price)[1]):
        limits.append(budget.money * 3600 / (gpus * concurrent * most))
    if limits and min(limits) < seconds:
        seconds = min(limits)
        trials_left = max((seconds - timing.start_s) * concurrent / each_s, 0)
        epochs = trials_left * per_trial
    return Price(trials_left, epochs, seconds / 3600 if math.isfinite(seconds) else None)


def gpu_hours(spec: Spec, price: Price, timing: Timing | None) -> float | None:
    """Hours of GPUs that the trials of a sweep take; None where that is not known."""
    if timing is None or price.trials is None or price.epochs is None or not spec.resources.gpus:
        return None
    return (price.trials * timing.trial_s + price.epochs * timing.epoch_s) * spec.resources.trial_gpus / 3600


@dataclass(frozen=True, slots=True)
class Machine:
    """What a sweep could run on instead: so many GPUs at such a price, none: a machine without a price for them."""

    name: str
    gpus: float
    price: float  # of a GPU for an hour
    epoch_s: float | None = None  # None: as fast as here


@dataclass(frozen=True, slots=True)
class Offer:
    """What a sweep would take on a machine."""

    machine: Machine
    at_once: int  # trials
    hours: float | None
    cost: float | None


def offers(
    spec: Spec, trials: int | None, per_trial: float, timing: Timing | None, machines: Sequence[Machine]
) -> list[Offer]:
    """Return what a sweep would take on each machine, of which trials keep all GPUs at work."""
    found = []
    for machine in machines:
        at_once = max(parts(machine.gpus, spec.resources.trial_gpus or 1.0), 1)
        there = timing
        if machine.epoch_s is not None:
            beside = (0.0, 0.0) if timing is None else (timing.trial_s, timing.start_s)
            there = Timing(machine.epoch_s, *beside, "given")
        hours = price(spec, trials, per_trial, there, at_once).hours
        found.append(Offer(machine, at_once, hours, None if hours is None else hours * machine.gpus * machine.price))
    return found


EPOCH_LENGTH = "steps_per_epoch"


def earlier(results: Path, trainable: str, simulated_gpus: int | None, sample: Sequence[Params]) -> Timing | None:
    """The times of the most recent sweep of the same trainable, by the beginning of its log.

    Rehearsals with simulated GPUs are only told from rehearsals with as many, and epochs from those that have as many
    updates as the ``sample`` says.
    """
    lengths = [params.get(EPOCH_LENGTH) for params in sample]
    for folder in newest(results):
        try:
            info = folder.read_info()
            if info.trainable != trainable or info.simulated_gpus != simulated_gpus:
                continue
            events, _ = store_log.read_from(folder.log, 0)
        except StoreError:  # damaged, which is for those to say who read it for its own sake
            continue
        length = {event.trial: event.params.get(EPOCH_LENGTH) for event in events if isinstance(event, TrialStarted)}
        epochs = [e.time_s for e in events if isinstance(e, EpochReported) and length.get(e.trial) in lengths]
        overheads = {
            event.trial: sum(event.facts.overhead_s.values())
            for event in events
            if isinstance(event, TrialEnded) and event.facts.overhead_s
        }
        if epochs:
            each_s = median(overheads.values()) if overheads else 0.0
            first_s = max(overheads.values(), default=0.0) - each_s
            return Timing(median(epochs), each_s, first_s, f"sweep {folder.name}")
    return None


def measure(spec: Spec, devices: Devices, import_folders: Sequence[Path], sample: Sequence[Params]) -> Timing:
    """Train two epochs of the first two configurations in this process. Raises `TrainableError` if that fails."""
    began, terms = time.monotonic(), Terms(spec)
    try:
        trainable = load_trainable(spec.trainable, import_folders, seed=spec.data_seed)()
        spent: list[tuple[float, float]] = []  # beside the epochs, and one epoch
        for trial, params in enumerate(sample[:2]):
            assignment = terms.trial(trial, params, devices)
            trainable.begin(assignment)
            trained_s, epoch_s = _timed(trainable, assignment.epochs)
            spent.append((time.monotonic() - began - trained_s, epoch_s))
            began = time.monotonic()
        if isinstance(trainable, FunctionTrainable):
            trainable.end()
    except Exception as error:
        raise TrainableError(f"the timed trial failed: {in_short(error)}") from error
    first_s, trial_s = max(spent[0][0], 0.0), max(spent[-1][0], 0.0)
    return Timing(median(epoch_s for _, epoch_s in spent), trial_s, max(first_s - trial_s, 0.0), "timed now")


def _timed(trainable: Trainable, epochs: int) -> tuple[float, float]:
    """Train two epochs of each phase of a trial; what they took, and an epoch on the average over the trial."""
    phases: Callable[[], Iterable[int]] = getattr(trainable, "try_phases", lambda: [epochs])
    trained_s = total_s = 0.0
    lengths = []
    for length in phases():
        heard: list[EpochReported] = []
        most = min(length, 2)
        trainable.train(lambda epoch, heard=heard, most=most: heard.append(epoch) or len(heard) < most)  # type: ignore[misc]  # mypy infers no lambda with a default
        epoch_s = heard[-1].time_s  # the first one may compile
        trained_s += len(heard) * epoch_s
        total_s += length * epoch_s
        lengths.append(length)
    return trained_s, total_s / sum(lengths)
