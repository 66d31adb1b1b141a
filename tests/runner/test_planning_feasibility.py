"""What can be known before the first epoch to fail in every trial."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from sweep.errors import InputError, refuse
from sweep.inspection import inspect
from sweep.runner import checking
from sweep.spec import parse_spec

FILE = "trainable: m:{name}\nmethod: grid\nparameters: {{a: {{values: [1]}}}}\n{more}\n"
MODULE = "def train(hp, report): ...\nclass Alone:\n    def join(self): ...\nclass Ranked(Alone):\n    leave = 1\n"


def check(folder: Path, name: str, more: str) -> None:
    (folder / "m.py").write_text(MODULE)
    spec = parse_spec(FILE.format(name=name, more=more), "s.yaml")
    refuse(checking.find_certain_failures(spec, "s.yaml", inspect(f"m:{name}", [folder])))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "train",
            "s.yaml: resources.workers: a trial has 2 workers, and m:train is a function, which trains in one",
        ),
        (
            "Alone",
            "resources.workers: a trial has 2 workers, and m:Alone trains in one process: it has no leave();",
        ),
    ],
)
def test_workers_of_what_trains_in_one_process_are_refused(
    tmp_path: Path, name: str, message: str
) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        check(tmp_path, name, "resources: {workers: 2}")
    check(tmp_path, name, "resources: {workers: 1}")


def test_workers_of_what_has_the_methods_are_not(tmp_path: Path) -> None:
    check(tmp_path, "Ranked", "resources: {workers: 2}")


@pytest.mark.keras
@pytest.mark.slow
def test_tpus_are_refused_with_what_this_tensorflow_lacks(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(MODULE)
    spec = parse_spec(FILE.format(name="Ranked", more="training: {strategy: tpu}"), "s.yaml")
    with pytest.raises(InputError) as caught:
        checking.check_source(spec, "s.yaml", inspect("m:Ranked", [tmp_path]))
    kernels = r"has no TPU kernels \(_ConfigureDistributedTPU, _TPUCompileMlir, TPUExecute\)"
    found = rf"training.strategy: tpu, but this TensorFlow \(2[\d.]+\) {kernels} and there is no libtpu; install a "
    assert re.search(found, str(caught.value)), caught.value


BOUNDED = """
import keras
from trainables.keras_trainable import KerasTrainable

class Plain(KerasTrainable):
    def data(self, hp): return [hp.integer("batch_size", 32)]
    def model(self, hp): return keras.layers.Dropout(self.dropout(hp))

class Base(Plain): ...

class Owner(Base):
    def schedule(self, hp): return hp.number("warmup_steps")
"""
OTHERS = """
def function(hp, report): return hp["clipnorm"], hp["dropout"], hp["batch_size"]

class Torch:
    def begin(self, assignment): assignment.params["clipnorm"]
