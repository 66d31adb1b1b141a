"""Trials that are trained together, whenever they begin, end, diverge, are saved and go on."""

from __future__ import annotations

import functools
import gc
import math
import random
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from sampling import chosen
from small import Small, assignment, go_on, metrics
from tensorflow.python.framework.ops import gradient_registry
from zoo_together import Trained, assert_same

from sweep.backends.inputs import get_declared_paths
from sweep.contract import Apart, Assignment, Diverged, EpochReported, Stopped
from trainables.data.passes import Walk
from trainables.fused.group import FusedGroup, Member
from trainables.session import TrialSession

pytestmark = pytest.mark.keras


class Dropped(Small):
    """With a dropout whose rate is the trial's, behind clipped gradients."""

    def model(self, hp: Any) -> keras.Model:
        body = super().model(hp).layers
        return keras.Sequential(
            [keras.Input((6,)), *body[:-1], keras.layers.Dropout(self.dropout(hp)), body[-1]]
        )


def given(number: int, *, epochs: int = 5, **params: Any) -> Assignment:
    rng = np.random.default_rng(number)
    own = {"learning_rate": float(10 ** rng.uniform(-3, -1)), "dropout": float(rng.uniform(0, 0.5))}
    found = assignment(
        epochs=epochs, seed=number % 2, clipnorm=float(rng.uniform(0, 2)), **{**own, **params}
    )
    return replace(found, trial=number)


@functools.cache
def by_itself() -> TrialSession:
    """What trains one trial after the other, for all tests of this file: the program of most is the same."""
    return TrialSession(Dropped())


def alone(assignments: list[Assignment]) -> list[Trained]:
    session, found = by_itself(), []
    for one in assignments:
        session.begin(one)
        try:
            epochs = metrics(go_on(session))
        except Diverged:
            epochs = []
        found.append(Trained(epochs, session.trial.program.state.copy_all()))
    return found


def begun(assignments: list[Assignment]) -> tuple[FusedGroup, list[Member]]:
    group = TrialSession(Dropped()).group()
    members = [group.member() for _ in assignments]
    for member, one in zip(members, assignments, strict=True):
        member.begin(one)
    return group, members


def train(
    group: FusedGroup, members: list[Member], until: int | None = None
) -> tuple[dict[Member, list[dict[str, float]]], dict[Member, Exception]]:
    """Train to the ends of all, or until they have this epoch; what they reported, and raised."""
    epochs: dict[Member, list[dict[str, float]]] = {member: [] for member in members}
    raised: dict[Member, Exception] = {}
    going = list(members)

    def report(member: Member) -> Any:
        def hear(epoch: EpochReported) -> bool:
            epochs[member].append(dict(epoch.metrics))
            return epoch.epoch != until

        return hear

    while going:
        raised |= group.train({member: report(member) for member in going})
        ended_states(group).update(
            (member, state(group, member)) for member in going if member.trial.finished
        )
        going = left(
            group, going, [one for one in going if one not in raised and not one.trial.finished]
        )
        going = [member for member in going if until is None or member.trial.epoch < until]
    return epochs, raised


def left(group: FusedGroup, members: list[Member], going: list[Member]) -> list[Member]:
    """Let all of these leave but those that go on, which are returned."""
    for member in set(members) - set(going):
        group.leave(member)
    return going


def ended_states(group: FusedGroup) -> dict[Member, Any]:
    """The states of those that have finished, as their workers would save them.

    They are kept at the group: what trials change in the module of their trainable, which is this one, is put back.
    """
    found: dict[Member, Any] = vars(group).setdefault("ended_states", {})
    return found


def state(group: FusedGroup, member: Member) -> Any:
    ended = ended_states(group)
    return (
        ended[member] if member in ended else group.switch_to(member).trial.program.state.copy_all()
    )


def test_trials_of_two_seeds_are_what_they_are_alone() -> None:
    assignments = [given(number, epochs=5 + number % 3) for number in range(6)]
    group, members = begun(assignments)
    epochs, raised = train(group, members)
    assert all(isinstance(error, Stopped) for error in raised.values())
    for member, expected in zip(members, alone(assignments), strict=True):
        assert_same(expected, Trained(epochs[member], state(group, member)))


