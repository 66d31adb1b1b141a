"""``ui`` and ``dashboard`` with ``--json``: one document that meets its schema, while the server goes on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import jsonschema
import pytest

from sweep.documents import schemas
from sweep.store.folder import ResultsFolder


@pytest.mark.parametrize(
    "command", [("ui", "--no-open"), ("dashboard", "first")], ids=["ui", "dashboard"]
)
def test_a_server_says_in_a_document_where_it_is(command: tuple[str, ...], tmp_path: Path) -> None:
    if command[0] == "dashboard":
        pytest.importorskip("optuna_dashboard", reason="an extra of its own")
    ResultsFolder.create(
        tmp_path / "results", "first", "", {"objectives": [{"name": "acc", "goal": "maximize"}]}
    )
    line = [sys.executable, "-m", "sweep", *command, "--port", "0", "--json"]
    with subprocess.Popen(
        line, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        text = "".join(iter(server.stdout.readline, "}\n")) + "}"
        found = json.loads(text)
        with urlopen(found["url"]) as answer:
            assert answer.status == 200
        server.send_signal(signal.SIGINT)
        rest, _ = server.communicate(timeout=600)
    assert (server.returncode, rest) == (0, "")
    schema = schemas.find_schema(command[0])
    for definition in schema["$defs"].values():
        definition["additionalProperties"] = False
    jsonschema.validate(found, schema)
