"""`--json` of the commands of a submitted sweep, on a real Ray cluster: exit code 0, and a document of its schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ray_heads import started_head
from waiting import until

from sweep.documents import schemas

pytestmark = [pytest.mark.ray, pytest.mark.slow]

FILE = """\
name: sent
trainable: trained:train
method: grid
metric: {name: score, goal: maximize}
parameters: {rate: {values: [1, 2]}}
epochs: 100
resources: {cpus: 0.5, max_concurrent: 1}
"""
TRAINABLE = """
import time
from pathlib import Path
def train(hp, report):
    for epoch in range(100):
        time.sleep(0.0 if Path("GO").exists() else 0.5)
        report(score=hp.rate * (epoch + 1))
"""


def check_document(command: str, text: str) -> Any:
    """Return what a command has printed, which must be one document of its schema and have no other key."""
    schema = schemas.find_schema(command)
    for definition in schema["$defs"].values():
        if "properties" in definition:
            definition["additionalProperties"] = False
    found = json.loads(text)
    jsonschema.validate(found, schema)
    return found


def test_documents_of_a_submitted_sweep(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "sent.yaml").write_text(FILE)
    (project / "trained.py").write_text(TRAINABLE.replace("GO", str(tmp_path / "go")))
    results = tmp_path / "results"
    log = results / "sent" / "log.jsonl"
    with started_head(tmp_path) as cluster:

        def call(command: str, *arguments: str) -> Any:
            ran = cluster.call(project, command, *arguments, "--json")
            assert ran.returncode == 0, ran.stdout + ran.stderr
            return check_document(command, ran.stdout)

        sent = call("submit", "sent.yaml", "--results", str(results))
        assert (sent["job"], sent["files"], sent["state"]) == ("sweep-ann-sent-1", 2, None)
        assert sent["results"] == f"{results}/sent"
        until(
            lambda: log.exists() and '"epoch_reported"' in log.read_text(),
            lambda: call("logs", "sent"),
        )
        assert [(row["sweep"], row["state"]) for row in call("list")] == [("sent", "RUNNING")]
        assert call("status", "sent")["state"] == "running"
        assert call("note", "sent", "0", "slow")["text"] == "slow"
        assert call("stop", "sent", "--trial", "0", "--now")["trial"] == 0
        told = call("stop", "sent")
        assert (told["sweep"], told["trial"]) == ("sent", None)
        assert (
            f"go on with: python -m sweep resume sent --address {cluster.address}" in told["result"]
        )
        assert call("list")[0]["state"] == "STOPPED"
        (tmp_path / "go").touch()
        again = call("resume", "sent")
        assert again["job"] == "sweep-ann-sent-2"
        until(
            lambda: call("list")[-1]["state"] == "SUCCEEDED",
            lambda: call("logs", "sent"),
            every_s=1.0,
        )
        said = call("logs", "sent")
        assert (said["sweep"], said["job"], said["state"]) == (
            "ann/sent",
            again["job"],
            "succeeded",
        )
        assert "The best was rate=2" in said["text"]
        waited = call("submit", "sent.yaml", "--results", str(results), "--name", "other", "--wait")
        assert (waited["sweep"], waited["state"]) == ("other", "succeeded")