class Slow(Dropped):
    """Whose examples take longer to read than to train on."""

    def data(self, hp: Any) -> Any:
        (x, y), held_out = super().data(hp)

        def examples() -> Any:
            for each in zip(x[:32], y[:32], strict=True):
                time.sleep(0.005)
                yield each

        signature = (tf.TensorSpec([6], tf.float32), tf.TensorSpec([], tf.int32))
        stream = tf.data.Dataset.from_generator(examples, output_signature=signature)
        return stream.apply(tf.data.experimental.assert_cardinality(32)), held_out


def test_each_has_its_share_of_the_time_that_all_waited() -> None:
    group = TrialSession(Slow()).group()
    members = [group.member() for _ in range(4)]
    epochs: list[EpochReported] = []
    for number, member in enumerate(members):
        member.begin(given(2 * number, epochs=1))
    group.train({member: lambda epoch: epochs.append(epoch) or True for member in members})
    assert len(epochs) == 4
    for epoch in epochs:
        wait_s = epoch.measures["data_wait_s"]
        assert 0 < wait_s < epoch.time_s
        assert epoch.measures["step_s"] > 0


def test_trials_whose_program_is_traced_read_no_example_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assignments = [given(number) for number in (0, 2)]
    group, members = begun(assignments)
    first, _ = train(group, members, until=2)

    def fail(walk: Walk, number: int) -> Any:
        raise OSError("the file is away")

    monkeypatch.setattr(Walk, "read_epoch_again", fail)
    rest, _ = train(group, members)
    for member, expected in zip(members, alone(assignments), strict=True):
        assert_same(expected, Trained(first[member] + rest[member], state(group, member)))


def test_those_that_are_not_trained_now_stay_as_they_are() -> None:
    assignments = [given(number) for number in (0, 2, 4, 6)]
    group, members = begun(assignments)
    found: dict[Member, list[dict[str, float]]] = {member: [] for member in members}
    for some, until in (
        (members, 1),
        (members[1:], 2),
        ([members[0], members[3]], 3),
        (members[:1], 4),
        (members, 5),
    ):
        for member, epochs in train(group, some, until)[0].items():
            found[member] += epochs
    for member, expected in zip(members, alone(assignments), strict=True):
        assert_same(expected, Trained(found[member], state(group, member)))


def test_a_diverged_trial_stays_in_its_place() -> None:
    assignments = [given(0), given(2, learning_rate=1e30), given(4)]
    group, members = begun(assignments)
    epochs, raised = train(group, members)
    assert isinstance(raised[members[1]], Diverged)
    assert epochs[members[1]] == []
    other, same = begun([assignments[0], given(6), assignments[2]])
    theirs, _ = train(other, same)
    expected = alone(assignments)
    for place in (0, 2):  # the bits are the same whoever is beside them
        assert epochs[members[place]] == theirs[same[place]]
        assert_same(expected[place], Trained(epochs[members[place]], state(group, members[place])))


def test_trials_that_join_others_under_way_are_what_they_are_alone() -> None:
    assignments = [given(number, epochs=6) for number in range(0, 14, 2)]
    group, members = begun(assignments[:4])
    found: dict[Member, list[dict[str, float]]] = {member: [] for member in members}
    going, waiting = members, assignments[4:]
    for until in (2, 3, 6, 6, 6):
        for member, epochs in train(group, going, until)[0].items():
            found[member] += epochs
        going = [member for member in going if not member.trial.finished]
        if waiting:
            going.append(group.member())
            going[-1].begin(waiting.pop(0))
            found[going[-1]] = []
    assert not going
    program = members[0].trial.program
    assert [(stack.trials, stack.streams) for stack in program.stacks] == [(4, 1), (5, 5), (6, 6)]
    for member, expected in zip(found, alone(assignments), strict=True):
        assert_same(expected, Trained(found[member], state(group, member)))


