"""What our adapters make of Ray Tune's own bookkeeping."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import pytest

from sweep.backends import Continues, Ends, Job, Lost, Order, Outgrown, Steps, checkpoints
from sweep.contract import Assignment
from sweep.errors import StoreError
from sweep.events import Status, TrialEnded
from sweep.space.objectives import Objective

pytestmark = pytest.mark.ray


class NoDriver:
    """Is not asked for anything."""

    running, stopping, left = 0, None, None

    def next(self, worker: str = "") -> None:
        raise AssertionError

    def take(self, trial: int, progress: Any) -> bool:
        raise AssertionError

    def lose(self, trial: int, reason: str, lost: Lost = "worker", output: str = "") -> bool:
        raise AssertionError

    def begun(self, trial: int) -> None:
        raise AssertionError

    def tick(self) -> list[int]:
        raise AssertionError


class Trial(NamedTuple):
    """What is looked at of a trial of Tune."""

    trial_id: str
    status: str


def chosen(longest_wait_s: float, *statuses: str, starting: tuple[int, ...] = ()) -> str | None:
    """The trial that is chosen the second time; the workers of all have been asked for, some of them start."""
    from sweep.backends.ray_tune.adapters import DriverScheduler, Workers

    trials = [Trial(str(number), status) for number, status in enumerate(statuses)]
    controller = SimpleNamespace(
        get_trials=lambda: trials,
        _trial_to_actor={trial: int(trial.trial_id) for trial in trials},
        _actor_manager=SimpleNamespace(is_actor_started=lambda worker: worker in starting),
    )
    scheduler = DriverScheduler(NoDriver(), lambda text: None, Workers(1), longest_wait_s)
    found = [scheduler.choose_trial_to_run(controller) for _ in range(2)][-1]
    return found and str(found.trial_id)


def test_the_youngest_takes_a_free_worker() -> None:
    assert chosen(60.0, "RUNNING", "PENDING", "PENDING", "TERMINATED") == "2"


def test_the_oldest_without_room_after_a_while() -> None:
    assert chosen(0.0, "RUNNING", "PENDING", "PENDING") == "1"


def test_a_worker_that_starts_is_waited_for() -> None:
    assert chosen(0.0, "RUNNING", "PENDING", "PENDING", starting=(1,)) == "2"


def test_nobody_waits() -> None:
    assert chosen(60.0, "RUNNING", "TERMINATED") is None


def test_a_worker_that_is_replaced_is_told_with_the_reason() -> None:
    from sweep.backends.ray_tune.adapters import DriverScheduler, Workers

    said: list[str] = []
    scheduler = DriverScheduler(Ending(7), said.append, Workers(1, free := ["w2"]))
    end = TrialEnded(trial=7, status=Status.COMPLETED, reason="", time=0.0)
    answers = [
        scheduler.on_trial_result(
            None, SimpleNamespace(trial_id="t"), {"steps": Steps({7: progress}, progress.spoilt)}
        )
        for progress in (Ends(end=end, worker="w"), Ends(end=end, spoilt="it is full", worker="w"))
    ]
    assert answers == ["STOP", "CONTINUE"]  # one that goes on raises next, at which Tune ends it
    assert said == ["the worker of trial 7 is replaced: it is full"]
    assert free == ["w2"]  # it was among those until it reported once more


class Ending(NoDriver):
    """Ends these trials."""

    def __init__(self, *ended: int) -> None:
        self.ended, self.lost = ended, list[int]()

    def take(self, trial: int, progress: Any) -> bool:
        return trial not in self.ended

    def lose(self, trial: int, reason: str, lost: Lost = "worker", output: str = "") -> bool:
        self.lost.append(trial)
        return True


class Actor:
    """Is told which trials to keep."""

    def __init__(self) -> None:
        self.kept: list[list[int]] = []
        self.given: list[int] = []
        self.keep = SimpleNamespace(remote=self.hear)

    def hear(self, trials: list[int], more: list[Order]) -> None:
        self.kept.append([*trials])
        self.given += [order.assignment.trial for order in more]


def several(
    driver: Ending, steps: Steps, actor: Actor | None, room: Callable[[], int] | None = None
) -> tuple[Any, list[str], Any]:
    """A step of a worker with several trials: Tune's answer, what was said, and who has which trials then."""
    from sweep.backends.ray_tune.adapters import DriverScheduler, Workers

    said: list[str] = []
    workers = Workers(4, held={"t": [*steps.found]})
    state = SimpleNamespace() if actor is None else SimpleNamespace(ray_actor=actor)
    trial = SimpleNamespace(trial_id="t", temporary_state=state)
    scheduler = DriverScheduler(driver, said.append, workers, room=room)
    answer = scheduler.on_trial_result(None, trial, {"steps": steps})
    return answer, said, workers


