import math
import re
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from tales import STORY, build, reported, started, written

from sweep.events import (
    EpochReported,
    Event,
)
from sweep.store.reading import read_tables

GOLDEN_TRIALS = """
sweep: string
trial: int64
trial_id: string
role: string
repeat: int64
fold: int64
seed: int64
status: string
status_reason: string
param.learning_rate: double
param.batch_size: int64
param.nesterov: bool
param.optimizer: string
param.layers: string
metric.loss: double
metric.val_accuracy: double
metric.tokens: double
best.loss: double
best.val_accuracy: double
test.val_accuracy: double
objective: double
epochs: int64
started_at: timestamp[us, tz=UTC]
ended_at: timestamp[us, tz=UTC]
duration_s: double
train_s: double
overhead_s: double
overhead.build_s: double
overhead.compile_s: double
numerics.tf32: string
energy_j: double
cost: double
co2_g: double
node: string
devices: string
strategy: string
num_replicas: int64
reproducible: bool
precision: string
accumulate: int64
data: string
data_reads: string
examples_per_s: double
checkpoint: string
memo: string
memo_epochs: int64
error: string
"""
GOLDEN_METRICS = """
sweep: string
trial: int64
trial_id: string
epoch: int64
time_s: double
timestamp: timestamp[us, tz=UTC]
learning_rate: double
examples_per_s: double
metric.loss: double
metric.val_accuracy: double
metric.tokens: double
peak_memory_mb: double
energy_j: double
cost: double
"""


def told(events: list[Event]) -> list[dict[str, object]]:
    return build(events).trials().to_pylist()


def test_the_schemas_are_these():
    builder = build(STORY)
    for table, golden in ((builder.trials(), GOLDEN_TRIALS), (builder.metrics(), GOLDEN_METRICS)):
        assert "\n".join(f"{field.name}: {field.type}" for field in table.schema) == golden.strip()


def test_the_readme_lists_the_columns():
    listed = (Path(__file__).parents[2] / "results" / "README.md").read_text()
    trials, metrics = re.split(r"^## ", listed, flags=re.MULTILINE)[1:3]
    for section, golden in ((trials, GOLDEN_TRIALS), (metrics, GOLDEN_METRICS)):
        section = section.partition("A trainable's further measures")[0]
        told = re.findall(r"^\| `([^`]+)` \|", section, flags=re.MULTILINE)
        patterns = [re.sub(r"<\w+>", r"\\w+", name.replace(".", r"\.")) for name in told]
        columns = [line.split(":")[0] for line in golden.split("\n") if line]
        for column in columns:
            # a measure goes by its own name
            if column not in (
                "peak_memory_mb",
                "energy_j",
                "cost",
            ):
                assert sum(bool(re.fullmatch(pattern, column)) for pattern in patterns) == 1, column
        for pattern in patterns:
            assert any(re.fullmatch(pattern, column) for column in columns) or pattern.startswith(
                "<"
            ), pattern


def test_a_row_tells_what_became_of_a_trial():
    first, second = told(STORY)
    moment = datetime.fromtimestamp
    assert first == {
        **{
            "sweep": "first",
            "trial": 0,
            "trial_id": "t0",
            "role": "search",
            "repeat": 0,
            "fold": None,
            "seed": 0,
        },
        **{"status": "completed", "status_reason": ""},
        **{"param.learning_rate": 1e-3, "param.batch_size": 32, "param.nesterov": True},
        **{"param.optimizer": "sgd", "param.layers": "[8, 4]"},
        **{"metric.loss": 1.0, "metric.val_accuracy": 0.7, "metric.tokens": 10.0},
        **{
            "best.loss": 1.0,
            "best.val_accuracy": 0.8,
            "test.val_accuracy": 0.65,
            "objective": 0.7,
            "epochs": 2,
        },
        **{"started_at": moment(101, UTC), "ended_at": moment(110, UTC), "duration_s": 9.0},
        **{
            "train_s": 1.25,
            "overhead_s": 7.75,
            "overhead.build_s": 0.5,
            "overhead.compile_s": 0.25,
        },
        **{"numerics.tf32": "off", "energy_j": 7200.0, "cost": 1.5, "co2_g": 0.8},
        **{
            "node": "host",
            "devices": "cpu:0",
            "strategy": "default",
            "num_replicas": 1,
            "reproducible": True,
        },
        **{
            "precision": "float32",
            "accumulate": 2,
            "data": "f00d",
            "data_reads": "{}",
            "examples_per_s": 200.0,
        },
        **{"checkpoint": "checkpoints/t0/2", "memo": None, "memo_epochs": None, "error": None},
    }
    assert math.isnan(second["metric.loss"])
    assert second["best.loss"] is None
    assert second["metric.val_accuracy"] is second["objective"] is second["node"] is None
    assert (second["status"], second["status_reason"]) == ("diverged", "loss is nan")
    assert second["train_s"] == 0.5  # of its epochs, since no worker told


