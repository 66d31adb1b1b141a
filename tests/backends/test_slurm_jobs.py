"""Sweeps as jobs of a real Slurm, of one node."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import clusters
import pytest
import slurm_hosts
import slurms

import sweep

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.skipif(
        bool(slurms.missing()), reason="Slurm is not installed: apt install slurm-wlm munge"
    ),
    pytest.mark.skipif(os.getuid() != 0, reason="a Slurm of one's own runs as root"),
]
FILE = """
name: s
trainable: slow:Slow
method: grid
metric: {name: loss, goal: minimize}
parameters: {rate: {values: [0.1, 0.2]}, drag: {value: 0.5}}
epochs: 60
checkpoint: {every_s: 1000}
"""
SLOW = clusters.SLOW.replace("SECONDS", "0.08")


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    with slurms.running(tmp_path_factory.mktemp("slurm")) as environment:
        yield environment


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "walk.py").write_text((ROOT / "tests" / "kills" / "walk.py").read_text())
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "s.yaml").write_text(FILE)
    return tmp_path


def submitted(project: Path, slurm: Mapping[str, str], *options: str) -> str:
    command = [sys.executable, "-m", "sweep", "slurm", "s.yaml", *options]
    done = subprocess.run(
        command, cwd=project, env=dict(slurm), capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    found = re.search(
        r"^job +(\d+)\nstatus +python -m sweep status \S+/results/s$", done.stdout, re.MULTILINE
    )
    assert found is not None, done.stdout
    return found[1]


def said(project: Path, job: str) -> str:
    path = project / "results" / f"slurm-s-{job}.out"
    return path.read_text() if path.exists() else ""


def wait_for(done: Callable[[], bool], seconds: float, what: Callable[[], str]) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, what()
        time.sleep(0.2)


def trained(project: Path) -> int:
    log = project / "results" / "s" / "log.jsonl"
    return log.read_text().count("epoch_reported") if log.exists() else 0


def check(project: Path) -> None:
    """Both trials are complete, and no epoch was trained twice."""
    loaded = sweep.load(project / "results" / "s")
    assert loaded.trials["status"].tolist() == ["completed"] * 2
    assert loaded.metrics.groupby("trial")["epoch"].apply(list).tolist() == [list(range(1, 61))] * 2
    epochs = [
        line.split()[3:]
        for line in (project / "journal.txt").read_text().splitlines()
        if " epoch " in line
    ]
    assert len(epochs) == len(set(map(tuple, epochs))) == 120


def test_a_job_that_is_ended_by_its_shell_saves_all_trials_and_the_same_command_goes_on(
    project: Path, slurm: Mapping[str, str]
) -> None:
    first = submitted(project, slurm)
    wait_for(lambda: trained(project) >= 6, 120, lambda: said(project, first))
    slurms.call(slurm, f"scancel --batch --signal=TERM {first}")
    wait_for(
        lambda: not slurms.call(slurm, f"squeue -h -j {first}"), 60, lambda: said(project, first)
    )
    assert "saving all trials" in said(project, first)
    assert sweep.load(project / "results" / "s").trials["status"].tolist() == ["interrupted"] * 2
    (project / "hurry").touch()
    second = submitted(project, slurm)
    wait_for(
        lambda: not slurms.call(slurm, f"squeue -h -j {second}"), 120, lambda: said(project, second)
    )
    check(project)


@pytest.mark.exhaustive
def test_a_job_saves_before_its_time_limit_and_requeues_itself(
    project: Path, slurm: Mapping[str, str]
) -> None:
    text = (project / "slow.py").read_text()
    (project / "slow.py").write_text(text.replace("0.08", "0.8"))
    command = [sys.executable, "-m", "sweep", "slurm", "s.yaml", "--dry-run"]
    script = subprocess.run(command, cwd=project, check=True, capture_output=True, text=True).stdout
    script = script.replace("--time=24:00:00", "--time=2").replace("USR1@300", "USR1@60")
    (project / "results").mkdir()
    (project / "job.sh").write_text(script)
    job = slurms.call(slurm, f"sbatch --parsable --chdir={project} {project / 'job.sh'}")
    wait_for(
        lambda: "requeued; the sweep goes on" in said(project, job), 150, lambda: said(project, job)
    )
    assert 0 < trained(project) < 120

    def is_gone() -> bool:
        # a requeued job waits two minutes
        slurms.call(slurm, f"scontrol update jobid={job} StartTime=now")
        return not slurms.call(slurm, f"squeue -h -j {job}")

    wait_for(is_gone, 400, lambda: said(project, job))
    check(project)


@pytest.mark.exhaustive
def test_a_job_over_two_hosts_outlives_the_loss_of_one_and_saves_when_it_is_asked_to_end(
    project: Path,
) -> None:
    """By symmetric-run, under a token, on two hosts that are namespaces."""
    if subprocess.run([*slurm_hosts.NEW, "true"], capture_output=True).returncode:
        pytest.skip("needs the right to make hosts of namespaces")
    text = (project / "slow.py").read_text()
    (project / "slow.py").write_text(text.replace("0.08", "0.7"))
    command = [sys.executable, "-m", "sweep", "slurm", "s.yaml", "--nodes", "2", "--dry-run"]
    command += [
        "--setup",
        "export RAY_memory_monitor_refresh_ms=0",
        "--set",
        "checkpoint.every_s=2",
    ]
    script = subprocess.run(command, cwd=project, check=True, capture_output=True, text=True).stdout
    (project / "job.sh").write_text(script)
    (project / "results").mkdir()
    with slurm_hosts.running(project / "slurm") as hosts:
        submit = f"sbatch --parsable --chdir={project} {project}/job.sh"
        job = hosts.call(submit)
        wait_for(lambda: trained(project) >= 10, 180, lambda: said(project, job))
        hosts.lose(2)
        wait_for(
            lambda: "PENDING" in hosts.call(f"squeue -h -j {job} -o %T"),
            120,
            lambda: said(project, job),
        )
        before = trained(project)
        hosts.start(2)
        time.sleep(3)
        hosts.call(f"scontrol update jobid={job} StartTime=now")
        wait_for(lambda: trained(project) >= before + 5, 180, lambda: said(project, job))
        hosts.call(f"scancel --batch --signal=TERM {job}")
        wait_for(lambda: not hosts.call(f"squeue -h -j {job}"), 180, lambda: said(project, job))
        assert (
            sweep.load(project / "results" / "s").trials["status"].tolist() == ["interrupted"] * 2
        )
        trained_by_then = trained(project)
        again = hosts.call(submit)
        wait_for(lambda: not hosts.call(f"squeue -h -j {again}"), 240, lambda: said(project, again))
    loaded = sweep.load(project / "results" / "s")
    assert loaded.trials["status"].tolist() == ["completed"] * 2
    assert loaded.metrics.groupby("trial")["epoch"].apply(list).tolist() == [list(range(1, 61))] * 2
    assert 0 < before < trained_by_then < 120