def test_a_worker_keeps_the_trials_that_go_on() -> None:
    found = {number: Continues(worker="w") for number in (1, 2, 3)}
    answer, _, workers = several(Ending(2), Steps(found, together=4), actor := Actor())
    assert (answer, actor.kept, workers.held, workers.together) == (
        "CONTINUE",
        [[1, 3]],
        {"t": [1, 3]},
        4,
    )


class Giving(Ending):
    """Ends these trials, and has so many more."""

    def __init__(self, *ended: int, left: int) -> None:
        super().__init__(*ended)
        self.left, self.heard = left, list[int]()

    def next(self, worker: str = "") -> Order | None:
        self.left -= 1
        number = 100 + self.left
        return (
            Order(Assignment(trial=number, params={}, seed=0, epochs=1)) if self.left >= 0 else None
        )

    def begun(self, trial: int) -> None:
        self.heard.append(trial)


def test_places_of_a_worker_are_given_to_other_trials_once_a_quarter_is_free() -> None:
    found = {number: Continues(worker="w") for number in range(8)}
    for ended, is_open, more in (
        ((1, 2), True, [104, 103]),
        ((1,), True, []),
        ((1, 2), False, []),
        (range(8), True, []),
    ):
        driver, actor = Giving(*ended, left=5), Actor()
        answer, _, workers = several(driver, Steps(found, together=8, is_open=is_open), actor)
        going = [number for number in found if number not in ended]
        assert actor.given == driver.heard == more
        assert (answer, workers.held) == (
            ("CONTINUE", {"t": [*going, *more]}) if going else ("STOP", {})
        )


def test_a_worker_is_free_when_all_of_its_trials_have_ended() -> None:
    found = {number: Continues(worker="w") for number in (1, 2)}
    answer, _, workers = several(Ending(1, 2), Steps(found, together=2), actor := Actor())
    assert (answer, actor.kept, workers.held, workers.free, workers.together) == (
        "STOP",
        [],
        {},
        ["w"],
        2,
    )


@pytest.mark.parametrize(("room", "ends"), [(0, True), (1, False), (None, False)])
def test_a_worker_whose_room_another_sweep_wants_ends_with_its_trial(
    room: int | None, ends: bool
) -> None:
    found = {1: Continues(worker="w")}
    wanted = None if room is None else lambda: room
    answer, said, workers = several(Ending(1), Steps(found), actor := Actor(), wanted)
    assert (actor.kept, workers.held, said) == ([[]] if ends else [], {}, [])
    assert (answer, workers.free) == (("CONTINUE", []) if ends else ("STOP", ["w"]))


def test_a_spoilt_worker_trains_on_and_is_replaced_with_its_last_trial() -> None:
    driver, failed = Ending(1), TrialEnded(trial=1, status=Status.FAILED, reason="broken", time=0.0)
    found = {1: Ends(end=failed, worker="w"), 2: Continues(worker="w")}
    answer, said, workers = several(
        driver, Steps(found, "its trial ended as failed", 4), actor := Actor()
    )
    assert (answer, said, actor.kept, workers.held) == ("CONTINUE", [], [], {"t": [2]})
    answer, said, workers = several(
        Ending(2), Steps({2: Continues(worker="w")}, "its trial ended as failed", 4), actor
    )
    # with nothing to train, it raises
    assert (answer, actor.kept, workers.held) == (
        "CONTINUE",
        [[]],
        {},
    )
    assert workers.replaced == {"t": []}
    assert said == ["the worker of trial 2 is replaced: its trial ended as failed"]


def test_a_trial_that_needs_another_process_is_lost_by_a_worker_that_stays() -> None:
    found = {1: Outgrown(accumulate=2, worker="w"), 2: Continues(worker="w")}
    answer, _, workers = several(
        driver := Ending(), Steps(found, "its trial does not fit", 4), Actor()
    )
    assert (answer, driver.lost, workers.held) == ("CONTINUE", [1], {"t": [2]})


def test_trials_go_on_by_themselves_where_a_worker_cannot_be_told() -> None:
    found = {number: Continues(worker="w") for number in (1, 2, 3)}
    answer, said, workers = several(driver := Ending(2), Steps(found, together=4), None)
    assert (answer, driver.lost, workers.held, workers.together) == ("STOP", [1, 3], {}, 1)
    assert "temporary_state.ray_actor" in said[0]


