"""The live page of sweeps that really run: killed and resumed under an open page, in an object store, submitted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from browsers import needs_chromium
from object_stores import Server
from visiting import Visit, Visitor, events_of, press_act, serving
from waiting import until

from sweep.store import remote
from sweep.store.folder import ResultsFolder

pytestmark = [pytest.mark.slow, needs_chromium]

ALONE = ["unshare", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]
FILE = """\
# Which learning rate suits the small net?
name: real
trainable: trained:train
method: grid
metric: {name: val_accuracy, goal: maximize}
parameters:
  learning_rate: {values: [0.01, 0.02, 0.03]}
epochs: 4
resources: {cpus: 0.5, max_concurrent: 1}
"""
TRAINABLE = """
import time
from pathlib import Path
def train(hp, report):
    is_second = hp.learning_rate == 0.02
    for epoch in range(4):
        while is_second and epoch == 2 and not Path("GO").exists():
            time.sleep(0.05)
        time.sleep(1.1 if is_second else 0.0)
        report(val_accuracy=hp.learning_rate * (epoch + 1))
"""
"""Its second trial waits after its second epoch until it may go on. Shorter epochs would be logged together."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "real.yaml").write_text(FILE)
    (tmp_path / "trained.py").write_text(TRAINABLE.replace("GO", str(tmp_path / "go")))
    (tmp_path / "results").mkdir()
    return tmp_path


