from __future__ import annotations

import math

import numpy as np

from sweep.analysis import account
from sweep.events import Status

RUNS = [
    ({"a": 1}, Status.COMPLETED, [{"acc": 0.1}, {"acc": math.nan}, {"acc": 0.3}]),
    ({"a": 2}, Status.PRUNED, [{"acc": 0.2}]),
    ({"a": 3}, Status.FAILED, []),
]


def test_a_sweep_is_read_once(sweep_of) -> None:
    found = account.of(sweep_of(RUNS))
    assert found.curves.starts.tolist() == [0, 3, 4, 4]
    assert found.curves.epochs.tolist() == [1, 2, 3, 1]
    np.testing.assert_array_equal(found.curves.values["acc"], np.float32([0.1, np.nan, 0.3, 0.2]))
    assert found.counts == {Status.COMPLETED: 1, Status.PRUNED: 1, Status.FAILED: 1}
    assert found.lasted_s == 100.0  # to the end of the session
    assert not found.running


def test_a_sweep_that_has_not_begun(sweep_of) -> None:
    found = account.of(sweep_of([], ended=None))
    assert (found.curves.starts.tolist(), found.errors, dict(found.counts)) == ([0], {}, {})
    assert (found.timeline.lanes, found.question) == ((), ())


def test_the_question_is_the_first_comment(sweep_of) -> None:
    folder = sweep_of(RUNS)
    folder.spec.write_text(
        "\ufeff# Is a better than b?\n#\n# yaml-language-server: $schema=x\n# A minute.\na: 1\n# no\n"
    )
    assert account.of(folder).question == ("Is a better than b?", "A minute.")


def test_importance_is_of_completed_trials_with_a_score(sweep_of) -> None:
    runs = [({"a": n % 7, "b": n % 2}, Status.COMPLETED, [{"acc": float(n % 7)}]) for n in range(30)]
    (rows,) = account.importance([account.of(sweep_of([*runs, *RUNS]))], ["a", "b"]).values()
    assert [row.param for row in rows] == ["a", "b"]
    assert rows[0].share > 0.7
