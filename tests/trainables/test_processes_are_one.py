"""Several processes train as one: equal to it within rounding, and bit for bit to as many devices of one process.

A part of the zoo and of the matrix; all of both: ``pytest -m exhaustive tests/trainables/test_processes_are_one.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rank_processes import Here, Together, together
from rank_trials import Trained, begun, goes_on_with, resumed, trained
from sampling import sampled
from small import assignment, train
from splits import Split, ids
from test_equivalence import ROWS, SCHEDULES_OF, TOLERANCE, parameters
from zoo import Entry
from zoo_checks import given
from zoo_entries import ENTRIES

from sweep.contract import Assignment, Devices
from trainables.keras_trainable import session_of

pytestmark = [pytest.mark.keras, pytest.mark.slow]

SHAPES = {"2x1": (2, 0), "2x2": (2, 2), "4x1": (4, 0)}  # processes, simulated GPUs of each
ONE = {"1x2": (1, 2), "1x4": (1, 4)}
"""One process with so many devices and no more: TensorFlow's convolutions round otherwise in one that has eight."""


@pytest.fixture(scope="module")
def gangs() -> Iterator[dict[str, Together]]:
    """Processes of each shape, started when they are asked for."""
    started: dict[str, Any] = {}

    class Gangs(dict[str, Together]):
        def __missing__(self, shape: str) -> Together:
            count, gpus = (SHAPES | ONE)[shape]
            started[shape] = together(count, gpus)
            self[shape] = started[shape].__enter__()
            return self[shape]

    yield Gangs()
    for one in started.values():
        one.__exit__(None, None, None)


@pytest.fixture(scope="module")
def here() -> Here:
    return Here(Devices())


def alone(here: Here, name: str, trial: Assignment) -> Trained:
    here.devices = Devices(1, 0, simulated=True)
    return trained(here, name, trial)


def of_all(gang: Together, *call: Any) -> Trained:
    """What all ranks have come to, which is the same."""
    answers = gang.call(*call)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    assert all(answer.equals(answers[0]) for answer in answers)
    first: Trained = answers[0]
    return first


def assert_close(found: Trained, expected: Trained, tolerance: float) -> None:
    for a, b in zip(expected.metrics, found.metrics, strict=True):
        assert b == pytest.approx(a, abs=tolerance, rel=1e-6)
    for path, value in expected.state.items():
        np.testing.assert_allclose(
            found.state[path], value, atol=2 * tolerance, rtol=1e-6, err_msg=path
        )


def rated(row: tuple[str, ...], schedule: str) -> Assignment:
    return assignment(0, epochs=4, **parameters(row, schedule))


@pytest.mark.parametrize("row", sampled(ROWS[1:3], 1), ids="-".join)
def test_processes_train_as_one(
    row: tuple[str, ...], gangs: dict[str, Together], here: Here
) -> None:
    trial = rated(row, "cosine")
    one = alone(here, "Weighted", trial)
    ours = of_all(gangs["2x1"], trained, "Weighted", trial)
    assert ours.equals(of_all(gangs["1x2"], trained, "Weighted", trial))
    assert_close(ours, one, TOLERANCE)
    assert_close(of_all(gangs["2x2"], trained, "Weighted", trial), one, TOLERANCE)


@pytest.mark.exhaustive
@pytest.mark.parametrize("row", ROWS[1:3], ids="-".join)
def test_four_devices_of_one_process_train_as_one(
    row: tuple[str, ...], gangs: dict[str, Together], here: Here
) -> None:
    trial = rated(row, "cosine")
    assert_close(
        of_all(gangs["1x4"], trained, "Weighted", trial), alone(here, "Weighted", trial), TOLERANCE
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("row", ROWS, ids="-".join)
def test_the_matrix(
    row: tuple[str, ...], shape: str, gangs: dict[str, Together], here: Here
) -> None:
    for schedule in SCHEDULES_OF[row]:
        trial = rated(row, schedule)
        ours = of_all(gangs[shape], trained, "Weighted", trial)
        assert_close(ours, alone(here, "Weighted", trial), TOLERANCE)
        if shape == "2x1":
            assert ours.equals(of_all(gangs["1x2"], trained, "Weighted", trial))


def check_entry(
    found: Entry, name: str, gang: Together, here: Here, devices: Together | None
) -> None:
    """``devices`` of one process, to which it is to be equal bit for bit."""
    trial = given(found)
    if found.replicas:
        for answer in gang.call(trained, name, trial):
            with pytest.raises(Exception, match=f"{found.replicas}|trains in one process"):
                raise answer
        return
    ours = of_all(gang, trained, name, trial)
    assert_close(ours, alone(here, name, trial), found.tolerance)
    if devices is not None:
        assert ours.equals(of_all(devices, trained, name, trial))


@pytest.mark.exhaustive
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ENTRIES)
def test_the_zoo(name: str, shape: str, gangs: dict[str, Together], here: Here) -> None:
    check_entry(ENTRIES[name], name, gangs[shape], here, gangs["1x2"] if shape == "2x1" else None)


def check_used(name: str, trial: Assignment, other: Assignment, gang: Together) -> None:
    fresh = of_all(gang, trained, name, trial)
    assert not of_all(gang, trained, name, other).equals(fresh)
    assert of_all(gang, trained, name, trial).equals(fresh)


def check_resumed(
    name: str, trial: Assignment, gang: Together, devices: Together, folder: Path
) -> None:
    """From two processes on two devices of one, and back."""
    for part in ("processes", "devices"):
        (folder / part).mkdir()
    straight = of_all(gang, trained, name, trial)
    first = of_all(gang, begun, name, trial, 2, folder / "processes")
    assert of_all(devices, begun, name, trial, 2, folder / "devices").equals(first)
    for rest in (
        of_all(gang, resumed, name, trial, folder / "processes"),
        of_all(gang, resumed, name, trial, folder / "devices"),
        of_all(devices, resumed, name, trial, folder / "processes"),
    ):
        assert first.metrics + rest.metrics == straight.metrics
        assert rest.equals(replace(straight, metrics=rest.metrics))


def test_used_processes_are_fresh_ones_and_resumed_trials_straight_ones(
    gangs: dict[str, Together], tmp_path: Path
) -> None:
    trial, other = rated(ROWS[1], "cosine"), replace(rated(ROWS[1], "linear"), seed=7)
    check_used("Weighted", trial, other, gangs["2x1"])
    check_resumed("Weighted", trial, gangs["2x1"], gangs["1x2"], tmp_path)


def test_another_process_goes_on_with_the_examples_that_chance_chose(
    gangs: dict[str, Together], tmp_path: Path
) -> None:
    trainable = Split()
    train(trainable, assignment())
    (trainable.save(tmp_path) or (lambda: None))()
    expected = (2, ids(session_of(trainable).trial.walk.data), True)
    assert gangs["1x2"].call(goes_on_with, tmp_path) == [expected]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", [n for n, found in ENTRIES.items() if not found.replicas])
def test_the_zoo_used_and_resumed(name: str, gangs: dict[str, Together], tmp_path: Path) -> None:
    trial = given(ENTRIES[name])
    check_used(name, trial, replace(trial, seed=7), gangs["2x1"])
    check_resumed(name, trial, gangs["2x1"], gangs["1x2"], tmp_path)
