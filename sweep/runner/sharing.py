"""What share of a GPU each trial is given: fixed by the file, or with `gpus: auto` by what trials before it measured.

All that is learnt comes out of events, so that a resumed sweep learns it again from its log. What it decides is in
`packing`; how a running trial hears of another share is `Job.share_file`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from sweep.backends.worker import Progress
from sweep.contract import Devices
from sweep.events import EpochReported, Facts, Params
from sweep.runner import packing
from sweep.runner.packing import Decision, Epoch, Level
from sweep.runner.upcoming import fits
from sweep.store.ledger import Change, Ended, Interrupted, Reopened, Reported, Started

REMEMBERED = 128  # epochs that speeds are measured by
LEAST_S = 0.25  # shorter ones are taken together


@dataclass(slots=True)
class _Trial:
    """What is known of one trial."""

    params: Params
    structure: str = ""
    peak_bytes: float = 0.0
    begun: Epoch | None = None  # of short epochs, those that are not long enough yet
    seen: set[float] = field(default_factory=set)  # shares on which it has trained an epoch
    least: float = 0.0  # the share that it needs at least, for it ran out of memory with less


class Sharing:
    """Gives each trial its devices."""

    def __init__(
        self, devices: Devices, at_once: Callable[[float], int], *, auto: bool, total: int | None = None
    ) -> None:
        """``devices``: of every trial, or with ``auto`` of one that has a GPU for itself.

        ``at_once`` says how many trials of so many GPUs each fit, ``total`` how many the sweep has, where known.
        """
        self._devices, self._auto = devices, auto
        self._left = total
        self._trials: dict[int, _Trial] = {}
        self._out: dict[int, float] = {}  # trials that workers have, and the shares given
        self._peaks: dict[str, float] = {}  # by structure, of ended trials the least: others keep programs of more
        self._memory_bytes: float | None = None  # of a GPU
        self._epochs: deque[Epoch] = deque(maxlen=REMEMBERED)
        self._speeds: dict[int, Mapping[str, float]] = {}  # by trials a GPU
        self._decision = Decision(1, False)
        self._told: Mapping[int, float] = {}
        self._at_once = at_once
        self._say: Callable[[str], None] = lambda text: None
        self._share_anew: Callable[[Mapping[int, float]], None] = lambda wanted: None

    def connect(self, say: Callable[[str], None], share: Callable[[Mapping[int, float]], None]) -> None:
        """From now on report decisions, and the new shares of running trials: the log has been replayed."""
        self._say, self._share_anew = say, share

    @property
    def auto(self) -> bool:
        """Whether shares change."""
        return self._auto

    @property
    def room(self) -> int:
        """How many trials run at once, now."""
        return self._at_once(1 / self._decision.trials)

    def devices(self, trial: int, params: Params) -> Devices:
        """What a trial is to have that a worker is about to get."""
        if not self._auto:
            return self._devices
        share = self._out[trial] = self._share(self._trials.setdefault(trial, _Trial(params)))
        if trial in self._told:  # it is as it was told to be, or it cannot be
            self._tell({number: wanted for number, wanted in self._told.items() if number != trial})
        return replace(self._devices, gpus=share)

    def observe(self, change: Change) -> None:
        """Learn from an event, a new one or one of the log."""
        match change:
            case _ if not self._auto:
                pass
            case Started(trial) | Reopened(trial):
                self._trials[trial.number] = _Trial(trial.params)
                self._count(trial.reopened)
            case Reported(trial, event) if event.memo is None and "gpus" in event.measures:
                self._hear(event, self._trials[trial.number])
            case Interrupted(trial, event) | Ended(trial, event):
                self._learn_structure(trial.number, event.facts)
                self._out.pop(trial.number, None)
                if isinstance(change, Ended):
                    self._count(-1)
                    self._fold(self._trials.pop(trial.number))
            case _:
                pass

    def _count(self, more: int) -> None:
        self._left = None if self._left is None else self._left + more

    def hear(self, trial: int, progress: Progress) -> None:
        """Hear of a step what no event says; before its events."""
        if not self._auto:
            return
        self._learn_structure(trial, progress.facts)
        if progress.crowded:
            share = self._out.pop(trial, 1.0)
            self._trials[trial].least = min(2 * share, 1.0)
            self._say(f"trial {trial}: out of memory on {_part(share)}; it goes on with {_part(min(2 * share, 1.0))}")
        elif progress.moves:
            self._out.pop(trial, None)

    def _learn_structure(self, trial: int, facts: Facts) -> None:
        there = self._trials.get(trial)
        if there is None or facts.structure is None or there.structure == facts.structure:
            return
        there.structure = facts.structure
        self._epochs = deque(
            (replace(epoch, structure=facts.structure) if epoch.trial == trial else epoch for epoch in self._epochs),
            REMEMBERED,
        )

    def _hear(self, event: EpochReported, trial: _Trial) -> None:
        gpus, measures = event.measures["gpus"], event.measures
        self._memory_bytes = measures.get("gpu_memory_bytes", self._memory_bytes)
        trial.peak_bytes = max(trial.peak_bytes, measures.get("gpu_memory_peak_bytes", 0.0))
        is_warm = gpus in trial.seen or (event.epoch == 1 and measures.get("compile_s") == 0.0)
        if is_warm and event.examples_per_s:
            begun = event.time - event.time_s
            epoch = Epoch(event.trial, trial.structure, gpus, begun, event.time, event.examples_per_s)
            trial.begun = epoch = packing.joined(trial.begun, epoch)
            if epoch.ended - epoch.begun >= LEAST_S:
                trial.begun = None
                self._epochs.append(epoch)
                self._decide()
        trial.seen.add(gpus)

    def _fold(self, trial: _Trial) -> None:
        if trial.peak_bytes:
            known = self._peaks.get(trial.structure, trial.peak_bytes)
            self._peaks[trial.structure] = min(known, trial.peak_bytes)

    def _known_peaks(self) -> dict[str, float]:
        """By structure, of ended and of open trials."""
        found = dict(self._peaks)
        for trial in self._trials.values():
            if trial.peak_bytes:
                found[trial.structure] = min(found.get(trial.structure, trial.peak_bytes), trial.peak_bytes)
        return found

    def _decide(self) -> None:
        """Measure the present level, and go on to another one if that is known now."""
        before, now, peaks = self._decision, self._decision.trials, self._known_peaks()
        if before.settled or self._memory_bytes is None or not peaks:
            return
        at_once = {trials: self._at_once(1 / trials) for trials in packing.TRIALS}
        enough = math.inf if self._left is None else self._left  # a level that is never full is never measured
        tried = {trials: count for trials, count in at_once.items() if trials <= now or count <= enough}
        if now not in self._speeds and (found := packing.speeds(self._epochs, now, at_once[now])):
            self._speeds[now] = found
        most = max(packing.fitting(peak, self._shares()) for peak in peaks.values())
        levels = [
            Level(trials, at_once[trials], self._speeds.get(trials, {}))
            for trials in packing.levels_to_try(tried, most)
        ]
        self._decision = packing.decide(levels)
        if self._decision != before:
            self._epochs.clear()
            for trial in self._trials.values():
                trial.begun = None
            if self._decision.compared or self._decision.trials != now:
                self._say(described(self._decision, max(peaks.values()), self._memory_bytes))
        if self._decision.trials != now:
            self._tell(dict(self._moved()))

    def _tell(self, wanted: Mapping[int, float]) -> None:
        self._told = wanted
        self._share_anew(wanted)

    def _moved(self) -> Iterator[tuple[int, float]]:
        """Running trials that are to have other shares than they have."""
        for number, share in self._out.items():
            if (wanted := self._share(self._trials[number])) != share:
                yield number, wanted

    def _share(self, trial: _Trial) -> float:
        """As the level says, or more where its structure needs that."""
        peak = self._peak(trial)
        fit = self._decision.trials if peak is None else packing.fitting(peak, self._shares())
        return max(1 / min(self._decision.trials, fit), trial.least)

    def _peak(self, trial: _Trial) -> float | None:
        """Of its structure; of one that is not known yet, the highest there is."""
        known = self._known_peaks()
        own = [known[name] for name in known if name == trial.structure or (name and fits(trial.params, name))]
        return max(own or known.values(), default=None)

    def _shares(self) -> dict[int, float]:
        whole = self._memory_bytes or 0.0
        return {trials: replace(self._devices, gpus=1 / trials).memory_bytes(whole) for trials in packing.TRIALS}


def described(decision: Decision, peak_bytes: float, memory_bytes: float) -> str:
    """A decision in words."""
    peak = f"a trial takes {peak_bytes / 1e9:.2g} of {memory_bytes / 1e9:.3g} GB"
    if decision.compared is None:
        return f"{_trials(decision.trials)} from now on: {peak}"
    before, after = decision.compared
    told = f"{after.trials} trials a GPU computed {decision.gain:.2f} times as much as {before.trials}"
    if not decision.settled:
        return f"{told}; {_trials(decision.trials)} from now on, {peak}"
    return f"{told}; it stays at {_trials(decision.trials)}, {peak}"


def _trials(count: int) -> str:
    return "one trial a GPU" if count == 1 else f"{count} trials a GPU"


def _part(share: float) -> str:
    return "a GPU of its own" if share >= 1 else f"1/{round(1 / share)} of a GPU"
