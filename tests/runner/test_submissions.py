"""Where a session runs: what sweep.json says of it, and what messages say of going on."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from sweep.cli import main
from sweep.store.folder import ResultsFolder
from sweep.store.sweep_info import SUBMITTED_TO, Submission

FILE = """
trainable: short:train
method: grid
metric: {name: score, goal: maximize}
parameters: {rate: {values: [1, 2]}}
epochs: 1
"""


def call(line: str) -> None:
    ran = CliRunner().invoke(main, shlex.split(line))
    assert ran.exit_code == 0, ran.output


def test_a_sweep_goes_on_where_its_latest_session_ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "short.py").write_text("def train(hp, report):\n    report(score=hp.rate)\n")
    (tmp_path / "short.yaml").write_text(FILE)
    monkeypatch.setenv(SUBMITTED_TO, "http://head:8265")
    monkeypatch.setenv("SWEEP_USER", "ann b")
    call("run short.yaml --inline -q --run-cap 1")
    folder = ResultsFolder(Path("results") / "short")
    assert folder.submission == Submission("http://head:8265", "ann b")
    assert folder.to_resume == "python -m sweep resume 'ann b/short' --address http://head:8265"
    monkeypatch.delenv(SUBMITTED_TO)
    call("resume short --inline -q --run-cap 2")
    assert folder.submission is None
    assert folder.to_resume == "python -m sweep resume short"
    monkeypatch.setenv(SUBMITTED_TO, "http://other:8265")
    call("resume short --inline -q --set description=again")
    assert folder.to_resume == "python -m sweep resume 'ann b/short' --address http://other:8265"
