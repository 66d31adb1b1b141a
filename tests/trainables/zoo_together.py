"""Trials of the zoo that are trained together, and the same by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from zoo_checks import given
from zoo_entries import ENTRIES

from sweep.contract import Assignment, EpochReported, Stopped
from trainables.fused.group import Member
from trainables.session import Session
from trainables.state.owned import Arrays

EPOCHS = 3


@dataclass(frozen=True)
class Trained:
    """What a trial reported, and all its state at the end."""

    metrics: list[dict[str, float]]
    state: Arrays


def trials(name: str, count: int = 4) -> list[Assignment]:
    """Return trials that differ in what needs no program of its own: learning rates, and two seeds."""
    found, rated = given(ENTRIES[name]), ENTRIES[name].rated
    rates = [{"learning_rate": 0.01 * (1 + number / 4)} if rated else {} for number in range(count)]
    return [
        replace(found, trial=number, params={**found.params, **rate}, seed=found.seed + number // 2, epochs=EPOCHS)
        for number, rate in enumerate(rates)
    ]


def alone(name: str, assignments: Sequence[Assignment]) -> list[Trained]:
    """Train one after the other."""
    session, found = Session(ENTRIES[name].trainable()), []
    for assignment in assignments:
        session.begin(assignment)
        epochs: list[EpochReported] = []
        session.train(lambda epoch, epochs=epochs: not epochs.append(epoch))
        found.append(Trained([dict(epoch.metrics) for epoch in epochs], session.trial.program.state.arrays()))
    return found


def together(name: str, assignments: Sequence[Assignment]) -> list[Trained]:
    """Train all at once; raises Apart where they cannot be."""
    session = Session(ENTRIES[name].trainable())
    group = session.group()
    members = [group.member() for _ in assignments]
    epochs: dict[Member, list[EpochReported]] = {member: [] for member in members}
    for member, assignment in zip(members, assignments, strict=True):
        member.begin(assignment)
    raised = group.train({member: lambda epoch, of=epochs[member]: not of.append(epoch) for member in members})
    for error in raised.values():
        if not isinstance(error, Stopped):
            raise error
    states = [group.session_with(member).trial.program.state.arrays() for member in members]
    return [Trained([dict(e.metrics) for e in epochs[m]], state) for m, state in zip(members, states, strict=True)]
