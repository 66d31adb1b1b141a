"""Trials of two workers on a cluster of several nodes, one of which goes down: they go on, and lose nothing."""

from __future__ import annotations

import re
from pathlib import Path

import clusters
import pytest

import sweep

pytestmark = [pytest.mark.ray, pytest.mark.exhaustive]

FILE = """
name: nodes
trainable: {trainable}
method: grid
metric: {{name: loss, goal: minimize}}
parameters: {{{parameters}}}
epochs: {epochs}
checkpoint: {{every_s: 0.3}}
max_restarts: 0
resources: {{workers: 2}}
"""
SLOW = """
import walk
READS = walk.READS
class Slow(walk.Walk):
    def begin(self, assignment):
        super().begin(assignment)
        self.PAUSE_S = 0.3 / (1 + 3 * (assignment.trial % 3))
"""
SCRIPT = """
import os, sys, subprocess, time
from pathlib import Path
os.environ.update(RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0", RAY_USAGE_STATS_ENABLED="0")
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
nodes = [cluster.add_node(num_cpus=1), cluster.add_node(num_cpus=1)]
command = [sys.executable, "-m", "sweep", "run", "nodes.yaml", "--address", cluster.address, "--no-memo"]
sweep = subprocess.Popen(command)
log = Path("results/nodes/log.jsonl")
deadline = time.monotonic() + 300
while KILL and not (log.exists() and log.read_text().count('"epoch_reported","trial":0') >= 6):
    assert time.monotonic() < deadline, "no epochs"
    assert sweep.poll() is None, "the sweep ended"
    time.sleep(0.2)
if KILL:
    cluster.remove_node(nodes[1], allow_graceful=False)
    cluster.add_node(num_cpus=1)
code = sweep.wait(1500)
cluster.shutdown()
sys.exit(code)
"""


def test_a_lost_node_loses_nothing(tmp_path: Path) -> None:
    file = FILE.format(
        trainable="slow:Slow",
        parameters="rate: {values: [0.1, 0.3]}, drag: {value: 0.5}",
        epochs=40,
    )
    output = clusters.run(
        tmp_path,
        {"nodes.yaml": file, "slow.py": SLOW},
        SCRIPT.replace("KILL", "True"),
        timeout=1500,
    )
    assert re.search(
        r"worker lost: .*its node (is gone|does not answer); it goes on from its checkpoint", output
    ), output
    loaded = sweep.load(tmp_path / "results" / "nodes")
    assert loaded.trials["status"].tolist() == ["completed"] * 2
    assert loaded.metrics.groupby("trial")["epoch"].apply(list).tolist() == [list(range(1, 41))] * 2


def test_ranks_on_two_nodes_train_as_two_devices_of_one(tmp_path: Path) -> None:
    given = "learning_rate: {values: [0.01, 0.02]}, batch_size: {value: 32}, fault: {value: none}"
    file = FILE.format(trainable="rank_net:Net", parameters=given, epochs=5)
    here = Path(__file__).parent
    files = {name: (here / name).read_text() for name in ("rank_net.py", "rank_faults.py")}
    files["nodes.yaml"] = file
    files["alone.yaml"] = file.replace("name: nodes", "name: alone").replace(
        "workers: 2", "gpus: 2"
    )
    alone = 'subprocess.run([*command[:4], "alone.yaml", "--simulate-gpus", "2", "--no-memo"], check=True)'
    script = SCRIPT.replace("KILL", "False").replace(
        "cluster.shutdown()", f"cluster.shutdown(); {alone}"
    )
    clusters.run(tmp_path, files, script, timeout=1500)
    both = [sweep.load(tmp_path / "results" / name) for name in ("nodes", "alone")]
    assert (
        both[0].trials["num_replicas"].tolist() == both[1].trials["num_replicas"].tolist() == [2, 2]
    )
    losses = [one.metrics.sort_values(["trial", "epoch"])["metric.loss"].tolist() for one in both]
    assert losses[0] == losses[1]
