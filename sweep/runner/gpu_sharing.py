"""Decides from measurements how many trials share a GPU (`gpus: auto`).

All measurements come from events, so a resumed sweep repeats them from its log. The decision is a pure function of the
measurements; a running trial learns of a new share from `Job.share_file`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import geometric_mean

from sweep.backends import Crowded, Moves, Progress
from sweep.contract import Devices
from sweep.events import EpochReported, Facts, Params, Role
from sweep.runner.trials import fits_structure
from sweep.store.ledger import Change, Ended, Interrupted, Reopened, Reported, Started

TRIALS = (1, 2, 4, 8)
"""Numbers of trials per GPU, in the order in which they are tried."""
GAIN = 1.05
"""Minimum ratio of total throughput for preferring more trials per GPU; below it they only wait for one another."""
MEASURED_S = 2.0
"""Minimum training seconds per trial before a number of trials counts as measured, as epochs may be very short."""
HEADROOM = 1.1
"""Factor by which measured memory peaks are multiplied, because gaps remain between blocks of different sizes."""


@dataclass(frozen=True, slots=True)
class Level:
    """The speeds that were measured with ``trials`` trials per GPU."""

    trials: int
    at_once: int  # trials that then run on all GPUs together
    # examples per second of one trial, by structure; empty: not measured
    speeds: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Decision:
    """How many trials per GPU to use next."""

    trials: int  # per GPU
    settled: bool  # nothing is left to measure
    # the last two levels measured; the better one is used
    compared: tuple[Level, Level] | None = None

    @property
    def gain(self) -> float | None:
        """Total throughput of the second compared level divided by that of the first; None if none are compared."""
        if self.compared is None:
            return None
        return gain(*self.compared)


def decide(levels: Sequence[Level]) -> Decision:
    """Decide how many trials per GPU to use next.

    The levels are looked at in order. If one was not measured, its number is used next. If one has less than `GAIN`
    times the total throughput of the one before it, the number of the one before is used, and the decision is final. If
    all are measured and better, the last number is used, and the decision is final. With a single level, it is final
    even before that is measured. ``levels`` are those that fit into memory, the fewest trials first; there must be at
    least one.
    """
    if not levels[0].speeds:
        return Decision(levels[0].trials, settled=len(levels) == 1)
    compared = None
    for before, after in pairwise(levels):
        if not after.speeds:  # measure it next
            return Decision(after.trials, settled=False, compared=compared)
        compared = before, after
        if gain(before, after) < GAIN:
            return Decision(before.trials, settled=True, compared=compared)
    return Decision(levels[-1].trials, settled=True, compared=compared)


def gain(before: Level, after: Level) -> float:
    """Return the total examples per second of the level ``after``, divided by those of the level ``before``.

    It is a geometric mean over the structures that were measured on both levels. If there are none, the means of each
    level are compared. Both levels must have been measured.
    """
    alike = before.speeds.keys() & after.speeds.keys()
    if alike:
        speed = geometric_mean(after.speeds[name] / before.speeds[name] for name in alike)
    else:
        speed = geometric_mean(after.speeds.values()) / geometric_mean(before.speeds.values())
    return speed * after.at_once / before.at_once  # from the speed of one trial to that of all


def count_fitting_trials(peak_bytes: float, shares_bytes: Mapping[int, float]) -> int:
    """Return the largest number of trials per GPU with which ``peak_bytes`` times `HEADROOM` fit in a trial's memory.

    ``shares_bytes`` maps the numbers of trials per GPU to choose from, one or more, to the bytes of GPU memory that
    each trial then has. If no number fits, return the smallest.
    """
    fits = []
    for trials, share in shares_bytes.items():
        if peak_bytes * HEADROOM <= share:
            fits.append(trials)
    return max(fits, default=min(shares_bytes))


def list_levels_to_try(at_once: Mapping[int, int], most: int) -> tuple[int, ...]:
    """Return the numbers of trials per GPU, up to ``most``, that let more trials run at once than smaller numbers.

    ``at_once`` maps numbers of trials per GPU to how many trials then run at once on the whole machine or cluster; CPUs
    limit these too. The numbers are in ascending order, and the smallest one is always returned.
    """
    found: list[int] = []
    for trials, count in sorted(at_once.items()):
        if not found or (trials <= most and count > at_once[found[-1]]):
            found.append(trials)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class EpochsOnShare:
    """An epoch, or several merged ones, that a trial trained on a share of a GPU."""

    trial: int
    structure: str
    gpus: float
    begun: float  # seconds since 1970
    ended: float
    examples_per_s: float


def merge_epochs(before: EpochsOnShare | None, after: EpochsOnShare) -> EpochsOnShare:
    """Return two consecutive epochs of a trial as one, with their mean speed; only ``after`` if they cannot be merged.

    They cannot if their structures or GPU shares differ, or if ``before`` is None. The mean speed is the examples of
    both, divided by the time from the beginning of the first to the end of the second, a gap in between included.
    """
    if before is None or (before.structure, before.gpus) != (after.structure, after.gpus):
        return after
    first = before.ended - before.begun
    second = after.ended - after.begun
    examples = before.examples_per_s * first + after.examples_per_s * second
    # the time between the two epochs counts as well, and the merged one covers it
    return replace(
        after, begun=before.begun, examples_per_s=examples / (after.ended - before.begun)
    )


def measure_speeds(epochs: Sequence[EpochsOnShare], trials: int, at_once: int) -> dict[str, float]:
    """Return the examples per second of one trial, by structure, while all GPUs train ``trials`` trials each.

    ``at_once`` is the number of trials that then run on all GPUs together. An epoch counts only if it was trained on a
    share of 1/``trials`` of a GPU with a speed above 0, and at least 90 % of the GPUs were in use on average during it.
    Return {} until there are ``at_once`` such epochs that took ``at_once`` times `MEASURED_S` seconds in total. The
    caller must leave out warm-up epochs.
    """
    own = []  # those on the share of a GPU that each of ``trials`` trials gets
    for epoch in epochs:
        if math.isclose(epoch.gpus * trials, 1) and epoch.examples_per_s > 0:
            own.append(epoch)
    all_gpus = at_once / trials
    counted = []
    for epoch in own:
        # not all, because gaps between epochs are not recorded
        if _average_gpus_in_use(epoch, epochs) >= 0.9 * all_gpus:
            counted.append(epoch)
    counted_s = math.fsum(epoch.ended - epoch.begun for epoch in counted)
    if len(counted) < at_once or counted_s < MEASURED_S * at_once:
        return {}
    # (examples, seconds) of each epoch, by structure
    by_structure: dict[str, list[tuple[float, float]]] = {}
    for epoch in counted:
        seconds = epoch.ended - epoch.begun
        examples = epoch.examples_per_s * seconds
        by_structure.setdefault(epoch.structure, []).append((examples, seconds))
    rates = {}
    for structure, measured in by_structure.items():
        total_examples = math.fsum(examples for examples, _ in measured)
        total_seconds = math.fsum(seconds for _, seconds in measured)
        rates[structure] = total_examples / total_seconds
    return rates


def _average_gpus_in_use(epoch: EpochsOnShare, all_of_them: Sequence[EpochsOnShare]) -> float:
    """Return how many GPUs were in use on average during an epoch, by it and the epochs of other trials.

    ``all_of_them`` are the epochs of all trials. Return 0 if the epoch took no time.
    """
    length = epoch.ended - epoch.begun
    if length <= 0:
        return 0.0
    together = (  # the share of each other epoch, times the seconds in which it ran at the same time as this one
        other.gpus * max(min(other.ended, epoch.ended) - max(other.begun, epoch.begun), 0.0)
        for other in all_of_them
        if other.trial != epoch.trial
    )
    return epoch.gpus + math.fsum(together) / length


REMEMBERED = 128  # epochs that speeds are computed from
LEAST_S = 0.25  # shorter epochs are merged


@dataclass(slots=True)
class _SharedTrial:
    """What was measured of one trial."""

    params: Params
    structure: str = ""
    peak_bytes: float = 0.0
    # its latest epochs, merged into one that is still too short to measure a speed
    short_epochs: EpochsOnShare | None = None
    trained_shares: set[float] = field(default_factory=set)  # on which it has trained an epoch
    least_share: float = 0.0  # that it may get, after it ran out of memory with less


class Sharing:
    """Decides by measurements which share of a GPU each trial gets; see `features.DeviceShares`."""

    def __init__(
        self, devices: Devices, at_once: Callable[[float], int], total: int | None = None
    ) -> None:
        """Initialize with ``devices``, those of a trial that has its GPU to itself.

        ``at_once(gpus)`` returns how many trials fit at once if each has ``gpus`` GPUs. ``total`` is the number of all
        trials of the search and the baseline, None if unknown; `observe` subtracts those that have ended.
        """
        self._devices = devices
        self._trials_left = total  # that have not ended; None if unknown
        self._trials: dict[int, _SharedTrial] = {}  # that have not ended
        self._shares: dict[int, float] = {}  # of the trials that workers have
        # smallest memory peak of ended trials, by structure: others hold larger programs too
        self._peaks: dict[str, float] = {}
        self._memory_bytes: float | None = None  # of one GPU
        self._epochs: deque[EpochsOnShare] = deque(maxlen=REMEMBERED)
        self._speeds: dict[int, Mapping[str, float]] = {}  # by trials per GPU
        self._decision = Decision(1, False)
        self._sent_shares: Mapping[int, float] = {}  # new ones that running trials were told of
        self._at_once = at_once
        self._say: Callable[[str], None] = lambda text: None
        self._send_shares: Callable[[Mapping[int, float]], None] = lambda wanted: None

    def connect(
        self, say: Callable[[str], None], share: Callable[[Mapping[int, float]], None]
    ) -> None:
        """Start announcing decisions with ``say`` and new shares with ``share``, after the log has been replayed.

        ``share`` gets the new GPU shares by trial: all that are to change, in place of those of the call before.
        """
        self._say, self._send_shares = say, share

    @property
    def room(self) -> int:
        """Number of trials that can run at once now."""
        return self._at_once(1 / self._decision.trials)

    def devices(self, trial: int, params: Params) -> Devices:
        """Return the devices, with the GPU share, for a trial that a worker is about to get, and remember the share.

        If the trial was sent a new share before, that message is withdrawn.
        """
        measured = self._trials.setdefault(trial, _SharedTrial(params))
        share = self._shares[trial] = self._compute_share(measured)
        if trial in self._sent_shares:  # its new share is in effect, or impossible
            self._announce_shares(
                {number: wanted for number, wanted in self._sent_shares.items() if number != trial}
            )
        return replace(self._devices, gpus=share)

    def observe(self, change: Change) -> None:
        """Update the measurements with a change of the log, whether it is new or replayed, and perhaps decide anew.

        Epochs that another sweep has trained are ignored, and so are those without a measured GPU share.
        """
        match change:
            case Started(trial) | Reopened(trial):
                self._trials[trial.number] = _SharedTrial(trial.params)
                # a reopened trial had ended, so that there is 1 more; a new one counts already
                if trial.reopened and trial.role is not Role.CONFIRM:
                    self._change_remaining(1)
            # with ``memo``, another sweep has trained the epoch, perhaps on other GPUs
            case Reported(trial, event) if event.memo is None and "gpus" in event.measures:
                self._record_epoch(event, self._trials[trial.number])
            case Interrupted(trial, event) | Ended(trial, event):
                self._learn_structure(trial.number, event.facts)
                self._shares.pop(trial.number, None)
                if isinstance(change, Ended):
                    if trial.role is not Role.CONFIRM:
                        self._change_remaining(-1)
                    self._keep_peak(self._trials.pop(trial.number))
            case _:
                pass

    def set_remaining_trials(self, left: int | None) -> None:
        """Set the number of trials of the search and the baseline that have not ended; None if unknown.

        Called after the sweep was changed. If more are left now, and the largest number of trials per GPU that was
        tried is the best so far, larger numbers may be tried as well.
        """
        more = self._trials_left is not None and (left is None or left > self._trials_left)
        last_gain = self._decision.gain  # None if no two numbers were compared
        if more and (last_gain is None or last_gain >= GAIN):
            self._decision = replace(self._decision, settled=False)
        self._trials_left = left

    def _change_remaining(self, more: int) -> None:
        """Add ``more``, which may be negative, to the number of trials that have not ended, if that is known."""
        if self._trials_left is not None:
            self._trials_left += more

    def record_step(self, trial: int, progress: Progress) -> None:
        """Update the measurements with what a worker's step says besides its events, such as the trial's structure.

        A trial that its worker has given up no longer has its share. One that ran out of memory on its share of a GPU
        gets twice the share, up to a whole GPU, when it continues, and the user is told so. Call this before `observe`
        is called with the changes that the step's events make.
        """
        self._learn_structure(trial, progress.facts)
        match progress:
            case Crowded():  # it ran out of memory
                share = self._shares.pop(trial, 1.0)
                least = min(2 * share, 1.0)
                self._trials[trial].least_share = least
                self._say(
                    f"trial {trial}: out of memory on {_format_share(share)}; it goes on with {_format_share(least)}"
                )
            case Moves():  # its worker has given it up
                self._shares.pop(trial, None)
            case _:
                pass

    def _learn_structure(self, trial: int, facts: Facts) -> None:
        """Record the structure of a trial from its facts, also for its epochs that are measured already.

        Do nothing if the facts have no structure, or if the trial has ended.
        """
        there = self._trials.get(trial)
        if there is None or facts.structure is None or there.structure == facts.structure:
            return
        there.structure = facts.structure
        for index, epoch in enumerate(list(self._epochs)):
            if epoch.trial == trial:
                self._epochs[index] = replace(epoch, structure=facts.structure)

    def _record_epoch(self, event: EpochReported, trial: _SharedTrial) -> None:
        """Record the memory and the speed of an epoch that a trial trained on its share, and decide anew.

        The speed of the first epoch on a share is left out, unless it is the trial's first one and says that nothing
        was compiled. Epochs shorter than `LEAST_S` are merged with the next ones until they are long enough; only then
        is there a decision.
        """
        measures = event.measures
        gpus = measures["gpus"]
        self._memory_bytes = measures.get("gpu_memory_bytes", self._memory_bytes)
        trial.peak_bytes = max(trial.peak_bytes, measures.get("gpu_memory_peak_bytes", 0.0))
        # in a worker that has trained a trial of the same structure, even the first epoch compiles nothing
        is_warm = gpus in trial.trained_shares or (
            event.epoch == 1 and measures.get("compile_s") == 0.0
        )
        if is_warm and event.examples_per_s:
            begun = event.time - event.time_s
            epoch = EpochsOnShare(
                event.trial, trial.structure, gpus, begun, event.time, event.examples_per_s
            )
            merged = merge_epochs(trial.short_epochs, epoch)
            if merged.ended - merged.begun >= LEAST_S:
                trial.short_epochs = None
                self._epochs.append(merged)
                self._decide()
            else:
                trial.short_epochs = merged
        trial.trained_shares.add(gpus)

    def _keep_peak(self, trial: _SharedTrial) -> None:
        """Remember the memory peak of an ended trial for its structure, if it has one and it is the smallest so far."""
        if trial.peak_bytes:
            known = self._peaks.get(trial.structure, trial.peak_bytes)
            self._peaks[trial.structure] = min(known, trial.peak_bytes)

    def _known_peaks(self) -> dict[str, float]:
        """Return by structure the smallest memory peak of its trials in bytes; trials without a peak are left out."""
        found = dict(self._peaks)
        for trial in self._trials.values():
            if trial.peak_bytes:
                found[trial.structure] = min(
                    found.get(trial.structure, trial.peak_bytes), trial.peak_bytes
                )
        return found

    def _decide(self) -> None:
        """Compute the speed with the present number of trials per GPU, and decide which number to use next.

        Nothing happens once the decision is settled, or while no memory size or peak is known. A new decision is told
        to the user, unless only one number is possible. If the number changes, running trials are sent their new
        shares.
        """
        before = self._decision
        now = self._decision.trials
        peaks = self._known_peaks()
        if before.settled or self._memory_bytes is None or not peaks:
            return
        # by trials per GPU: how many trials then run at once
        at_once = {trials: self._at_once(1 / trials) for trials in TRIALS}
        left = math.inf if self._trials_left is None else self._trials_left
        tried = {}
        for trials, count in at_once.items():
            # with fewer trials than run at once, a number cannot be measured; those up to now were measured before
            if trials <= now or count <= left:
                tried[trials] = count
        if now not in self._speeds and (found := measure_speeds(self._epochs, now, at_once[now])):
            self._speeds[now] = found
        # as many as the smallest structure allows: trials of larger ones get more than the decided share
        most = max(
            count_fitting_trials(peak, self._compute_memory_shares()) for peak in peaks.values()
        )
        levels = []
        for trials in list_levels_to_try(tried, most):
            levels.append(Level(trials, at_once[trials], self._speeds.get(trials, {})))
        self._decision = decide(levels)
        if self._decision != before:
            # the next speeds are measured from new epochs alone
            self._epochs.clear()
            for trial in self._trials.values():
                trial.short_epochs = None
            # otherwise there is nothing new to say: no other number was compared or chosen
            if self._decision.compared != before.compared or self._decision.trials != now:
                self._say(
                    describe_decision(self._decision, max(peaks.values()), self._memory_bytes)
                )
        if self._decision.trials != now:
            self._announce_shares(dict(self._list_changed_shares()))

    def _announce_shares(self, wanted: Mapping[int, float]) -> None:
        """Send running trials ``wanted``, their new GPU shares by trial, in place of those that were sent before."""
        self._sent_shares = wanted
        self._send_shares(wanted)

    def _list_changed_shares(self) -> Iterator[tuple[int, float]]:
        """Yield (trial, new GPU share) for each running trial whose share changes by the present decision."""
        for number, share in self._shares.items():
            wanted = self._compute_share(self._trials[number])
            if wanted != share:
                yield number, wanted

    def _compute_share(self, trial: _SharedTrial) -> float:
        """Return the GPU share of a trial: the decided one, or more if it needs or has needed more memory."""
        decided = self._decision.trials  # per GPU
        peak = self._find_peak(trial)
        if peak is None:
            fitting = decided
        else:
            fitting = count_fitting_trials(peak, self._compute_memory_shares())
        return max(1 / min(decided, fitting), trial.least_share)

    def _find_peak(self, trial: _SharedTrial) -> float | None:
        """Return the expected memory peak of a trial in bytes: the largest known one of the structures it may have.

        If none of these has a known peak, return the largest one of all structures; None if no peak is known.
        """
        known = self._known_peaks()
        own = []
        for name in known:
            # the name "" stands for trials whose structure is not known yet
            if name == trial.structure or (name and fits_structure(trial.params, name)):
                own.append(known[name])
        return max(own or known.values(), default=None)

    def _compute_memory_shares(self) -> dict[int, float]:
        """Return the bytes of GPU memory for each trial, by the number of trials per GPU (`TRIALS`).

        Until an epoch has reported the memory of a GPU, it counts as 0.
        """
        whole = self._memory_bytes or 0.0
        shares = {}
        for trials in TRIALS:
            shares[trials] = replace(self._devices, gpus=1 / trials).memory_bytes(whole)
        return shares


def describe_decision(decision: Decision, peak_bytes: float, memory_bytes: float) -> str:
    """Return a decision and its reason in words, such as "2 trials per GPU were 1.30 times as fast as 1; ...".

    ``peak_bytes`` is the largest memory peak of a trial, and ``memory_bytes`` the memory of one GPU.
    """
    peak = f"a trial takes {peak_bytes / 1e9:.2g} of {memory_bytes / 1e9:.3g} GB"
    if decision.compared is None:
        return f"{_format_trials_per_gpu(decision.trials)} from now on: {peak}"
    before, after = decision.compared
    told = (
        f"{after.trials} trials per GPU were {decision.gain:.2f} times as fast as {before.trials}"
    )
    if not decision.settled:
        return f"{told}; {_format_trials_per_gpu(decision.trials)} from now on, {peak}"
    return f"{told}; it stays at {_format_trials_per_gpu(decision.trials)}, {peak}"


def _format_trials_per_gpu(count: int) -> str:
    """Return a number of trials per GPU in words, such as "one trial a GPU"."""
    if count == 1:
        return "one trial a GPU"
    return f"{count} trials a GPU"


def _format_share(share: float) -> str:
    """Return a share of a GPU in words, such as "1/2 of a GPU"."""
    if share >= 1:
        return "a GPU of its own"
    return f"1/{round(1 / share)} of a GPU"
