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
FILES = {
    "s.yaml": """
trainable: train:train
metric: {name: loss, goal: minimize}
epochs: 5
method: grid
parameters: {rate: {values: [1, 2]}}
""",
    "long.yaml": """
trainable: train:train
metric: {name: loss, goal: minimize}
epochs: 25
method: grid
parameters: {rate: {values: [1, 2, 3]}}
""",
    "train.py": """
import time
from pathlib import Path
import helper
def train(hp, report):
    for epoch in range(40):
        time.sleep(0.0 if Path("HURRY").exists() else 0.4)
        report(loss=hp.rate * helper.ONE / (epoch + 1))
""",
    "helper.py": "ONE = 1.0\n",
    "ignored.tmp": "",
    ".gitignore": "*.tmp\n",
}
SCRIPT = """
import json, os, re, secrets, signal, subprocess, sys, time, urllib.request
from pathlib import Path
root, project = Path.cwd(), Path("project").resolve()
token = secrets.token_hex(32)
Path("token").write_text(token)
os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=str(root / "token"), RAY_USAGE_STATS_ENABLED="0")
os.environ["SWEEP_USER"] = "ann"
os.environ["PATH"] = str(Path(sys.executable).parent) + os.pathsep + os.environ["PATH"]  # of the drivers as well
address = "http://127.0.0.1:28265"
start = "start --head --block --node-ip-address=127.0.0.1 --port=26379 --dashboard-host=127.0.0.1 --num-cpus=2"
start += " --dashboard-port=28265 --object-store-memory=200000000 --min-worker-port=0 --max-worker-port=0"
command = [sys.executable, "-m", "ray.scripts.scripts", *start.split(), f"--temp-dir=/tmp/{root.name}-{os.getpid()}"]
def started():
    return subprocess.Popen(command, stdout=open("head.log", "a"), stderr=subprocess.STDOUT)
head, found, hurry = started(), {}, root / "hurry"

def call(key, *arguments, **changed):
    began = time.monotonic()
    environment = {k: v for k, v in {**os.environ, **changed}.items() if v is not None}
    command = [sys.executable, "-m", "sweep", *arguments, "--address", changed.pop("at", address)]
    ran = subprocess.run(command, cwd=project, capture_output=True, text=True, env=environment, timeout=600)
    found[key] = [ran.returncode, time.monotonic() - began, ran.stdout, ran.stderr]
    return ran

def wait_for_head():
    deadline = time.monotonic() + 300
    while call("up", "list").returncode:
        assert time.monotonic() < deadline and head.poll() is None, found["up"]
        time.sleep(1)
wait_for_head()
results = ["--results", str(root / "shared")]
hurry.touch()
call("submit", "submit", "s.yaml", *results, "--wait")
hurry.unlink()
call("long", "submit", "long.yaml", *results)
def wait_for(name, count):
    deadline = time.monotonic() + 120
    path = root / "shared" / name / "log.jsonl"
    while not path.exists() or path.read_text().count('"epoch_reported"') < count:
        assert time.monotonic() < deadline, (call("late", "logs", name), found)
        time.sleep(0.2)
wait_for("long", 5)
call("twice", "submit", "long.yaml", *results)
call("running", "status", "long")
call("stop", "stop", "long")
call("stopped", "status", "long")
hurry.touch()
call("resume", "resume", "long")
call("follow", "logs", "long", "--follow")
call("logs", "logs", "long")
hurry.unlink()
call("killed", "submit", "long.yaml", *results, "--name", "killed", "--retries", "2")
wait_for("killed", 5)
for process in Path("/proc").iterdir():
    if process.name.isdigit():
        line = (process / "cmdline").read_bytes().split(b"\\0")
        if line[1:4] == [b"-m", b"sweep", b"run"] and b'name="killed"' in line:
            os.kill(int(process.name), signal.SIGKILL)
hurry.touch()
call("goes on", "logs", "killed", "--follow")
call("list", "list")
call("json", "list", "--json")
call("token", "list", RAY_AUTH_TOKEN="ab" * 32, RAY_AUTH_TOKEN_PATH=None)
call("no token", "list", RAY_AUTH_MODE=None, RAY_AUTH_TOKEN_PATH=None, HOME="/nowhere")
call("nobody", "logs", "nobody")
call("theirs", "submit", "s.yaml", *results, SWEEP_USER="bob")
call("hers", "status", "ann/s", SWEEP_USER="bob")
call("not his", "status", "s", SWEEP_USER="bob")
hurry.unlink()
call("lost", "submit", "long.yaml", *results, "--name", "lost")
wait_for("lost", 5)
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
hurry.touch()
call("back", "submit", "long.yaml", *results, "--name", "lost", "--wait")
Path("found.json").write_text(json.dumps(found))
head.terminate()
head.wait(60)
"""


