"""What can be known before the first epoch to fail in every trial."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sweep.errors import InputError
from sweep.inspection import inspect
from sweep.runner import feasibility
from sweep.spec import parse

FILE = "trainable: m:{name}\nmethod: grid\nparameters: {{a: {{values: [1]}}}}\n{more}\n"
MODULE = "def train(hp, report): ...\nclass Alone:\n    def join(self): ...\nclass Ranked(Alone):\n    leave = 1\n"


def check(folder: Path, name: str, more: str) -> None:
    (folder / "m.py").write_text(MODULE)
    feasibility.check(parse(FILE.format(name=name, more=more), "s.yaml"), "s.yaml", inspect(f"m:{name}", [folder]))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("train", "s.yaml: resources.workers: a trial has 2 workers, and m:train is a function, which trains in one"),
        ("Alone", "resources.workers: a trial has 2 workers, and m:Alone trains in one process: it has no leave();"),
    ],
)
def test_workers_of_what_trains_in_one_process_are_refused(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        check(tmp_path, name, "resources: {workers: 2}")
    check(tmp_path, name, "resources: {workers: 1}")


def test_workers_of_what_has_the_methods_are_not(tmp_path: Path) -> None:
    check(tmp_path, "Ranked", "resources: {workers: 2}")


@pytest.mark.keras
@pytest.mark.slow
def test_tpus_are_refused_with_what_this_tensorflow_lacks(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        check(tmp_path, "train", "training: {strategy: tpu}")
    (line,) = str(caught.value).splitlines()
    kernels = r"has no TPU kernels \(_ConfigureDistributedTPU, _TPUCompileMlir, TPUExecute\)"
    found = rf"training.strategy: tpu, but this TensorFlow \(2[\d.]+\) {kernels} and there is no libtpu; install a "
    assert re.search(found, line), line