def test_a_group_is_open_once_it_has_trained_as_long_as_a_trace_takes() -> None:
    group, members = begun([given(0), given(2)])
    assert not group.is_open
    train(group, members, until=1)
    (stack,) = members[0].trial.program.stacks
    stack.trace_s = 99.0
    assert not group.is_open
    stack.trace_s = 0.001
    assert group.is_open
    stack.trace_s, stack.streams = 99.0, 2
    assert group.is_open


def test_trials_at_other_places_in_a_pass_are_not_trained_together() -> None:
    # A pass has five batches, the last of which is smaller: the first epoch does not reach it, the second one does.
    assignments = [given(number, steps_per_epoch=3) for number in range(3)]
    group, members = begun(assignments[:2])
    first, _ = train(group, members, until=1)
    for stack in members[0].trial.program.stacks:
        stack.trace_s = 0.001
    assert not group.is_open
    late = group.member()
    late.begin(assignments[2])
    epochs: list[dict[str, float]] = []
    reports = {
        member: lambda epoch: epochs.append(dict(epoch.metrics)) is not None
        for member in (*members, late)
    }
    raised = group.train(reports)
    assert [type(raised.get(member)) for member in (*members, late)] == [NoneType, NoneType, Apart]
    for (member, own), expected, second in zip(
        first.items(), alone(assignments[:2]), epochs, strict=True
    ):
        assert member.trial.epoch == 2
        for mine, theirs in zip([*own, second], expected.metrics, strict=False):
            assert mine == pytest.approx(theirs, abs=2e-6, rel=2e-6)


def test_a_member_tells_what_its_trainable_depends_on() -> None:
    class Dependent(Dropped):
        depends_on = ("tables",)

    member = TrialSession(Dependent()).group().member()
    assert get_declared_paths(member) == ("tables",)
    assert get_declared_paths(TrialSession(Dropped()).group().member()) is None


def test_who_is_left_goes_on_in_a_smaller_stack_or_alone() -> None:
    assignments = [given(number, epochs=2000 if number < 2 else 1) for number in range(0, 12, 2)]
    assignments = [
        replace(one, epochs=40 if place < 2 else 2) for place, one in enumerate(assignments)
    ]
    group, members = begun(assignments)
    first, raised = train(group, members, until=2)
    program = members[0].trial.program
    for stack in program.stacks:  # what empty places cost is more than any trace
        stack.epoch_s, stack.trace_s = 1.0, 1.0
    epochs, _ = train(group, members[:2], until=20)
    assert sorted(stack.trials for stack in program.stacks) == [2, 6]
    last, _ = train(group, left(group, members[:2], members[:1]))
    expected = alone(assignments)
    assert_same(
        expected[0],
        Trained(
            first[members[0]] + epochs[members[0]] + last[members[0]], state(group, members[0])
        ),
    )
    assert len(raised) == 4


def test_a_checkpoint_of_a_place_is_one_of_a_trial_alone_and_the_other_way(tmp_path: Path) -> None:
    assignments = [given(number) for number in (0, 2, 4)]
    expected = alone(assignments)
    group, members = begun(assignments)
    first, _ = train(group, members, until=2)
    for member in members:
        (tmp_path / f"{member.trial.assignment.trial}").mkdir()
        write = member.save(tmp_path / f"{member.trial.assignment.trial}")
        assert write is not None
        write()
    for member, one, whole in zip(members, assignments, expected, strict=True):
        session = TrialSession(Dropped())
        session.begin(one)
        assert session.restore(tmp_path / str(one.trial)) == 2
        rest = metrics(go_on(session))
        assert_same(whole, Trained(first[member] + rest, session.trial.program.state.copy_all()))
    # And of a trial alone: it goes on among others that are elsewhere.
    session = TrialSession(Dropped())
    session.begin(given(6))
    before = metrics(go_on(session, pause_after=3))
    (tmp_path / "alone").mkdir()
    session.save(tmp_path / "alone")()
    group, members = begun([given(6), given(8)])
    assert members[0].restore(tmp_path / "alone") == 3
    rest, _ = train(group, members)
    whole, other = alone([given(6), given(8)])
    assert_same(whole, Trained(before + rest[members[0]], state(group, members[0])))
    assert_same(other, Trained(rest[members[1]], state(group, members[1])))


