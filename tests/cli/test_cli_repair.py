"""``repair``, as a user meets a damaged log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from walking import FILE, write_project

from sweep.cli import main


def call(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_a_damaged_sweep_is_repaired_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_project(tmp_path, file=FILE.replace("[0.1, 0.3]", "[0.1, 0.2, 0.3]"))
    monkeypatch.chdir(tmp_path)
    assert call("run", "first.yaml", "--inline", "-q")[0] == 0
    log = Path("results/first/log.jsonl")
    whole = log.read_bytes()
    assert call("repair", "first") == (0, f"{log} is whole: {whole.count(bytes([10]))} records\n")
    lines = whole.splitlines(keepends=True)
    second = next(n for n, line in enumerate(lines) if b'"trial_started","trial":1,' in line)
    log.write_bytes(b"".join([*lines[:second], bytes(len(lines[second])), *lines[second + 1 :]]))
    code, output = call("resume", "first", "--inline", "-q")
    assert (code, "Traceback" in output) == (2, False)
    assert f"{log}:{second + 1}: damaged record" in output
    assert output.endswith("keep what can be read with: python -m sweep repair first\n")
    code, output = call("repair", "first")
    told = output.splitlines()
    assert code == 0
    assert told[0] == f"{log}: {len(lines) - 4} records kept"
    assert "  trial 1 is missing, `resume` trains it" in told
    assert told[-2:] == [f"as it was: {log}.damaged-1", "go on with: python -m sweep resume first"]
    assert call("resume", "first", "--inline", "-q")[0] == 0
    found = json.loads(call("status", "first", "--json")[1])
    assert (found["state"], found["trials"]) == ("finished", {"completed": 3})


@pytest.mark.parametrize("is_steered", [False, True])
def test_the_status_of_a_damaged_sweep_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_steered: bool
) -> None:
    write_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert call("run", "first.yaml", "--inline", "-q")[0] == 0
    if is_steered:
        assert call("note", "first", "looks good")[0] == 0
    log = Path("results/first/log.jsonl")
    with log.open("ab") as stream:
        stream.write(b"?\n" + log.read_bytes().splitlines(keepends=True)[-1])
    code, output = call("status", "first", "--json")
    assert (code, json.loads(output)["state"]) == (0, "damaged"), output
