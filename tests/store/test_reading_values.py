"""Columns as plain Python and as numbers."""

from __future__ import annotations

import math

import pyarrow as pa
from tales import started, written

from sweep.store.reading import numbers, read_columns, read_tables


def test_columns_have_their_parameters_back(tmp_path):
    events = [started(0), started(1, {"layers": "nan", "learning_rate": math.inf})]
    folder = written(tmp_path, "first", events)
    for _ in ("from the files", "from the log"):
        found = read_columns(
            read_tables(folder).trials,
            ["param.layers", "param.learning_rate", "param.optimizer", "nowhere"],
        )
        assert found == {
            "param.layers": [[8, 4], "nan"],
            "param.learning_rate": [0.001, math.inf],
            "param.optimizer": ["sgd", None],
        }
        folder.trials.unlink(missing_ok=True)


def test_numbers_are_0_where_there_are_none():
    parts = [
        pa.table({"x": pa.array([1, None, 3] * 5)}),
        pa.table({"x": pa.array([4], pa.int64())}),
    ]
    table = pa.concat_tables(parts)
    assert numbers(table, "x").tolist() == [1.0, 0.0, 3.0] * 5 + [4.0]
    assert numbers(table.slice(9), "x").tolist() == [1.0, 0.0, 3.0] * 2 + [4.0]
    assert numbers(table.slice(0, 0), "x").tolist() == []
    assert numbers(table, "y").tolist() == [0.0] * 16
