"""Which completed trials keep their checkpoints."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from sweep.backends import checkpoints
from sweep.backends.checkpoints import CheckpointKeeper, Manifest
from sweep.events import EpochReported, Event, Facts, Role, Status, TrialEnded, TrialStarted
from sweep.spec import parse_spec
from sweep.store.ledger import Ledger

TEXT = """
trainable: a:B
method: random
run_cap: 9
metric: {name: score, goal: maximize}
parameters: {x: {min: 0.0, max: 1.0}}
checkpoint: {trials: %s, space_gb: %s}
"""
PAYLOAD = 50_000


def saved(
    folder: Path, trial: int, scores: Iterable[float], role: Role = Role.SEARCH
) -> list[Event]:
    """What a trial leaves on disk with a checkpoint of each epoch, and its events."""
    epochs = [
        EpochReported(
            trial=trial, epoch=epoch, metrics={"score": score}, time=float(epoch), time_s=1.0
        )
        for epoch, score in enumerate(scores, 1)
    ]
    for epoch in epochs:
        manifest = Manifest(epoch.epoch, loss=-float(epoch.metrics["score"]))
        place = checkpoints.get_trial_folder(folder, trial)
        checkpoints.begin_checkpoint(
            place, manifest, lambda aside: (aside / "state").write_bytes(bytes(PAYLOAD)) and None, 9
        )()
    begin = TrialStarted(trial=trial, trial_id="", params={}, seed=0, repeat=0, time=0.0, role=role)
    return [
        begin,
        *epochs,
        ended(trial, Facts(checkpoint=f"checkpoints/{trial:05d}/epoch-{len(epochs):06d}")),
    ]


def ended(trial: int, facts: Facts, status: Status = Status.COMPLETED) -> TrialEnded:
    return TrialEnded(trial=trial, status=status, reason="", time=9.0, facts=facts)


class Keeper(CheckpointKeeper):
    def __init__(
        self, folder: Path, trials: int = 9, space_gb: float = 9.0, more: str = ""
    ) -> None:
        super().__init__(folder, parse_spec(TEXT % (trials, space_gb) + more, "a.yaml"))
        self._ledger = Ledger()

    def see(self, events: Iterable[Event]) -> None:
        for event in events:
            self.on(self._ledger.observe(event))


def kept(folder: Path) -> dict[int, list[int]]:
    """The epochs of which there are checkpoints, by trial."""
    trials = sorted((folder / "checkpoints").glob("*"))
    return {
        int(t.name): [int(c.name.removeprefix("epoch-")) for c in sorted(t.iterdir())]
        for t in trials
    }


def test_the_last_and_the_best_of_each(tmp_path: Path) -> None:
    keeps = Keeper(tmp_path)
    for trial, scores in enumerate([(1, 3, 2), (1, 2, 3), (3, 2, 1)]):
        keeps.see(saved(tmp_path, trial, scores))
    assert kept(tmp_path) == {0: [2, 3], 1: [3], 2: [1, 3]}
    assert keeps.to_beat() is None


def test_of_those_that_meet_the_constraints_the_best_keep_theirs(tmp_path: Path) -> None:
    keeps = Keeper(tmp_path, trials=2, more="constraints: [score <= 3]")
    for trial, score in enumerate([1, 9, 2, 8]):
        keeps.see(saved(tmp_path, trial, [score]))
    assert kept(tmp_path) == {0: [1], 2: [1]}


def test_the_best_trials_keep_theirs_and_say_what_to_beat(tmp_path: Path) -> None:
    keeps = Keeper(tmp_path, trials=2)
    for trial, score in enumerate([4, 1, 3, 2]):
        keeps.see(saved(tmp_path, trial, [score]))
    assert kept(tmp_path) == {0: [1], 2: [1]}
    assert keeps.to_beat() == -3


def test_the_fresh_seeds_of_a_confirmation_keep_theirs_before_all_others(tmp_path: Path) -> None:
    keeps = Keeper(tmp_path, trials=3)
    for trial, score in enumerate([9, 8, 7]):
        keeps.see(saved(tmp_path, trial, [score]))
    for trial, score in enumerate([1, 2], start=3):
        keeps.see(saved(tmp_path, trial, [score], Role.CONFIRM))
    assert list(kept(tmp_path)) == [0, 3, 4]
    assert keeps.to_beat() == -9
    keeps.see(saved(tmp_path, 5, [3], Role.CONFIRM))
    assert keeps.to_beat() == -math.inf
    keeps.see(saved(tmp_path, 6, [10]))  # after the confirmation, the search has gone on
    assert list(kept(tmp_path)) == [3, 4, 5]


@pytest.mark.parametrize(
    ("space_gb", "trials"), [(0.0, [1]), (1.5 * PAYLOAD / 1e9, [1]), (2.5 * PAYLOAD / 1e9, [1, 2])]
)
def test_space_is_bounded_but_for_the_best(
    tmp_path: Path, space_gb: float, trials: list[int]
) -> None:
    keeps = Keeper(tmp_path, space_gb=space_gb)
    for trial, score in enumerate([1, 4, 3, 2]):
        keeps.see(saved(tmp_path, trial, [score]))
    assert list(kept(tmp_path)) == trials
    assert keeps.to_beat() == (-4 if trials == [1] else -3)


@pytest.mark.parametrize("status", [Status.PRUNED, Status.DIVERGED, Status.OOM, Status.FAILED])
def test_what_did_not_complete_keeps_none(tmp_path: Path, status: Status) -> None:
    keeps = Keeper(tmp_path)
    keeps.see([*saved(tmp_path, 0, [1, 2])[:-1], ended(0, Facts(), status)])
    assert kept(tmp_path) == {}


def test_an_interrupted_trial_keeps_all(tmp_path: Path) -> None:
    keeps = Keeper(tmp_path)
    keeps.see([*saved(tmp_path, 0, [1, 3, 2])[:-1], ended(0, Facts(), Status.INTERRUPTED)])
    assert kept(tmp_path) == {0: [1, 2, 3]}


def test_one_that_did_not_save_its_end_keeps_none(tmp_path: Path) -> None:
    keeps = Keeper(tmp_path)
    keeps.see([*saved(tmp_path, 0, [1, 2])[:-1], ended(0, Facts())])
    assert kept(tmp_path) == {}


def test_a_replay_comes_to_the_same(tmp_path: Path) -> None:
    keeps, events = Keeper(tmp_path, trials=2), []
    for trial, score in enumerate([4, 1, 3, 2]):
        events += saved(tmp_path, trial, [score])
        keeps.see(events[-3:])
    again = Keeper(tmp_path, trials=2)
    again.see(events)
    assert kept(tmp_path) == {0: [1], 2: [1]}
    assert again.to_beat() == keeps.to_beat()


def test_what_a_killed_driver_left_is_deleted_in_the_replay(tmp_path: Path) -> None:
    events = [
        event for trial, score in enumerate([1, 2, 3]) for event in saved(tmp_path, trial, [score])
    ]
    shutil.rmtree(checkpoints.get_trial_folder(tmp_path, 1))
    again = Keeper(tmp_path, trials=1)
    again.see(events)
    assert kept(tmp_path) == {2: [1]}


def recalled(folder: Path, events: Iterable[Event]) -> Keeper:
    """The keeper of a session that goes on after these events."""
    keeper = Keeper(folder)
    for event in events:
        keeper.recall(keeper._ledger.observe(event))
    keeper.begin()
    return keeper


def again(trial: int) -> TrialEnded:
    return TrialEnded(
        trial=trial, status=Status.INTERRUPTED, reason="tried again", time=9.0, again=True
    )


def test_a_trial_that_is_tried_again_keeps_what_it_has(tmp_path: Path) -> None:
    begin, *epochs, end = saved(tmp_path, 0, [0.1, 0.2])
    failed = ended(0, Facts(), Status.FAILED)
    assert isinstance(end, TrialEnded)
    keeper = recalled(tmp_path, [begin, *epochs, failed, again(0)])
    assert kept(tmp_path) == {0: [1, 2]}
    keeper.see([end])
    keeper.close()
    assert kept(tmp_path) == {0: [2]}
    recalled(tmp_path, [begin, *epochs, failed, again(0), end]).close()
    assert kept(tmp_path) == {0: [2]}


def test_what_a_killed_driver_left_of_an_ended_trial_is_deleted(tmp_path: Path) -> None:
    begin, *epochs, _ = saved(tmp_path, 0, [0.1])
    recalled(tmp_path, [begin, *epochs, ended(0, Facts(), Status.PRUNED)])
    assert kept(tmp_path) == {}


def test_a_worker_that_writes_after_the_end_is_cleaned_up_behind(tmp_path: Path) -> None:
    begin, *epochs, _ = saved(tmp_path, 0, [0.1])
    keeper = Keeper(tmp_path)
    keeper.see([begin, *epochs, ended(0, Facts(), Status.PRUNED)])
    assert kept(tmp_path) == {}
    saved(tmp_path, 0, [0.1])  # it had not heard yet
    keeper.close()
    assert kept(tmp_path) == {}