def test_of_a_lost_worker_each_trial_is_told_how_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sweep.backends.ray_tune.adapters import DriverScheduler, Workers

    (tmp_path / "checkpoints" / "00001" / "epoch-000003").mkdir(parents=True)
    (tmp_path / "checkpoints" / "00002").mkdir()
    (error := tmp_path / "error.txt").write_text("Failure\nWorkerLost: rank 1: exit code 3")
    config = {
        "job": Job("lr", "t:T", (), tmp_path, Objective("loss", "minimize")),
        "orders": [Order(Assignment(trial=1, params={}, seed=0, epochs=5))],
    }
    said: list[str] = []
    workers = Workers(2, held={"t": [1, 2], "u": [3]})
    scheduler = DriverScheduler(driver := Ending(), said.append, workers)
    scheduler.on_trial_error(
        None, SimpleNamespace(trial_id="t", error_file=str(error), config=config)
    )

    def away(folder: Path, trial: int) -> list[str]:
        raise StoreError("no answer")

    monkeypatch.setattr(checkpoints, "list_names", away)
    scheduler.on_trial_error(
        None, SimpleNamespace(trial_id="u", error_file=str(error), config=config)
    )
    assert driver.lost == [1, 2, 3]
    lost = "worker lost: rank 1: exit code 3; it"
    assert said == [
        f"trial 1: {lost} goes on from its checkpoint",
        f"trial 2: {lost} has no checkpoint and begins anew",
        f"trial 3: {lost} goes on",
    ]


def test_workers_ask_for_no_environment_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray.tune.execution import tune_controller

    from sweep.backends.ray_tune.adapters import use_prestarted_processes

    monkeypatch.setattr(
        tune_controller, "_ActorClassCache", theirs := tune_controller._ActorClassCache
    )
    # with which Ray starts other processes
    assert theirs().get(NoDriver)._default_options["runtime_env"]
    use_prestarted_processes(print)
    ours = tune_controller._ActorClassCache()
    assert ours.get(NoDriver)._default_options.get("runtime_env") is None
    assert ours.get(NoDriver) is ours.get(NoDriver)


class Actors:
    """Stands in for a class of actors: gives the options with which one would be made."""

    def options(self, **given: Any) -> dict[str, Any]:
        return given


class TheirCache:
    """Stands in for Tune's cache of such classes."""

    made: ClassVar[list[TheirCache]] = []

    def __init__(self) -> None:
        self.actors = Actors()
        self.made.append(self)

    def get(self, trainable: type) -> Actors:
        return self.actors


