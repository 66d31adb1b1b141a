"""What a local Ray starts beside its workers, with fakes for what it starts."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from ray._private import ray_constants, services
from ray._private.node import Node
from waiting import until

from sweep.backends.ray_tune import local_ray
from sweep.contract import Devices

NAMES = ("start_monitor", "start_api_server", "start_log_monitor", "start_ray_processes")
Start = Callable[..., None]


class Started:
    """Stands in for Ray's own starting: notes what was started, and in which thread."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **others: Start) -> None:
        self.by: dict[str, str] = {}
        for name in NAMES:
            monkeypatch.setattr(Node, name, others.get(name, self._note(name)))

    def _note(self, name: str) -> Start:
        def note(node: Any, **how: Any) -> None:
            self.by[name] = threading.current_thread().name

        return note


def start_all() -> None:
    """As Ray does, in its order."""
    node = SimpleNamespace(webui_url="127.0.0.1:8265")
    Node.start_monitor(node)
    Node.start_api_server(node, include_dashboard=True, raise_on_failure=True)
    Node.start_log_monitor(node)
    Node.start_ray_processes(node)


def test_what_no_trial_needs_starts_in_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    started, said = Started(monkeypatch), list[str]()
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)  # else the line tells how to get the token
    with local_ray.starting_in_background(said.append, lambda: None) as end:
        start_all()
        until(lambda: "start_monitor" in started.by)
        end()
    assert started.by == {
        "start_ray_processes": "MainThread",
        "start_api_server": "sweep-ray-start",
        "start_monitor": "sweep-ray-start",
    }
    assert [name for name in started.by if name != "start_ray_processes"] == [
        "start_api_server",
        "start_monitor",
    ]
    assert said == ["Ray dashboard: http://127.0.0.1:8265"]


def test_the_rest_is_done_while_workers_start(monkeypatch: pytest.MonkeyPatch) -> None:
    started, seen = Started(monkeypatch), list[bool]()
    with local_ray.starting_in_background(
        print, lambda: seen.append("start_ray_processes" in started.by)
    ) as end:
        start_all()
        end()
    assert seen == [True]


@pytest.mark.parametrize(
    ("message", "told"),
    [("no port is free\nand more", "no port is free"), ("", "RuntimeError")],
    ids=str,
)
def test_a_dashboard_that_does_not_start_is_told_and_no_more(
    monkeypatch: pytest.MonkeyPatch, message: str, told: str
) -> None:
    def fail(node: Any, **how: Any) -> None:
        raise RuntimeError(message)

    said = list[str]()
    Started(monkeypatch, start_api_server=fail)
    with local_ray.starting_in_background(said.append, lambda: None) as end:
        start_all()
        until(lambda: said)
        end()
    assert said == [f"Ray runs without its dashboard or monitor: {told}"]


def test_the_end_waits_for_no_dashboard(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = threading.Event()

    def wait(node: Any, **how: Any) -> None:
        began = time.monotonic()
        begun.set()
        # as Ray does
        while time.monotonic() - began < ray_constants.RAY_DASHBOARD_STARTUP_TIMEOUT_S:
            time.sleep(0.01)
        raise RuntimeError("it did not start")

    said, before = list[str](), ray_constants.RAY_DASHBOARD_STARTUP_TIMEOUT_S
    started = Started(monkeypatch, start_api_server=wait)
    with local_ray.starting_in_background(said.append, lambda: None) as end:
        start_all()
        begun.wait()
        began = time.monotonic()
        end()
    assert time.monotonic() - began < before / 2
    assert said == []
    assert "start_monitor" not in started.by  # it would only be started to be ended
    assert before == ray_constants.RAY_DASHBOARD_STARTUP_TIMEOUT_S > 1


def test_afterwards_ray_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    Started(monkeypatch)
    before = [getattr(Node, name) for name in NAMES]
    with local_ray.starting_in_background(print, lambda: None):
        assert [getattr(Node, name) for name in NAMES] != before
    assert [getattr(Node, name) for name in NAMES] == before


@pytest.mark.parametrize("patience", [9.0, 0.0])
def test_a_node_that_takes_its_time_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, patience: float
) -> None:
    calls = []

    def get_node(*which: object) -> dict[str, str]:
        calls.append(which)
        if len(calls) < 3:
            raise RuntimeError("not in the table yet")
        return {"labels": "none"}

    monkeypatch.setattr(services, "get_node", get_node)
    monkeypatch.setattr(local_ray, "START_S", patience)
    with (
        local_ray.waiting_longer(lambda said: None),
        nullcontext() if patience else pytest.raises(RuntimeError),
    ):
        assert services.get_node("127.0.0.1:1", "ab") == {"labels": "none"}
    assert calls == [("127.0.0.1:1", "ab")] * (3 if patience else 1)
    assert services.get_node is get_node


@pytest.mark.parametrize(
    ("devices", "most", "ahead"),
    [
        (Devices(cpus=1), None, True),
        (Devices(cpus=2), None, True),
        # two trials at once: of eight processes, six would import for nothing
        (
            Devices(cpus=4),
            None,
            False,
        ),
        (Devices(cpus=1), 3, False),
        (Devices(cpus=1, gpus=1), None, False),
        (Devices(cpus=1, gpus=1, simulated=True), None, True),
    ],
)
def test_only_processes_that_get_trials_import_ahead(
    monkeypatch: pytest.MonkeyPatch, devices: Devices, most: int | None, ahead: bool
) -> None:
    monkeypatch.setattr(local_ray.contract, "cpus", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = dict(os.environ)
    with local_ray.importing_in_advance(["keras", "numpy"], devices, most):
        given = {name: value for name, value in os.environ.items() if name not in before}
    threads = str(int(devices.cpus))
    assert given == (
        {"RAY_preload_python_modules": "keras,numpy", "OMP_NUM_THREADS": threads} if ahead else {}
    )
    assert dict(os.environ) == before


def test_what_a_user_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    with local_ray.importing_in_advance(["keras"], Devices(), None):
        assert os.environ["OMP_NUM_THREADS"] == "3"
    assert os.environ["OMP_NUM_THREADS"] == "3"
