"""The command line as a user meets it: help, errors, and exit codes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from sweep.cli import main
from sweep.cli.commands import GROUPS

ROOT = Path(__file__).parents[2]
MAIN_JOB = ROOT / "search_spaces" / "lr_wd_aug.yaml"


def call(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom sweep.cli import main\n"
        "heavy = {'ray', 'tensorflow', 'pandas', 'optuna', 'pyarrow', 'keras', 'aiohttp'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_help_names_every_command_by_groups_with_its_line_whole() -> None:
    code, output = call("--help")
    assert code == 0
    assert "..." not in output.replace("[ARGS]...", "")
    titles = re.findall(r"^(\w+):$", output, re.MULTILINE)
    assert titles == ["Options", *GROUPS]
    for title, commands in GROUPS.items():
        section = output.split(f"\n{title}:\n")[1].split("\n\n")[0]
        assert re.findall(r"^  (\w+) ", section, re.MULTILINE) == [
            command.name for command in commands
        ]
        words = " ".join(section.split())
        for command in commands:
            (first, *_) = (command.help or "").split("\n\n")
            assert " ".join(first.split()) in f"{words}.", command.name


def test_the_page_of_commands_has_the_groups_of_the_help() -> None:
    page = (ROOT / "docs" / "commands.md").read_text()
    for title, commands in GROUPS.items():
        section = page.split(f"## {title}\n")[1].split("\n## ")[0]
        rows = re.findall(r"^\| `python -m sweep (\w+)", section, re.MULTILINE)
        assert rows == [command.name for command in commands]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands_and_options(shell: str) -> None:
    source = (
        CliRunner()
        .invoke(main, [], prog_name="sweep", env={"_SWEEP_COMPLETE": f"{shell}_source"})
        .output
    )
    assert "_SWEEP_COMPLETE" in source
    for words, word, found in (
        ("sweep st", "st", "status"),
        ("sweep run --inl", "--inl", "--inline"),
    ):
        asked = {
            "_SWEEP_COMPLETE": f"{shell}_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(words.count(" ")),
        }
        if shell == "fish":
            asked["COMP_CWORD"] = word
        assert found in CliRunner().invoke(main, [], prog_name="sweep", env=asked).output


def test_plan_prices_the_main_job() -> None:
    code, output = call("plan", str(MAIN_JOB))
    assert code == 0
    assert "trials       27" in output
    assert "270 in all" in output


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("epochs: 10", "epoch: 10", ":16:1: epoch: unknown key; did you mean 'epochs'?"),
        ("DigitsCNN", "DigitCNN", "did you mean 'DigitsCNN'?"),
        ("digits_cnn:", "digit_cnn:", "no module 'trainables.digit_cnn'"),
        (
            "  batch_size:",
            "  batchsize:",
            "parameters.batchsize: nothing in trainables.digits_cnn:DigitsCNN reads it",
        ),
        ("method: grid", "method: gird", "grid"),
        ("name: lr_wd_aug", "name: ../up", "name"),
        ("parameters:", "parameters: [", "not YAML"),
    ],
)
def test_mistakes_of_a_file(tmp_path: Path, old: str, new: str, message: str) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(MAIN_JOB.read_text().replace(old, new, 1))
    code, output = call("run", str(file), "--results", str(tmp_path / "results"))
    assert code == 2
    assert message in output
    assert "Traceback" not in output
    assert not (tmp_path / "results").exists()


def test_missing_file_and_results_that_cannot_be(tmp_path: Path) -> None:
    assert call("run", "nope.yaml") == (2, "error: nope.yaml: no such file\n")
    (tmp_path / "taken").write_text("")
    code, output = call("run", str(MAIN_JOB), "--results", str(tmp_path / "taken"))
    assert code == 2
    assert "is a file, expected a folder" in output


def test_a_taken_name_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "lr_wd_aug"
    folder.mkdir()
    (folder / "sweep.json").write_text("{}")
    code, output = call("run", str(MAIN_JOB), "--results", str(tmp_path))
    assert code == 4
    assert "holds a sweep already" in output
    assert "--name OTHER" in output
    assert (folder / "sweep.json").read_text() == "{}"


def test_unknown_sweeps(tmp_path: Path) -> None:
    for command in ("resume", "best", "compare"):
        code, output = call(command, "nosuch", "--results", str(tmp_path))
        assert code == 3
        assert "nosuch" in output
    code, output = call("list", "--results", str(tmp_path))
    assert code == 0
    assert "no sweeps in" in output


def test_a_sweep_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of ``sweep run <(cat s.yaml)``: what is recorded is what was read."""
    text = "name: piped\r\ntrainable: walk:Walk\nmethod: grid\nparameters: {rate: {value: 0.1}, drag: {value: 0.5}}\n"
    text += "metric: {name: loss}\nepochs: 2\n"
    (tmp_path / "walk.py").write_text((ROOT / "tests" / "kills" / "walk.py").read_text())
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    writer = threading.Thread(target=Path("pipe").write_bytes, args=(text.encode(),))
    writer.start()
    code, output = call("run", "pipe", "--inline", "-q")
    writer.join()
    assert code == 0, output
    assert Path("results/piped/spec.yaml").read_bytes() == text.encode()