def test_no_two_workers_have_the_same_name(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray.tune.execution import tune_controller

    from sweep.backends.ray_tune.adapters import name_workers

    def job(session: str) -> Job:
        return Job("lr 高", "t:T", (), Path(), Objective("loss", "minimize"), session=session)

    monkeypatch.setattr(tune_controller, "_ActorClassCache", TheirCache)
    monkeypatch.setattr(TheirCache, "made", [])
    names = []
    for session in ("0123456789ab", "fedcba987654"):  # one after the other in one process
        name_workers(job(session), print)
        cache = tune_controller._ActorClassCache()
        assert cache.get(NoDriver) is cache.get(NoDriver)
        made = [cache.get(NoDriver).options(num_cpus=1) for _ in range(2)]
        assert [options["num_cpus"] for options in made] == [1, 1]
        names += [options["name"] for options in made]
    assert names == [
        f"lr 高/{session}/worker-{number}" for session in ("012345", "fedcba") for number in (0, 1)
    ]
    # Tune's own classes are as they were
    assert [theirs.actors.options() for theirs in TheirCache.made] == [
        {},
        {},
    ]


SHORTEST = """
import os, sys, time
AHEAD = float("colorsys" in sys.modules)
from sweep.contract import EpochReported, Facts
class Shortest:
    def begin(self, assignment):
        self.given = assignment
    def train(self, report):
        if self.given.trial == 7:
            raise RuntimeError("no")
        if self.given.trial == 9:
            os._exit(9)
        time.sleep(0.02)
        report(EpochReported(trial=0, epoch=1, metrics={"pid": os.getpid(), "ahead": AHEAD}, time=1.0, time_s=0.02))
    def save(self, folder):
        pass
    def restore(self, folder):
        return 1
    def facts(self):
        return Facts()
"""
# In a process of its own, as Ray is for a whole process.
SCRIPT = """
import gc, json, os, time
from pathlib import Path
import ray
from ray.tune.experiment import Trial
from sweep.backends.ray_tune import backend, cluster, local_ray
from sweep.backends import Ends, Job, Order
from sweep.space.objectives import Objective
from sweep.contract import Assignment, Devices

class Driver:
    stopping = room = left = None
    def __init__(self):
        self.given, self.out, self.ended, self.peak, self.lost = 0, set(), [], 0, []
        self.ahead = set()
        self.since_loss = set()  # processes that trained after one of them had died
    @property
    def running(self):
        return len(self.out)
    def next(self, worker=""):
        if len(self.ended) > 50 and len(self.since_loss) > 1:  # however long a worker takes to start
            return None
        self.given += 1
        self.out.add(self.given)
        return Order(Assignment(trial=self.given, params={}, seed=0, epochs=1, objective="pid"))
    def take(self, trial, progress):
        self.ahead.update(epoch.metrics["ahead"] for epoch in progress.epochs)
        if self.lost:
            self.since_loss.update(int(epoch.metrics["pid"]) for epoch in progress.epochs)
        if not isinstance(progress, Ends):
            return True
        self.ended.append(trial)
        self.out.discard(trial)
        self.peak = sum(type(thing) is Trial for thing in gc.get_objects())
        return False
    def lose(self, trial, reason, lost="worker", output=""):
        if trial in self.out:
            self.lost.append([trial, reason])
            self.out.discard(trial)
        return False
    def begun(self, trial):
        pass
    def tick(self):
        return []

job = Job("shortest", "shortest:Shortest", (Path.cwd(),), Path.cwd() / "results", Objective("pid", "minimize"))
driver, said = Driver(), []
ahead = local_ray.importing_in_advance(["colorsys"], Devices(), None)
start = cluster.Start(lost=lambda: os._exit(1), ahead=ahead)
with cluster.connect(None, None, lambda text: None, start) as found:
    backend.RayTune(cluster=found, job=job, devices=Devices(), most=2, notice=said.append).train(driver)
    session = Path(ray._private.worker._global_node.get_session_dir_path())
    folders = sum(1 for path in (session / "artifacts").rglob("*") if path.is_dir())
    aside = ray._private.worker._global_node.all_processes["monitor"][0].process
    ended = time.monotonic()
end_s = time.monotonic() - ended
print(json.dumps({"ended": driver.ended, "given": driver.given, "workers": len(driver.since_loss),
                  "trials": driver.peak, "lost": driver.lost,
                  "folders": folders, "end_s": end_s, "aside": aside.poll(), "said": said,
                  "ahead": sorted(driver.ahead), "left": [name for name in os.environ if "preload" in name]}))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("shortest")
    (folder / "shortest.py").write_text(SHORTEST)
    (folder / "results").mkdir()
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=1500,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    return dict(json.loads(ran.stdout.splitlines()[-1]))


@pytest.mark.slow
def test_short_trials_leave_nothing_behind(found: dict[str, Any]) -> None:
    assert sorted([*found["ended"], 9]) == list(range(1, found["given"] + 1))
    assert found["lost"] == [[9, "worker lost: exit code 9"]]
    assert found["said"] == ["the worker of trial 7 is replaced: its trial ended as failed"]
    assert found["trials"] <= 5
    assert found["folders"] <= 20


@pytest.mark.slow
def test_short_trials_start_all_workers(found: dict[str, Any]) -> None:
    assert found["workers"] == 2  # though the trial of one failed, and another died


@pytest.mark.slow
def test_processes_that_ray_starts_ahead_have_imported_what_trials_need(
    found: dict[str, Any],
) -> None:
    assert found["ahead"] == [1.0]
    assert found["left"] == []


@pytest.mark.slow
def test_ray_ends_without_waiting_for_what_no_trial_needs(found: dict[str, Any]) -> None:
    # the dashboard and the monitor, for each of which Ray waits a second
    assert found["aside"] == -9


def test_a_sweep_is_not_over_while_its_only_worker_is_replaced() -> None:
    from ray.tune.search import Searcher

    from sweep.backends.ray_tune.adapters import DriverSearcher, Workers

    class Two(NoDriver):
        given = 0

        def next(self, worker: str = "") -> Order | None:
            self.given += 1
            return (
                Order(Assignment(trial=self.given, params={}, seed=0, epochs=1))
                if self.given <= 2
                else None
            )

    workers = Workers(1)
    searcher = DriverSearcher(Two(), lambda: 1, workers, {})
    assert [one.assignment.trial for one in searcher.suggest("a")["orders"]] == [1]
    assert searcher.suggest("b") is None  # there is no room, whatever the driver knows to run
    workers.replaced["a"] = workers.held.pop("a")
    assert [one.assignment.trial for one in searcher.suggest("b")["orders"]] == [2]
    workers.held.clear()
    assert searcher.suggest("c") is Searcher.FINISHED