@pytest.mark.parametrize(
    ("values", "kind", "stored"),
    [
        ([1, 2], "int64", [1, 2]),
        ([1, 2.5], "double", [1.0, 2.5]),
        ([True, False], "bool", [True, False]),
        (["a", None], "string", ["a", None]),
        ([None, None], "null", [None, None]),
        ([True, 1], "string", ["true", "1"]),
        (["a", 1], "string", ['"a"', "1"]),
        ([[1, "x"], {"k": None}], "string", ['[1, "x"]', '{"k": null}']),
        ([2**63, 1], "string", [str(2**63), "1"]),
        ([2**53 + 1, 0.5], "string", [str(2**53 + 1), "0.5"]),
        ([math.inf, "inf"], "string", ['"inf"', '"\\\\inf"']),
        (["\ud800", None], "string", ["\\ud800", None]),
    ],
)
def test_a_parameter_has_one_type_that_loses_nothing(values, kind, stored):
    column = build([started(number, {"p": value}) for number, value in enumerate(values)]).trials()[
        "param.p"
    ]
    assert (str(column.type), column.to_pylist()) == (kind, stored)


def test_a_measure_does_not_hide_a_column():
    report = EpochReported(
        trial=0,
        epoch=1,
        metrics={"loss": 1.0},
        time=1.0,
        time_s=0.5,
        measures={"epoch": 7.0, "metric.loss": 8.0},
    )
    row = build([started(0), report]).metrics().to_pylist()[0]
    assert (row["epoch"], row["measure.epoch"]) == (1, 7.0)
    assert (row["metric.loss"], row["measure.metric.loss"]) == (1.0, 8.0)


def test_pandas_duckdb_and_polars_read_both_files(tmp_path):
    folder = written(tmp_path, "first", STORY)
    for path, table in (
        (folder.trials, build(STORY).trials()),
        (folder.metrics, build(STORY).metrics()),
    ):
        assert list(pd.read_parquet(path).columns) == table.column_names
        assert pl.read_parquet(path)["trial"].to_list() == table["trial"].to_pylist()
        assert duckdb.sql(f"select count(*) from '{path}'").fetchall() == [(table.num_rows,)]
    frame = pd.read_parquet(folder.trials)
    assert frame["started_at"].dtype == "datetime64[us, UTC]"
    assert frame.loc[frame["status"] == "completed", "objective"].tolist() == [0.7]
    query = f"""select "param.optimizer", max("best.val_accuracy") from '{folder.trials}' group by all"""
    assert duckdb.sql(query).fetchall() == [("sgd", 0.8)]
    assert pl.read_parquet(folder.metrics)["metric.val_accuracy"].to_list() == [0.8, 0.7, None]


def test_tables_of_two_sweeps_concatenate(tmp_path):
    first = written(tmp_path, "first", STORY)
    second = written(
        tmp_path, "second", [started(0, {"learning_rate": 1, "depth": 3}), reported(0, 1, auc=0.5)]
    )
    both = pa.concat_tables(
        [read_tables(first).trials, read_tables(second).trials], promote_options="permissive"
    )
    assert both["param.learning_rate"].to_pylist() == [1e-3, 1e-3, 1.0]
    assert both["metric.auc"].to_pylist() == [None, None, 0.5]
    frames = [pd.read_parquet(folder.trials) for folder in (first, second)]
    assert pd.concat(frames, ignore_index=True)["sweep"].tolist() == ["first", "first", "second"]
    files = [str(first.trials), str(second.trials)]
    union = duckdb.read_parquet(files, union_by_name=True)
    assert union.project('count("param.depth"), count(*)').fetchall() == [(1, 3)]
