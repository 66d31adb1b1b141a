"""How many trials a GPU has at once, by what was measured; pure functions of that."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

TRIALS = (1, 2, 4, 8)
"""Trials a GPU, in the order in which they are tried."""
GAIN = 1.05
"""More trials a GPU must bring so much more of examples a second, all together: else they only wait for one another."""
MEASURED_S = 2.0
"""Of training of each of the trials at once, before a level counts as measured: an epoch may be very short."""
HEADROOM = 1.1
"""Of a measured peak: blocks of another size leave gaps between them."""


@dataclass(frozen=True, slots=True)
class Level:
    """What is known of so many ``trials`` a GPU."""

    trials: int
    at_once: int  # trials that run then, on all GPUs
    speeds: Mapping[str, float]  # examples a second of one of them, by structure; none: not measured


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do next."""

    trials: int  # a GPU
    settled: bool  # nothing is left to be measured
    compared: tuple[Level, Level] | None = None  # the last two that were: the better one is taken

    @property
    def gain(self) -> float | None:
        """How much more the second of them computes than the first, all its trials together."""
        return None if self.compared is None else gain(*self.compared)


def decide(levels: Sequence[Level]) -> Decision:
    """Which of the levels comes next: the first that is not measured, or the last before one that gained too little.

    ``levels`` are those that there is memory for, the fewest trials first; never none.
    """
    if not levels[0].speeds:
        return Decision(levels[0].trials, len(levels) == 1)
    compared = None
    for before, after in pairwise(levels):
        if not after.speeds:
            return Decision(after.trials, False, compared)
        compared = before, after
        if gain(before, after) < GAIN:
            return Decision(before.trials, True, compared)
    return Decision(levels[-1].trials, True, compared)


def gain(before: Level, after: Level) -> float:
    """How many times as much is computed, trials of the same structure compared where both levels had such."""
    alike = before.speeds.keys() & after.speeds.keys()
    if alike:
        speed = math.exp(math.fsum(math.log(after.speeds[name] / before.speeds[name]) for name in alike) / len(alike))
    else:
        speed = _mean(after.speeds.values()) / _mean(before.speeds.values())
    return speed * after.at_once / before.at_once


def fitting(peak_bytes: float, shares_bytes: Mapping[int, float]) -> int:
    """The most trials a GPU that each have such a peak; ``shares_bytes`` is what one of so many may have."""
    fits = [trials for trials, share in shares_bytes.items() if peak_bytes * HEADROOM <= share]
    return max(fits, default=min(shares_bytes))


def levels_to_try(at_once: Mapping[int, int], most: int) -> tuple[int, ...]:
    """Trials a GPU worth trying, up to ``most``: where more run at once than with fewer, for CPUs bound them too."""
    found: list[int] = []
    for trials, count in sorted(at_once.items()):
        if not found or (trials <= most and count > at_once[found[-1]]):
            found.append(trials)
    return tuple(found)


def _mean(values: Iterable[float]) -> float:
    logs = [math.log(value) for value in values]
    return math.exp(math.fsum(logs) / len(logs))


@dataclass(frozen=True, slots=True)
class Epoch:
    """An epoch that was trained on a share of a GPU, or several short ones."""

    trial: int
    structure: str
    gpus: float
    begun: float  # seconds since 1970
    ended: float
    examples_per_s: float


def joined(before: Epoch | None, after: Epoch) -> Epoch:
    """Two epochs of a trial that followed one another, as one; the second where they are not alike."""
    if before is None or (before.structure, before.gpus) != (after.structure, after.gpus):
        return after
    first, second = before.ended - before.begun, after.ended - after.begun
    examples = before.examples_per_s * first + after.examples_per_s * second
    return replace(after, begun=before.begun, examples_per_s=examples / (after.ended - before.begun))


def speeds(epochs: Sequence[Epoch], trials: int, at_once: int) -> dict[str, float]:
    """The speed of one of so many trials a GPU, by structure, from epochs in which the GPUs were full.

    Empty until as many epochs are known as trials run at once, and some seconds of each. Epochs that warm up are not to
    be among them.
    """
    own = [epoch for epoch in epochs if math.isclose(epoch.gpus * trials, 1) and epoch.examples_per_s > 0]
    full = 0.9 * at_once / trials  # GPUs in use; steps between epochs are not seen
    counted = [epoch for epoch in own if _busy(epoch, epochs) >= full]
    seconds = math.fsum(epoch.ended - epoch.begun for epoch in counted)
    if len(counted) < at_once or seconds < MEASURED_S * at_once:
        return {}
    examples: dict[str, list[tuple[float, float]]] = {}
    for epoch in counted:
        seconds = epoch.ended - epoch.begun
        examples.setdefault(epoch.structure, []).append((epoch.examples_per_s * seconds, seconds))
    return {
        name: math.fsum(count for count, _ in found) / math.fsum(seconds for _, seconds in found)
        for name, found in examples.items()
    }


def _busy(epoch: Epoch, all_of_them: Sequence[Epoch]) -> float:
    """GPUs that were in use during an epoch, on average."""
    length = epoch.ended - epoch.begun
    if length <= 0:
        return 0.0
    together = (
        other.gpus * max(min(other.ended, epoch.ended) - max(other.begun, epoch.begun), 0.0)
        for other in all_of_them
        if other.trial != epoch.trial
    )
    return epoch.gpus + math.fsum(together) / length
