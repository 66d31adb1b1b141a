"""Trials on TPUs: refused with what is missing, and the way that they go where nothing is."""

from __future__ import annotations

import pytest
import tensorflow as tf

from sweep.contract import Devices
from trainables.devices import placement
from trainables.devices.placement import DeviceError, place
from trainables.devices.precision import choose_policy

pytestmark = pytest.mark.keras


def test_the_kernels_that_there_are_are_known() -> None:
    assert "CPU" in placement.list_device_kinds("MatMul")
    # which are declared, and of no use
    assert not any(map(placement.list_device_kinds, placement.TPU_OPS))


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TPU_LIBRARY_PATH", raising=False)
    has = {
        "_ConfigureDistributedTPU": ["TPU_SYSTEM"],
        "TPUExecute": ["TPU"],
        "_TPUCompileMlir": ["CPU"],
    }
    assert placement.list_tpu_problems(lambda op: has[op]) == ("there is no libtpu",)
    words = f"this TensorFlow ({tf.__version__}) has no TPU kernels (_TPUCompileMlir)"
    assert (
        placement.list_tpu_problems(
            lambda op: has[op] if op in ("_ConfigureDistributedTPU", "TPUExecute") else []
        )[0]
        == words
    )
    monkeypatch.setenv("TPU_LIBRARY_PATH", "/lib/libtpu.so")
    assert placement.list_tpu_problems(lambda op: has[op]) == ()


def test_a_trial_on_tpus_is_refused_with_it() -> None:
    with pytest.raises(
        DeviceError, match=r"strategy is tpu, but this TensorFlow .* has no TPU kernels .*no libtpu"
    ):
        place(Devices(), "tpu")


def test_where_nothing_is_missing_it_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "list_tpu_problems", tuple)
    monkeypatch.setattr(placement, "placements", {})
    with pytest.raises(DeviceError, match=r"strategy is tpu, but no TPU answers: .*TPU"):
        place(Devices(), "tpu")  # TensorFlow's own words: this machine has none
    monkeypatch.setattr(
        placement, "start_tpus", lambda: tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    )
    found = place(Devices(), "tpu")
    assert (found.name, found.devices, choose_policy("auto", found)) == (
        "tpu",
        ("tpu:0", "tpu:1"),
        "mixed_bfloat16",
    )
    assert place(Devices(cpus=2), "tpu") is found
