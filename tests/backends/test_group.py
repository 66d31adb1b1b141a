"""A worker with several trials: each is as it would be by itself, whatever becomes of the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from counting import Counting

from sweep.backends import (
    Ends,
    Job,
    Moves,
    Order,
    Progress,
    Steps,
    checkpoints,
    is_released,
    request_orders,
)
from sweep.backends.group import WorkerGroup
from sweep.backends.worker import Worker
from sweep.contract import Apart, Assignment, EpochReported, OutOfMemory, Report, Stopped, Trainable
from sweep.space.objectives import Objective

HERE = Path(__file__).parent
pytestmark = pytest.mark.usefixtures("light_collections")


class Together:
    """Trains `Counting` trials together, an epoch of each at a time; at most so many, of one batch size."""

    most = 99
    is_open = False
    raises: BaseException | None = None  # as they train

    def __init__(self) -> None:
        self.turns: list[int] = []  # how many were trained at once
        self.begun: dict[Trainable, int] = {}  # the batch sizes of those that are there

    def member(self) -> Trainable:
        return Member(self)

    def leave(self, member: Trainable) -> None:
        self.begun.pop(member, None)

    def train(self, reports: Mapping[Trainable, Report]) -> Mapping[Trainable, Exception]:
        if len(reports) > 1 and self.raises is not None:
            raise self.raises
        self.turns.append(len(reports))
        raised: dict[Trainable, Exception] = {}
        goes_on = True

        def hear(member: Any, epoch: EpochReported) -> bool:
            nonlocal goes_on
            goes_on &= reports[member](epoch)
            return False

        while goes_on:
            for member in reports:
                done = member.done
                try:
                    Counting.train(member, partial(hear, member))
                except Exception as error:
                    raised[member] = error
                else:
                    # it trains no more, of itself or at its end
                    if member.done in (
                        done,
                        member.given.epochs,
                    ):
                        raised[member] = Stopped()
            goes_on &= not raised
        return raised


class Member(Counting):
    def __init__(self, group: Together) -> None:
        self.group = group

    def begin(self, assignment: Assignment) -> None:
        size = int(str(assignment.params["batch_size"]))
        self.group.leave(self)
        if set(self.group.begun.values()) - {size}:
            raise Apart("another batch size")
        self.group.begun[self] = size
        super().begin(assignment)


class Pooled(Counting):
    """What a worker makes of the job's trainable."""

    made: Together

    def group(self) -> Together:
        Pooled.made = Together()
        return Pooled.made


def grouped(folder: Path, together: int, trainable: type = Pooled) -> WorkerGroup:
    job = Job(
        "s",
        "test_group:Pooled",
        (HERE,),
        folder,
        Objective("score", "minimize"),
        checkpoint_every_s=1e-9,  # after each step, which may have several epochs
    )
    job = dataclasses.replace(job, together=together, given=trainable)
    return WorkerGroup(job, lambda make: Worker(job, make=make))


def order(
    trial: int, events: str = "", epochs: int = 6, decisions: tuple[int, ...] = (), **params: Any
) -> Order:
    assignment = Assignment(
        trial=trial,
        params={"events": events, "batch_size": 32, **params},
        seed=0,
        epochs=epochs,
        objective="score",
    )
    return Order(assignment, decisions)


def train(
    group: WorkerGroup,
    given: list[Order],
    prunes: Callable[[int, int], bool] = lambda trial, epoch: False,
) -> tuple[dict[int, list[int]], dict[int, Progress], list[Steps]]:
    """Train until no trial goes on: the epochs of each, how it ended or moved, and all steps."""
    group.take(given)
    epochs: dict[int, list[int]] = {one.assignment.trial: [] for one in given}
    last: dict[int, Progress] = {}
    steps: list[Steps] = []
    for _ in range(100):
        steps.append(group.step())
        going = []
        for trial, progress in steps[-1].found.items():
            epochs[trial] += [epoch.epoch for epoch in progress.epochs]
            last[trial] = progress
            if not is_released(progress) and not prunes(
                trial, epochs[trial][-1] if epochs[trial] else 0
            ):
                going.append(trial)
        group.keep(going)
        if not going:
            return epochs, last, steps
    raise AssertionError("the trials do not end")


