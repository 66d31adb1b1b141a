"""Sweeps submitted to a real Ray cluster under a token, in a network of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import sweep
from sweep.events import SessionStarted
from sweep.store import log

pytestmark = [pytest.mark.ray, pytest.mark.slow]

ALONE = ["unshare", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]
LONG = """
trainable: train:train
metric: {name: loss, goal: minimize}
epochs: 25
method: grid
parameters: {rate: {values: [1, 2, 3]}}
resources: {cpus: 0.5, max_concurrent: 1}
"""  # all sweeps have room at once
FILES = {
    "s.yaml": """
trainable: train:fast
metric: {name: loss, goal: minimize}
epochs: 5
method: grid
parameters: {rate: {values: [1, 2]}}
resources: {cpus: 0.5, max_concurrent: 1}
""",
    "long.yaml": LONG,
    "to_be_killed.yaml": LONG.replace("train:train", "train:to_be_killed"),
    "to_be_lost.yaml": LONG.replace("train:train", "train:to_be_lost"),
    "train.py": """
import time
from pathlib import Path
import helper
def epochs(hp, report, hurry, after_six):
    for epoch in range(40):
        until = time.monotonic() + (after_six if epoch > 6 else 0.4)
        while time.monotonic() < until and not Path(hurry).exists():
            time.sleep(0.02)
        report(loss=hp.rate * helper.ONE / (epoch + 1))
def fast(hp, report):
    epochs(hp, report, "/", 0.0)
def train(hp, report):
    epochs(hp, report, "HURRY", 0.4)
def to_be_killed(hp, report):
    epochs(hp, report, "HURRY", 10.0)
def to_be_lost(hp, report):
    epochs(hp, report, "HURRY-later", 10.0)
""",
    "helper.py": "ONE = 1.0\n",
    "ignored.tmp": "",
    ".gitignore": "*.tmp\n",
}
SCRIPT = """
import json, os, secrets, signal, subprocess, sys, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
root, project = Path.cwd(), Path("project").resolve()
token = secrets.token_hex(32)
Path("token").write_text(token)
os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=str(root / "token"), RAY_USAGE_STATS_ENABLED="0")
os.environ["SWEEP_USER"] = "ann"
os.environ["PATH"] = str(Path(sys.executable).parent) + os.pathsep + os.environ["PATH"]  # of the drivers as well
from click.testing import CliRunner
from sweep.cli import main
address = "http://127.0.0.1:28265"
start = "start --head --block --node-ip-address=127.0.0.1 --port=26379 --dashboard-host=127.0.0.1 --num-cpus=2"
start += " --dashboard-port=28265 --object-store-memory=200000000 --min-worker-port=0 --max-worker-port=0"
command = [sys.executable, "-m", "ray.scripts.scripts", *start.split(), f"--temp-dir=/tmp/{root.name}-{os.getpid()}"]
def started():
    return subprocess.Popen(command, stdout=open(root / "head.log", "a"), stderr=subprocess.STDOUT)
head, found, hurry = started(), {}, root / "hurry"
os.chdir(project)
pool = ThreadPoolExecutor(12)

def call(key, *arguments):
    ran = CliRunner().invoke(main, [*arguments, "--address", address])
    found[key] = [ran.exit_code, ran.stdout, ran.stderr]
    return ran

def apart(key, *arguments, **changed):
    environment = {k: v for k, v in {**os.environ, **changed}.items() if v is not None}
    command = [sys.executable, "-m", "sweep", *arguments, "--address", address]
    ran = subprocess.run(command, cwd=project, capture_output=True, text=True, env=environment, timeout=600)
    found[key] = [ran.returncode, ran.stdout, ran.stderr]

def begin(key, *arguments, **changed):
    return pool.submit(apart, key, *arguments, **changed)

def end(*begun):
    for one in begun:
        one.result()

def wait_for_head():
    deadline = time.monotonic() + 300
    while call("up", "list").exit_code:
        assert time.monotonic() < deadline and head.poll() is None, found["up"]
        time.sleep(0.2)
wait_for_head()
results = ["--results", str(root / "shared")]
def wait_for(name, count, what="epoch_reported"):
    deadline = time.monotonic() + 300
    path = root / "shared" / name / "log.jsonl"
    while not path.exists() or path.read_text().count(f'"{what}"') < count:
        assert time.monotonic() < deadline, (call("late", "logs", name), found)
        time.sleep(0.1)
short = begin("submit", "submit", "s.yaml", *results, "--wait")
wait_for("s", 1, "trial_started")
call("killed", "submit", "to_be_killed.yaml", *results, "--name", "killed", "--retries", "2")
call("lost", "submit", "to_be_lost.yaml", *results, "--name", "lost")
call("long", "submit", "long.yaml", *results)  # while the drivers of those before it start
wait_for("long", 5)
call("twice", "submit", "long.yaml", *results)
call("running", "status", "long")
call("stop", "stop", "long")
call("stopped", "status", "long")
wait_for("killed", 5)
for process in Path("/proc").iterdir():
    if process.name.isdigit():
        try:
            line = (process / "cmdline").read_bytes().split(b"\\0")
        except (FileNotFoundError, ProcessLookupError):  # it has ended since the folder was listed
            continue
        if line[1:4] == [b"-m", b"sweep", b"run"] and b'name="killed"' in line:
            os.kill(int(process.name), signal.SIGKILL)
