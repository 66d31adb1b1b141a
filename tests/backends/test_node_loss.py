"""A node of the cluster goes down: its trials go on elsewhere, from their checkpoints."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import clusters
import pytest

import sweep

pytestmark = [pytest.mark.ray, pytest.mark.slow]

FILE = """
name: nodes
trainable: slow:Slow
method: grid
metric: {name: loss, goal: minimize}
parameters: {rate: {values: [0.1, 0.3]}, drag: {value: 0.5}}
epochs: 30
checkpoint: {every_s: 0.3}
max_restarts: 0
"""
ALONE = ("--name", "alone", "--inline", "--no-memo", "-q")
SLOW = clusters.SLOW.replace("SECONDS", "0.3 / (1 + 3 * (self.given.trial % 3))")
SCRIPT = """
import os, sys, subprocess, time
from pathlib import Path
os.environ.update(RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0", RAY_USAGE_STATS_ENABLED="0")
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
nodes = [cluster.add_node(num_cpus=1), cluster.add_node(num_cpus=1)]
command = [sys.executable, "-m", "sweep", "run", "nodes.yaml", "--address", cluster.address]
sweep = subprocess.Popen(command)
log = Path("results/nodes/log.jsonl")
deadline = time.monotonic() + 600
while not (log.exists() and all(log.read_text().count(f'"epoch_reported","trial":{n}') >= 3 for n in (0, 1))):
    assert time.monotonic() < deadline, "no epochs"
    assert sweep.poll() is None, "the sweep ended"
    time.sleep(0.2)
cluster.remove_node(nodes[1], allow_graceful=False)
while Path("journal.txt").read_text().count(" begin ") < 3:  # until it goes on: the process outlives its node a while
    assert time.monotonic() < deadline, "the trial does not go on"
    assert sweep.poll() is None, "the sweep ended"
    time.sleep(0.1)
Path("hurry").touch()
code = sweep.wait(1500)
cluster.shutdown()
sys.exit(code)
"""


def test_a_lost_node_loses_nothing(tmp_path: Path) -> None:
    output = clusters.run(tmp_path, {"slow.py": SLOW, "nodes.yaml": FILE}, SCRIPT, timeout=1500)
    assert re.search(r": worker lost: its node (is gone|does not answer); it goes on from its checkpoint", output)
    loaded = sweep.load(tmp_path / "results" / "nodes")
    assert loaded.trials["status"].tolist() == ["completed"] * 2
    assert loaded.metrics.groupby("trial")["epoch"].apply(list).tolist() == [list(range(1, 31))] * 2
    journal = [line.split() for line in (tmp_path / "journal.txt").read_text().splitlines()]
    begins = [line for line in journal if line[2] == "begin"]
    assert len(begins) == 3
    epochs_after = [
        int(line[4]) for line in journal if line[1] == begins[-1][1] and line[3] == begins[-1][3] and line[2] == "epoch"
    ]
    assert epochs_after[0] > 1  # from a checkpoint, not from the beginning
    subprocess.run(
        [sys.executable, "-m", "sweep", "run", "nodes.yaml", "--set", "trainable=walk:Walk", *ALONE],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        timeout=1500,
    )
    alone = sweep.load(tmp_path / "results" / "alone")
    assert loaded.metrics["metric.loss"].tolist() == alone.metrics["metric.loss"].tolist()
