"""Ray's private names: each is there, and a Ray without one is slower and not broken."""

from __future__ import annotations

import inspect
import os
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import ray
from ray.runtime_context import RuntimeContext

from sweep.backends import Job
from sweep.backends.ray_tune import ray_private_api
from sweep.backends.ray_tune.ray_private_api import Use
from sweep.space.objectives import Objective

pytestmark = pytest.mark.ray

NAMES = [name for use in ray_private_api.OF_RAY for name in use.names]
STAND_INS = [
    name
    for use in (
        ray_private_api.MEMORY_KILLS,
        ray_private_api.WAITING_PROCESSES,
        ray_private_api.TAGGING,
        ray_private_api.SILENCE,
    )
    for name in use.names
]
CONTROLLERS = [name for use in ray_private_api.OF_TUNES_CONTROLLER for name in use.names]


def test_every_use_is_in_a_list() -> None:
    uses = {value for value in vars(ray_private_api).values() if isinstance(value, Use)}
    lists = [value for name, value in vars(ray_private_api).items() if name.startswith("OF_")]
    assert uses == {use for listed in lists for use in listed}


@pytest.mark.parametrize("name", NAMES)
def test_this_ray_has(name: str) -> None:
    assert ray_private_api.list_missing(Use((name,), "")) == []


@pytest.mark.parametrize("name", CONTROLLERS)
def test_the_controller_of_this_tune_has(name: str, controller: Any) -> None:
    assert ray_private_api.list_missing(Use((name,), ""), controller) == []


def test_a_started_ray_has_processes_to_watch() -> None:
    from ray._private import worker
    from ray._private.node import Node

    assert hasattr(worker, "_global_node")  # None, as none is started here
    made = inspect.getsource(Node.__init__)
    for name in (name for use in ray_private_api.OF_A_STARTED_RAY for name in use.names):
        attribute = name.removeprefix("ray._private.worker:_global_node.")
        assert f"self.{attribute}" in made, name


def test_the_context_of_this_ray_has_the_session_s_name() -> None:
    assert all(
        ray_private_api.list_missing(use, RuntimeContext) == []
        for use in ray_private_api.OF_ITS_CONTEXT
    )


@pytest.mark.parametrize("use", ray_private_api.OF_TUNES_TRIALS)
def test_a_trial_of_this_tune_has(use: Use) -> None:
    from ray.tune.experiment import Trial

    trial = Trial("none", stub=True)
    assert ray_private_api.list_missing(use, trial) == []


def test_a_worker_that_cannot_be_found_is_left_alone_and_that_is_said() -> None:
    from sweep.backends.ray_tune.adapters import DriverClock, Workers

    trial = SimpleNamespace(
        is_finished=lambda: False, trial_id="t", temporary_state=SimpleNamespace()
    )
    said = list[str]()
    workers = Workers(1, held={"t": [3]})
    DriverClock(SimpleNamespace(tick=lambda: [3]), said.append, workers).on_step_end(1, [trial])
    assert said == [
        f"Ray {ray.__version__} has no temporary_state.ray_actor: {ray_private_api.KILLING.loss}"
    ]


def test_a_worker_that_is_just_starting_is_killed_once_it_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from sweep.backends.ray_tune.adapters import DriverClock, Workers

    killed = list[str]()
    monkeypatch.setattr(ray, "kill", killed.append)
    state = SimpleNamespace(ray_actor=None)
    trial = SimpleNamespace(is_finished=lambda: False, trial_id="t", temporary_state=state)
    ends = iter([[3], [], []])
    clock = DriverClock(
        SimpleNamespace(tick=lambda: next(ends)), lambda text: None, Workers(1, held={"t": [3]})
    )
    clock.on_step_end(1, [trial])
    assert killed == []
    state.ray_actor = "its actor"
    for turn in (2, 3):
        clock.on_step_end(turn, [trial])
    assert killed == ["its actor"]


@pytest.fixture
def controller(monkeypatch: pytest.MonkeyPatch) -> Any:
    from ray.tune.execution.tune_controller import TuneController
    from ray.tune.search import BasicVariantGenerator

    monkeypatch.setenv("TUNE_MAX_PENDING_TRIALS_PG", "1")  # else it asks a running Ray
    return TuneController(
        search_alg=BasicVariantGenerator(), storage=None, resource_manager_factory=lambda: None
    )


def without(monkeypatch: pytest.MonkeyPatch, name: str) -> str:
    """A Ray that lacks one name; the line that tells so."""
    path, _, attributes = name.partition(":")
    *parents, last = attributes.split(".")
    owner: Any = import_module(path)
    for parent in parents:
        owner = getattr(owner, parent)
    monkeypatch.delattr(owner, last)
    return f"Ray {ray.__version__} has no {path}.{attributes}: "