"""


seen: dict[str, Any] = {}  # each is inspected once, which takes a second


def refused(folder: Path, name: str, *parameters: str, more: str = "") -> list[str]:
    trainable = f"{'bounded' if name in BOUNDED else 'others'}:{name}"
    text = f"trainable: {trainable}\nmethod: random\nrun_cap: 2\n{more}parameters:\n"
    if trainable not in seen:
        (folder / "bounded.py").write_text(BOUNDED)
        (folder / "others.py").write_text(OTHERS)
        seen[trainable] = inspect(trainable, [folder])
    spec = parse_spec(text + "".join(f"  {one}\n" for one in parameters), "s.yaml")
    try:
        refuse(checking.find_certain_failures(spec, "s.yaml", seen[trainable]))
    except InputError as error:
        return str(error).splitlines()
    return []


WRONG = {
    "micro_batches: {value: 0}": "number 0, expected a whole number from 1",
    "batch_size: {values: [16, 0]}": "number 0, expected a whole number from 1",
    "batch_size: {min: 8.0, max: 32.0}": "numbers that are not whole, expected a whole number from 1",
    "clipnorm: {value: -1}": "number -1, expected a number from 0 (0: off)",
    "clipnorm: {values: [null, 1]}": "nothing, expected a number from 0 (0: off)",
    "clipvalue: {min: -1, max: 1}": "numbers from -1 to 1, expected a number from 0 (0: off)",
    "dropout: {distribution: normal, mu: 0.1, sigma: 0.1}": (
        "numbers from -0.4 to 0.6, expected a number from 0 to 1 (0: off)"
    ),
    "lr_schedule: {values: [cosine, cosin]}": "text 'cosin', expected one of constant, step, piecewise, linear, "
    "polynomial, exponential, cosine, cosine_restarts, one_cycle, plateau",
    "shuffle: {value: 1}": "number 1, expected true or false",
    "lr_power: {min: 0.0, max: 2.0}": "numbers from 0 to 2, expected a number above 0",
}


def test_what_no_trial_can_be_given_is_a_mistake_of_the_file_with_its_place(tmp_path: Path) -> None:
    for parameter, what in WRONG.items():
        name = parameter.partition(":")[0]
        assert refused(tmp_path, "Base", parameter) == [f"s.yaml:5:3: parameters.{name}: {what}"]
    both = ("clipnorm: {value: -1}", "micro_batches: {value: 0}")
    assert [line[:9] for line in refused(tmp_path, "Plain", *both)] == ["s.yaml:5:", "s.yaml:6:"]


@pytest.mark.parametrize(
    "parameter",
    [
        "clipnorm: {values: [0, 1]}",
        "frozen_layers: {values: [0, 3, head, [a, b]]}",
        "dropout: {distribution: normal, mu: 0.5, sigma: 0.05}",
        "batch_size: {distribution: q_uniform, min: 8, max: 64, q: 8}",
        "learning_rate: {distribution: log_normal, mu: -7, sigma: 1}",
        "augmentation: {values: [-1, much]}",
    ],
)
def test_what_lies_within_is_not(tmp_path: Path, parameter: str) -> None:
    assert refused(tmp_path, "Base", parameter) == []


def test_what_is_computed_or_constrained_is_left_to_the_trials(tmp_path: Path) -> None:
    computed = ("a: {values: [1, 2]}", 'clipnorm: {value: "= a - 1.5"}')
    assert refused(tmp_path, "Base", *computed) == []
    assert (
        refused(
            tmp_path, "Base", "clipnorm: {min: -1, max: 1}", more="constraints: [clipnorm > 0]\n"
        )
        == []
    )


def test_baseline_and_starting_points_are_held_to_the_bounds(tmp_path: Path) -> None:
    found = refused(
        tmp_path, "Base", "clipnorm: {min: 0, max: 1}", more="baseline: {clipnorm: -1}\n"
    )
    assert found == ["s.yaml:4:22: baseline.clipnorm: number -1, expected a number from 0 (0: off)"]


def test_the_bounds_hold_for_what_a_keras_trainable_reads_itself(tmp_path: Path) -> None:
    wrong = ("clipnorm: {value: -1}", "dropout: {value: 5}", "batch_size: {value: 0}")
    assert len(refused(tmp_path, "Base", *wrong)) == 3
    assert refused(tmp_path, "function", *wrong) == []
    assert refused(tmp_path, "Torch", *wrong) == []
    # it means what the author makes of it
    assert refused(tmp_path, "Owner", "warmup_steps: {value: -1}") == []


def test_a_parameter_that_every_trial_reads_and_the_file_lacks(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(
        "def train(hp, report):\n    report(x=hp.units + hp['aug.p'] + hp.a)\n"
    )

    def found(parameters: str) -> list[str]:
        spec = parse_spec(f"trainable: m:train\nmethod: grid\nparameters: {parameters}\n", "s.yaml")
        try:
            refuse(checking.find_certain_failures(spec, "s.yaml", inspect("m:train", [tmp_path])))
        except InputError as error:
            return str(error).splitlines()
        return []

    places = f"which {tmp_path}/m.py:2 reads in every trial without a default"
    assert found("{a: {values: [1]}, unit: {value: 1}}") == [
        f"s.yaml: parameters: no 'units', {places}; did you mean 'unit'?",
        f"s.yaml: parameters: no 'aug.p', {places}; add it, or read it as hp.get(\"aug.p\", ...)",
    ]
    add = 'add it, or read it as hp.get("units", ...)'
    assert found(
        "{a: {values: [1]}, mean_pool: {value: 1}, aug: {parameters: {p: {value: 1}}}}"
    ) == [f"s.yaml: parameters: no 'units', {places}; {add}"]
    nested = "aug: {parameters: {p: {value: 1}}}"
    assert (
        found(f"{{units: {{values: [1, 2]}}, a: {{value: 1, when: {{units: 2}}}}, {nested}}}") == []
    )


def test_a_module_that_imports_what_is_not_here_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("import nowhere_at_all\ndef train(hp, report): ...\n")
    with pytest.raises(InputError) as caught:
        refuse(checking.find_uninstalled_modules(inspect("m:train", [tmp_path])))
    message = f"{tmp_path}/m.py:1: imports 'nowhere_at_all', and no such module is here; install it, or leave it out"
    assert str(caught.value) == message
