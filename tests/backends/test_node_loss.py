"""Nodes of a cluster go away, with notice, with hardly any, or with none: no trial loses anything.

Their trials go on elsewhere, and nobody counts it as a failure.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import clusters
import pytest

import sweep
from sweep.api import LoadedSweep

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
SLOW = """
import time
from pathlib import Path
import walk
from sweep.contract import EpochReported
READS = walk.READS
class Slow(walk.Walk):
    @property
    def PAUSE_S(self):
        hurry = Path(__file__).with_name("hurry")
        while self.given.trial > 1 and self.done > 8 and not hurry.exists():
            time.sleep(0.05)  # until its node is gone
        return 0.0 if hurry.exists() else 0.2 / (1 + 3 * (self.given.trial % 3))
    def train(self, report):
        def told(epoch):  # the first two get worse, and have no checkpoint but one that they are asked for
            loss = epoch.epoch if self.given.trial < 2 else -epoch.epoch
            metrics = {"loss": loss, "place": epoch.metrics["loss"]}
            return report(EpochReported(trial=0, epoch=epoch.epoch, metrics=metrics, time=epoch.time, time_s=0.1))
        super().train(told)
"""
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
third = cluster.add_node(num_cpus=1)
wait_for(lambda text: text.count('"epoch_reported","trial":2') >= 3 and text.count('"epoch_reported","trial":3') >= 3)

def wait_for_another(begun):  # before any may hurry: a process outlives its node a while
    cluster.add_node(num_cpus=1)
    wait_for(lambda text: begins() > begun)

def begins():
    return Path("journal.txt").read_text().count(" begin ")

begun = begins()
drain(first, 0.1)
cluster.remove_node(first)  # before an epoch is over
wait_for_another(begun)
cluster.remove_node(third, allow_graceful=False)
wait_for_another(begun + 1)
Path("hurry").touch()
code = sweep.wait(600)
os._exit(code)
"""


class Ran(NamedTuple):
    """The sweep, what it said, and the lines of its journal: time, process, what, trial, epoch."""

    loaded: LoadedSweep
    said: str
    journal: list[list[str]]
    folder: Path


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("spot")
    said = clusters.run(folder, {"slow.py": SLOW, "spot.yaml": FILE}, SCRIPT, timeout=900)
    journal = [line.split() for line in (folder / "journal.txt").read_text().splitlines()]
    return Ran(sweep.load(folder / "results" / "spot"), said, journal, folder)


def test_each_loss_is_told_by_its_cause_and_costs_no_restart(ran: Ran) -> None:
    left = re.findall(
        r"the worker of trial (\d) is replaced: its node is taken away in (\d+) s", ran.said
    )
    assert len(left) == 1, ran.said[-4000:]
    ended, gone = re.findall(r"trial \d: worker lost: (.+)", ran.said)
    assert ended == "its node was ended; it goes on from its checkpoint"
    assert re.fullmatch(r"its node (is gone|does not answer); it goes on from its checkpoint", gone)
    assert ran.loaded.trials["status"].tolist() == ["completed"] * 4
    assert (
        ran.loaded.metrics.groupby("trial")["epoch"].apply(list).tolist()
        == [list(range(1, 25))] * 4
    )


def test_those_with_time_to_save_train_no_epoch_again_and_the_others_go_on_from_a_checkpoint(
    ran: Ran,
) -> None:
    epochs = Counter((line[3], line[4]) for line in ran.journal if line[2] == "epoch")
    assert len(epochs) == 4 * 24
    assert {trial for (trial, _), times in epochs.items() if times > 1} <= {"2", "3"}
    begins = [line for line in ran.journal if line[2] == "begin"]
    assert len(begins) == 4 + 3
    for begin in begins[-2:]:
        after = [int(line[4]) for line in ran.journal if line[1:4] == [begin[1], "epoch", begin[3]]]
        assert after[0] > 1


def test_the_numbers_are_those_of_a_machine_that_stays(ran: Ran) -> None:
    command = [
        sys.executable,
        "-m",
        "sweep",
        "run",
        "spot.yaml",
        "--name",
        "alone",
        "--inline",
        "--no-memo",
        "-q",
    ]
    done = subprocess.run(command, cwd=ran.folder, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stdout + done.stderr
    alone = sweep.load(ran.folder / "results" / "alone")
    assert ran.loaded.metrics["metric.place"].tolist() == alone.metrics["metric.place"].tolist()
