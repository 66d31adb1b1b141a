"""A KerasTrainable needs Keras on TensorFlow; what says otherwise is found before anything starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sweep import keras_backend
from sweep.errors import InputError
from sweep.runner import checking
from sweep.spec import parse_spec


@pytest.mark.parametrize(
    ("environ", "config", "backend"),
    [
        ({}, None, "tensorflow"),
        ({"KERAS_BACKEND": "jax"}, None, "jax"),
        ({"KERAS_BACKEND": ""}, {"backend": "torch"}, "torch"),
        ({"KERAS_BACKEND": "tensorflow"}, {"backend": "torch"}, "tensorflow"),
        ({}, {"backend": "jax", "floatx": "float32"}, "jax"),
        ({}, {"floatx": "float32"}, "tensorflow"),
        ({}, "no JSON", "tensorflow"),
    ],
)
def test_the_backend_is_the_one_that_keras_chooses(
    tmp_path: Path, environ: dict[str, str], config: object, backend: str
) -> None:
    if config is not None:
        (tmp_path / "keras.json").write_text(
            config if isinstance(config, str) else json.dumps(config)
        )
    assert keras_backend.find_backend({"KERAS_HOME": str(tmp_path), **environ})[0] == backend


def test_without_a_folder_of_its_own_the_file_is_in_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert keras_backend.find_config_file({}) == tmp_path / ".keras" / "keras.json"


IMPORT = "from trainables.keras_trainable import KerasTrainable\n"
KERAS = f"{IMPORT}class M(KerasTrainable):\n    def data(self, hp): hp.a\n"
FILE = "trainable: {}\nmethod: grid\nparameters: {{a: {{values: [1]}}}}\n"


def check(folder: Path, name: str, head: str = "", *, here: bool = True) -> None:
    (folder / "m.py").write_text(f"import os\n{head}\n{KERAS}\ndef train(hp, report): hp.a\n")
    checking.check_trainable(
        parse_spec(FILE.format(f"m:{name}"), "s.yaml"), "s.yaml", [folder], here=here
    )


def test_another_backend_is_refused_for_a_keras_trainable_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    with pytest.raises(
        InputError, match=r"m:M is a KerasTrainable, and Keras runs on jax, expected tensorflow"
    ):
        check(tmp_path, "M")
    check(tmp_path, "train")
    check(tmp_path, "M", here=False)  # on a cluster, whose workers have an environment of their own
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    check(tmp_path, "M")


def test_what_the_module_sets_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    with pytest.raises(InputError, match=r"Keras runs on jax, expected tensorflow \(m\)"):
        check(tmp_path, "M", 'os.environ["KERAS_BACKEND"] = "jax"')
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    check(tmp_path, "M", 'os.environ["KERAS_BACKEND"] = "tensorflow"')
    check(tmp_path, "M", 'os.environ["KERAS_BACKEND"] = str(1)')  # only importing it would tell


@pytest.mark.keras
def test_a_worker_looks_at_the_keras_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    import keras

    from trainables.recipe.refusals import Refused, check_backend

    check_backend()
    monkeypatch.setattr(keras.config, "backend", lambda: "jax")
    with pytest.raises(
        Refused, match="Keras runs on jax, expected tensorflow; unset KERAS_BACKEND"
    ):
        check_backend()
