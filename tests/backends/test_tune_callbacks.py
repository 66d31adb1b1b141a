"""What Ray's dashboard, State API and Prometheus endpoint say of a real sweep while it runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from waiting import until

from sweep.backends import Job, SweepStatus
from sweep.events import EpochReported, Status, TrialEnded
from sweep.space.objectives import Objective
from sweep.store import log as store_log
from sweep.text import score

pytestmark = pytest.mark.ray

KILLS = Path(__file__).parents[1] / "kills"
NAME = "wide.1_x"
FILE = """
trainable: walk:Slow
method: random
metric: {name: loss, goal: minimize}
parameters: {rate: {min: 0.1, max: 0.3}, drag: {value: 0.5}}
epochs: 20
run_cap: 40
resources: {max_concurrent: 2}
"""
SAMPLE = re.compile(r"^ray_(sweep_\w+)\{(.*)\} (\S+)$")


@dataclass
class Running:
    """A sweep on a Ray of its own, and that Ray's web server."""

    process: subprocess.Popen[str]
    url: str
    folder: Path
    samples: dict[tuple[str, str], float] = field(default_factory=dict)  # by gauge and state

    def get(self, path: str) -> Any:
        found = self.fetch(self.url + path)
        return json.loads(found) if found else None

    def fetch(self, url: str) -> str:
        token = Path.home() / ".ray" / "auth_token"
        headers = {"Authorization": f"Bearer {token.read_text().strip()}"} if token.exists() else {}
        try:
            with urllib.request.urlopen(
                urllib.request.Request(url, headers=headers), timeout=60
            ) as answer:
                return str(answer.read().decode())
        except (urllib.error.URLError, ConnectionError, TimeoutError):  # its servers still start
            return ""

    def scrape(self) -> None:
        """Ask every metrics endpoint that Ray tells Prometheus of."""
        for service in self.get("/api/prometheus/sd") or ():
            for target in service["targets"]:
                assert target.startswith("127.0.0.1:")  # a Ray of our own is no one else's
                for line in self.fetch(f"http://{target}/metrics").splitlines():
                    if found := SAMPLE.match(line):
                        tags = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', found[2]))
                        assert tags["sweep"] == NAME
                        self.samples[found[1], tags.get("state", "")] = float(found[3])

    def wait_for(self, true: Callable[[], bool], what: str) -> None:
        until(lambda: true() or self.process.poll() is not None, what, every_s=0.5)
        assert self.process.poll() is None, what

    def losses(self) -> dict[int, float]:
        """The last loss of each trial that completed, so far."""
        last: dict[int, float] = {}
        done: set[int] = set()
        for event in store_log.read(self.folder / "log.jsonl"):
            if isinstance(event, EpochReported):
                last[event.trial] = event.metrics["loss"]
            elif isinstance(event, TrialEnded) and event.status is Status.COMPLETED:
                done.add(event.trial)
        return {trial: loss for trial, loss in last.items() if trial in done}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("published")
    (folder / "walk.py").write_text(
        (KILLS / "walk.py").read_text() + "\n\nclass Slow(Walk):\n    PAUSE_S = 0.05\n"
    )
    (folder / "file.yaml").write_text(FILE)
    process = subprocess.Popen(
        [sys.executable, "-m", "sweep", "run", "file.yaml", "--name", NAME],
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        env={**os.environ, "RAY_metrics_report_interval_ms": "500", "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    try:
        urls = (found[0] for line in process.stdout if (found := re.search(r"http://\S+", line)))
        url = next(urls, None)
        assert url is not None, "it ended without a dashboard"
        yield Running(process, url, folder / "results" / NAME)
    finally:
        process.kill()
        process.communicate()
    time.sleep(3)  # a killed driver's Ray is gone within that


@pytest.mark.slow
def test_the_gauges_are_in_prometheus_with_the_log_s_own_numbers(running: Running) -> None:
    def is_there() -> bool:
        running.scrape()
        return ("sweep_best_objective", "") in running.samples

    running.wait_for(is_there, "no gauges")
    found = running.samples
    losses = running.losses()
    assert found["sweep_best_objective", ""] in [pytest.approx(loss) for loss in losses.values()]
    assert found["sweep_best_objective", ""] >= min(losses.values()) - 1e-9
    assert 1 <= found["sweep_trials", "completed"] <= len(losses)
    assert 1 <= found["sweep_trials", "running"] <= 2
    assert (found["sweep_trials", "failed"], found["sweep_trials_planned", ""]) == (0.0, 40.0)
    assert 20 <= found["sweep_epochs_trained", ""] <= 800
    assert found["sweep_epochs_per_second", ""] > 0
    assert found["sweep_seconds_left", ""] > 0
    assert found["sweep_workers", ""] == 2
    assert found["sweep_utilization", ""] == found["sweep_workers_busy", ""] / 2


@pytest.mark.slow
def test_the_job_page_tells_the_sweep_and_how_far_it_is(running: Running) -> None:
    def job() -> Any:
        return next(iter(running.get("/api/jobs/") or ()), {})

    running.wait_for(lambda: "best" in job().get("metadata", {}), "no best on the job's page")
    found = job()
    assert (found["status"], found["type"]) == ("RUNNING", "SUBMISSION")
    assert found["submission_id"].startswith(f"sweep-{NAME}-")
    assert found["driver_info"]["pid"] == str(running.process.pid)
    assert found["metadata"]["sweep"] == NAME
    assert found["metadata"]["objective"] == "loss, minimize"
    assert re.fullmatch(r"\d+ of 40 trials, \d+ epochs", found["metadata"]["progress"])
    value, trial = re.fullmatch(r"loss (\S+) \(trial (\d+)\)", found["metadata"]["best"]).groups()
    assert value == score(running.losses()[int(trial)])  # as `status` writes it
    assert found["message"].startswith(found["metadata"]["progress"].partition(",")[0])
    assert found["entrypoint"].startswith("python -m sweep run file.yaml --name")


@pytest.mark.slow
def test_the_state_api_knows_workers_by_sweep_and_number(running: Running) -> None:
    def names() -> list[str]:
        found = running.get("/api/v0/actors?detail=1") or {"data": {"result": {"result": []}}}
        return sorted(actor["name"] for actor in found["data"]["result"]["result"])

    running.wait_for(lambda: len(names()) == 2, "not two actors")
    session = {
        re.fullmatch(rf"{re.escape(NAME)}/([0-9a-f]{{6}})/worker-\d", name)[1] for name in names()
    }
    assert len(session) == 1
    assert [name[-8:] for name in names()] == ["worker-0", "worker-1"]


class Page:
    """Keeps what it is to show."""

    def __init__(self) -> None:
        self.shown: list[tuple[str, str]] = []

    def show(self, status: str, message: str, words: dict[str, str]) -> None:
        self.shown.append((status, message))


@pytest.fixture
def without_gauges(monkeypatch: pytest.MonkeyPatch) -> None:
    from sweep.backends.ray_tune import adapters

    monkeypatch.setattr(
        adapters, "DashboardGauges", lambda *names: SimpleNamespace(set=lambda *given: None)
    )


def publisher(page: Page, stopping: str | None = None) -> Any:
    from sweep.backends.ray_tune.adapters import Publisher

    sweep_status = SweepStatus(
        trials={"completed": 1},
        total=9,
        epochs=1,
        epochs_per_s=1.0,
        metric="a",
        goal="maximize",
        left_s=7,
    )
    driver: Any = SimpleNamespace(running=1, stopping=stopping)
    return Publisher(
        driver,
        Job("s", "t:T", (), Path(), Objective("a", "maximize")),
        lambda: sweep_status,
        lambda: 2,
        page,
    )


@pytest.mark.usefixtures("without_gauges")
def test_it_is_published_at_most_once_a_second() -> None:
    page = Page()
    one = publisher(page)
    begin = time.perf_counter()
    for turn in range(2000):
        one.on_step_end(turn, [])
    assert 1 <= len(page.shown) <= 1 + (time.perf_counter() - begin)


@pytest.mark.usefixtures("without_gauges")
@pytest.mark.parametrize(
    ("stopping", "error", "expected"),
    [
        (None, None, ("SUCCEEDED", "1 of 9 trials")),
        ("budget of 8 hours", None, ("STOPPED", "budget of 8 hours; 1 of 9 trials")),
        (None, RuntimeError("no"), ("FAILED", "RuntimeError: no; 1 of 9 trials")),
    ],
)
def test_the_end_is_told_as_it_was(
    stopping: str | None, error: Exception | None, expected: tuple[str, str]
) -> None:
    page = Page()
    publisher(page, stopping).close(error)
    assert page.shown == [expected]
