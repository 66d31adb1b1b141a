"""How long the trials of earlier sweeps took, and what a sweep costs at their pace.

Its imports are few, because `run` says what a sweep costs before anything else is imported.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from sweep import prices
from sweep.contract import Devices, count_allowed_trials, cpus
from sweep.errors import StoreError
from sweep.events import EpochReported, Event, Params, TrialEnded, TrialStarted, Value
from sweep.spec import Spec
from sweep.store import log as store_log
from sweep.store import sweep_info
from sweep.store.folder import ResultsFolder, list_begun_sweeps

EPOCH_LENGTH = "steps_per_epoch"
MEASURED_EVENTS = 3_000
"""Events of a log after which `measure_sweep` has read enough, once a trial has ended."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Measured seconds: of an epoch, of a trial besides its epochs, and of a worker's start before its first trial."""

    epoch_s: float
    trial_s: float
    start_s: float  # by how much the first trial of a worker exceeds ``trial_s``
    source: str  # origin of the figures, for the reader


@dataclass(frozen=True, slots=True)
class Price:
    """The expected cost of a sweep; None for what neither a number of trials nor a budget limits."""

    trials: float | None  # may be a fraction
    epochs: float | None  # of all trials together
    # from the beginning to the end of the sweep; None also without measured times
    hours: float | None
    trained_s: float | None = None  # seconds of all epochs together; None without a `Timing`


def count_concurrent_trials(spec: Spec, simulated_gpus: int | None, room: int | None = None) -> int:
    """Return how many trials run at once: all that fit on this machine, limited by `max_share` and `max_concurrent`.

    ``simulated_gpus`` is the number of logical CPU devices that stand in for GPUs; None for the machine's own GPUs.
    ``room`` is the number of trials that may run on a cluster, `max_share` included, if they run there. Then this
    machine does not matter, but `max_concurrent` does. Return 0 if not even one trial fits.
    """
    if room is None:
        worker = spec.resources.devices(simulated_gpus)  # the devices of one of a trial's processes
        trial = Devices(worker.cpus * spec.resources.processes, spec.resources.trial_gpus)
        gpus = len(sweep_info.gpus()) if simulated_gpus is None else simulated_gpus
        room = trial.fits(cpus(), gpus)
        if room:  # `count_allowed_trials` would make 1 of 0
            room = count_allowed_trials(room, spec.resources.max_share)
    if spec.resources.max_concurrent == "auto":
        return room
    return min(room, spec.resources.max_concurrent)


def price(
    spec: Spec, trials: int | None, per_trial: float, timing: Timing | None, concurrent: int
) -> Price:
    """Return the expected cost of ``trials`` trials of ``per_trial`` epochs each, at most the sweep's budget.

    ``concurrent`` is the number of trials at once, at least 1. Without ``timing``, the hours are None, and budgets of
    time and money do not count. With it, the hours include the start of a worker and, unless the budget ends before,
    are at least those of one whole trial. A budget of money is spent at the highest price. If ``trials`` is None, only
    the budget determines the cost; what no budget limits is None. The number of trials in the result may be a fraction.
    """
    budget = spec.budget
    gpus = spec.resources.trial_gpus  # of one trial
    if trials is None:
        epochs = None
    else:
        epochs = trials * per_trial
    # the trials and epochs of the result: those that are asked for or, if these are fewer, those in the budget
    if budget.epochs is not None and (epochs is None or epochs > budget.epochs):
        epochs = float(budget.epochs)
        afforded: float | None = epochs / per_trial
    else:
        afforded = trials
    if timing is None:
        return Price(afforded, epochs, None)
    each_s = timing.trial_s + per_trial * timing.epoch_s  # of one trial
    seconds, at_once = math.inf, float(concurrent)
    if afforded is not None:
        at_once = max(min(concurrent, afforded), 1)
        # a whole trial at least
        seconds = timing.start_s + max(afforded * each_s / at_once, each_s)
    # budgets as seconds of the sweep; those of GPU hours and money are spent by all concurrent trials together
    limits = [budget.hours * 3600] if budget.hours else []
    if budget.gpu_hours and gpus:
        limits.append(budget.gpu_hours * 3600 / (gpus * at_once))
    if budget.money and gpus and spec.resources.price is not None:
        _, highest = prices.find_price_bounds(spec.resources.price)  # of a GPU-hour
        if highest:
            limits.append(budget.money * 3600 / (gpus * at_once * highest))
    if limits and min(limits) < seconds:
        seconds = min(limits)
        afforded = max((seconds - timing.start_s) * at_once / each_s, 0)
        epochs = afforded * per_trial
    if epochs is None:
        trained_s = None
    else:
        trained_s = epochs * timing.epoch_s
    return Price(afforded, epochs, seconds / 3600 if math.isfinite(seconds) else None, trained_s)


