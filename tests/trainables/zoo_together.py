"""Trials of the zoo that are trained together, and the same by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from small import go_on, metrics
from zoo_checks import given

from sweep.contract import Apart, Assignment, EpochReported, Stopped
from trainables.session import TrialSession
from trainables.state.program_variables import Arrays

EPOCHS = 3
TOLERANCE = 1e-6
"""Of metrics and weights, relative above 1: additions are in another order."""


@dataclass(frozen=True)
class Trained:
    """What a trial reported, and all its state at the end."""

    metrics: list[dict[str, float]]
    state: Arrays


def trials(kind: Any, count: int = 4) -> list[Assignment]:
    """Return trials that differ in what needs no program of its own: learning rates, and two seeds."""
    found = given(kind)
    rates = [
        {"learning_rate": 0.01 * (1 + number / 4)} if kind.rated else {} for number in range(count)
    ]
    return [
        replace(
            found,
            trial=number,
            params={**found.params, **rate},
            seed=found.seed + number // 2,
            epochs=EPOCHS,
        )
        for number, rate in enumerate(rates)
    ]


def alone(kind: Any, assignments: Sequence[Assignment]) -> list[Trained]:
    """Train one after the other."""
    session, found = TrialSession(kind.trainable()), []
    for assignment in assignments:
        session.begin(assignment)
        found.append(Trained(metrics(go_on(session)), session.trial.program.state.copy_all()))
    return found


def together(kind: Any, assignments: Sequence[Assignment]) -> list[Trained]:
    """Train all at once; raises Apart where they cannot be."""
    group = TrialSession(kind.trainable()).group()
    members = [group.member() for _ in assignments]
    epochs: list[list[EpochReported]] = [[] for _ in members]
    for member, assignment in zip(members, assignments, strict=True):
        member.begin(assignment)
    reports = {
        member: lambda epoch, of=of: of.append(epoch) is None
        for member, of in zip(members, epochs, strict=True)
    }
    for error in group.train(reports).values():
        if not isinstance(error, Stopped):
            raise error
    states = [group.switch_to(member).trial.program.state.copy_all() for member in members]
    return [Trained(metrics(of), state) for of, state in zip(epochs, states, strict=True)]


def compare(kind: Any, tolerance: float = TOLERANCE, count: int = 4) -> str:
    """Check that trials are together what they are alone; why they cannot be trained together, else nothing."""
    assignments = trials(kind, count)
    try:
        found = together(kind, assignments)
    except Apart as error:
        return str(error)
    for a, b in zip(alone(kind, assignments), found, strict=True):
        assert_same(a, b, tolerance)
    return ""


def assert_same(a: Trained, b: Trained, tolerance: float = TOLERANCE) -> None:
    """Two trials are the same but for rounding."""
    assert len(a.metrics) == len(b.metrics)
    for mine, theirs in zip(a.metrics, b.metrics, strict=True):
        assert theirs == pytest.approx(mine, abs=tolerance, rel=tolerance, nan_ok=True)
    assert a.state.keys() == b.state.keys()
    for path, (value, *_) in a.state.items():
        np.testing.assert_allclose(
            b.state[path][0], value, atol=2 * tolerance, rtol=2 * tolerance, err_msg=path
        )
