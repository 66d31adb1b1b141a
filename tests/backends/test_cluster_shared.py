"""Which part of a cluster a sweep has, beside others."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import clusters
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.backends.ray_tune.cluster import (
    count_trials_of_user,
    describe_wait,
)
from sweep.backends.ray_tune.dashboard import LiveSweep
from sweep.contract import Devices, count_allowed_trials


def drivers(*users: str) -> list[LiveSweep]:
    return [LiveSweep(user, f"s{number}", f"{number}", 1) for number, user in enumerate(users)]


@pytest.mark.parametrize(
    ("fits", "most", "allowed"), [(8, None, 8), (8, 0.5, 4), (3, 0.5, 1), (1, 0.1, 1), (10, 0.7, 7)]
)
def test_a_share_of_what_fits_is_at_least_one_trial(
    fits: int, most: float | None, allowed: int
) -> None:
    assert count_allowed_trials(fits, most) == allowed


@pytest.mark.parametrize(
    ("fits", "others", "trials"),
    [
        (8, [], 8),
        (8, ["bob"], 4),
        (8, ["ann"], 4),
        (8, ["ann", "bob"], 2),  # half of it is Bob's
        (8, ["bob", "bob", "bob"], 4),  # however many sweeps he has
        (3, ["bob"], 2),
        (1, ["bob", "cat"], 1),
    ],
)
def test_users_have_equal_parts_and_so_have_the_sweeps_of_a_user(
    fits: int, others: list[str], trials: int
) -> None:
    assert count_trials_of_user(fits, "ann", drivers(*others)) == trials


@given(st.integers(1, 64), st.lists(st.sampled_from("abcd"), min_size=1, max_size=12))
def test_parts_leave_no_room_over_and_are_rounded_up_at_most(fits: int, users: list[str]) -> None:
    found = drivers(*users)
    parts = [
        count_trials_of_user(fits, one.user, [other for other in found if other is not one])
        for one in found
    ]
    assert fits <= sum(parts) < fits + len(found) or set(parts) == {1}


def test_what_waits_says_for_what_and_who_has_it() -> None:
    two = [LiveSweep("ann", "lr", "1", 3), LiveSweep("bob", "wd", "2", 1)]
    told = describe_wait(Devices(2, 1), {"CPU": 5.0}, two)
    assert told == (
        "waits for room: a trial takes 2 CPU and 1 GPU, 5 CPU and 0 GPU are free on all nodes together; "
        "ann/lr runs 3 trials, bob/wd runs 1 trial"
    )
    assert "no other sweep is there" in describe_wait(Devices(1, 0), {}, [])


FILE = """
name: NAME
trainable: held:CLASS
method: grid
metric: {name: loss, goal: minimize}
parameters: {rate: {values: [RATES]}, drag: {value: 0.5}}
epochs: 12
"""
HELD = """
import time
from pathlib import Path
import walk
READS = walk.READS
class Held(walk.Walk):
    @property
    def PAUSE_S(self):
        while not Path(__file__).with_name(self.GATES.get(self.given.trial, self.LAST)).exists():
            time.sleep(0.05)
        return 0.0
class First(Held):
    GATES, LAST = {0: "told", 1: "second runs", 2: "second runs", 3: "second runs"}, "second is over"
class Second(Held):
    GATES, LAST = {0: "told", 1: "told"}, "first went on"
"""
"""Walks that wait, each trial for a file, so that neither sweep runs away while the other one starts."""
SCRIPT = """
import json, os, subprocess, sys, time
from pathlib import Path
os.environ.update(RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0", RAY_USAGE_STATS_ENABLED="0")
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})

def run(user, name):
    command = [sys.executable, "-m", "sweep", "run", f"{name}.yaml", "--address", cluster.address]
    environment = {**os.environ, "SWEEP_USER": user}
    return subprocess.Popen(command, env=environment, stdout=open(f"{name}.txt", "w"), stderr=subprocess.STDOUT)

def wait_for(path, text, count):
    path, deadline = Path(path), time.monotonic() + 240
    while not path.exists() or path.read_text().count(text) < count:
        assert time.monotonic() < deadline, (path, Path("first.txt").read_text(), Path("second.txt").read_text())
        time.sleep(0.1)

first = run("ann", "first")
wait_for("journal.txt", " begin ", 2)
second = run("bob", "second")
wait_for("second.txt", "waits for room", 1)
Path("told").touch()
wait_for("results/second/log.jsonl", '"epoch_reported"', 2)
Path("second runs").touch()
wait_for("results/first/log.jsonl", '"trial_ended"', 4)
Path("first went on").touch()
codes = [second.wait(400)]
Path("second is over").touch()
codes.append(first.wait(400))
print(json.dumps(codes))
os._exit(max(codes))
"""


@pytest.mark.ray
@pytest.mark.slow
def test_a_second_sweep_gets_its_part_while_the_first_holds_the_cluster(tmp_path: Path) -> None:
    rates = {
        "first": ", ".join(f"0.{number}" for number in range(1, 10)),
        "second": "0.1, 0.2, 0.3",
    }
    files = {
        f"{name}.yaml": FILE.replace("NAME", name)
        .replace("CLASS", name.capitalize())
        .replace("RATES", some)
        for name, some in rates.items()
    }
    clusters.run(tmp_path, {"held.py": HELD, **files}, SCRIPT, timeout=900)
    epochs = {name: reported(tmp_path / "results" / name / "log.jsonl") for name in rates}
    assert Counter(trial for _, trial in epochs["first"]) == dict.fromkeys(range(9), 12)
    assert Counter(trial for _, trial in epochs["second"]) == dict.fromkeys(range(3), 12)
    begun, ended = epochs["second"][0][0], epochs["second"][-1][0]
    before, after = (
        {trial for at, trial in epochs["first"] if (at < begun) == early} for early in (True, False)
    )
    assert len(before) <= 1, "one trial of the first sweep ends, then the second has room"
    left = {trial for at, trial in epochs["first"] if at > ended}
    assert len(left) >= 3, "the first did not go on alone"
    assert after - before - left, "nor did it wait for the second"
    told = (tmp_path / "second.txt").read_text()
    assert re.search(
        r"waits for room: a trial takes 1 CPU, \d CPU are free .*; ann/first runs \d", told
    )


def reported(log: Path) -> list[tuple[float, int]]:
    """Return when each epoch was reported, and of which trial."""
    events = [json.loads(line) for line in log.read_text().splitlines()]
    return [
        (event["time"], event["trial"]) for event in events if event["event"] == "epoch_reported"
    ]
