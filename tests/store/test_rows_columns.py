import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.store.columns import Numbers, Objects

ROWS = st.lists(st.tuples(st.integers(0, 30), st.none() | st.floats(allow_nan=False)), max_size=40)


@given(ROWS, st.integers(0, 40))
def test_numbers_hold_what_was_last_set_and_null_elsewhere(writes, rows):
    column, expected = Numbers("d"), {}
    for row, value in writes:
        column.set(row, value)
        expected[row] = value
    values, null = column.copy_rows(rows)
    told = [
        None if missing else value for value, missing in zip(values.tolist(), null, strict=True)
    ]
    assert told == [expected.get(row) for row in range(rows)]
    assert [column.get(row) for row in range(40)] == [expected.get(row) for row in range(40)]


def test_integers_stay_integers_and_a_filled_column_can_grow():
    column = Numbers("q")
    column.set(1, 2**62 + 1)
    values, _ = column.copy_rows(2)
    assert values.dtype == np.int64
    assert values[1] == 2**62 + 1
    column.set(500, 1)  # would fail if `filled` had lent its memory
    assert column.get(500) == 1


def test_objects_hold_what_was_last_set_and_none_elsewhere():
    column: Objects[str] = Objects()
    column.set(2, "".join(["gpu", ":0"]))
    column.set(3, "".join(["gpu", ":0"]))
    assert column.copy_rows(5) == [None, None, "gpu:0", "gpu:0", None]
    assert column.get(2) is column.get(3)
    assert column.get(9) is None


def test_an_integer_that_is_too_large_leaves_its_row_null():
    column = Numbers("q")
    with pytest.raises(OverflowError):
        column.set(0, 2**64)
    assert column.get(0) is None