def ends(last: Mapping[int, Progress]) -> dict[int, str]:
    found: dict[int, str] = {}
    for trial, one in last.items():
        match one:
            case Ends():
                found[trial] = str(one.end.status)
            case Moves():
                found[trial] = "moves"
            case _:
                found[trial] = "left"
    return found


def test_trials_are_trained_together_to_their_ends(tmp_path: Path) -> None:
    group = grouped(tmp_path, 4)
    epochs, last, steps = train(group, [order(1), order(2, epochs=3), order(3, decisions=(2,))])
    assert epochs == {1: [1, 2, 3, 4, 5, 6], 2: [1, 2, 3], 3: [1, 2, 3, 4, 5, 6]}
    assert ends(last) == dict.fromkeys((1, 2, 3), "completed")
    assert set(Pooled.made.turns) <= {1, 2, 3}
    assert Pooled.made.turns[0] == 3
    assert [*steps[0].found] == [1, 2, 3]
    assert all(one.spoilt is None for one in steps)
    assert group.is_idle


def test_all_pause_where_one_waits_for_a_decision(tmp_path: Path) -> None:
    group = grouped(tmp_path, 4)
    group.take([order(1, decisions=(2,)), order(2)])
    first = group.step().found
    assert [[epoch.epoch for epoch in one.epochs] for one in first.values()] == [[1, 2], [1, 2]]
    assert all(not isinstance(one, Ends) for one in first.values())


@pytest.mark.parametrize(
    ("events", "status"),
    [
        ("3 fails", "failed"), ("3 nan", "diverged"), ("3 diverges", "diverged"), ("3 skips", "failed"),
        ("3 stops", "completed"), ("3 patience", "completed"),
    ],
)  # fmt: skip
def test_what_becomes_of_one_is_nothing_to_the_others(
    events: str, status: str, tmp_path: Path
) -> None:
    group = grouped(tmp_path, 4)
    epochs, last, steps = train(group, [order(1), order(2, events), order(3)])
    assert ends(last) == {1: "completed", 2: status, 3: "completed"}
    assert epochs[1] == epochs[3] == [1, 2, 3, 4, 5, 6]
    assert epochs[2] == ([1, 2, 3] if events == "3 nan" else [1, 2])
    spoilt = "its trial ended as failed" if status == "failed" else None
    assert steps[-1].spoilt == spoilt
    assert all(one.spoilt is None for step in steps[:-1] for one in step.found.values())


def test_a_trial_that_is_pruned_makes_room_in_its_group_alone(tmp_path: Path) -> None:
    group = grouped(tmp_path, 4)
    given = [order(trial, decisions=(2, 4)) for trial in (1, 2, 3)]
    epochs, last, _ = train(group, given, prunes=lambda trial, epoch: trial == 2 and epoch == 2)
    assert epochs == {1: [1, 2, 3, 4, 5, 6], 2: [1, 2], 3: [1, 2, 3, 4, 5, 6]}
    assert ends(last) == {1: "completed", 2: "left", 3: "completed"}
    train(group, [order(4), order(5)])  # its place is taken
    assert Pooled.made.turns[-1] == 2


def test_a_trial_that_does_not_fit_to_the_others_goes_on_elsewhere(tmp_path: Path) -> None:
    epochs, last, steps = train(grouped(tmp_path, 4), [order(1), order(2, batch_size=64), order(3)])
    assert ends(last) == {1: "completed", 2: "moves", 3: "completed"}
    assert epochs[2] == []
    assert {one.together for one in steps} == {4}


def test_trials_need_not_fit_to_those_that_were_there_before_them(tmp_path: Path) -> None:
    group = grouped(tmp_path, 4)
    prunes = {2: 2}  # and the others end by themselves, or fail
    first = [order(1), order(2, decisions=(2,)), order(3, "3 fails"), order(4, batch_size=64)]
    train(group, first, prunes=lambda trial, epoch: prunes.get(trial) == epoch)
    _, last, _ = train(group, [order(number, batch_size=64) for number in (5, 6)])
    assert ends(last) == {5: "completed", 6: "completed"}
    assert Pooled.made.turns[-1] == 2
    _, last, _ = train(group, [order(7)])
    assert ends(last) == {7: "completed"}