@pytest.mark.parametrize("name", ray_private_api.FASTER_START.names)
def test_a_start_that_cannot_be_hastened_is_ray_s_own(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sweep.backends.ray_tune import local_ray

    line = without(monkeypatch, name)
    node = import_module("ray._private.node").Node
    before, said, done = dict(vars(node)), list[str](), list[bool]()
    with local_ray.starting_in_background(said.append, lambda: done.append(True)) as end:
        assert dict(vars(node)) == before
        end()
    assert (said, done) == ([line + ray_private_api.FASTER_START.loss], [True])


@pytest.mark.parametrize(
    "name", ["ray._private.node:Node.start_raylet", "ray._raylet:Config.initialize"]
)
def test_workers_that_cannot_be_forked_are_ray_s_own(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sweep.backends.ray_tune import local_ray

    monkeypatch.setattr(import_module("ray._raylet"), "Config", SimpleNamespace(initialize=None))
    line = without(monkeypatch, name)
    node, before, said = import_module("ray._private.node").Node, dict(os.environ), list[str]()
    theirs = vars(node).get("start_raylet")
    server: Any = SimpleNamespace(name="nobody")
    with local_ray.forking_workers(server, said.append) as are_forked:
        assert not are_forked
        assert (vars(node).get("start_raylet"), dict(os.environ)) == (theirs, before)
    assert said == [line + ray_private_api.FORKED_WORKERS.loss]


@pytest.mark.parametrize("name", STAND_INS)
def test_a_stand_in_for_what_is_not_there_is_left_out(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sweep.backends.ray_tune import adapters

    said = list[str]()
    for path, _, attribute in (other.partition(":") for other in STAND_INS):
        # put back afterwards
        monkeypatch.setattr(f"{path}.{attribute}", getattr(import_module(path), attribute))
    line = without(monkeypatch, name)
    adapters.survive_memory_kills(said.append)
    adapters.use_prestarted_processes(said.append)
    adapters.skip_callback_count(said.append)
    callbacks = adapters.create_silent_printer(said.append)
    assert [text for text in said if text.startswith(line)] == said != []
    assert bool(callbacks) == (name not in ray_private_api.SILENCE.names)


@pytest.mark.parametrize("name", ray_private_api.NAMED_WORKERS.names)
def test_workers_without_names_are_as_tune_makes_them(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sweep.backends.ray_tune import adapters

    said, line = list[str](), without(monkeypatch, name)
    adapters.name_workers(Job("s", "t:T", (), Path(), Objective("loss", "minimize")), said.append)
    assert said == [line + ray_private_api.NAMED_WORKERS.loss]
    assert not hasattr(import_module("ray.tune.execution.tune_controller"), "_ActorClassCache")


@pytest.mark.parametrize("name", ray_private_api.JOB_PAGE.names)
def test_a_driver_without_a_page_points_to_none(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from sweep.backends.ray_tune import dashboard

    said, line = list[str](), without(monkeypatch, name)
    assert dashboard.make_job_metadata("s", "0123456789ab", said.append) == {}
    assert said == [line + ray_private_api.JOB_PAGE.loss]


@pytest.mark.parametrize("name", ray_private_api.OWN_MACHINE.names)
def test_a_ray_that_others_can_reach_is_said_to_be_so(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ray._private import ray_constants

    from sweep.backends.ray_tune import local_ray

    with local_ray.listening_on_localhost(print):
        assert not ray_constants.ENABLE_RAY_CLUSTER
    assert ray_constants.ENABLE_RAY_CLUSTER
    said, line = list[str](), without(monkeypatch, name)
    with local_ray.listening_on_localhost(said.append):
        assert said == [line + ray_private_api.OWN_MACHINE.loss]


class Trial(NamedTuple):
    """What is looked at of a trial of Tune."""

    trial_id: str
    status: str
    local_path: str = "/nowhere"

    def is_finished(self) -> bool:
        return self.status == "TERMINATED"


@pytest.mark.parametrize("name", CONTROLLERS)
def test_a_controller_without_a_name_is_left_alone_and_that_is_said_once(name: str) -> None:
    from sweep.backends.ray_tune.adapters import DriverScheduler, Workers

    ended, waiting = Trial("1", "TERMINATED"), Trial("2", "PENDING")
    whole = SimpleNamespace(
        get_trials=lambda: [ended, waiting],
        get_live_trials=set,
        _stopped_trials=set(),
        _failed_trials=set(),
        _trials_to_cache=set(),
        _trial_metadata={},
        _trial_to_actor=SimpleNamespace(get=lambda trial: None),
        _actor_manager=SimpleNamespace(is_actor_started=lambda worker: True),
    )
    delattr(whole, name[1:].partition(".")[0])
    said = list[str]()
    scheduler = DriverScheduler(SimpleNamespace(), said.append, Workers(1))
    for _ in range(2):
        assert scheduler.choose_trial_to_run(whole) is waiting
        scheduler.on_trial_complete(whole, ended, {})
    (line,) = said
    assert line.startswith(f"Ray {ray.__version__} has no {name[1:]}: ")