hurry.touch()
wait_for("killed", 75)
call("resume", "resume", "long")
end(begin("follow", "logs", "long", "--follow"), begin("goes on", "logs", "killed", "--follow"), short)
wait_for("lost", 5)
call("logs", "logs", "long")
call("list", "list")
call("json", "list", "--json")
call("nobody", "logs", "nobody")
end(
    begin("token", "list", RAY_AUTH_TOKEN="ab" * 32, RAY_AUTH_TOKEN_PATH=None),
    begin("no token", "list", RAY_AUTH_MODE=None, RAY_AUTH_TOKEN_PATH=None, HOME="/nowhere"),
)
os.environ["SWEEP_USER"] = "bob"
call("theirs", "submit", "s.yaml", *results)
call("hers", "status", "ann/s")
call("not his", "status", "s")
os.environ["SWEEP_USER"] = "ann"
own = {os.getpid(), 1}
for process in Path("/proc").iterdir():  # the head's machine, with all that ran on it
    if process.name.isdigit() and int(process.name) not in own:
        try:
            os.kill(int(process.name), signal.SIGKILL)
        except ProcessLookupError:
            pass
head.wait()
head = started()
wait_for_head()
Path(f"{hurry}-later").touch()
call("back", "submit", "to_be_lost.yaml", *results, "--name", "lost", "--wait")
(root / "found.json").write_text(json.dumps(found))
head.terminate()
head.wait(60)
"""


def test_submitted_sweeps_are_followed_stopped_resumed_and_go_on_after_a_kill(
    tmp_path: Path,
) -> None:
    if subprocess.run([*ALONE, "true"], capture_output=True).returncode:
        pytest.skip("needs the right to give processes a network of their own")
    for name, text in FILES.items():
        path = tmp_path / "project" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.replace("HURRY", str(tmp_path / "hurry")))
    (tmp_path / "shared").mkdir()
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [
        *ALONE,
        "sh",
        "-c",
        'ip link set lo up && exec "$@"',
        "sh",
        sys.executable,
        "-W",
        "ignore",
        "script.py",
    ]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=1500)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    codes = {key: row[0] for key, row in found.items()}
    wrong = {"twice": 4, "token": 2, "no token": 2, "nobody": 3, "theirs": 4, "not his": 3}
    assert codes == {key: wrong.get(key, 0) for key in codes}, {
        key: found[key] for key in codes if codes[key]
    }

    _, out, err = found["submit"]
    assert "sends    7 files" in out  # those that are not ignored
    assert "not sent ignored.tmp\njob      sweep-ann-s-1, results in " in out
    assert "plan     trials 2; epochs 5 a trial, 10 in all" in out
    assert "answer   The best was rate=1 (trial 0) with loss 0.2" in out
    assert "Uploading" not in out + err
    assert "error: long: is being run by job sweep-ann-long-1 of http" in found["twice"][2]
    assert found["running"][1].startswith("job      sweep-ann-long-1, running\nlong  running\n")
    assert found["stop"][1].startswith(
        "long is stopped; go on with: python -m sweep resume long --address http"
    )
    assert found["stopped"][1].startswith("job      sweep-ann-long-1, stopped\nlong  interrupted\n")
    assert "job      sweep-ann-long-2" in found["resume"][1]
    assert "answer   The best was rate=1" in found["follow"][1]
    assert found["logs"][1] == found["follow"][1]
    assert "answer   The best was rate=1" in found["goes on"][1]
    assert "answer   The best was rate=1" in found["back"][1]
    for name in ("s", "long", "killed", "lost"):
        folder = tmp_path / "shared" / name
        trials = sweep.load(folder).trials
        assert set(trials["status"]) == {"completed"}
        sessions = [
            event for event in log.read(folder / "log.jsonl") if isinstance(event, SessionStarted)
        ]
        assert len(sessions) == 1 + (name != "s")
    states = {row["sweep"]: row["state"] for row in json.loads(found["json"][1])}
    assert list(states) == ["s", "killed", "lost", "long"]
    assert states == {**dict.fromkeys(states, "SUCCEEDED"), "lost": "RUNNING"}
    for key in ("token", "no token"):
        assert found[key][2].count("\n") == 1
        assert "refuses this token, or wants one; set RAY_AUTH_MODE=token" in found[key][2]
    assert "error: nobody: no such sweep of ann was submitted to" in found["nobody"][2]
    assert "shared has a sweep of that name by ann; choose another name" in found["theirs"][2]
    assert found["hers"][1].startswith("job      sweep-ann-s-1, succeeded\n")
    assert "submitted are: ann/s, ann/killed, ann/lost, ann/long" in found["not his"][2]
    assert "ann/killed" in found["list"][1]
