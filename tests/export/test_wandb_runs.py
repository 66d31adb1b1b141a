"""Offline runs, read back out of W&B's own records."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hostile import BEGAN, STATUSES, story, trial

from sweep.events import Status
from sweep.export import runs, wandb_runs
from sweep.store.folder import ResultsFolder
from sweep.store.log import Log

pytest.importorskip("wandb")
BLOCK = 32768


def records(path: Path) -> Iterator[Any]:
    """W&B's records in a file, which is a log as LevelDB writes it, after seven bytes."""
    from wandb.proto import wandb_internal_pb2

    data, at, whole = path.read_bytes(), 7, b""
    assert data[:4] == b":W&B"
    while at + 7 <= len(data):
        left = BLOCK - at % BLOCK
        checksum, size, kind = struct.unpack("<IHB", data[at : at + 7]) if left >= 7 else (0, 0, 0)
        if not kind:
            at += left
            continue
        assert checksum == zlib.crc32(data[at + 6 : at + 7 + size])
        whole += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # the only or the last part of a record
            yield wandb_internal_pb2.Record.FromString(whole)
            whole = b""


def read(target: Path, number: int) -> dict[str, Any]:
    """One run: its own record, config, rows of history, last summary and exit code."""
    (path,) = (target / "wandb").glob(f"offline-run-*-{number:05d}/*.wandb")
    found: dict[str, Any] = {"config": {}, "history": [], "summary": {}}
    for record in records(path):
        match record.WhichOneof("record_type"):
            case "run":
                found["run"] = record.run
                found["config"] |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
            case "history":
                items = {(item.key or item.nested_key[0]): json.loads(item.value_json) for item in record.history.item}
                found["history"].append(items)
            case "summary":
                for item in record.summary.update:
                    found["summary"][item.key or "/".join(item.nested_key)] = json.loads(item.value_json)
            case "exit":
                found["exit"] = record.exit.exit_code
    return found


@pytest.mark.filterwarnings("default")
def test_a_run_for_each_trial(made: Callable[..., ResultsFolder], tmp_path: Path) -> None:
    folder, out = made(story()), tmp_path / "out"
    sweep = runs.read(folder)
    assert wandb_runs.export(sweep, out) == len(STATUSES)
    names = {path.name for path in (out / "wandb").glob("offline-run-*")}
    assert len(names) == len(STATUSES)

    first = read(out, 1)
    run = first["run"]
    assert (run.run_id, run.run_group, run.project) == (wandb_runs.run_id(sweep, 1), folder.name, folder.name)
    assert run.start_time.seconds == BEGAN + 10
    assert list(run.tags) == ["completed", "repeat-1"]
    config = first["config"]
    assert {name: config[name] for name in ("lr", "opt", "cnn.head.units", "size-2", "twice", "batch")} == {
        "lr": 0.1,
        "opt": "sgd",
        "cnn.head.units": 9,
        "size-2": 2.5,
        "twice": 0.2,
        "batch": 32,
    }
    assert (config["sweep"]["trial"], config["sweep"]["seed"]) == (1, 8)
    assert [(row["_step"], row["val/acc"], row["_timestamp"]) for row in first["history"]] == [
        (epoch, 0.1 + epoch / 100, BEGAN + 10 + epoch) for epoch in (1, 2, 3)
    ]
    assert first["history"][0]["größe"] == "Infinity"
    assert (first["summary"]["status"], first["summary"]["val/acc"]) == ("completed", 0.13)
    assert [read(out, number).get("exit") for number in range(len(STATUSES))] == [None, 0, 0, 1, 1, 1, None]
    assert read(out, 3)["config"]["opt"] is None

    before = {path: path.read_bytes() for path in out.rglob("*.wandb")}
    wandb_runs.export(runs.read(folder), out)
    assert {path: path.read_bytes() for path in out.rglob("*.wandb")} == before
    with Log(folder.log) as log:
        log.append([trial(0, Status.COMPLETED)[-1]])
    wandb_runs.export(runs.read(folder), out)
    assert {path.name for path in (out / "wandb").glob("offline-run-*")} == names  # the same, in their place
    assert read(out, 0)["summary"]["status"] == "completed"


@pytest.mark.parametrize("size", [0, 1, BLOCK - 14, BLOCK - 13, BLOCK - 7, BLOCK, 3 * BLOCK])
def test_records_are_cut_at_the_ends_of_blocks(tmp_path: Path, size: int) -> None:
    from wandb.proto import wandb_internal_pb2

    texts = ["x" * size, "y", "z" * size]
    made = [wandb_internal_pb2.Record(uuid=text).SerializeToString() for text in texts]
    (tmp_path / "f").write_bytes(wandb_runs.framed(made))
    assert [record.uuid for record in records(tmp_path / "f")] == texts


@pytest.mark.parametrize("identity", [1, 2])
def test_ids_follow_from_the_sweep(made: Callable[..., ResultsFolder], identity: int) -> None:
    first, second = (made(trial(0, Status.COMPLETED), name) for name in ("first", "second"))
    ids = [wandb_runs.run_id(runs.read(folder), identity) for folder in (first, second, first)]
    assert ids[0] == ids[2] != ids[1]
