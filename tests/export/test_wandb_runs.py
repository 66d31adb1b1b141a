"""Offline runs, read back out of W&B's own records."""

from __future__ import annotations

import gzip
import json
import os
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pytest
from hostile import BEGAN, STATUSES, story, trial
from msgspec.structs import replace

from sweep.events import ModelTested, Status, TrialStarted
from sweep.export import runs, wandb_runs
from sweep.store.folder import ResultsFolder
from sweep.store.log import Log

pytest.importorskip("wandb", reason="an extra of its own")
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
    (path,) = target.glob(f"offline-run-*-{number:05d}/*.wandb")
    found: dict[str, Any] = {"config": {}, "history": [], "summary": {}}
    for record in records(path):
        match record.WhichOneof("record_type"):
            case "run":
                found["run"] = record.run
                found["config"] |= {
                    item.key: json.loads(item.value_json) for item in record.run.config.update
                }
            case "history":
                items = {
                    (item.key or item.nested_key[0]): json.loads(item.value_json)
                    for item in record.history.item
                }
                found["history"].append(items)
            case "summary":
                for item in record.summary.update:
                    found["summary"][item.key or "/".join(item.nested_key)] = json.loads(
                        item.value_json
                    )
            case "exit":
                found["exit"] = record.exit.exit_code
    return found


@pytest.mark.filterwarnings("default")
def test_a_run_for_each_trial(made: Callable[..., ResultsFolder], tmp_path: Path) -> None:
    folder, out = made(story()), tmp_path / "out"
    sweep = runs.read_sweep_state(folder)
    assert wandb_runs.write_wandb_runs(sweep, out) == len(STATUSES)
    names = {path.name for path in out.glob("offline-run-*")}
    assert len(names) == len(STATUSES)

    first = read(out, 1)
    run = first["run"]
    assert (run.run_id, run.run_group, run.project) == (
        wandb_runs.make_run_id(sweep, 1),
        folder.name,
        folder.name,
    )
    assert run.start_time.seconds == BEGAN + 10
    assert list(run.tags) == ["completed", "repeat-1"]
    config = first["config"]
    assert {
        name: config[name] for name in ("lr", "opt", "cnn.head.units", "size-2", "twice", "batch")
    } == {
        "lr": 0.1,
        "opt": "sgd",
        "cnn.head.units": 9,
        "size-2": 2.5,
        "twice": 0.2,
        "batch": 32,
    }
    assert (config["sweep"]["trial"], config["sweep"]["seed"]) == (1, 8)
    assert config["sweep"]["role"] == "search"
    assert [(row["_step"], row["val/acc"], row["_timestamp"]) for row in first["history"]] == [
        (epoch, 0.1 + epoch / 100, BEGAN + 10 + epoch) for epoch in (1, 2, 3)
    ]
    assert first["history"][0]["größe"] == "Infinity"
    assert (first["summary"]["status"], first["summary"]["val/acc"]) == ("completed", 0.13)
    assert [read(out, number).get("exit") for number in range(len(STATUSES))] == [
        None,
        0,
        0,
        0,
        1,
        1,
        1,
        None,
    ]
    assert read(out, 3)["config"]["opt"] is None

    before = {path: path.read_bytes() for path in out.rglob("*.wandb")}
    wandb_runs.write_wandb_runs(runs.read_sweep_state(folder), out)
    assert {path: path.read_bytes() for path in out.rglob("*.wandb")} == before
    with Log(folder.log) as log:
        log.append([trial(0, Status.COMPLETED)[-1]])
    wandb_runs.write_wandb_runs(runs.read_sweep_state(folder), out)
    assert {path.name for path in out.glob("offline-run-*")} == names  # the same, in their place
    assert read(out, 0)["summary"]["status"] == "completed"


def test_folds_and_metrics_on_the_test_data(
    made: Callable[..., ResultsFolder], tmp_path: Path
) -> None:
    start, *others = trial(0, Status.COMPLETED)
    assert isinstance(start, TrialStarted)
    tested = ModelTested(trial=0, metrics={"acc": 0.7}, time=BEGAN + 50)
    events = [replace(start, fold=2), *others, tested, *trial(1, Status.COMPLETED)]
    wandb_runs.write_wandb_runs(runs.read_sweep_state(made(events)), tmp_path)
    first, second = read(tmp_path, 0), read(tmp_path, 1)
    assert (first["config"]["sweep"]["fold"], first["summary"]["test/acc"]) == (2, 0.7)
    assert "fold" not in second["config"]["sweep"]
    assert "test/acc" not in second["summary"]