def time_units(spec: Spec, measured: Timing | None) -> Timing:
    """Return the times of trials that end after `minutes`, with the seconds of a unit of `Spec.length` as ``epoch_s``.

    ``measured`` has the seconds of epochs. A unit is a hundredth of the minutes or, if the epochs are limited too, an
    epoch, which is at most its part of the minutes. Without ``measured``, the epochs are taken to fill the minutes, and
    the other times are 0.
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
    are real ones, not units; they are None if no epoch was measured. Then a budget of epochs does not count.
    """
    timing = time_units(spec, measured)
    budget_units = None
    if measured is not None and spec.budget.epochs is not None:
        budget_units = max(round(spec.budget.epochs * measured.epoch_s / timing.epoch_s), 1)
    # `price` counts units as its epochs
    in_units = replace(spec, budget=spec.budget.model_copy(update={"epochs": budget_units}))
    found = price(in_units, trials, per_trial, timing, concurrent)
    if measured is None or found.trained_s is None:
        epochs = None
    else:
        epochs = found.trained_s / measured.epoch_s
    return replace(found, epochs=epochs)


def gpu_hours(spec: Spec, price: Price, timing: Timing | None) -> float | None:
    """Return the GPU-hours of all trials of a sweep, without the starts of workers.

    ``timing`` must be that from which ``price`` was computed. Return None if the times or the number of trials are
    unknown, or if trials use no GPU.
    """
    if timing is None or price.trials is None or price.trained_s is None or not spec.resources.gpus:
        return None
    return (price.trials * timing.trial_s + price.trained_s) * spec.resources.trial_gpus / 3600


def find_earlier_times(
    results: Path, trainable: str, simulated_gpus: int | None, sample: Sequence[Params]
) -> Timing | None:
    """Return the times in the most recent sweep of ``trainable`` in the folder ``results``; None if there is none.

    The most recent sweep is the one whose log has changed last. Only sweeps with the same number of simulated GPUs are
    considered. Epochs are used if their trial has the same ``steps_per_epoch`` as a configuration of ``sample``, or
    lacks it as one of these does. Sweeps without such epochs and damaged ones are skipped.
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


def measure_sweep(
    folder: ResultsFolder, lengths: Sequence[Value | None] | None = None
) -> Timing | None:
    """Return the median seconds of an epoch and of a trial besides its epochs; None if no epoch is used.

    The log is read up to the first end or interruption of a trial after `MEASURED_EVENTS` events. The start of a worker
    is the largest time of a trial besides its epochs, minus the median; both are 0 if no trial has recorded such a
    time. With ``lengths``, epochs are used only if their ``steps_per_epoch`` (None if not set) is among them. Raises
    `StoreError` if the log is missing or damaged.
    """
    events: list[Event] = []
    for event in store_log.read(folder.log):
        events.append(event)
        if len(events) >= MEASURED_EVENTS and isinstance(event, TrialEnded):
            break
    length_by_trial = {
        event.trial: event.params.get(EPOCH_LENGTH)
        for event in events
        if isinstance(event, TrialStarted)
    }
    epochs_s = []
    overheads_s = {}  # by trial: seconds besides its epochs, at its last end or interruption
    for event in events:
        if isinstance(event, EpochReported) and (
            lengths is None or length_by_trial.get(event.trial) in lengths
        ):
            epochs_s.append(event.time_s)
        if isinstance(event, TrialEnded) and event.facts.overhead_s:
            overheads_s[event.trial] = sum(event.facts.overhead_s.values())
    if not epochs_s:
        return None
    trial_s = median(overheads_s.values()) if overheads_s else 0.0
    # the trial that took longest is taken to be one with which a worker started
    start_s = max(overheads_s.values(), default=0.0) - trial_s
    return Timing(median(epochs_s), trial_s, start_s, f"sweep {folder.name}")
