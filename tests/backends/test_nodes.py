"""Clusters of several nodes: what joins is used, what was shared is cleaned, what is not shared is found."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import clusters
import pytest

import sweep
from sweep import backends
from sweep.space.objectives import Objective

pytestmark = [pytest.mark.ray, pytest.mark.slow]

FILE = """
trainable: where:Where
method: grid
metric: {name: loss}
parameters: {rate: {min: 1, max: 12}}
epochs: 10
resources: {gpus: 1, price_per_gpu_hour: {kind1: 3600, kind2: {on_demand: 10800, spot: 1}}}
"""
WHERE = """
import os, time
from pathlib import Path
from sweep.contract import EpochReported, Facts
READS = ("rate",)
class Where:
    def begin(self, assignment):
        self.given, self.done = assignment, 0
        assignment.shared.mkdir(exist_ok=True)
        (assignment.shared / "data.npy").write_bytes(b"x")
    def train(self, report):
        joined, patience = Path("joined"), time.monotonic() + 300
        if os.environ["WHERE"] == "2":
            joined.touch()
        while self.given.trial >= 6 and not joined.exists() and time.monotonic() < patience:
            time.sleep(0.1)  # the last trials leave some to the node that joins, however slow the machine is
        for epoch in range(self.done + 1, self.given.epochs + 1):
            time.sleep(0.1)
            self.done = epoch
            where = float(os.environ["WHERE"])
            if not report(EpochReported(trial=0, epoch=epoch, metrics={"loss": where}, time=1.0, time_s=0.1)):
                return
    def save(self, folder): pass
    def restore(self, folder): return 0
    def facts(self): return Facts()
"""
SCRIPT = """
import ctypes, json, os, sys, subprocess, time
from pathlib import Path
os.environ.update(RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0", RAY_USAGE_STATS_ENABLED="0")
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
def add(number, **more):
    folder = Path(f"node{number}").resolve()
    folder.mkdir(exist_ok=True)
    more = {"labels": {"example.com/kind": f"kind{number}"}, "num_gpus": 1, **more}
    return cluster.add_node(num_cpus=1, env_vars={"TMPDIR": str(folder), "WHERE": str(number)}, **more)
command = [sys.executable, "-m", "sweep", "run", "nodes.yaml", "--address", cluster.address]
add(1)
sweep = subprocess.Popen(command)
log = Path("results/nodes/log.jsonl")
deadline = time.monotonic() + 600
while not (log.exists() and log.read_text().count('"epoch_reported"') >= 3):
    assert time.monotonic() < deadline, "no epochs"
    assert sweep.poll() is None, "the sweep ended"
    time.sleep(0.2)
left = [path for path in Path("node1").glob("sweep-data-*") if path.name.endswith("-old")]
assert not left, left
add(2)
code = sweep.wait(1500)
import ray
from ray.core.generated.autoscaler_pb2 import ClusterConfig, NodeGroupConfig
from ray.experimental.internal_kv import _internal_kv_put
from sweep.backends.ray_tune import nodes
ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
before = nodes.list_promised_nodes()
big = NodeGroupConfig(name="big", resources={"CPU": 8, "GPU": 2}, max_count=3)
groups = [big, NodeGroupConfig(name="any", resources={"CPU": 1}, max_count=-1)]
raylet = ray._raylet
config = ClusterConfig(node_group_configs=groups).SerializeToString()
key, space = raylet.GCS_AUTOSCALER_CLUSTER_CONFIG_KEY, raylet.GCS_AUTOSCALER_STATE_NAMESPACE
_internal_kv_put(key, config, namespace=space)
told = [(node.cpus, node.gpus, count) for node, count in nodes.list_promised_nodes()]
print("JOINED", json.dumps([before, told, sorted(node.cpus for node in nodes.list_alive_nodes())]))
ray.shutdown()
if os.environ["MOUNTS"]:
    apart = Path("apart").resolve()
    apart.mkdir()
    wait = "while [ ! -e go ]; do sleep 0.1; done; exec \\"$@\\""
    command = ["sh", "-c", wait, "sh", *command, "--results", str(apart)]
    sweep = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert ctypes.CDLL(None).unshare(0x20000) == 0  # mounts of our own, and of what we start from here on
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(apart)], check=True)
    add(3, labels={"example.com/kind": "kind2"})
    Path("go").touch()
    _, errors = sweep.communicate(timeout=1500)
    print("APART", json.dumps([sweep.returncode, errors]))
cluster.shutdown()
sys.exit(code)
"""


class Ran(NamedTuple):
    """What a script found out, by the first words of its lines, and where."""

    found: dict[str, Any]
    folder: Path


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("nodes")
    stale = folder / "node1" / f"{backends.shared_data_prefix(folder / 'results' / 'nodes')}old"
    stale.mkdir(parents=True)
    can = (
        shutil.which("unshare")
        and not subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MOUNTS", "1" if can else "")
        output = clusters.run(folder, {"where.py": WHERE, "nodes.yaml": FILE}, SCRIPT, timeout=1500)
    lines = [line.partition(" ") for line in output.splitlines()]
    return Ran(
        {word: json.loads(rest) for word, _, rest in lines if word in ("JOINED", "APART")}, folder
    )


def test_a_node_that_joins_is_used_and_every_node_is_cleaned(ran: Ran) -> None:
    trials = sweep.load(ran.folder / "results" / "nodes").trials
    assert trials["status"].tolist() == ["completed"] * 12
    assert set(trials["metric.loss"]) == {1.0, 2.0}
    for node, price_per_s in ((1.0, 1.0), (2.0, 3.0)):  # each has the price of its label
        there = trials[trials["metric.loss"] == node]
        assert (there["cost"] >= price_per_s * there["train_s"] * 0.99).all()
        assert (there["cost"] <= price_per_s * (there["duration_s"] + 1.0)).all()
    assert list(ran.folder.glob("node*/sweep-data-*")) == []
    assert [
        path for path in (ran.folder / "results" / "nodes").iterdir() if "probe" in path.name
    ] == []
    assert ran.found["JOINED"] == [[], [[8.0, 2.0, 3], [1.0, 0.0, 1000]], [0.0, 1.0, 1.0]]


def test_a_results_folder_that_is_not_shared_is_found_before_the_first_trial(ran: Ran) -> None:
    if "APART" not in ran.found:
        pytest.skip("needs the right to give a process mounts of its own")
    code, errors = ran.found["APART"]
    assert (code, list((ran.folder / "apart").iterdir())) == (2, [])
    assert (
        f"does not see {ran.folder / 'apart' / 'nodes'} as it is here; share the results folder"
        in errors
    )
    assert errors.count("error: --address: node ") == 1


def test_a_worker_on_a_node_that_joins_without_the_folder_ends_its_trial_as_interrupted() -> None:
    from sweep.backends import Job
    from sweep.backends.ray_tune.trial_actor import TrialWorker

    worker = TrialWorker.__new__(TrialWorker)
    worker._job = Job("s", "m:M", (), Path("/nowhere/at/all"), Objective("loss", "minimize"))
    worker._trials = [3]
    progress = worker.step()["steps"].found[3]
    assert progress.end.status.value == "interrupted"
    assert "does not see /nowhere/at/all" in str(progress.fault)
