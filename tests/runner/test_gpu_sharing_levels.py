"""How many trials share a GPU: properties of the decision, and a simulation of cards on which it is made."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.runner import gpu_sharing
from sweep.runner.gpu_sharing import TRIALS, Decision, EpochsOnShare, Level

SPEEDS = st.dictionaries(st.sampled_from("abc"), st.floats(0.1, 1e5), min_size=1)


@given(st.lists(SPEEDS, min_size=1, max_size=len(TRIALS)), st.booleans())
def test_it_takes_the_last_level_that_gained(
    speeds: list[dict[str, float]], last_unknown: bool
) -> None:
    levels = [Level(TRIALS[place], TRIALS[place], each) for place, each in enumerate(speeds)]
    if last_unknown:
        levels[-1] = Level(levels[-1].trials, levels[-1].at_once, {})
    found = gpu_sharing.decide(levels)
    chosen = next(place for place, level in enumerate(levels) if level.trials == found.trials)
    for before, after in pairwise(levels[: chosen + 1]):
        if after.speeds:
            assert gpu_sharing.gain(before, after) >= gpu_sharing.GAIN
    if not levels[chosen].speeds:
        assert not found.settled or len(levels) == 1
    elif chosen + 1 < len(levels):
        assert found.settled
        assert gpu_sharing.gain(levels[chosen], levels[chosen + 1]) < gpu_sharing.GAIN
        assert found.compared == (levels[chosen], levels[chosen + 1])
    else:
        assert found.settled


@given(
    st.dictionaries(st.sampled_from("abc"), st.floats(0.1, 1e5), min_size=1), st.floats(0.1, 10.0)
)
def test_a_gain_is_that_of_the_same_structures(speeds: dict[str, float], factor: float) -> None:
    before = Level(1, 1, speeds)
    after = Level(2, 2, {name: speed * factor for name, speed in speeds.items()} | {"other": 1e9})
    assert gpu_sharing.gain(before, after) == pytest.approx(2 * factor)
    assert gpu_sharing.gain(before, Level(2, 2, {"other": 3.0})) > 0


@given(st.floats(1, 100e9), st.floats(1e9, 100e9))
def test_what_is_packed_fits(peak: float, whole: float) -> None:
    shares = {trials: whole / trials for trials in TRIALS}
    found = gpu_sharing.count_fitting_trials(peak, shares)
    assert found == 1 or peak * gpu_sharing.HEADROOM <= shares[found]
    assert all(peak * gpu_sharing.HEADROOM > shares[trials] for trials in TRIALS if trials > found)


@given(
    st.lists(st.integers(1, 64), min_size=len(TRIALS), max_size=len(TRIALS)),
    st.sampled_from(TRIALS),
)
def test_levels_run_ever_more_trials(counts: list[int], most: int) -> None:
    at_once = dict(zip(TRIALS, counts, strict=True))
    found = gpu_sharing.list_levels_to_try(at_once, most)
    assert found[0] == 1
    assert max(found) <= most
    assert [at_once[trials] for trials in found] == sorted({at_once[trials] for trials in found})


def test_speeds_are_those_of_full_gpus() -> None:
    def epoch(trial: int, begun: float, ended: float, gpus: float = 0.5) -> EpochsOnShare:
        return EpochsOnShare(trial, "s", gpus, begun, ended, 100.0 if gpus == 0.5 else 150.0)

    alone = [epoch(0, 0, 10), epoch(0, 10, 20)]
    assert gpu_sharing.measure_speeds(alone, 2, 2) == {}, "nobody was beside it"
    assert gpu_sharing.measure_speeds([*alone, epoch(1, 15, 21)], 2, 2) == {}, (
        "half of the time somebody was"
    )
    assert gpu_sharing.measure_speeds([*alone, epoch(1, 0, 11), epoch(1, 11, 20)], 2, 2) == {
        "s": 100.0
    }
    assert gpu_sharing.measure_speeds([epoch(0, 0, 10, 1.0)], 1, 1) == {"s": 150.0}
    assert gpu_sharing.measure_speeds([], 1, 1) == {}


def card(trials: int, *, kernel_share: float) -> float:
    """Examples a second of one of so many trials, each of which keeps so much of a card busy when it is alone."""
    return 1000.0 * min(1.0, 1.0 / (trials * kernel_share))


@pytest.mark.parametrize(
    ("speed", "peak_gb", "expected"),
    [
        (lambda n: card(n, kernel_share=1.0), 1, 1),  # one fills the card
        (lambda n: card(n, kernel_share=0.5), 1, 2),
        (lambda n: card(n, kernel_share=0.25), 1, 4),
        (lambda n: card(n, kernel_share=0.01), 1, 8),
        (lambda n: card(n, kernel_share=0.01), 8, 2),  # memory bounds it
        (lambda n: card(n, kernel_share=0.01), 15, 1),
        (lambda n: card(n, kernel_share=0.01), 100, 1),  # out of memory even alone: not its concern
        (lambda n: {1: 1000.0, 2: 900.0, 4: 300.0, 8: 100.0}[n], 1, 2),  # four thrash: back to two
        (lambda n: {1: 1000.0, 2: 400.0, 4: 900.0, 8: 900.0}[n], 1, 1),
    ],
)
def test_on_a_simulated_card(speed: Callable[[int], float], peak_gb: float, expected: int) -> None:
    shares = {trials: 24e9 / trials - 0.75e9 for trials in TRIALS}
    tried = gpu_sharing.list_levels_to_try(
        {trials: trials for trials in TRIALS},
        gpu_sharing.count_fitting_trials(peak_gb * 1e9, shares),
    )
    measured: dict[int, dict[str, float]] = {}
    decision = Decision(1, False)
    for _ in TRIALS:
        measured[decision.trials] = {"s": speed(decision.trials)}
        decision = gpu_sharing.decide(
            [Level(trials, trials, measured.get(trials, {})) for trials in tried]
        )
        if decision.settled:
            break
    assert decision.settled
    assert decision.trials == expected
    assert decision.gain is None or math.isfinite(decision.gain)


def test_short_epochs_are_taken_together() -> None:
    short = [EpochsOnShare(0, "s", 1.0, 0.1 * n, 0.1 * (n + 1), 100.0 + n) for n in range(30)]
    assert gpu_sharing.measure_speeds(short[:10], 1, 1) == {}, "a second is no measure"
    whole = short[0]
    for one in short[1:]:
        whole = gpu_sharing.merge_epochs(whole, one)
    assert (whole.begun, whole.ended) == (0.0, pytest.approx(3.0))
    assert gpu_sharing.measure_speeds(short, 1, 1)["s"] == pytest.approx(
        gpu_sharing.measure_speeds([whole], 1, 1)["s"]
    )
    other = EpochsOnShare(0, "s", 0.5, 3.0, 3.1, 50.0)
    assert gpu_sharing.merge_epochs(whole, other) == other
    assert gpu_sharing.merge_epochs(None, other) == other