@pytest.mark.parametrize(
    "other",
    [
        given(1, units=9),
        given(1, batch_size=32),
        given(1, optimizer="sgd"),
        given(1, validation_batch_size=5),
        given(1, shuffle=False),
    ],
    ids=["structure", "batch size", "optimizer", "validation", "order"],
)
def test_what_has_another_structure_or_other_batches_is_apart(other: Assignment) -> None:
    group, _ = begun([given(0)])
    with pytest.raises(Apart):
        group.member().begin(other)


def test_one_that_is_apart_leaves_the_others_their_order_of_the_data() -> None:
    group, members = begun([given(0, epochs=2), given(2, epochs=2)])
    with pytest.raises(Apart):
        group.member().begin(given(4, epochs=2, shuffle=False))
    epochs, _ = train(group, members)
    for member, expected in zip(
        members, alone([given(0, epochs=2), given(2, epochs=2)]), strict=True
    ):
        assert_same(expected, Trained(epochs[member], state(group, member)))


REASONS = {
    "micro_batches": ({"micro_batches": 2}, {}, "batches are cut"),
    "ema": ({"ema_momentum": 0.9}, {}, "weights are averaged"),
    "swa": ({"swa_from": 2}, {}, "averaged over epochs"),
    "sam": ({"sam_rho": 0.1}, {}, "sharpness-aware"),
    "float16": ({}, {"precision": "mixed_float16"}, "gradients are scaled"),
    "xla": ({}, {"jit_compile": True}, "through XLA"),
    "phases": (
        {"frozen_epochs": 1, "frozen_layers": "dense", "fine_tune_learning_rate": 0.01},
        {},
        "phases",
    ),
}


@pytest.mark.parametrize("name", REASONS)
def test_what_is_not_trained_together_is_named(name: str) -> None:
    params, training, why = REASONS[name]
    group, members = begun(
        [replace(given(number, **params), training=training) for number in (0, 2)]
    )
    with pytest.raises(Apart, match=why):
        group.train(dict.fromkeys(members, lambda epoch: True))
    epochs = list[EpochReported]()
    group.train({members[0]: lambda epoch: epochs.append(epoch) is None})  # by itself it is
    assert len(epochs) == 5


def test_whether_it_is_faster_is_measured_and_changes_nothing() -> None:
    assignments = [replace(given(number), training={"fuse": "auto"}) for number in (0, 2, 4)]
    group, members = begun(assignments)
    with suppress(Apart):  # of these few it may well be slower
        group.check_gain(members)
    program = members[0].trial.program
    assert program.gain is not None
    assert program.gain > 0
    program.gain = 2.0
    epochs, _ = train(group, members)
    for member, expected in zip(members, alone(assignments), strict=True):
        assert_same(expected, Trained(epochs[member], state(group, member)))
    program.gain = 0.5
    for member, one in zip(members, assignments, strict=True):
        member.begin(one)
    with pytest.raises(Apart, match=r"one at a time, which is 2\.00 times as fast as 3 together"):
        group.train(dict.fromkeys(members, lambda epoch: True))


def test_a_trial_says_how_many_were_trained_at_once() -> None:
    group, members = begun([given(0), given(2), given(4)])
    heard: list[EpochReported] = []
    group.train({member: lambda epoch: heard.append(epoch) is not None for member in members})
    assert {epoch.measures["together"] for epoch in heard} == {3.0}
    assert members[0].facts().numerics["fused"] == "3 trials"
    assert sum(epoch.time_s for epoch in heard) == pytest.approx(3 * heard[0].time_s)


