from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from sweep.contract import Devices
from trainables.devices import placement
from trainables.devices.placement import DeviceError, NewProcessNeeded, place
from trainables.devices.precision import choose_policy
from trainables.devices.replicas import get_replica_index, sum_over_replicas

pytestmark = pytest.mark.keras


def simulated(gpus: float) -> Devices:
    return Devices(gpus=gpus, simulated=True)


@pytest.mark.parametrize(
    ("given", "choice", "name", "replicas"),
    [
        (Devices(), "auto", "one_device", 1),
        (Devices(), "none", "one_device", 1),
        (simulated(1), "auto", "one_device", 1),
        (simulated(0.5), "auto", "one_device", 1),
        (simulated(1), "mirrored", "mirrored", 1),
        (simulated(2), "auto", "mirrored", 2),
    ],
)
def test_the_strategy_follows_the_devices(
    given: Devices, choice: str, name: str, replicas: int
) -> None:
    placement = place(given, choice)
    assert (placement.name, placement.replicas.number) == (name, replicas)
    assert place(given, choice) is placement


WAYS = ("auto", "hierarchical_copy", "reduction_to_one_device")  # of ring, a process has one group


@pytest.mark.parametrize(
    ("way", "count"), [("ring", 2), *((way, count) for way in WAYS for count in range(2, 9))]
)
def test_replicas_add_up_each_way(way: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if way == "hierarchical_copy" and count % 2:
        with pytest.raises(
            DeviceError, match=f"adds up an even number of devices, the trial has {count}"
        ):
            place(simulated(count), "mirrored", way)
        return
    monkeypatch.setattr(placement, "placements", {})
    replicas = place(simulated(count), "mirrored", way).replicas

    @tf.function
    def total() -> tf.Tensor:
        return replicas.of_each(
            replicas.run(
                lambda: sum_over_replicas([tf.cast(get_replica_index()[1] + 1, tf.float32)])[0]
            )
        )

    assert [float(value) for value in total()] == [count * (count + 1) / 2] * count


@pytest.mark.parametrize(
    ("given", "choice", "way", "message"),
    [
        (
            simulated(2),
            "one_device",
            "auto",
            "strategy one_device uses one device, the trial was given cpu:0, cpu:1",
        ),
        (
            simulated(2),
            "telepathic",
            "auto",
            "expected one of auto, none, one_device, mirrored, tpu, parameter_server",
        ),
        (simulated(2), "mirrored", "nccl", "nccl, which needs GPUs"),
        (simulated(2), "mirrored", "telepathy", "expected one of auto, nccl"),
        (Devices(gpus=1), "auto", "auto", "was given 1 GPUs, TensorFlow sees 0"),
    ],
)
def test_mistakes(given: Devices, choice: str, way: str, message: str) -> None:
    with pytest.raises(DeviceError, match=message):
        place(given, choice, way)


def test_more_devices_than_tensorflow_has_need_another_process() -> None:
    tf.config.list_logical_devices()
    with pytest.raises(NewProcessNeeded, match="8 logical CPU devices exist, 9 are needed"):
        place(simulated(9))


def test_precision_on_a_cpu() -> None:
    placement = place(Devices())
    assert choose_policy("auto", placement) == "float32"
    assert choose_policy("mixed_float16", placement) == "mixed_float16"
    with pytest.raises(ValueError, match="precision is 'half', expected one of auto, float32"):
        choose_policy("half", placement)


EARLY = """
import keras
from sweep.contract import Devices
from trainables.devices.placement import NewProcessNeeded, place

seen = keras.metrics.Mean()
try:
    place(Devices(gpus=2, simulated=True))
except NewProcessNeeded as error:
    print(error)
"""


def test_the_line_that_made_tensorflow_start_is_named(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(EARLY)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    said = subprocess.run(
        [sys.executable, mine], capture_output=True, text=True, env=environment, check=True
    ).stdout
    assert (
        "1 logical CPU devices exist, 2 are needed: TensorFlow was started at mine.py:6, 'seen = keras.metrics"
        in said
    )
