from __future__ import annotations

import csv
import io
import math
from pathlib import Path

import duckdb
import pytest

from sweep.errors import StoreError
from sweep.export import runs
from sweep.store import reading


def rows(path: Path) -> list[list[str]]:
    return list(csv.reader(io.StringIO(path.read_bytes().decode(), newline=""), strict=True))


def test_columns_and_values_are_those_of_the_tables(hostile, tmp_path: Path) -> None:
    paths = runs.export_csv(hostile, tmp_path / "out")
    read = reading.read_tables(hostile)
    assert [path.name for path in paths] == ["trials.csv", "metrics.csv"]
    for path, table in zip(paths, (read.trials, read.metrics), strict=True):
        header, *body = rows(path)
        assert header == table.column_names
        for row, expected in zip(body, table.to_pylist(), strict=True):
            for name, text in zip(header, row, strict=True):
                value = expected[name]
                if isinstance(value, float):
                    assert float(text) == value or (math.isnan(value) and math.isnan(float(text)))
                elif isinstance(value, str):
                    assert text.removeprefix("'") == value.removeprefix("'")
                    assert text[:1] not in ("=", "+", "-", "@")
                else:
                    assert (value is None) == (text == "")


def test_an_empty_text_is_no_null(hostile, tmp_path: Path) -> None:
    path, _ = runs.export_csv(hostile, tmp_path)
    connection = duckdb.connect()
    table = f"read_csv('{path}', all_varchar=true, allow_quoted_nulls=false)"
    found = connection.execute(f"select status_reason, error from {table}").fetchall()
    assert ("", None) in found  # completed


def test_a_null_value_is_told_apart_from_an_absent_parameter(hostile, tmp_path: Path) -> None:
    params = {run.trial.trial: run.params for run in runs.read_sweep_state(hostile).runs()}
    assert params[2]["opt"] is None
    assert "size-2" not in params[2]
    trials, _ = runs.export_csv(hostile, tmp_path)
    header, *body = rows(trials)
    named = {row[header.index("trial")]: row[header.index("null_params")] for row in body}
    assert named["2"] == named["3"] == '["opt"]'
    assert named["0"] == named["4"] == ""


def test_an_empty_sweep_and_a_damaged_one(made, hostile, tmp_path: Path) -> None:
    trials, metrics = runs.export_csv(made([], "empty"), tmp_path / "empty")
    assert len(rows(trials)) == len(rows(metrics)) == 1
    hostile.log.write_bytes(b"x\n" + hostile.log.read_bytes())
    with pytest.raises(StoreError, match="repair"):
        runs.export_csv(hostile, tmp_path / "damaged")
