"""Every command where it cannot write, where nobody reads, and where the machine lacks something: no traceback."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SWEEP = f"{shlex.quote(sys.executable)} -m sweep"
TRAINABLE = """
import os

def space(hp):
    return hp.Int("a", 1, 3)

def train(hp, report):
    while report(score=hp.a / (report.epoch + 1) + 0.01 * report.seed, size=len(str(hp.get("kind", "")))):
        print("an epoch", flush=True)
        os.system("echo of a child")
"""
FILE = """
description: "größer, крупнее, 大きい"
trainable: scored:train
method: grid
metric: {name: score, goal: minimize}
parameters: {a: {values: [3, 1, 2]}, kind: {values: ["größer", "крупнее"]}}
epochs: 2
"""
DRAWN = FILE.replace("method: grid", "method: random\nrun_cap: 6").replace(
    "{values: [3, 1, 2]}", "{min: 0.5, max: 3.0}"
)

COMMANDS = (
    *(
        "init mine",
        "init mine --function",
        "init mine --torch",
        "init mine --from-hypermodel scored:space",
    ),
    *(
        "examples",
        "examples asha",
        "examples asha --to deep/er",
        "schema",
        "plan drawn.yaml",
        "plan drawn.yaml --json",
    ),
    *(
        "run scored.yaml --inline --name new",
        "run scored.yaml --inline --or-resume",
        "resume scored --inline --run-cap 4",
    ),
    *("run drawn.yaml --inline --tensorboard", "confirm scored --inline --seeds 2 --budget none"),
    *(
        "retrain scored --inline",
        "stop scored",
        "list",
        "list --json",
        "status scored",
        "compare scored",
    ),
    *(
        "compare scored --json",
        "best scored",
        "best scored --json",
        "best scored --export out",
        "replay scored",
    ),
    *(
        "report scored",
        "report scored --output page.html",
        "export csv scored",
        "export csv scored --output out",
    ),
    *(
        "export mlflow scored",
        "export tensorboard scored",
        "export wandb scored",
        "repair scored",
        "list --results none",
    ),
    "kube scored.yaml --results s3://b/p --gpu-nodes 1 --image i",
    *(
        "slurm scored.yaml --results /shared",
        "--help",
        "--version",
        "run scored.yaml --no-such",
        "logs none",
    ),
)
READ_ONLY = """unshare -m sh -c 'mount --bind . . && mount -o remount,ro,bind . && cd "$PWD" && exec "$@"' sh {}"""
SITUATIONS = {
    "read-only folder": READ_ONLY
    if os.geteuid() == 0
    else "chmod -R a-w . && {}; code=$?; chmod -R u+w .; exit $code",
    "nobody reads": "{} | head -0; exit ${{PIPESTATUS[0]}}",
    "nobody reads either": "{} 2>&1 | head -0; exit ${{PIPESTATUS[0]}}",
    "full output": "{} > /dev/full",
    "full errors": "{} 2> /dev/full",
    "closed output": "{} >&-",
    "closed errors": "{} 2>&-",
    "latin-1": "PYTHONIOENCODING=latin-1 {}",
    "ASCII": "LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 {}",
    "no home": "HOME=/proc/none {}",
    "no temporary folder": "TMPDIR=/proc/none RAY_TMPDIR=/proc/none {}",
}
RUN = "run scored.yaml --inline --name new"
DAILY = (
    ("init mine", "read-only folder"),
    *(
        (RUN, situation)
        for situation in (
            "read-only folder",
            "nobody reads",
            "nobody reads either",
            "full output",
            "full errors",
            "closed errors",
            "latin-1",
        )
    ),
    *(("compare scored", situation) for situation in ("nobody reads", "full output")),
    *(("plan drawn.yaml", situation) for situation in ("ASCII", "closed output")),
)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files and a finished sweep."""
    folder = tmp_path_factory.mktemp("project")
    for name, text in (("scored.py", TRAINABLE), ("scored.yaml", FILE), ("drawn.yaml", DRAWN)):
        (folder / name).write_text(text, encoding="utf-8")
    command = f"{SWEEP} run scored.yaml --inline -q"
    subprocess.run(command, shell=True, cwd=folder, check=True, capture_output=True)
    return folder


def outcome(
    project: Path, tmp_path: Path, command: str, situation: str
) -> subprocess.CompletedProcess[str]:
    """What a command comes to in a copy of the project."""
    folder = tmp_path / "copy"
    shutil.copytree(project, folder)
    line = SITUATIONS[situation].format(f"{SWEEP} {command}")
    ran = subprocess.run(
        ["bash", "-c", line], cwd=folder, capture_output=True, encoding="utf-8", errors="replace"
    )
    assert "Traceback" not in ran.stdout + ran.stderr, ran.stderr
    assert ran.returncode in (0, 1, 2, 3, 4), ran  # docs/agents.md says what each one means
    if ran.returncode == 2 and "errors" not in situation and situation != "nobody reads either":
        assert "error: " in ran.stderr.lower()
    return ran


@pytest.mark.parametrize(("command", "situation"), DAILY)
def test_a_command_does_its_work_or_says_in_a_line_what_to_do(
    project: Path, tmp_path: Path, command: str, situation: str
) -> None:
    ran = outcome(project, tmp_path, command, situation)
    refused = situation in ("read-only folder", "full output") and command != "plan drawn.yaml"
    assert ran.returncode == (2 if refused else 0), ran.stderr
    if refused:
        assert ran.stderr.splitlines()[-1].startswith("error: ")
        assert (
            "Read-only" if situation == "read-only folder" else "No space left on device"
        ) in ran.stderr
    if command.startswith("run"):
        assert (tmp_path / "copy" / "results" / "new" / "sweep.json").exists() == (
            situation != "read-only folder"
        )
    if command == RUN and situation != "read-only folder":
        log = (tmp_path / "copy" / "results" / "new" / "log.jsonl").read_text()
        assert log.count('"status":"completed"') == 6


@pytest.mark.parametrize("option", ["--json", "--events"])
def test_what_trials_print_in_this_process_is_no_part_of_the_json(
    project: Path, tmp_path: Path, option: str
) -> None:
    ran = outcome(project, tmp_path, f"{RUN} {option}", "latin-1")
    if option == "--json":
        assert json.loads(ran.stdout)["sweep"] == "new"
    else:
        kinds = [json.loads(line)["event"] for line in ran.stdout.splitlines()]
        assert kinds.count("trial_ended") == 6
    assert ran.stderr.count("an epoch\n") == ran.stderr.count("of a child\n") == 6


@pytest.mark.exhaustive
@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_ends_in_a_traceback(
    project: Path, tmp_path: Path, command: str, situation: str
) -> None:
    outcome(project, tmp_path, command, situation)
