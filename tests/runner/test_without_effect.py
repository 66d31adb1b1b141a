"""What a trainable's own methods and model leave without effect is a mistake of the file, where the source tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.errors import InputError
from sweep.inspection import inspect
from sweep.runner import checking
from sweep.spec import parse_spec

HEAD = """
import keras
from trainables.keras_trainable import KerasTrainable

class Plain(KerasTrainable):
    def data(self, hp): ...
    def model(self, hp): return keras.Sequential([])

class OwnLoss(Plain):
    def loss(self, hp, model): return keras.losses.MeanSquaredError()

class MoreLoss(Plain):
    def loss(self, hp, model): return super().loss(hp, model)

class OwnSchedule(Plain):
    def schedule(self, hp): return lambda now: 1.0

class Alone(keras.Model):
    def __init__(self): self.mine = keras.optimizers.Adam()
    def train_step(self, data): self.mine.apply_gradients(data)

class OwnOptimizers(Plain):
    def model(self, hp): return Alone()

class WithTheTrials(keras.Model):
    def train_step(self, data): return helper(self, data)

def helper(model, data): model.optimizer.apply_gradients(data)

class OwnStep(Plain):
    def model(self, hp): return WithTheTrials()

class More(keras.Model):
    def train_step(self, data): return super().train_step(data)

class SuperStep(Plain):
    def model(self, hp): return More()
"""


READING = """
import keras
from silent_models_of_tests import Plain

class ReadingLoss(Plain):
    def loss(self, hp, model): return keras.losses.CategoricalCrossentropy(label_smoothing=hp.number("label_smoothing"))

class Compiling(keras.Model):
    def compile(self, **options): super().compile(**options)
    def train_step(self, data): self.optimizer.apply(data)

class OwnCompile(Plain):
    def model(self, hp):
        model = Compiling()
        model.compile(optimizer=keras.optimizers.Adam(hp.number("learning_rate")))
        return model

class PerhapsCompile(Plain):
    def model(self, hp):
        model = Compiling() if hp.get("own") else keras.Sequential([])
        model.compile(optimizer="adam")
        return model
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own_models")
    (folder / "silent_models_of_tests.py").write_text(HEAD)
    (folder / "reading_models_of_tests.py").write_text(READING)
    return folder


def refused(folder: Path, name: str, *parameters: str) -> list[str]:
    entries = ", ".join(parameters)
    module = "reading_models_of_tests" if f"class {name}(" in READING else "silent_models_of_tests"
    text = f"trainable: {module}:{name}\nmethod: grid\n"
    text += f"parameters: {{learning_rate: {{value: 0.1}}, {entries}}}\n"
    try:
        spec = parse_spec(text, "s.yaml")
        checking.check_source(spec, "s.yaml", inspect(spec.trainable, [folder]))
    except InputError as error:
        return [problem.what for problem in error.problems]
    return []


@pytest.mark.parametrize(
    ("name", "parameter", "why"),
    [
        ("Plain", "label_smoothing: {value: 0.1}", ""),
        (
            "OwnLoss",
            "label_smoothing: {value: 0.1}",
            "it has no effect: loss() of silent_models_of_tests:OwnLoss takes",
        ),
        ("MoreLoss", "label_smoothing: {value: 0.1}", ""),
        ("ReadingLoss", "label_smoothing: {value: 0.1}", ""),
        ("OwnSchedule", "lr_schedule: {value: cosine}", "it has no effect: schedule() of"),
        ("OwnSchedule", "lr_schedule: {values: [constant, plateau]}", ""),
        (
            "OwnCompile",
            "lr_schedule: {value: cosine}",
            "it has no effect: Compiling, which model() returns, has a compile",
        ),
        (
            "OwnCompile",
            "weight_decay: {value: 0.1}",
            "it has no effect: Compiling, which model() returns",
        ),
        ("OwnCompile", "batch_size: {value: 8}", ""),
        ("PerhapsCompile", "lr_schedule: {value: cosine}", ""),
        (
            "OwnOptimizers",
            "batch_size: {value: 8}",
            "it has no effect: Alone, which model() returns, has a train_step",
        ),
        ("OwnStep", "lr_schedule: {value: cosine}", ""),
        ("SuperStep", "lr_schedule: {value: cosine}", ""),
    ],
)
def test_what_the_source_shows_to_have_no_effect_is_refused(
    folder: Path, name: str, parameter: str, why: str
) -> None:
    found = refused(folder, name, parameter)
    assert len(found) == bool(why), found
    assert all(one.startswith(why) for one in found)


def test_only_of_a_keras_trainable_it_is_told_what_is_read_sometimes(folder: Path) -> None:
    from sweep.runner.without_effect import list_sometimes_read

    text = "method: grid\nparameters: {momentum: {value: 0.9}, units: {value: 8}, dropout: {value: 0.1}}\n"
    spec = parse_spec(f"trainable: silent_models_of_tests:Plain\n{text}", "s.yaml")
    assert list_sometimes_read(spec, inspect(spec.trainable, [folder])) == ("momentum", "dropout")
    other = parse_spec(f"trainable: silent_models_of_tests:helper\n{text}", "s.yaml")
    assert list_sometimes_read(other, inspect(other.trainable, [folder])) == ()
