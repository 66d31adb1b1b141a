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


class NeedsForModel:
    def __init__(self, size):
        self.size = size

    def model(self, hp):
        hp.Int("a", 1, self.size)


net = NeedsForModel(3)


def nothing(hp):
    pass


def fails(hp):
    if hp.Boolean("deep"):
        raise ValueError("too deep")


def endless(hp):
    for i in range(40):
        hp.Choice(f"c{i}", list(range(9)))


number = 3


def shared(hp):
    for i in range(2):
        if hp.Boolean(f"drop_{i}"):
            hp.Float("rate", 0.1, 0.5)


def both(hp):
    if hp.Boolean("a") and hp.Boolean("b"):
        hp.Int("c", 1, 4)


def eager_both(hp):
    a, b = hp.Boolean("a"), hp.Boolean("b")
    if a and b:
        hp.Int("c", 1, 4)


def deep_and_dropped(hp):
    dropped = hp.Boolean("dropped")
    for i in range(hp.Int("layers", 1, 5)):
        hp.Int(f"units_{i}", 1, 9)
        if dropped:
            hp.Float(f"rate_{i}", 0.0, 0.5)


def deep(hp):
    for i in range(hp.Int("layers", 2, 20)):
        hp.Int(f"units_{i}", 32, 512, step=32)


def asked_again(hp):
    hp.Int("units", 8, 32, step=8)
    assert hp.get("units") == hp["units"] == hp.units
    assert "units" in hp


def scoped(hp):
    with hp.name_scope("head"):
        if hp.Boolean("deep"):
            hp.Int("units", 1, 2)
        with hp.conditional_scope("deep", True):
            hp.Float("rate", 0.0, 0.5)


def of_numpy(hp):
    import numpy as np
    hp.Int("n", np.int64(1), np.int64(3), default=np.int64(2))
    hp.Choice("units", list(np.arange(8, 25, 8)))


def declared_twice(hp):
    hp.Choice("model", ["v1", "v2"])
    with hp.conditional_scope("model", ["v1"]):
        hp.Int("layers", 1, 3)
    with hp.conditional_scope("model", ["v2"]):
        hp.Int("layers", 2, 4)


def no_name(hp):
    hp.Int("input unit", 1, 3)
    hp.Int("d/e", 1, 3)


def no_net(hp):
    hp.Int("depth", 1, 3)
    return object()


class Wrong:
    def __init__(self):
        raise ValueError("no data here")

    def build(self, hp):
        hp.Int("units", 1, 2)


class Tuned:
    def __init__(self, size):
        self.size = size

    def declare_hyperparameters(self, hp):
        hp.Boolean("shuffle")

    def build(self, hp):
        hp.Int("units", 1, self.size)

    def fit(self, hp, model):
        pass


