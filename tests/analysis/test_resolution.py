"""The smallest gain that can be told, by seeds and by held-out examples."""

from __future__ import annotations

import math

import pytest
from scipy import stats

from sweep.analysis import make_sweep
from sweep.analysis.ranking import rank
from sweep.analysis.resolution import DetectionLimits, compute_detection_limits
from sweep.events import Status
from sweep.store import reading


def resolved(
    sweep_of, scores: dict[int, list[float]], seeds: int, metric: str = "acc"
) -> DetectionLimits:
    runs = [
        ({"a": a}, Status.COMPLETED, [{metric: score}])
        for a, several in scores.items()
        for score in several
    ]
    folder = sweep_of(
        runs, objectives=((metric, "maximize"),), seeds=max(map(len, scores.values()))
    )
    read = reading.read_tables(folder)
    return compute_detection_limits(rank([make_sweep(folder, read)]), read, seeds)


def test_seeds_tell_what_the_spread_of_all_configurations_allows(sweep_of) -> None:
    found = resolved(sweep_of, {1: [0.5, 0.52], 2: [0.7, 0.74]}, seeds=8)
    assert found.spread == pytest.approx(math.sqrt((0.0002 + 0.0008) / 2))
    assert found.by_seeds == pytest.approx(stats.t.ppf(0.975, 7) * found.spread * math.sqrt(2 / 8))
    assert found.by_examples is None
    assert found.least_gain == found.by_seeds


@pytest.mark.parametrize(
    ("scores", "seeds"), [({1: [0.5], 2: [0.7]}, 8), ({1: [0.5, 0.6], 2: [0.7, 0.7]}, 5)]
)
def test_nothing_is_said_without_a_spread_or_a_verdict(
    sweep_of, scores: dict[int, list[float]], seeds: int
) -> None:
    assert resolved(sweep_of, scores, seeds).least_gain is None


def test_the_larger_of_both_hides_a_gain() -> None:
    assert DetectionLimits(0.02, 0.05, 0.01, None).least_gain == 0.05
    assert DetectionLimits(None, 0.05, None, None).least_gain == 0.05
