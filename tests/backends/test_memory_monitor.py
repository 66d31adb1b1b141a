"""Ray's memory monitor, which watches over the nodes of a cluster, kills a worker: its trial goes on in another."""

from __future__ import annotations

from pathlib import Path

import clusters
import pytest

import sweep

pytestmark = [pytest.mark.ray, pytest.mark.slow]

FILE = """
name: hungry
trainable: hungry:Hungry
method: grid
metric: {name: loss, goal: minimize}
parameters: {rate: {values: [0.1, 0.3]}, drag: {value: 0.5}}
epochs: 6
checkpoint: {every_s: 0}
resources: {max_concurrent: 1}
"""
HUNGRY = """
import time
from pathlib import Path
import numpy as np
import walk
READS = walk.READS
class Hungry(walk.Walk):
    def train(self, report):
        def hear(epoch):
            go_on = report(epoch)
            eaten = Path(__file__).with_name("eaten")
            if epoch.epoch == 3 and not eaten.exists():
                eaten.touch()
                self.held = [np.ones(2**27) for _ in range(5)]  # 5 GiB
                time.sleep(60)
            return go_on
        super().train(hear)
"""
# The monitor is told to kill at 2.5 GiB more than the machine uses now.
SCRIPT = """
import os, subprocess, sys
from ray._common.utils import get_system_memory
from ray._private.utils import get_used_memory
limit = (get_used_memory() + 2.5 * 2**30) / get_system_memory()
os.environ.update(RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0", RAY_USAGE_STATS_ENABLED="0")
os.environ.update(RAY_memory_usage_threshold=str(limit), RAY_memory_monitor_refresh_ms="100")
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
code = subprocess.call([sys.executable, "-m", "sweep", "run", "hungry.yaml", "--address", cluster.address])
cluster.shutdown()
sys.exit(code)
"""


@pytest.mark.exhaustive
def test_a_worker_that_the_monitor_killed_is_replaced(tmp_path: Path) -> None:
    output = clusters.run(
        tmp_path, {"hungry.py": HUNGRY, "hungry.yaml": FILE}, SCRIPT, timeout=1500
    )
    assert (tmp_path / "eaten").exists()
    assert "trial 0: worker lost: " in output
    loaded = sweep.load(tmp_path / "results" / "hungry")
    assert loaded.trials["status"].tolist() == ["completed"] * 2
    assert loaded.metrics.groupby("trial")["epoch"].apply(list).tolist() == [list(range(1, 7))] * 2
