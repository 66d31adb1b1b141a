from __future__ import annotations

import pytest
from sampling import chosen, sampled


def test_rows_are_taken_evenly_and_the_others_kept_for_an_exhaustive_run() -> None:
    rows = [*range(6), pytest.param(6, marks=pytest.mark.exhaustive)]
    found = sampled(rows, 3)
    assert [row.values[0] for row in found] == [*range(7)]
    assert [row.values[0] for row in found if not row.marks] == [0, 2, 4]
    assert all([mark.name for mark in row.marks] == ["exhaustive"] for row in found if row.marks)


def test_a_short_table_is_taken_whole() -> None:
    assert not any(row.marks for row in sampled(["a", "b"], 5))


def test_chosen_rows_are_those_of_every_day_and_no_other() -> None:
    found = chosen(["a", pytest.param("b", marks=pytest.mark.exhaustive), "c"], "b", "c")
    assert [[mark.name for mark in getattr(row, "marks", ())] for row in found] == [
        ["exhaustive"],
        ["exhaustive"],
        [],
    ]
