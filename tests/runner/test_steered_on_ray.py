"""A real sweep on Ray that somebody adds to and changes while it runs."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sweep.events import ConfigurationsEnqueued, SteeringEvent, SweepChanged, TrialStarted
from sweep.store import log as store_log

TRAINABLE = """
import json, os, time
from sweep.contract import EpochReported, Facts

class Slow:
    def begin(self, assignment):
        self.given, self.done = assignment, 0
    def train(self, report):
        while self.done < self.given.epochs:
            self.done += 1
            time.sleep(2.0 if os.path.exists("HOLD") else 0.0)
            loss = self.given.params["a"] / self.done
            if not report(EpochReported(trial=0, epoch=self.done, metrics={"loss": loss}, time=0.0, time_s=0.1)):
                return
    def save(self, folder):
        (folder / "done.json").write_text(json.dumps(self.done))
    def restore(self, folder):
        self.done = json.loads((folder / "done.json").read_text())
        return self.done
    def facts(self):
        return Facts()
"""
FILE = """
trainable: slow:Slow
method: grid
metric: {name: loss}
parameters: {a: {values: [1, 2, 3, 4, 5, 6, 7, 8]}}
epochs: 20
resources: {max_concurrent: 1}
"""


def command(folder: Path, *words: str) -> tuple[int, str, str]:
    result = subprocess.run(
        [sys.executable, "-m", "sweep", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return result.returncode, result.stdout, result.stderr


def wait_for(holds: Callable[[], bool]) -> None:
    since = time.monotonic()
    while not holds():
        assert time.monotonic() - since < 300
        time.sleep(0.1)


@pytest.mark.ray
def test_a_sweep_on_ray_is_added_to_and_changed_and_killed(tmp_path: Path) -> None:
    hold = tmp_path / "hold"  # as long as it is there, an epoch takes two seconds
    hold.touch()
    (tmp_path / "slow.py").write_text(TRAINABLE.replace("HOLD", str(hold)))
    (tmp_path / "slow.yaml").write_text(FILE)
    log = tmp_path / "results" / "slow" / "log.jsonl"
    driver = subprocess.Popen(
        [sys.executable, "-m", "sweep", "run", "slow.yaml", "-q"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: log.exists() and b'"epoch_reported"' in log.read_bytes())
        change = "parameters.a.values=[1, 2, 3, 9, 10]"
        limit = "resources.max_concurrent=2"
        assert command(tmp_path, "change", "slow", "--set", change, "--set", limit)[0] == 0
        assert command(tmp_path, "add", "slow", "a=10")[0] == 0
        assert command(tmp_path, "change", "slow", "--set", "repeats=2")[0] == 0
        code, out, _ = command(tmp_path, "change", "slow", "--set", "checkpoint.keep=3", "--json")
        assert (code, json.loads(out)["error"][0]["where"]) == (4, "--set checkpoint.keep")
        assert command(tmp_path, "note", "slow", "0", "first")[0] == 0
    finally:
        driver.kill()  # at once: its workers die with it
        driver.wait()
        hold.unlink()
    assert command(tmp_path, "resume", "slow", "-q")[0] == 0
    events = list(store_log.read(log))
    acts = [event for event in events if isinstance(event, SteeringEvent)]
    assert [type(event) for event in acts[:3]] == [
        SweepChanged,
        ConfigurationsEnqueued,
        SweepChanged,
    ]
    # the process that ran the sweep has written them
    assert all(event.driven_s is not None for event in acts)
    tried = [(event.params["a"], event.seed) for event in events if isinstance(event, TrialStarted)]
    assert sorted(tried) == sorted({*tried})  # none twice
    assert (
        {a for a, seed in tried if seed == 0}
        == {a for a, seed in tried if seed == 1}
        >= {1, 2, 3, 9, 10}
    )
    after = [event for event in events[events.index(acts[2]) :] if isinstance(event, TrialStarted)]
    added = next(event for event in after if event.repeat == 0)
    assert (added.params["a"], bool(added.enqueued_by), added.space_version) == (10, True, 1)
    before = after[: after.index(added)]
    assert before
    assert all(event.repeat == 1 for event in before)
    shown = json.loads(command(tmp_path, "status", "slow", "--json")[1])
    assert shown["trials"] == {"completed": len(tried)}
    assert shown["total"] == len(tried)
    assert "The space was changed 1 time" in shown["other_space"]
