"""How far the examples that validate can be trusted: no number of seeds makes more of them."""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sweep import statistics
from sweep.analysis.ranking import Ranking

if TYPE_CHECKING:
    from sweep.store.tables import Tables

EXAMPLES, DEVIATION = "validation_examples", "validation_loss_std"
COLUMNS = ("trial", EXAMPLES, DEVIATION)
LOSS = "val_loss"  # of which that is the deviation over examples
_SHARES = re.compile(r"(^|[^a-z])(acc|accuracy|error_rate)($|[^a-z])")
_Z = 1.959964


@dataclass(frozen=True, slots=True)
class HeldOut:
    """What a mean over so many examples says of others like them."""

    metric: str
    level: float
    examples: int
    deviation: float  # of one example
    low: float  # of the level, 95 %
    high: float
    difference: float  # that two configurations of this level may have by the choice of examples alone
    method: str  # of the interval


def of_metric(metric: str, level: float, examples: int, loss_deviation: float | None = None) -> HeldOut | None:
    """Return the noise of an accuracy, or of a loss whose deviation over examples is known; None of anything else.

    Two configurations on the same examples differ by less, the more they agree on. For a loss it is the ideal
    bootstrap over examples: the standard error of a mean has a closed form, the deviation over the root of their number
    (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, section 6).
    """
    if not examples:
        return None
    if is_share(metric) and 0 <= level <= 1:
        low, high = statistics.interval_of_share(level * examples, examples)
        return _of(metric, level, examples, math.sqrt(level * (1 - level)), (low, high), "Wilson")
    if metric == LOSS and loss_deviation is not None:
        half = _Z * loss_deviation / math.sqrt(examples)
        return _of(metric, level, examples, loss_deviation, (level - half, level + half), "bootstrap")
    return None


def is_share(metric: str) -> bool:
    """Return whether a metric is by its name a share of examples: an accuracy."""
    return bool(_SHARES.search(metric.lower()))


def examples_for(difference: float, deviation: float) -> int:
    """Return how many examples bring the noise between two means below a difference."""
    return math.ceil(2 * (deviation * _Z / difference) ** 2)


def of(ranking: Ranking, read: Tables) -> HeldOut | None:
    """Return the noise of the best score of a ranking; None where it is not known."""
    if not ranking.best:
        return None
    best = ranking.best[0]
    score = best.scores[0]
    trials = {trial.trial for trial in best.trials}
    return of_metric(score.metric, score.mean, examples(read), deviation(read, trials))


def examples(read: Tables) -> int:
    """Return how many examples validated, the fewest of any trial; 0 where that was not counted."""
    from sweep.store import reading

    counted = reading.numbers(read.metrics, EXAMPLES, missing=math.nan)
    counted = counted[counted > 0]
    return int(counted.min()) if len(counted) else 0


def deviation(read: Tables, trials: Collection[int]) -> float | None:
    """The deviation of the loss over examples in the last epoch of these trials; None where no loss is such a mean."""
    import numpy as np

    from sweep.store import reading

    rows = reading.numbers(read.metrics, "trial", missing=-1)
    theirs = np.isin(rows, list(trials))
    found = reading.numbers(read.metrics, DEVIATION, missing=math.nan)
    last = dict(zip(rows[theirs].tolist(), found[theirs].tolist(), strict=True))
    known = [value for value in last.values() if not math.isnan(value)]
    return math.sqrt(sum(value**2 for value in known) / len(known)) if known else None


def _of(
    metric: str, level: float, examples: int, deviation: float, interval: tuple[float, float], method: str
) -> HeldOut:
    difference = _Z * math.sqrt(2 / examples) * deviation
    return HeldOut(metric, level, examples, deviation, *interval, difference, method)
