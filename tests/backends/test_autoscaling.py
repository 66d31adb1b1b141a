"""A cluster whose workers come from none as trials wait, and go when they are idle; by Ray's own autoscaler."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import clusters
import pytest

import sweep

pytestmark = [pytest.mark.ray, pytest.mark.slow]

FILE = """
name: grown
trainable: slow:Slow
method: grid
metric: {name: loss, goal: minimize}
parameters: {rate: {values: [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]}, drag: {value: 0.5}}
epochs: 12
"""
SLOW = clusters.SLOW.replace("SECONDS", "0.2")
SCRIPT = """
import json, os, subprocess, sys, time
from pathlib import Path
HEAD = "fffffffffffffffffffffffffffffffffffffffffffffffffff00000"  # as Ray's provider of made-up nodes calls it
os.environ.update(RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0", RAY_USAGE_STATS_ENABLED="0", RAY_FAKE_CLUSTER="1")
os.environ.update(AUTOSCALER_UPDATE_INTERVAL_S="1", RAY_AUTH_MODE="disabled")
os.environ["PATH"] = str(Path(sys.executable).parent) + os.pathsep + os.environ["PATH"]  # of the nodes as well
provider = {"type": "fake_multinode", "use_node_id_as_ip": True, "disable_node_updaters": True}
provider |= {"disable_launch_config_check": True, "gcs_address": "127.0.0.1:26379"}
provider |= {"launch_multiple": True, "head_node_id": HEAD}
os.environ.update(RAY_enable_autoscaler_v2="1", RAY_CLOUD_INSTANCE_ID=HEAD, RAY_OVERRIDE_NODE_ID_FOR_TESTING=HEAD)
kinds = {
    "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
    "worker": {"resources": {"CPU": 1}, "node_config": {}, "min_workers": 0, "max_workers": 2},
}
lists = ("initialization", "setup", "head_setup", "worker_setup", "head_start_ray", "worker_start_ray")
config = {
    "cluster_name": "made-up", "max_workers": 2, "provider": provider, "available_node_types": kinds, "auth": {},
    "head_node_type": "ray.head.default",
    "upscaling_speed": 1.0, "idle_timeout_minutes": 0.05, "docker": {}, "file_mounts": {},
    "cluster_synced_files": [], "file_mounts_sync_continuously": False, "rsync_exclude": [], "rsync_filter": [],
    **{f"{name}_commands": [] for name in lists},
}
Path("config.json").write_text(json.dumps(config))
start = "start --head --block --num-cpus=0 --port=26379 --node-ip-address=127.0.0.1 --include-dashboard=false"
start += f" --autoscaling-config=config.json --temp-dir=/tmp/{Path.cwd().name[-20:]}-{os.getpid()}"
command = [sys.executable, "-m", "ray.scripts.scripts", *start.split()]
head = subprocess.Popen(command, stdout=open("head.log", "w"), stderr=subprocess.STDOUT)
for name in ("RAY_OVERRIDE_NODE_ID_FOR_TESTING", "RAY_CLOUD_INSTANCE_ID"):
    os.environ.pop(name, None)
import ray
deadline = time.monotonic() + 120
while True:
    try:
        ray.init("127.0.0.1:26379", log_to_driver=False)
        break
    except ConnectionError:
        assert time.monotonic() < deadline and head.poll() is None, Path("head.log").read_text()
        time.sleep(1)
seen = []
def look():
    cpus = ray.cluster_resources().get("CPU", 0)
    if not seen or seen[-1] != cpus:
        seen.append(cpus)
    return cpus
look()
sweep = subprocess.Popen([sys.executable, "-m", "sweep", "run", "grown.yaml", "--address", "127.0.0.1:26379"])
deadline = time.monotonic() + 400
while sweep.poll() is None and time.monotonic() < deadline:
    if look() == 2:
        Path("hurry").touch()
    time.sleep(0.2)
code = sweep.wait(1)
deadline = time.monotonic() + 120
while look() and time.monotonic() < deadline:
    time.sleep(0.2)
Path("seen.json").write_text(json.dumps(seen))
os._exit(code)
"""
ALONE = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]


def test_workers_come_from_none_and_go_when_they_are_idle(tmp_path: Path) -> None:
    if subprocess.run([*ALONE, "true"], capture_output=True).returncode:
        pytest.skip("needs the right to give processes a network of their own")
    for name, text in {"slow.py": SLOW, "grown.yaml": FILE, "script.py": SCRIPT}.items():
        (tmp_path / name).write_text(text)
    shutil.copy(Path(__file__).parents[1] / "kills" / "walk.py", tmp_path / "walk.py")
    provider = (
        Path(str(importlib.util.find_spec("ray").origin)).parent
        / "autoscaler"
        / "_private"
        / "fake_multi_node"
    )
    shutil.copytree(provider, tmp_path / "provider")
    # its defaults, which Ray's wheel lacks
    (tmp_path / "provider" / "example.yaml").write_text("{}")
    begin = f'ip link set lo up && mount --bind provider {provider} && exec "$@"'
    command = [*ALONE, "sh", "-c", begin, "sh", sys.executable, "-W", "ignore", "script.py"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=700)
    assert ran.returncode == 0, (ran.stdout + ran.stderr)[-4000:]
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert seen[0] == seen[-1] == 0
    assert max(seen) == 2
    loaded = sweep.load(tmp_path / "results" / "grown")
    assert loaded.trials["status"].tolist() == ["completed"] * 6
    assert loaded.metrics.groupby("trial")["epoch"].apply(list).tolist() == [list(range(1, 13))] * 6
