"""The two numbers beside a rank, against sorting."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sweep.schedulers.ranks import Ranks


@given(st.lists(st.floats(-9, 9) | st.integers(0, 3).map(float), max_size=40), st.sampled_from([1.2, 2.0, 3.0, 50.0]))
def test_the_neighbours_of_a_rank_are_those_of_the_sorted_numbers(numbers: list[float], share: float) -> None:
    ranks = Ranks(lambda count: int(count / share))
    assert (ranks.lower, ranks.upper, len(ranks)) == (None, None, 0)
    for count, number in enumerate(numbers, start=1):
        ranks.add(number)
        known, rank = sorted(numbers[:count]), int(count / share)
        assert ranks.lower == (known[rank - 1] if rank else None)
        assert ranks.upper == known[rank]
        assert len(ranks) == count