@contextmanager
def started(project: Path, *command: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command of sweep as a process, which does not outlive the block."""
    line = [sys.executable, "-m", "sweep", *command]
    with subprocess.Popen(line, cwd=project, env={**os.environ, **environment}) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def let_go_on(project: Path) -> None:
    (project / "go").touch()


def shows_the_waiting_trial(one: Visitor) -> None:
    one.has_text("#state", "^running$")
    one.has_text("#workers", r"trial 1\s+2/4")
    one.has_text("#counts", r"1/3 trials[^]*1 running[^]*1 completed")
    one.has_text("#best", r"val_accuracy 0\.04000, trial 0")


def shows_the_end(one: Visitor) -> None:
    one.has_text("#state", "^finished$")
    one.has_text("#counts", r"3/3 trials\s+3 completed")
    one.has_text("#best", r"val_accuracy 0\.1200, trial 2")
    one.wait("N === 3 && TRIALS.epochs.every((epochs) => epochs === 4)")
    assert not one.page.is_visible("#workers")


def count_events(folder: ResultsFolder, kind: str) -> int:
    return sum(event["event"] == kind for event in events_of(folder))


def test_killed_and_resumed_under_an_open_page(visit: Visit, project: Path) -> None:
    one = visit()
    with started(project, "run", "real.yaml", "--inline", "-q") as driver:
        one.has_text("#sweeps", "real")
        one.open("/real")
        shows_the_waiting_trial(one)
        one.page.evaluate("window.opened = 'before'")
        os.kill(driver.pid, signal.SIGKILL)
        one.has_text("#state", "^killed$")
    one.has_text(
        "#silence", "Its process was killed .* ago. Nothing is lost: python -m sweep resume real"
    )
    assert one.page.evaluate("document.title") == "killed · real"
    assert one.page.locator("[data-act=resume]").is_enabled()
    assert one.page.locator("[data-act=stop]").is_disabled()
    let_go_on(project)
    with started(project, "resume", "real", "--inline", "-q") as driver:
        one.has_text("#events", "the sweep was resumed")
        shows_the_end(one)
        assert driver.wait(60) == 0
    assert not one.page.is_visible("#silence")
    assert one.page.evaluate("window.opened") == "before"  # nobody has loaded it again
    assert count_events(ResultsFolder(project / "results" / "real"), "session_started") == 2


@pytest.mark.ray
def test_a_killed_sweep_is_resumed_from_the_page(visit: Visit, project: Path) -> None:
    one = visit()
    with started(project, "run", "real.yaml", "--inline", "-q") as driver:
        one.has_text("#sweeps", "real")
        one.open("/real")
        shows_the_waiting_trial(one)
        os.kill(driver.pid, signal.SIGKILL)
        one.has_text("#state", "^killed$")
    press_act(one, "resume", "resume real --detach")
    one.has_text("#state", "^running$")
    let_go_on(project)
    shows_the_end(one)


def test_in_an_object_store(
    browser: Any, project: Path, s3_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page of another machine, which has nothing but the store."""
    monkeypatch.setenv("SWEEP_CACHE", str(tmp_path / "here"))
    place = f"{s3_server.bucket}/page"
    there = {"SWEEP_CACHE": str(tmp_path / "there")}
    run = started(project, "run", "real.yaml", "--inline", "-q", "--results", place, **there)
    with run as driver, serving(project, "--results", place) as address:
        one = Visitor(browser, address)
        one.has_text("#sweeps", "real")
        assert place in one.page.inner_text("h1")
        one.open("/real")
        shows_the_waiting_trial(one)
        one.open("/real/0")
        one.has_text("#state", "completed")
        one.open("/real")
        let_go_on(project)
        shows_the_end(one)
        assert driver.wait(60) == 0
        press_act(one, "note", f"note real kept --results {place}", {"text": "kept"})
        one.has_text("#events", "noted on the sweep: kept")
        one.context.close()
        assert one.troubles == []
    folder = ResultsFolder.open(remote.local(place), "real")
    assert events_of(folder)[-1]["text"] == "kept"


SUBMIT = """
import os, secrets, subprocess, sys, time
from pathlib import Path
root = Path.cwd()
(root / "token").write_text(secrets.token_hex(32))
os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=str(root / "token"), RAY_USAGE_STATS_ENABLED="0")
os.environ["PATH"] = str(Path(sys.executable).parent) + os.pathsep + os.environ["PATH"]  # of the drivers as well
start = "start --head --block --node-ip-address=127.0.0.1 --port=26379 --dashboard-host=127.0.0.1 --num-cpus=2"
start += " --dashboard-port=28265 --object-store-memory=200000000 --min-worker-port=0 --max-worker-port=0"
command = [sys.executable, "-m", "ray.scripts.scripts", *start.split(), f"--temp-dir=/tmp/{root.name}-{os.getpid()}"]
head = subprocess.Popen(command, stdout=open(root / "head.log", "a"), stderr=subprocess.STDOUT)
sweep = [sys.executable, "-m", "sweep"]
address = ["--address", "http://127.0.0.1:28265"]
deadline = time.monotonic() + 300
while (listed := subprocess.run([*sweep, "list", *address], capture_output=True)).returncode:
    assert head.poll() is None and time.monotonic() < deadline, listed
    time.sleep(0.5)
results = ["--results", str(root / "results")]
subprocess.run([*sweep, "submit", "real.yaml", *results, *address, "--wait"], cwd=root / "project", check=True)
head.terminate()
head.wait(60)
"""


@pytest.mark.ray
def test_submitted(browser: Any, project: Path, tmp_path: Path) -> None:
    """A job of a Ray cluster, which has a network of its own and shares the results folder with the page's machine."""
    if subprocess.run([*ALONE, "true"], capture_output=True).returncode:
        pytest.skip("needs the right to give processes a network of their own")
    sent = tmp_path / "project"
    sent.mkdir()
    for name in ("real.yaml", "trained.py"):
        (tmp_path / name).rename(sent / name)
    command = [
        *ALONE,
        "sh",
        "-c",
        'ip link set lo up && exec "$@"',
        "sh",
        sys.executable,
        "-W",
        "ignore",
        "-c",
        SUBMIT,
    ]
    log = ResultsFolder(tmp_path / "results" / "real").log
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as cluster:
        try:
            until(lambda: log.exists() or cluster.poll() is not None)
            assert cluster.poll() is None, cluster.stdout and cluster.stdout.read()
            with serving(tmp_path) as address:
                one = Visitor(browser, address)
                one.open("/real")
                shows_the_waiting_trial(one)
                let_go_on(tmp_path)
                shows_the_end(one)
                one.context.close()
                assert one.troubles == []
            assert cluster.wait(120) == 0
        finally:
            if cluster.poll() is None:
                cluster.kill()
