"""Machines that are taken away with notice: their trials save, go on elsewhere, and nobody counts it as a failure."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import clusters
import pytest

import sweep

pytestmark = [pytest.mark.ray, pytest.mark.slow]

FILE = """
name: spot
trainable: slow:Slow
method: grid
metric: {name: loss, goal: minimize}
parameters: {rate: {values: [0.1, 0.2, 0.3, 0.4]}, drag: {value: 0.5}}
epochs: 24
checkpoint: {every_s: 1000}
max_restarts: 0
"""
SLOW = clusters.SLOW.replace("SECONDS", "0.2")
SCRIPT = """
import os, sys, subprocess, time
from pathlib import Path
os.environ.update(RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0", RAY_USAGE_STATS_ENABLED="0")
from ray.cluster_utils import Cluster
import ray
from ray._raylet import GcsClient
from ray.core.generated import autoscaler_pb2
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
first, drained = cluster.add_node(num_cpus=1), cluster.add_node(num_cpus=1)
ray.init(address=cluster.address, log_to_driver=False)
sweep = subprocess.Popen([sys.executable, "-m", "sweep", "run", "spot.yaml", "--address", cluster.address])
log = Path("results/spot/log.jsonl")

def wait_for(test):
    deadline = time.monotonic() + 300
    while not (log.exists() and test(log.read_text())):
        assert time.monotonic() < deadline, "no epochs"
        assert sweep.poll() is None, "the sweep ended"
        time.sleep(0.1)

wait_for(lambda text: all(text.count(f'"epoch_reported","trial":{n}') >= 3 for n in (0, 1)))
def drain(node, seconds):
    deadline = int((time.time() + seconds) * 1000)
    reason = autoscaler_pb2.DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
    taken, why = GcsClient(address=cluster.address).drain_node(node.node_id, reason, "spot", deadline)
    assert taken, why

drain(drained, 20)
wait_for(lambda text: any(text.count(f'"epoch_reported","trial":{n}') == 24 for n in (0, 1)))
cluster.remove_node(drained, allow_graceful=False)  # as the cloud does
cluster.add_node(num_cpus=1)
wait_for(lambda text: text.count('"epoch_reported","trial":2') >= 3 and text.count('"epoch_reported","trial":3') >= 3)
begun = Path("journal.txt").read_text().count(" begin ")
drain(first, 0.1)
cluster.remove_node(first)  # before an epoch is over
cluster.add_node(num_cpus=1)
wait_for(lambda text: Path("journal.txt").read_text().count(" begin ") > begun)
Path("hurry").touch()
code = sweep.wait(600)
os._exit(code)
"""


def test_machines_that_are_taken_away_with_notice_cost_no_restart(tmp_path: Path) -> None:
    output = clusters.run(tmp_path, {"slow.py": SLOW, "spot.yaml": FILE}, SCRIPT, timeout=900)
    left = re.findall(r"the worker of trial (\d) is replaced: its node is taken away in (\d+) s", output)
    assert len(left) == 1, output[-4000:]
    assert re.findall(r"trial \d: worker lost: (.+)", output) == ["its node was ended; it goes on from its checkpoint"]
    loaded = sweep.load(tmp_path / "results" / "spot")
    assert loaded.trials["status"].tolist() == ["completed"] * 4
    assert loaded.metrics.groupby("trial")["epoch"].apply(list).tolist() == [list(range(1, 25))] * 4
    journal = [line.split() for line in (tmp_path / "journal.txt").read_text().splitlines()]
    epochs = Counter((line[3], line[4]) for line in journal if line[2] == "epoch")
    assert len(epochs) == 4 * 24
    assert {trial for (trial, _), times in epochs.items() if times > 1} <= {
        "2",
        "3",
    }  # those with time to save train none again