@pytest.mark.parametrize("size", [0, 1, BLOCK - 14, BLOCK - 13, BLOCK - 7, BLOCK, 3 * BLOCK])
def test_records_are_cut_at_the_ends_of_blocks(tmp_path: Path, size: int) -> None:
    from wandb.proto import wandb_internal_pb2

    texts = ["x" * size, "y", "z" * size]
    made = [wandb_internal_pb2.Record(uuid=text).SerializeToString() for text in texts]
    (tmp_path / "f").write_bytes(wandb_runs.frame_records(made))
    assert [record.uuid for record in records(tmp_path / "f")] == texts


@pytest.mark.parametrize("identity", [1, 2])
def test_ids_follow_from_the_sweep(made: Callable[..., ResultsFolder], identity: int) -> None:
    first, second = (made(trial(0, Status.COMPLETED), name) for name in ("first", "second"))
    ids = [
        wandb_runs.make_run_id(runs.read_sweep_state(folder), identity)
        for folder in (first, second, first)
    ]
    assert ids[0] == ids[2] != ids[1]


class _Server(BaseHTTPRequestHandler):
    """As much of W&B's server as a sync asks for."""

    protocol_version = "HTTP/1.1"
    asked: ClassVar[list[dict[str, Any]]] = []

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        sent = self.rfile.read(int(self.headers["Content-Length"]))
        body = json.loads(gzip.decompress(sent) if sent[:2] == b"\x1f\x8b" else sent)
        self.asked.append(body)
        given = body.get("variables", {})
        answers: dict[str, object] = {}
        if "upsertBucket" in body.get("query", ""):
            project = {"id": "p", "name": given["project"], "entity": {"id": "e", "name": "me"}}
            bucket = {
                "id": "b",
                "name": given["name"],
                "displayName": given["displayName"],
                "project": project,
            }
            answers["upsertBucket"] = {
                "bucket": {**bucket, "historyLineCount": 0},
                "inserted": True,
            }
        elif "createRunFiles" in body.get("query", ""):
            answers["createRunFiles"] = {"runID": "b", "uploadHeaders": [], "files": []}
        self._answer(json.dumps({"data": answers}).encode())

    def _answer(self, content: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@pytest.mark.slow  # its client takes its time
@pytest.mark.filterwarnings("default")
def test_wandb_sync_takes_them(made: Callable[..., ResultsFolder], tmp_path: Path) -> None:
    wandb_runs.write_wandb_runs(
        runs.read_sweep_state(made(trial(1, Status.COMPLETED))), tmp_path / "out"
    )
    (folder,) = (tmp_path / "out").glob("offline-run-*")
    _Server.asked.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), _Server) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("WANDB_")
        } | {
            "WANDB_BASE_URL": f"http://127.0.0.1:{server.server_port}",
            "WANDB_API_KEY": "a" * 40,
            "WANDB_ERROR_REPORTING": "false",
            "HOME": str(tmp_path),
        }
        command = [sys.executable, "-m", "wandb", "sync", "--yes", str(folder)]
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=1500, cwd=tmp_path
        )
        server.shutdown()
    assert "Finished syncing" in done.stderr + done.stdout, done
    lines = [line for body in _Server.asked for line in _rows(body, "wandb-history.jsonl")]
    assert [
        (row["_step"], row["val/acc"], row["_timestamp"]) for row in map(json.loads, lines)
    ] == [(epoch, 0.1 + epoch / 100, BEGAN + 10 + epoch) for epoch in (1, 2, 3)]
    upserted = next(
        body["variables"] for body in _Server.asked if body.get("operationName") == "UpsertBucket"
    )
    assert (upserted["groupName"], json.loads(upserted["config"])["opt"]["value"]) == (
        "hostile, ü",
        "sgd",
    )
    assert [body["exitcode"] for body in _Server.asked if body.get("complete")] == [0]


def _rows(body: dict[str, Any], file: str) -> list[str]:
    return (
        list(body.get("files", {}).get(file, {}).get("content", []))
        if isinstance(body.get("files"), dict)
        else []
    )
