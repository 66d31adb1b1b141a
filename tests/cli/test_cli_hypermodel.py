"""`init --from-hypermodel`: the space that code declares, with what depends on what."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from sweep import spec
from sweep.cli import hypermodel
from sweep.errors import InputError

MODEL = """
def build(hp):
    for i in range(hp.Int("layers", 1, 3)):
        hp.Int(f"units_{i}", 8, 32, step=8)
        with hp.conditional_scope("layers", [1, 2]):
            hp.Float(f"d_{i}", 0.0, 0.5)
    if hp.Boolean("drop"):
        hp.Float("rate", 0.1, 0.5)
    if hp.Choice("optimizer", ["adam", "sgd"]) == "sgd":
        hp.Float("momentum", 0.0, 0.9)
        with hp.conditional_scope("optimizer", ["sgd"]):
            if hp.Choice("nesterov", ["no", "yes"]) == "yes":
                hp.Float("warm", 1e-3, 1.0, sampling="log")


class Model:
    def build(self, hp):
        hp.Choice("kind", ["a", "on"])


class Needs:
    def __init__(self, size):
        self.size = size

    def build(self, hp):
        hp.Int("a", 1, 2)


def nothing(hp):
    pass


def fails(hp):
    if hp.Boolean("deep"):
        raise ValueError("too deep")


def endless(hp):
    for i in range(40):
        hp.Choice(f"c{i}", list(range(9)))


number = 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "hyper_models.py").write_text(MODEL)
    monkeypatch.delitem(sys.modules, "hyper_models", raising=False)
    return tmp_path


def test_what_depends_on_a_choice_is_found_with_what_it_depends_on(folder: Path) -> None:
    contents = hypermodel.files("hyper_models:build", "my_sweep", folder)
    rows = contents["my_sweep.yaml"].partition("parameters:\n")[2].partition("epochs:")[0].splitlines()
    assert [row.strip() for row in rows] == [
        "layers: {min: 1, max: 3}",
        "units_0: {values: [8, 16, 24, 32]}",
        "d_0: {min: 0.0, max: 0.5, when: {layers: [1, 2]}}",
        "drop: {values: [false, true]}",
        "optimizer: {values: [adam, sgd]}",
        "units_1: {values: [8, 16, 24, 32], when: {layers: [2, 3]}}",
        "d_1: {min: 0.0, max: 0.5, when: {layers: 2}}",
        "units_2: {values: [8, 16, 24, 32], when: {layers: 3}}",
        "rate: {min: 0.1, max: 0.5, when: {drop: true}}",
        "momentum: {min: 0.0, max: 0.9, when: {optimizer: sgd}}",
        'nesterov: {values: ["no", "yes"], when: {optimizer: sgd}}',
        'warm: {distribution: log_uniform_values, min: 0.001, max: 1.0, when: {optimizer: sgd, nesterov: "yes"}}',
    ]


def test_the_files_are_a_sweep(folder: Path) -> None:
    contents = hypermodel.files("hyper_models:Model", "my_sweep", folder)
    for name, text in contents.items():
        (folder / name).write_text(text)
    found: Any = spec.load(folder / "my_sweep.yaml", [])
    assert found.trainable == "my_sweep:MySweep"
    assert [parameter.name for parameter in found.space.parameters] == ["kind"]
    assert "from hyper_models import Model" in contents["my_sweep.py"]
    assert "return Model().build(hp)" in contents["my_sweep.py"]
    compile(contents["my_sweep.py"], "my_sweep.py", "exec")


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("hyper_models", "expected module:Name"),
        ("hyper_models:absent", "cannot be imported"),
        ("no_such_module:build", "cannot be imported: ModuleNotFoundError"),
        ("hyper_models:number", "cannot be called"),
        ("hyper_models:Needs", "takes size to be made"),
        ("hyper_models:nothing", "declares no hyperparameters"),
        ("hyper_models:fails", r"fails with deep=True: ValueError: hyper_models.py:\d+ in fails: too deep"),
        ("hyper_models:endless", "more than 200 ways"),
    ],
)
def test_what_declares_no_space_is_one_line(folder: Path, target: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        hypermodel.files(target, "my_sweep", folder)
