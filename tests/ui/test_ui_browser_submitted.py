"""The acts of the page on a sweep that was submitted to a Ray cluster: what each one logs, and where it goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from browsers import needs_chromium
from ray_heads import started_head
from visiting import Visitor, events_of, press_act, serving
from waiting import until

from sweep.store.folder import ResultsFolder

pytestmark = [pytest.mark.slow, pytest.mark.ray, needs_chromium]

FILE = """\
name: sent
trainable: trained:train
method: random
metric: {name: score, goal: maximize}
parameters:
  rate: {min: 0.1, max: 1.0}
epochs: 200
run_cap: 2
resources: {cpus: 0.5, max_concurrent: 1}
"""
TRAINABLE = """
import time
from pathlib import Path
def train(hp, report):
    for epoch in range(200):
        time.sleep(0.0 if Path("GO").exists() else 0.5)
        report(score=hp.rate * (epoch + 1))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "sent.yaml").write_text(FILE)
    (folder / "trained.py").write_text(TRAINABLE.replace("GO", str(tmp_path / "go")))
    return folder


def test_acts_on_a_submitted_sweep(
    browser: Any, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it runs, its driver carries them out; afterwards it goes on as a job of the cluster, with its changes."""
    folder = ResultsFolder(project / "results" / "sent")

    def logged(kind: str) -> list[dict[str, Any]]:
        return [event for event in events_of(folder) if event["event"] == kind]

    with started_head(tmp_path) as cluster:
        for name, value in cluster.environment.items():
            monkeypatch.setenv(name, value)
        sent = cluster.call(project, "submit", "sent.yaml", "--results", str(project / "results"))
        assert sent.returncode == 0, sent.stderr
        until(
            lambda: folder.log.exists() and logged("epoch_reported"),
            lambda: cluster.call(project, "logs", "sent"),
        )
        with serving(project) as address:
            one = Visitor(browser, address)
            one.open("/sent")
            one.has_text("#state", "^running$")
            assert one.page.is_disabled("#buttons [data-act=resume]")

            asked = {"changes": "parameters.rate.max=2.0\nrun_cap=3"}
            press_act(
                one, "change", "change sent --set parameters.rate.max=2.0 --set run_cap=3", asked
            )
            (changed,) = logged("sweep_changed")
            assert changed["settings"]["run_cap"] == 3
            assert changed["settings"]["parameters"]["rate"]["max"] == 2.0

            press_act(one, "add", "add sent rate=1.5", {"settings": "rate=1.5"})
            (added,) = logged("configurations_enqueued")
            assert added["configurations"] == [{"rate": 1.5}]

            press_act(one, "note", "note sent 'on the cluster'", {"text": "on the cluster"})
            (noted,) = logged("note_written")
            assert noted["text"] == "on the cluster"

            one.open("/sent/0")
            press_act(one, "star", "star sent 0")
            assert [event["trial"] for event in logged("trial_starred")] == [0]
            press_act(one, "stop_trial", "stop sent --trial 0 --now", {"now": "yes"})
            (ended,) = logged("trial_ended")
            assert (ended["trial"], ended["status"], ended["asked"]) == (0, "pruned", True)

            one.open("/sent")
            until(
                lambda: (
                    [event["params"] for event in logged("trial_started")][1:] == [{"rate": 1.5}]
                )
            )
            until(lambda: any(event["trial"] == 1 for event in logged("epoch_reported")))
            said = press_act(one, "stop", "stop sent", {})
            again = f"resume ann/sent --address {cluster.address}"
            assert f"go on with: python -m sweep {again}" in said
            one.has_text("#state", "^stopped on request$")
            assert [event["reason"] for event in logged("session_ended")] == ["stopped on request"]
            states = json.loads(cluster.call(project, "list", "--json").stdout)
            assert [row["state"] for row in states] == ["STOPPED"]

            one.page.wait_for_selector("#buttons [data-act=resume]:enabled")
            press_act(one, "resume", again)
            one.has_text("#state", "^running$")
            (tmp_path / "go").touch()
            one.has_text("#state", "^finished$")
            one.context.close()
            assert one.troubles == []
        until(
            lambda: (
                json.loads(cluster.call(project, "list", "--json").stdout)[0]["state"]
                == "SUCCEEDED"
            ),
            every_s=1,
        )
    assert [event["resumed"] for event in logged("session_started")] == [False, True]
    ends = {event["trial"]: event["status"] for event in logged("trial_ended")}
    assert ends[1] == ends[2] == "completed"
    started = [event["params"]["rate"] for event in logged("trial_started") if event["trial"] == 2]
    assert 0.1 <= started[0] <= 2.0