def test_patience_ends_one_and_not_the_others() -> None:
    impatient = replace(given(0, epochs=30, learning_rate=0.0), training={"patience": 3})
    patient = [replace(given(number, epochs=8), training={"patience": 3}) for number in (2, 4)]
    group, members = begun([impatient, *patient])
    epochs, _ = train(group, members)
    expected = alone([impatient, *patient])
    for member, one in zip(members, expected, strict=True):
        assert_same(one, Trained(epochs[member], state(group, member)))
    assert len(epochs[members[0]]) < 8


def test_one_that_stops_when_it_is_alone_can_be_saved(tmp_path: Path) -> None:
    group, members = begun([given(0, epochs=30), given(2)])
    member = left(group, members, members[:1])[0]

    def stop(epoch: EpochReported) -> bool:
        member.trial.stopped = "enough"  # as `KerasTrainable.stop` does in a hook
        return True

    raised = group.train({member: stop})
    assert isinstance(raised[member], Stopped)
    write = member.save(tmp_path)
    assert write is not None
    write()
    assert (tmp_path / "state.npz").exists()


def fuzz(seed: int) -> None:
    """Trials of random number, that begin at random epochs, are left, diverge, are saved and go on, are as alone."""
    rng = random.Random(seed)
    count = rng.randint(2, 16)
    lengths = [rng.randint(1, 6) for _ in range(count)]
    wild = [rng.random() < 0.15 for _ in range(count)]
    assignments = [
        given(rng.randrange(100), epochs=length, **({"learning_rate": 1e30} if diverges else {}))
        for length, diverges in zip(lengths, wild, strict=True)
    ]
    expected = alone(assignments)
    group, members = begun(assignments)
    heard: dict[Member, list[dict[str, float]]] = {member: [] for member in members}
    going = list(members)
    while going:
        stop = rng.randint(1, 3)
        turn = dict.fromkeys(going, 0)

        def report(member: Member, turn: dict[Member, int] = turn, stop: int = stop) -> Any:
            def hear(epoch: EpochReported) -> bool:
                heard[member].append(dict(epoch.metrics))
                turn[member] += 1
                return turn[member] < stop

            return hear

        raised = group.train({member: report(member) for member in going})
        assert all(isinstance(error, Stopped | Diverged) for error in raised.values()), raised
        on = [member for member in going if member not in raised and not member.trial.finished]
        going = left(group, going, [member for member in on if rng.random() < 0.85])
        # one goes on from its checkpoint, as if it had been elsewhere
        if len(going) > 1 and rng.random() < 0.3:
            member = rng.choice(going)
            arrays = state(group, member)
            session = group.switch_to(member)
            session.trial.program.state.assign(arrays)
            group.suspend(member)
    for member, whole, one in zip(members, expected, assignments, strict=True):
        assert len(heard[member]) <= one.epochs
        for mine, theirs in zip(whole.metrics, heard[member], strict=False):
            assert theirs == pytest.approx(mine, abs=2e-6, rel=2e-6)
        assert all(math.isfinite(value) for epoch in heard[member] for value in epoch.values())


@pytest.mark.parametrize("seed", chosen(range(100), 2))
@pytest.mark.slow
def test_groups_of_any_kind(seed: int) -> None:
    fuzz(seed)


def test_gradients_registered_for_several_trials_are_removed_with_their_program() -> None:
    class Swish(Small):
        """Its activation registers a gradient with TensorFlow wherever it is traced."""

        def model(self, hp: Any) -> keras.Model:
            hidden = keras.layers.Dense(8, activation="swish")
            return keras.Sequential([keras.Input((6,)), hidden, keras.layers.Dense(3)])

    def train_two() -> set[str]:
        group = TrialSession(Swish()).group()
        members = [group.member() for _ in range(2)]
        for number, member in enumerate(members):
            member.begin(assignment(epochs=1, learning_rate=0.1 / (1 + number)))
        known = set(gradient_registry.list())
        group.train({member: lambda epoch: True for member in members})
        return set(gradient_registry.list()) - known

    registered = train_two()
    assert registered
    by_itself().begin(given(0))  # what the last trial has left is put back only now
    gc.collect()
    assert not registered & set(gradient_registry.list())
