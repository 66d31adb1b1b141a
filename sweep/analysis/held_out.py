"""How far the examples that validate can be trusted: no number of seeds makes more of them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sweep.analysis.ranking import Ranking
from sweep.statistics import intervals

if TYPE_CHECKING:
    from sweep.store.tables import Tables

COLUMN = "validation_examples"
_SHARES = re.compile(r"(^|[^a-z])(acc|accuracy|error_rate)($|[^a-z])")
_Z = 1.959964


@dataclass(frozen=True, slots=True)
class HeldOut:
    """What a share of hits among so many examples says of others like them (binomial)."""

    metric: str
    level: float
    examples: int
    low: float  # of the level, 95 %, Wilson
    high: float
    difference: float  # that two configurations of this level may have by the choice of examples alone


def is_share(metric: str) -> bool:
    """Whether a metric is by its name a share of examples: an accuracy."""
    return bool(_SHARES.search(metric.lower()))


def of_share(metric: str, level: float, examples: int) -> HeldOut:
    """The noise of an accuracy. Two of them on the same examples differ by less, the more they agree on."""
    low, high = intervals.of_share(level * examples, examples)
    return HeldOut(metric, level, examples, low, high, _Z * math.sqrt(2 * level * (1 - level) / examples))


def examples_for(difference: float, level: float) -> int:
    """How many examples bring the noise between two accuracies below a difference."""
    return math.ceil(2 * level * (1 - level) * (_Z / difference) ** 2)


def of(ranking: Ranking, read: Tables) -> HeldOut | None:
    """The noise of the best score of a ranking; None where it is no share, or its examples were not counted."""
    counted = examples(read)
    if not ranking.best or not counted:
        return None
    score = ranking.best[0].scores[0]
    if not is_share(score.metric) or not 0 <= score.mean <= 1:
        return None
    return of_share(score.metric, score.mean, counted)


def examples(read: Tables) -> int:
    """How many examples validated, the fewest of any trial; 0 where that was not counted."""
    from sweep.store import values

    counted = values.numbers(read.metrics, COLUMN, missing=math.nan)
    counted = counted[counted > 0]
    return int(counted.min()) if len(counted) else 0
