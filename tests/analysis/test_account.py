from __future__ import annotations

import math

from sweep.analysis import account
from sweep.events import Status


def test_curves_hold_what_is_finite(sweep_of) -> None:
    runs = [
        ({"a": 1}, Status.COMPLETED, [{"acc": 0.1}, {"acc": math.nan}, {"acc": 0.3}]),
        ({"a": 2}, Status.PRUNED, [{"acc": 0.2}]),
        ({"a": 3}, Status.FAILED, []),
    ]
    found = account.of(sweep_of(runs))
    assert found.curves == {0: ((1, 0.1), (3, 0.3)), 1: ((1, 0.2),)}
    assert found.counts == {Status.COMPLETED: 1, Status.PRUNED: 1, Status.FAILED: 1}
    assert [row.trials[0].trial for row in found.ranking.rows] == [0, 1, 2]
    assert found.lasted_s == 100.0  # to the end of the session


def test_a_sweep_that_has_not_begun(sweep_of) -> None:
    found = account.of(sweep_of([], ended=None))
    assert (found.curves, found.errors, dict(found.counts)) == ({}, {}, {})
