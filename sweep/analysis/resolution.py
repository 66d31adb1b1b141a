"""The smallest gain that a sweep can detect; a search that promises less is not worth continuing.

Two things hide a gain: trainings with other seeds differ, and so do scores on other held-out examples. More seeds help
only against the first.
"""

from __future__ import annotations

from dataclasses import dataclass

from sweep.analysis.ranking import Ranking, SamplingError, find_sampling_error
from sweep.statistics.power import LEAST, compute_detectable_difference, compute_spread
from sweep.store.tables import Tables


@dataclass(frozen=True, slots=True)
class DetectionLimits:
    """The smallest detectable differences of two configurations in the first objective; each is None if unknown."""

    by_seeds: float | None  # that their seeds show about half the time
    by_examples: float | None  # that the choice of held-out examples may explain
    spread: float | None  # standard deviation over seeds
    examples: SamplingError | None

    @property
    def least_gain(self) -> float | None:
        """The smallest gain that can hardly be due to seeds or examples alone: the larger one of the known limits.

        None if neither limit is known.
        """
        return max(
            (one for one in (self.by_seeds, self.by_examples) if one is not None), default=None
        )


def compute_detection_limits(ranking: Ranking, read: Tables, seeds: int) -> DetectionLimits:
    """Return the smallest detectable differences to the best configuration, if both train with ``seeds`` seeds.

    The spread over seeds is that of all configurations with repeats; the sampling error is that of the best one, from
    the tables ``read``, as in `find_sampling_error`. With fewer than six seeds there is no verdict, and ``by_seeds`` is
    None.
    """
    scores = []
    for row in ranking.rows:
        if row.completed and row.scores:
            scores.append(row.scores[0].values)
    spread = compute_spread(scores)
    by_seeds = None
    if spread is not None and seeds >= LEAST:
        by_seeds = compute_detectable_difference(spread, seeds, configurations=2)
    examples = find_sampling_error(ranking, read)
    if examples is None:
        return DetectionLimits(by_seeds, None, spread, None)
    return DetectionLimits(by_seeds, examples.difference, spread, examples)
