from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from sweep.cli.doctor import CheckInputs, examine
from sweep.doctor.findings import Severity
from sweep.doctor.programs import CommandResult, run_command
from trainables.doctor import device_probe

pytestmark = pytest.mark.keras


def test_describes_what_is_installed() -> None:
    found = device_probe.describe()
    assert found["backend"] == "tensorflow"
    assert found["tensorflow"].startswith("2.")
    assert found["gpus"] == []


def test_a_cpu_computes_right() -> None:
    tried = device_probe.try_device("cpu:0")
    assert tried["wrong"] == []
    assert set(tried["seconds"]) == {"matmul", "convolution", "gather", "xla"}
    assert tried["tflops"] > 0


def test_answers_are_what_the_doctor_takes_them_for_on_a_machine_that_trains_on_its_cpu(
    tmp_path: Path,
) -> None:
    """As ``sweep doctor``, with the probes in this process instead of one after the other in their own."""

    def run(command: Sequence[str], timeout_s: float) -> CommandResult:
        _, _, arguments = " ".join(command).partition(" -m trainables.doctor.device_probe ")
        return (
            CommandResult(0, json.dumps(device_probe.main(arguments.split())))
            if arguments
            else run_command(command, timeout_s)
        )

    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
    found = {
        finding.check: finding
        for finding in examine(CheckInputs(run, environment, tmp_path, 1500.0))
    }
    assert Severity.ERROR not in {finding.level for finding in found.values()}, found
    assert found["device"].found.startswith("cpu:0: matmul")
    assert found["together"].found.startswith("2 logical CPU devices sum and train")


def test_two_devices_sum() -> None:
    from sweep.contract import Devices
    from trainables.devices.placement import place

    assert device_probe.sum_replica_numbers(place(Devices(gpus=2, simulated=True)).replicas) == [
        3.0,
        3.0,
    ]


def test_unknown_arguments_are_refused() -> None:
    for arguments in ([], ["device"], ["train", "2", "--simulate"]):
        with pytest.raises(ValueError, match="unknown arguments"):
            device_probe.main(arguments)
