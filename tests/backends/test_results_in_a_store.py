"""Results in an object store: nodes that share nothing else, drivers that change machines, a stop from elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import clusters
import pandas as pd
import pytest
from object_stores import Server

import sweep
from sweep.store.object_store import ObjectStore

pytestmark = [pytest.mark.ray, pytest.mark.slow]

SAVES = """
import os, time
from pathlib import Path
from sweep.contract import EpochReported, Facts
READS = ("rate",)
class Saves:
    def begin(self, assignment):
        self.given, self.done, self.was = assignment, 0, []
    def train(self, report):
        for epoch in range(self.done + 1, self.given.epochs + 1):
            time.sleep(float(os.environ.get("PAUSE_S", "0.2")))
            self.done, self.was = epoch, [*self.was, os.environ.get("WHERE", "0")]
            loss = self.given.params["rate"] / epoch
            if not report(EpochReported(trial=0, epoch=epoch, metrics={"loss": loss}, time=1.0, time_s=0.2)):
                return
    def save(self, folder):
        (folder / "was.txt").write_text(" ".join(self.was))
        (folder / "big.bin").write_bytes(os.urandom(200_000))
    def restore(self, folder):
        self.was = (folder / "was.txt").read_text().split()
        self.done = len(self.was)
        return self.done
    def facts(self): return Facts()
"""
FILE = """
trainable: saves:Saves
method: grid
metric: {name: loss, goal: minimize}
parameters: {rate: {values: [1, 2, 3, 4]}}
epochs: 12
checkpoint: {every_s: 0.3, trials: 3}
"""
NODES = """
import json, os, sys, subprocess, time
from pathlib import Path
os.environ.update(RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0", RAY_USAGE_STATS_ENABLED="0")
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
def add(number):
    folder = Path(f"node{number}").resolve()
    folder.mkdir(exist_ok=True)
    return cluster.add_node(num_cpus=1, env_vars={"TMPDIR": str(folder), "WHERE": str(number)})
Path("driver").mkdir()
first, second = add(1), add(2)
command = [sys.executable, "-m", "sweep", "run", "stored.yaml", "--address", cluster.address]
command += ["--results", "PLACE"]
sweep = subprocess.Popen(command, env={**os.environ, "TMPDIR": str(Path("driver").resolve())})
from sweep.store.object_store import ObjectStore
store, deadline = ObjectStore("PLACE/stored"), time.monotonic() + 600
def saved():
    keys = [entry.key for entry in store.entries("checkpoints") if entry.key.endswith("manifest.json")]
    return {key.split("/")[1] for key in keys}
while len(saved()) < 2:
    assert time.monotonic() < deadline and sweep.poll() is None, "no checkpoints"
    time.sleep(0.2)
cluster.remove_node(first, allow_graceful=False)
code = sweep.wait(1500)
left = [str(path) for node in ("node1", "node2", "driver") for path in Path(node).rglob("epoch-*")]
print("FOUND", json.dumps([code, left]))
cluster.shutdown()
"""


@pytest.fixture(autouse=True, scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What this machine has of what is in stores."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SWEEP_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def start(
    folder: Path, *arguments: str, machine: str = "cache", pause_s: float = 0.2
) -> subprocess.Popen[bytes]:
    (folder / "saves.py").write_text(SAVES)
    environment = {
        **os.environ,
        "SWEEP_CACHE": str(folder / machine),
        "PYTHONPATH": str(clusters.ROOT),
    }
    environment["PAUSE_S"] = str(pause_s)
    with (folder / "said.txt").open("ab") as said:
        return subprocess.Popen(
            [sys.executable, "-m", "sweep", *arguments],
            cwd=folder,
            env=environment,
            stdout=said,
            stderr=said,
        )


def test_nodes_that_share_nothing_else_lose_nothing_with_one_of_them(
    server: Server, tmp_path: Path
) -> None:
    place = f"{server.bucket}/nodes"
    script = NODES.replace("PLACE", place)
    output = clusters.run(tmp_path, {"saves.py": SAVES, "stored.yaml": FILE}, script, timeout=1500)
    (line,) = [line for line in output.splitlines() if line.startswith("FOUND ")]
    code, left = json.loads(line.removeprefix("FOUND "))
    assert code == 0, output[-3000:]
    # a lost node cannot be cleaned
    assert left == ["node1" + path.partition("node1")[2] for path in left]
    found, store = sweep.load(f"{place}/stored"), ObjectStore(f"{place}/stored")
    assert found.trials["status"].tolist() == ["completed"] * 4
    assert found.metrics.groupby("trial")["epoch"].apply(list).tolist() == [[*range(1, 13)]] * 4
    kept = {entry.key.split("/")[1] for entry in store.entries("checkpoints")}
    assert kept == {"00000", "00001", "00002"}  # checkpoint.trials
    moved = [store.get(f"checkpoints/{trial}/epoch-000012/was.txt") for trial in sorted(kept)]
    # it went on where the other had been
    assert any(set(was[0].split()) == {b"1", b"2"} for was in moved if was)


class Stopped(NamedTuple):
    """A sweep that was stopped from another machine and went on there."""

    place: str
    folder: Path
    before: pd.DataFrame  # its epochs at the stop


@pytest.fixture(scope="module")
def stopped(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    folder, place = tmp_path_factory.mktemp("stopped"), f"{server.bucket}/stopped"
    (folder / "stored.yaml").write_text(FILE.replace("epochs: 12", "epochs: 60"))
    driver = start(folder, "run", "stored.yaml", "--results", place, "--max-concurrent", "1")
    store, until = ObjectStore(f"{place}/stored"), time.monotonic() + 300
    while not store.entries("checkpoints"):
        assert time.monotonic() < until, (folder / "said.txt").read_text()
        time.sleep(0.2)
    second = start(folder, "resume", "stored", "--results", place, machine="laptop")
    assert second.wait(120) == 4
    assert "the sweep is being run by process" in (folder / "said.txt").read_text()
    stop = start(folder, "stop", "stored", "--results", place, machine="laptop")
    assert stop.wait(120) == 0
    assert driver.wait(60) == 130
    before = sweep.load(f"{place}/stored").metrics
    again = start(folder, "resume", "stored", "--results", place, machine="laptop", pause_s=0.0)
    assert again.wait(600) == 0, (folder / "said.txt").read_text()[-2000:]
    return Stopped(place, folder, before)


def test_it_is_stopped_from_elsewhere_and_goes_on_there(stopped: Stopped) -> None:
    found, before = sweep.load(f"{stopped.place}/stored"), stopped.before
    assert found.trials["status"].tolist() == ["completed"] * 4
    assert found.metrics.groupby("trial")["epoch"].apply(list).tolist() == [[*range(1, 61)]] * 4
    trained = found.metrics.merge(before, on=["trial", "epoch"])
    assert len(trained) == len(before)
    assert (trained["time_s_x"] == trained["time_s_y"]).all()  # none of them was trained again


def test_no_secret_is_written_anywhere(server: Server, stopped: Stopped) -> None:
    store = ObjectStore(stopped.place)
    stored = [store.get(entry.key) for entry in store.entries()]
    here = [path.read_bytes() for path in stopped.folder.rglob("*") if path.is_file()]
    assert len(stored) > 5
    assert not any(
        server.secret.encode() in data for data in [*here, *(found[0] for found in stored if found)]
    )