def test_trials_join_those_under_way_until_one_does_not_fit(tmp_path: Path) -> None:
    group = grouped(tmp_path, 4)
    group.take([order(1, decisions=(2,)), order(2, decisions=(2,))])
    Pooled.made.is_open = True
    assert group.step().is_open
    group.keep([1])
    group.take([order(3, decisions=(5,))])
    step = group.step()
    assert {trial: [epoch.epoch for epoch in one.epochs] for trial, one in step.found.items()} == {
        1: [3, 4, 5, 6],
        3: [1, 2, 3, 4],
    }
    assert step.is_open
    group.take([order(4, batch_size=64)])
    step = group.step()
    assert (type(step.found[4]), step.is_open) == (Moves, False)
    group.keep([])
    _, last, steps = train(group, [order(5), order(6)])
    assert steps[0].is_open
    assert ends(last) == {5: "completed", 6: "completed"}


def test_trials_that_cannot_be_trained_together_are_trained_one_at_a_time(tmp_path: Path) -> None:
    Together.raises = Apart("Conv3D has no form for several trials at once")
    try:
        epochs, last, steps = train(grouped(tmp_path, 4), [order(1), order(2), order(3)])
    finally:
        Together.raises = None
    assert ends(last) == {1: "completed", 2: "moves", 3: "moves"}
    assert epochs == {1: [1, 2, 3, 4, 5, 6], 2: [], 3: []}
    assert steps[0].together == 1
    assert [text for step in steps for one in step.found.values() for text in one.notices] == [
        "Conv3D has no form for several trials at once"
    ]


@pytest.mark.parametrize(
    ("error", "together", "told"),
    [
        (OutOfMemory("no room"), 2, "4 trials at once do not fit into memory"),
        (RuntimeError("broken"), 1, "broken"),
        (SystemExit(3), 1, "3"),
    ],
)
def test_a_failure_that_may_be_anybodys_lets_each_go_on_by_itself(
    error: BaseException, together: int, told: str, tmp_path: Path
) -> None:
    Together.raises = error
    try:
        _, last, steps = train(grouped(tmp_path, 4), [order(trial) for trial in (1, 2, 3, 4)])
    finally:
        Together.raises = None
    assert ends(last) == dict.fromkeys((1, 2, 3, 4), "moves")
    assert steps[0].together == together
    assert steps[0].spoilt == f"its trials failed together: {told}"


def test_one_of_several_goes_on_from_its_checkpoint_alone(tmp_path: Path) -> None:
    group = grouped(tmp_path, 4)
    group.take([order(1), order(2, decisions=(3,))])
    assert [len(one.epochs) for one in group.step().found.values()] == [3, 3]
    group.close()
    assert checkpoints.list_newest_first(tmp_path, 1)[0].name == "epoch-000003"
    epochs, last, _ = train(grouped(tmp_path, 1, Counting), [order(1)])
    assert epochs[1] == [1, 2, 3, 4, 5, 6]  # the first ones out of the checkpoint
    assert isinstance(last[1], Ends)


def test_a_trainable_without_groups_is_given_one_trial_at_a_time(tmp_path: Path) -> None:
    group = grouped(tmp_path, 4, Counting)
    _, last, steps = train(group, [order(1), order(2)])
    assert ends(last) == {1: "completed", 2: "completed"}
    assert steps[0].together == 1
    assert "has no group()" in steps[0].found[1].notices[0]


class Giving:
    """A driver that gives out so many trials."""

    def __init__(self, count: int, left: int | None) -> None:
        self.count, self.left = count, left

    def next(self, worker: str = "") -> Order | None:
        self.count -= 1
        return order(self.count) if self.count >= 0 else None


@pytest.mark.parametrize(
    ("count", "left", "most", "idle", "expected"),
    [
        (99, None, 4, 2, 4),
        (99, 99, 32, 2, 32),
        (27, 27, 32, 2, 14),
        (27, 27, 32, 1, 27),
        (1, 5, 4, 1, 1),
        (5, 0, 4, 1, 1),
    ],
)
def test_few_trials_are_shared_out(
    count: int, left: int | None, most: int, idle: int, expected: int
) -> None:
    assert len(request_orders(Giving(count, left), "w", most, idle)) == expected  # type: ignore[arg-type]  # a driver that only gives
