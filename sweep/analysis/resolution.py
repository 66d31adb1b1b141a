"""The smallest gain that a sweep can tell at all: a search that promises less need not go on.

Two things hide a gain. Trainings with other seeds differ, and so do other held-out examples; more seeds help against
the first alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from sweep.analysis.ranking import Ranking, SamplingError, noise_of
from sweep.statistics.power import LEAST, detectable_difference, spread_over_seeds
from sweep.store.tables import Tables


@dataclass(frozen=True, slots=True)
class Resolution:
    """Differences of two configurations in the first objective, in its own units; None where one is not known."""

    by_seeds: float | None  # that their seeds tell about half the time
    by_examples: float | None  # that the choice of held-out examples may explain
    spread: float | None  # standard deviation over seeds
    examples: SamplingError | None

    @property
    def least_gain(self) -> float | None:
        """The gain below which nobody can tell that it is one, whatever the reason; None where neither is known."""
        return max((one for one in (self.by_seeds, self.by_examples) if one is not None), default=None)


def resolution_of(ranking: Ranking, read: Tables, seeds: int) -> Resolution:
    """Return what can be told of a configuration beside the best one, where both are trained with so many seeds.

    The spread is that of the configurations with repeats, and the held-out examples are those of the best. With fewer
    than six seeds there is no verdict, and nothing is said of what they tell.
    """
    scores = [row.scores[0].values for row in ranking.rows if row.completed and row.scores]
    spread = spread_over_seeds(scores)
    by_seeds = None
    if spread is not None and seeds >= LEAST:
        by_seeds = detectable_difference(spread, seeds, configurations=2)
    examples = noise_of(ranking, read)
    return Resolution(by_seeds, None if examples is None else examples.difference, spread, examples)
