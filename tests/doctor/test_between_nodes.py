"""Two nodes of a cluster, here on one machine, let TensorFlow sum something up, as `doctor --address` asks them to."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.keras, pytest.mark.slow, pytest.mark.timeout(600)]

SCRIPT = """
import os
os.environ.update(RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0", RAY_USAGE_STATS_ENABLED="0")
from ray.cluster_utils import Cluster
from sweep.doctor import commands, probe
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
for _ in range(2):
    cluster.add_node(num_cpus=1)
found = probe.between_nodes(commands.run, 200, cluster.address, 500)
cluster.shutdown()
(met,) = found
assert not met.failure, met
assert 0 < met.latency_s < 1, met
assert 1e6 < met.bytes_per_s < 1e12, met
print("met", met)
"""


def test_they_sum_up() -> None:
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=550)
    assert ran.returncode == 0, (ran.stdout + ran.stderr)[-3000:]
    assert "met Met(nodes=('127.0.0.1', '127.0.0.1')" in ran.stdout
