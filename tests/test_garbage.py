"""When Python looks for garbage."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest

from sweep import garbage
from sweep.functions import load_trainable

MODULE = "def train(hp, report):\n    report(loss=1.0)\n"


def test_nothing_is_collected_inside_the_block() -> None:
    with garbage.collecting_later():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_collection_goes_on_after_an_error() -> None:
    with pytest.raises(ValueError, match="no"), garbage.collecting_later():
        raise ValueError("no")
    assert gc.isenabled()


def test_what_somebody_has_switched_off_stays_off() -> None:
    gc.disable()
    try:
        with garbage.collecting_later():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_process_that_trains_collects_as_usual(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "module_of_garbage.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    usual = gc.get_threshold()
    try:
        garbage.collect_rarely()
        assert gc.get_threshold()[0] == garbage.NEW_OBJECTS
        load_trainable("module_of_garbage:train", [tmp_path])
        assert gc.get_threshold() == usual
    finally:
        gc.set_threshold(*usual)


def test_other_thresholds_are_left_alone() -> None:
    usual = gc.get_threshold()
    try:
        gc.set_threshold(1234, 5, 6)
        garbage.collect_as_usual()
        assert gc.get_threshold() == (1234, 5, 6)
    finally:
        gc.set_threshold(*usual)


def test_a_command_collects_rarely() -> None:
    script = (
        "import gc, os, sys; from sweep import __main__; sys.argv = ['sweep', '--version']; "
        "os._exit = lambda code: print(gc.get_threshold()[0]); __main__.run()"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == str(garbage.NEW_OBJECTS)
