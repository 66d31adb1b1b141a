"""A cluster of two nodes, here on one machine: what `doctor --address` and `plan --address` know of it."""

from __future__ import annotations

import re
from pathlib import Path

import clusters
import pytest

pytestmark = [pytest.mark.ray, pytest.mark.keras, pytest.mark.slow]

FILE = """
trainable: walk:Walk
method: grid
parameters: {rate: {values: [0.1, 0.2]}, drag: {value: 0.5}}
"""
SCRIPT = """
import os, subprocess, sys
os.environ.update(RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0", RAY_USAGE_STATS_ENABLED="0", CUDA_VISIBLE_DEVICES="-1")
os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN="a" * 64)
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
for _ in range(2):
    cluster.add_node(num_cpus=1)

def sweep(*arguments):
    command = [sys.executable, "-m", "sweep", *arguments, "--address", cluster.address]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=1500)
    print("code", ran.returncode, ran.stdout, ran.stderr)

def plan(*settings):
    sweep("plan", "nodes.yaml", *(part for setting in settings for part in ("--set", setting)))

plan("resources.workers=2")
plan("resources.servers=1", "training.strategy=parameter_server")
sweep("doctor", "--results", "results")
cluster.shutdown()
"""


@pytest.mark.exhaustive
def test_what_two_nodes_can_do_is_known_before_anything_trains(tmp_path: Path) -> None:
    said = clusters.run(tmp_path, {"nodes.yaml": FILE}, SCRIPT, timeout=1500)
    fits, servers, doctor = said.split("code ")[1:]
    assert fits.startswith("0 ")
    assert "at once there 1" in fits
    assert servers.startswith("2 ")
    told = "a trial takes 3 processes of 1 CPU each (workers: 1, servers: 1, and a coordinator)"
    assert told in servers
    assert doctor.startswith("0 ")
    for line in (
        r"ok +ray +the cluster at 127.0.0.1:\d+ has 2 CPUs and 0 GPUs",
        r"(ok|warning) +nodes +127.0.0.1 and 127.0.0.1 sum up over two ranks: [\d.]+ ms, \d+ MB/s.*",  # slow under load
        r"note +ports +the workers of a trial listen on all networks of their nodes, .* without a password",
        r"ok +device +cpu:0: matmul .*",
        r"ok +together +2 logical CPU devices sum and train .*",
    ):
        assert re.search(f"^{line}$", doctor, re.MULTILINE), doctor
    assert "error" not in doctor


BUSY = """
import os
os.environ.update(RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0", RAY_USAGE_STATS_ENABLED="0")
os.environ.pop("CUDA_VISIBLE_DEVICES", None)
import ray
from sweep.backends.ray_tune import doctor, nodes

@ray.remote(num_gpus=1)
class Trial:
    def begin(self):
        pass

ray.init(address="local", num_cpus=1, num_gpus=1, include_dashboard=False, log_to_driver=False)
trial = Trial.remote()
ray.get(trial.begin.remote())
doctor.START_S = 5.0
(node,) = nodes.list_alive_nodes()
print(doctor.try_sum_on_nodes(node, node, 5.0)[0])
ray.shutdown()
"""


def test_gpus_in_use_are_named_as_the_possible_cause(tmp_path: Path) -> None:
    message = "no process has started within 5 s; perhaps all GPUs of its node are in use"
    assert f"(1, '', '{message}')" in clusters.run(tmp_path, {}, BUSY, timeout=300)