tuned = Tuned(3)
"""


def rows(written: hypermodel.WrittenFiles) -> list[str]:
    space = written.files["my_sweep.yaml"].partition("parameters:\n")[2].partition("epochs:")[0]
    return [row.strip() for row in space.splitlines()]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "hyper_models.py").write_text(MODEL)
    monkeypatch.delitem(sys.modules, "hyper_models", raising=False)
    return tmp_path


def test_what_depends_on_a_choice_is_found_with_what_it_depends_on(folder: Path) -> None:
    assert rows(hypermodel.make_files("hyper_models:build", "my_sweep", folder)) == [
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
    contents = hypermodel.make_files("hyper_models:Model", "my_sweep", folder).files
    for name, text in contents.items():
        (folder / name).write_text(text)
    found: Any = spec.load_spec(folder / "my_sweep.yaml", [])
    assert found.trainable == "my_sweep:MySweep"
    assert [parameter.name for parameter in found.space.parameters] == ["kind"]
    assert "from hyper_models import Model" in contents["my_sweep.py"]
    assert "return Model().build(hp)" in contents["my_sweep.py"]
    compile(contents["my_sweep.py"], "my_sweep.py", "exec")


@pytest.mark.parametrize(
    ("name", "class_name"),
    [
        ("my_model", "MyModel"),
        ("model", "TrainableModel"),  # another class would hide the imported one of that name
        ("_1", "Trainable1"),
        ("_", "Trainable"),
        ("none", "TrainableNone"),
    ],
)
def test_the_class_of_the_module_has_a_name_of_its_own(
    folder: Path, name: str, class_name: str
) -> None:
    files = hypermodel.make_files("hyper_models:Model", name, folder).files
    assert f"trainable: {name}:{class_name}\n" in files[f"{name}.yaml"]
    assert f"class {class_name}(KerasTrainable):" in files[f"{name}.py"]
    compile(files[f"{name}.py"], f"{name}.py", "exec")


def test_an_object_of_a_class_with_model_is_enough(folder: Path) -> None:
    written = hypermodel.make_files("hyper_models:net", "my_sweep", folder)
    assert rows(written) == ["a: {min: 1, max: 3}"]
    assert "return net.model(hp)" in written.files["my_sweep.py"]


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("hyper_models", "expected module:Name"),
        ("hyper_models:absent", "cannot be imported"),
        ("no_such_module:build", "cannot be imported: ModuleNotFoundError"),
        ("hyper_models:number", "is 3, expected a function, a class or an object"),
        ("hyper_models:Needs", "takes size to be made"),
        ("hyper_models:NeedsForModel", r"takes size to be made; make one: net = NeedsForModel\("),
        ("hyper_models:Wrong", "cannot be made: ValueError: no data here"),
        ("hyper_models:nothing", "declares no hyperparameters"),
        (
            "hyper_models:declared_twice",
            r"'layers' for some choices as {min: 1, max: 3} and for others as {min: 2,",
        ),
        (
            "hyper_models:no_name",
            r"parameters.input unit: not a parameter's name(.|\n)*parameters.d/e: not a param",
        ),
        (
            "hyper_models:no_net",
            r"returns object, expected a keras.Model; start from a training function",
        ),
        ("hyper_models:endless", "more than 200 ways"),
    ],
)
def test_what_declares_no_space_is_one_line(folder: Path, target: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        hypermodel.make_files(target, "my_sweep", folder)


@pytest.mark.parametrize(
    ("name", "expected", "note"),
    [
        ("shared", ["rate: {min: 0.1, max: 0.5}"], "rate is used only for some choices"),
        (
            "both",
            [
                "b: {values: [false, true], when: {a: true}}",
                "c: {min: 1, max: 4, when: {a: true, b: true}}",
            ],
            "",
        ),
        (
            "eager_both",
            ["b: {values: [false, true]}", "c: {min: 1, max: 4, when: {a: true, b: true}}"],
            "",
        ),
        (
            "deep_and_dropped",
            [
                "rate_0: {min: 0.0, max: 0.5, when: {dropped: true}}",
                "rate_3: {min: 0.0, max: 0.5, when: {dropped: true, layers: [4, 5]}}",
                "rate_4: {min: 0.0, max: 0.5, when: {dropped: true, layers: 5}}",
            ],
            "",
        ),
        ("asked_again", ["units: {values: [8, 16, 24, 32]}"], ""),
        (
            "scoped",
            [
                "head.units: {min: 1, max: 2, when: {head.deep: true}}",
                "head.rate: {min: 0.0, max: 0.5, when: ",
            ],
            "",
        ),
        ("of_numpy", ['"n": {min: 1, max: 3}', "units: {values: [8, 16, 24]}"], ""),
        (
            "fails",
            ["deep: {values: [false, true]}"],
            "fails with deep=True: ValueError: hyper_models.py:",
        ),
        (
            "tuned",
            ["shuffle: {values: [false, true]}", "units: {min: 1, max: 3}"],
            "Tuned.fit() is not called",
        ),
    ],
)
def test_what_keras_tuner_knows_is_known(
    folder: Path, name: str, expected: list[str], note: str
) -> None:
    written = hypermodel.make_files(f"hyper_models:{name}", "my_sweep", folder)
    for row in expected:
        assert row in "\n".join(rows(written))
    assert (note in "\n".join(written.notes)) if note else written.notes == ()


def test_all_of_a_long_range_is_explored_where_its_ends_differ(folder: Path) -> None:
    written = hypermodel.make_files("hyper_models:deep", "my_sweep", folder)
    found = rows(written)
    assert len(found) == 21
    assert found[-1].endswith("when: {layers: 20}}")
    assert found[3].endswith(f"when: {{layers: {list(range(3, 21))}}}}}")
    assert written.notes == ()
