"""The page for agents: its loop runs as written, and what the page says to read is there."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sweep.cli import main

PAGE = (Path(__file__).parents[1] / "docs" / "agents.md").read_text()


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return str(found)


def test_the_loop_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "idea.py").write_text(block("python"))
    (tmp_path / "idea.yaml").write_text(block("yaml"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    answers: dict[str, Any] = {}
    for line in block("bash").splitlines():
        words = shlex.split(line.removeprefix("python -m sweep "))
        if words[0] == "run":
            words.append("--inline")  # the page runs it on Ray, which takes longer
        ran = CliRunner().invoke(main, words)
        assert ran.exit_code == 0, (line, ran.output)
        answers[words[0]] = json.loads(ran.stdout)
    assert answers["plan"]["expected"]["trials"]
    assert answers["wait"]["reached"]
    assert {trial["status"] for trial in answers["status"]["each"]} == {"completed"}
    assert {"status_reason", "params"} <= answers["status"]["each"][0].keys()
    assert "baseline" in answers["compare"]["answer"]
    assert {row["verdict"] for row in answers["compare"]["confirmed"]["rows"]} <= {
        "best",
        "ties",
        "worse",
        "undecided",
    }
    assert {"verdict", "undecided", "more"} <= answers["compare"]["rows"][0].keys()
    sys.modules.pop("idea", None)
