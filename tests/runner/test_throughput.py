"""Ways to train are tried one thing after the other; what is faster by more than noise is kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sweep.contract import Devices
from sweep.errors import TrainableError
from sweep.runner import throughput
from sweep.runner.throughput import Measured, SettingsCombination, find_fastest
from sweep.spec import parse_spec

FILE = SettingsCombination(32, "auto", 1, 1)


def measured(
    speed: Callable[[SettingsCombination], float], largest: int = 10**9
) -> Callable[[SettingsCombination], Measured]:
    """Return a machine of this speed, on which batches up to ``largest`` a part fit."""

    def measure(way: SettingsCombination) -> Measured:
        if way.batch_size / way.micro_batches > largest:
            return Measured(way, failed="out of memory")
        return Measured(way, speed(way), 1e6 * way.batch_size)

    return measure


def test_batches_grow_as_long_as_they_are_faster() -> None:
    found = find_fastest(FILE, (), 1, measured(lambda way: min(way.batch_size, 256)))
    assert [one.way.batch_size for one in found.tried] == [32, 64, 128, 256, 512]
    assert found.fastest.way == SettingsCombination(256, "auto", 1, 1)
    assert found.times == 8


def test_what_the_file_says_may_be_the_fastest() -> None:
    found = find_fastest(FILE, ("float32", "mixed_bfloat16"), 1, measured(lambda way: 100.0))
    assert found.fastest.way == FILE
    assert [one.way.precision for one in found.tried] == [
        "auto",
        "float32",
        "mixed_bfloat16",
        "auto",
    ]


def test_the_faster_precision_is_kept_for_the_rest() -> None:
    found = find_fastest(
        FILE,
        ("float32", "mixed_bfloat16"),
        1,
        measured(lambda way: 1 + (way.precision[:5] == "mixed")),
    )
    assert found.fastest.way == SettingsCombination(32, "mixed_bfloat16", 1, 1)
    assert found.tried[-1].way == SettingsCombination(64, "mixed_bfloat16", 1, 1)


def test_a_batch_that_does_not_fit_is_tried_in_two_parts() -> None:
    found = find_fastest(FILE, (), 1, measured(lambda way: way.batch_size, largest=100))
    assert [(one.way.batch_size, one.way.micro_batches, one.fits) for one in found.tried] == [
        (32, 1, True),
        (64, 1, True),
        (128, 1, False),
        (128, 2, True),
    ]
    assert found.fastest.way == SettingsCombination(128, "auto", 2, 1)


def test_replicas_are_given_as_many_times_the_batch() -> None:
    found = find_fastest(FILE, (), 4, measured(lambda way: min(way.batch_size, 32 * way.replicas)))
    assert [one.way for one in found.tried if one.way.replicas > 1] == [
        SettingsCombination(64, "auto", 1, 2),
        SettingsCombination(128, "auto", 1, 4),
    ]
    assert found.fastest.way.replicas == 4


def test_a_way_of_the_file_that_fails_is_told() -> None:
    with pytest.raises(TrainableError, match="the throughput cannot be measured: out of memory"):
        find_fastest(FILE, (), 1, measured(lambda way: 1.0, largest=1))


def test_epochs_are_cut_to_about_as_many_examples() -> None:
    others = {"learning_rate": 0.1, "per_replica_batch_size": 8}
    assert SettingsCombination(64, "auto", 2, 1).params(others) == {
        "learning_rate": 0.1,
        "batch_size": 64,
        "micro_batches": 2,
        "steps_per_epoch": 64,
    }
    assert SettingsCombination(8192, "auto", 1, 1).params({})["steps_per_epoch"] == 4


TIMED = """
import os, time
from sweep.events import EpochReported

class Timed:
    def begin(self, assignment):
        self.params, self.precision = assignment.params, assignment.training["precision"]
    def train(self, report):
        if self.params["batch_size"] > 128:
            os.kill(os.getpid(), 9)
        for epoch in range(1, 9):
            speed = 10.0 * self.params["batch_size"] * (2 if self.precision == "mixed_bfloat16" else 1)
            measures = {"memory_peak_bytes": 1e6 * self.params["batch_size"]}
            told = EpochReported(trial=0, epoch=epoch, metrics={"loss": 1.0}, time=0.0, time_s=0.5,
                                 examples_per_s=speed, measures=measures)
            if not report(told):
                return
    save = restore = facts = begin
"""
SPEC = """
trainable: timed:Timed
method: random
metric: {name: loss, goal: minimize}
parameters: {batch_size: {values: [32]}}
epochs: 2
run_cap: 1
"""


@pytest.mark.slow
def test_each_way_has_a_process_of_its_own_and_one_may_be_killed(tmp_path: Path) -> None:
    (tmp_path / "timed.py").write_text(TIMED)
    spec = parse_spec(SPEC, "s.yaml")
    found = throughput.measure_throughput(spec, Devices(1), [tmp_path], {"batch_size": 32}, 1)
    assert [(one.way.batch_size, one.examples_per_s) for one in found.tried] == [
        (32, 320.0),
        (32, 320.0),
        (32, 640.0),
        (64, 1280.0),
        (128, 2560.0),
        (256, 0.0),
        (256, 0.0),
    ]
    assert "was killed" in found.tried[-1].failed
    assert found.fastest.memory_bytes == 128e6