def test_submitted_sweeps_are_followed_stopped_resumed_and_go_on_after_a_kill(tmp_path: Path) -> None:
    if subprocess.run([*ALONE, "true"], capture_output=True).returncode:
        pytest.skip("needs the right to give processes a network of their own")
    for name, text in FILES.items():
        path = tmp_path / "project" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.replace("HURRY", str(tmp_path / "hurry")))
    (tmp_path / "shared").mkdir()
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [*ALONE, "sh", "-c", 'ip link set lo up && exec "$@"', "sh", sys.executable, "-W", "ignore", "script.py"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=1500)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    codes = {key: row[0] for key, row in found.items()}
    wrong = {"twice": 2, "token": 2, "no token": 2, "nobody": 2, "theirs": 2, "not his": 2}
    assert codes == {key: wrong.get(key, 0) for key in codes}, {key: found[key] for key in codes if codes[key]}

    _, _, out, err = found["submit"]
    assert "sends    5 files" in out  # those that are not ignored
    assert "not sent ignored.tmp\njob      sweep-ann-s-1, results in " in out
    assert "plan     trials 2; epochs 5 a trial, 10 in all" in out
    assert "answer   The best was rate=1 (trial 0) with loss 0.2" in out
    assert "Uploading" not in out + err
    assert "error: long: is being run by job sweep-ann-long-1 of http" in found["twice"][3]
    assert found["running"][2].startswith("job      sweep-ann-long-1, running\nlong  running\n")
    assert found["stop"][2].startswith("long is stopped; go on with: python -m sweep resume long --address http")
    assert found["stopped"][2].startswith("job      sweep-ann-long-1, stopped\nlong  interrupted\n")
    assert "job      sweep-ann-long-2" in found["resume"][2]
    assert "answer   The best was rate=1" in found["follow"][2]
    assert found["logs"][2] == found["follow"][2]
    assert "answer   The best was rate=1" in found["goes on"][2]
    assert "answer   The best was rate=1" in found["back"][2]
    for name in ("s", "long", "killed", "lost"):
        folder = tmp_path / "shared" / name
        trials = sweep.load(folder).trials
        assert set(trials["status"]) == {"completed"}
        sessions = [event for event in log.read(folder / "log.jsonl") if isinstance(event, SessionStarted)]
        assert len(sessions) == 1 + (name != "s")
    assert [row["sweep"] for row in json.loads(found["json"][2])] == ["s", "long", "killed"]
    assert all(row["state"] == "SUCCEEDED" for row in json.loads(found["json"][2]))
    for key in ("token", "no token"):
        assert found[key][3].count("\n") == 1
        assert "refuses this token, or wants one; set RAY_AUTH_MODE=token" in found[key][3]
    assert "error: nobody: no such sweep of ann was submitted to" in found["nobody"][3]
    assert "shared has a sweep of that name by ann; choose another name" in found["theirs"][3]
    assert found["hers"][2].startswith("job      sweep-ann-s-1, succeeded\n")
    assert "submitted are: ann/s, ann/long, ann/killed" in found["not his"][3]
    assert "ann/killed" in found["list"][2]
