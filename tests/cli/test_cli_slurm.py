"""A sweep as a batch script of Slurm."""

from __future__ import annotations

import os
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from signal import Signals

import pytest
from click.testing import CliRunner

from sweep.cli import main
from sweep.cli.slurm import SlurmJob, format_script, parse_time_limit
from sweep.errors import InputError

BATCH = SlurmJob(
    name="lr wd",
    command=["run", "s.yaml", "--or-resume", "--set", "name=it's"],
    address="/data/results/lr wd",
    python="/data/my env/bin/python",
    folder=Path("/data/my project"),
    output="/data/my % results",
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8:00:00", 28800),
        ("1-12:00:00", 129600),
        ("0:30:00", 1800),
        ("2-0", 172800),
        ("1-6:30", 109800),
        ("4:05:00", 14700),
    ],
)
def test_time_limits(text: str, expected: int) -> None:
    assert parse_time_limit(text) == expected


@pytest.mark.parametrize("text", ["8", "8h", "8:30", "", "8:0:0", "a-1:00", "-1:00:00"])
def test_what_is_no_time_limit(text: str) -> None:
    with pytest.raises(InputError, match="is no time limit; write it as in 8:00:00"):
        parse_time_limit(text)


@pytest.mark.parametrize("nodes", [1, 3])
def test_a_script_is_one_that_bash_reads_with_all_names_quoted(nodes: int) -> None:
    options = ["--qos=long"]
    text = format_script(
        replace(
            BATCH, nodes=nodes, gpus=4, partition="gpu", options=options, setup=["module load cuda"]
        )
    )
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    asked = [
        line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH ")
    ]
    assert asked == [
        "--job-name=lr-wd",
        "--time=24:00:00",
        f"--nodes={nodes}",
        "--ntasks-per-node=1",
        "--exclusive",
        "--mem=0",
        "--gpus-per-node=4",
        "--partition=gpu",
        "--requeue",
        "--open-mode=append",
        "--signal=B:USR1@300",
        '--output="/data/my %% results/slurm-lr-wd-%j.out"',
        "--qos=long",
    ]
    assert "cd '/data/my project' || exit 1\nmodule load cuda\n" in text
    assert (
        "'/data/my env/bin/python' -m sweep run s.yaml --or-resume --set 'name=it'\"'\"'s'" in text
    )
    assert ("symmetric-run" in text, "RAY_AUTH_TOKEN_PATH" in text) == (nodes > 1, nodes > 1)


def test_a_folder_that_no_script_can_name_is_refused() -> None:
    with pytest.raises(InputError, match="cannot be named in a batch script"):
        format_script(replace(BATCH, output='/data/"mine"'))


def test_a_time_limit_in_which_nothing_could_be_trained_is_refused() -> None:
    with pytest.raises(
        InputError, match="leaves no time to train: saving starts 300 s before the limit"
    ):
        format_script(replace(BATCH, time="0:06:00"))


@pytest.mark.parametrize(
    ("signal", "ends", "stops", "code", "requeued"),
    [
        (None, 0, False, 0, False),  # the sweep is done
        (None, 2, False, 2, False),  # its file is wrong
        ("USR1", 130, True, 130, True),  # the time limit comes
        ("USR1", 0, True, 0, False),  # and the last trial has ended meanwhile
        ("TERM", 130, True, 130, False),  # somebody ends the job
    ],
)
def test_how_a_job_ends(
    tmp_path: Path, signal: str | None, ends: int, stops: bool, code: int, requeued: bool
) -> None:
    """With a sweep and a Slurm that are a few lines of shell."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, lines in {
        "srun": f"echo run; while [ ! -e stop ] && [ ! -e end ]; do sleep 0.05; done; exit {ends}",
        "python": "touch stop; echo stopped",
        "scontrol": "echo requeue $2 > requeued",
    }.items():
        (commands / name).write_text(f"#!/bin/bash\n{lines}\n")
        (commands / name).chmod(0o755)
    text = format_script(replace(BATCH, python=str(commands / "python"), folder=tmp_path))
    setting = {"PATH": f"{commands}:/usr/bin:/bin", "SLURM_JOB_ID": "7"}
    (tmp_path / "job.sh").write_text(text)
    with subprocess.Popen(
        ["bash", "job.sh"], stdout=subprocess.PIPE, text=True, env=setting, cwd=tmp_path
    ) as job:
        assert job.stdout is not None
        assert job.stdout.readline() == "run\n"
        if signal is None:
            (tmp_path / "end").touch()
        else:
            job.send_signal(Signals[f"SIG{signal}"])
        said = job.stdout.read()
    assert job.returncode == code
    assert ("saving all trials" in said, (tmp_path / "stop").exists()) == (stops, stops)
    assert (tmp_path / "requeued").exists() is requeued
    if requeued:
        assert (tmp_path / "requeued").read_text() == "requeue 7\n"


def test_the_command_for_the_status_can_be_pasted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sbatch = tmp_path / "bin" / "sbatch"
    sbatch.parent.mkdir()
    sbatch.write_text("#!/bin/sh\necho 17\n")
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", f"{sbatch.parent}{os.pathsep}{os.environ['PATH']}")
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    (project / "train.py").write_text("def train(hp, report):\n    report(loss=hp.rate)\n")
    (project / "s.yaml").write_text(
        "name: s\ntrainable: train:train\nmethod: grid\nmetric: {name: loss, goal: minimize}\n"
        "parameters: {rate: {values: [1, 2]}}\nepochs: 1\n"
    )
    ran = CliRunner().invoke(main, ["slurm", "s.yaml", "--results", "my results"])
    assert ran.exit_code == 0, ran.output
    words = shlex.split(ran.stdout.splitlines()[-1])
    assert words[1:] == ["python", "-m", "sweep", "status", str(project / "my results" / "s")]
