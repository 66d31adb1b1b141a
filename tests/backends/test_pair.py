"""A cluster of two nodes, here on one machine: what `doctor --address` and `plan --address` know of it."""

from __future__ import annotations

from pathlib import Path

import clusters
import pytest

pytestmark = [pytest.mark.ray, pytest.mark.keras, pytest.mark.slow, pytest.mark.timeout(900)]

FILE = """
trainable: walk:Walk
method: grid
parameters: {rate: {values: [0.1, 0.2]}, drag: {value: 0.5}}
"""
SCRIPT = """
import os, subprocess, sys
os.environ.update(RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0", RAY_USAGE_STATS_ENABLED="0")
from ray.cluster_utils import Cluster
from sweep.doctor import commands, probe
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
for _ in range(2):
    cluster.add_node(num_cpus=1)

def plan(*settings):
    arguments = [part for setting in settings for part in ("--set", setting)]
    command = [sys.executable, "-m", "sweep", "plan", "nodes.yaml", "--address", cluster.address, *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=200)
    print("code", ran.returncode, ran.stdout, ran.stderr)

plan("resources.workers=2")
plan("resources.workers=3")
plan("resources.workers=2", "resources.gpus=1")
plan("resources.servers=1", "training.strategy=parameter_server")
print(probe.between_nodes(commands.run, 300, cluster.address, 500))
cluster.shutdown()
"""


def test_what_two_nodes_can_do_is_known_before_anything_trains(tmp_path: Path) -> None:
    said = clusters.run(tmp_path, {"nodes.yaml": FILE}, SCRIPT, timeout=850)
    fits, workers, rest = said.split("code ")[1:]
    assert fits.startswith("0 ")
    assert "at once there 1" in fits
    assert workers.startswith("2 ")
    assert "resources.workers: a trial takes 3 workers of 1 CPU each, the cluster has room for 2" in workers
    assert rest.startswith("2 ")
    assert "resources.gpus: a trial takes 1, the largest node has 0" in rest
    assert "Met(nodes=('127.0.0.1', '127.0.0.1')" in rest
    assert "failure=''" in rest
