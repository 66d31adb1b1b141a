"""Whose a file is, wherever packages are installed."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from types import ModuleType

import keras_tuner
import numpy as np
import pytest

from sweep import author_code
from sweep.author_code import get_package_name, is_author_file, is_installed, note_trainable


@pytest.fixture(autouse=True)
def _without_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget which trainables other tests have asked for."""
    monkeypatch.setattr(author_code, "trainable_packages", {})


def _write(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def _user_site(folder: Path) -> tuple[Path, Path]:
    entry = folder / ".local/lib/python3.11/site-packages"
    return entry, _write(entry / "keras/layers.py")


def _system_packages(folder: Path) -> tuple[Path, Path]:
    entry = folder / "usr/lib/python3/dist-packages"
    return entry, _write(entry / "keras/layers.py")


def _module_stack(folder: Path) -> tuple[Path, Path]:
    """As clusters have it: a folder of any name on PYTHONPATH, filled by an installer."""
    entry = folder / "apps/tensorflow/2.21"
    _write(
        entry / "keras-3.15.dist-info/METADATA",
        "Metadata-Version: 2.1\nName: keras\nVersion: 3.15\n",
    )
    _write(
        entry / "keras-3.15.dist-info/RECORD",
        "keras/layers.py,sha256=x,0\nkeras-3.15.dist-info/RECORD,,\n",
    )
    return entry, _write(entry / "keras/layers.py")


def _link_to_packages(folder: Path) -> tuple[Path, Path]:
    target, file = _user_site(folder / "elsewhere")
    entry = folder / "overlay"
    entry.symlink_to(target)
    return entry, entry / file.relative_to(target)


def _environment_in_the_project(folder: Path) -> tuple[Path, Path]:
    """The project's own folder is on the path as well, and the environment lies in it."""
    return folder, _user_site(folder / ".venv")[1]


@pytest.mark.parametrize(
    "layout",
    [_user_site, _system_packages, _module_stack, _link_to_packages, _environment_in_the_project],
)
def test_an_installed_package_is_nobody_s_own_code(
    layout: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry, file = layout(tmp_path)  # type: ignore[operator]  # one of the layouts above
    monkeypatch.setattr(sys, "path", [str(entry), *sys.path])
    assert is_installed(str(file))
    assert not is_author_file(str(file))


def _import_folder(folder: Path) -> tuple[Path, Path]:
    return folder / "project", _write(folder / "project/my_model.py")


def _checkout(folder: Path) -> tuple[Path, Path]:
    """What `pip install -e .` leaves beside the code."""
    _write(
        folder / "src/my_project.egg-info/PKG-INFO",
        "Metadata-Version: 2.1\nName: my-project\nVersion: 1\n",
    )
    return folder / "src", _write(folder / "src/my_project/nets.py")


def _editable(folder: Path) -> tuple[Path, Path]:
    """An import hook finds it: it lies in no folder of the search path."""
    return folder / "other", _write(folder / "checkout/my_project/nets.py")


def _beside_installed_packages(folder: Path) -> tuple[Path, Path]:
    entry, _ = _module_stack(folder)
    return entry, _write(entry / "helper.py")


@pytest.mark.parametrize(
    "layout", [_import_folder, _checkout, _editable, _beside_installed_packages]
)
def test_what_no_installer_has_put_there_is_the_author_s(
    layout: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry, file = layout(tmp_path)  # type: ignore[operator]  # one of the layouts above
    monkeypatch.setattr(sys, "path", [str(entry), *sys.path])
    assert not is_installed(str(file))
    assert is_author_file(str(file))


def test_the_trainable_s_own_package_is_the_author_s_where_it_is_installed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = tmp_path / "site-packages"
    file, other = _write(entry / "my_nets/vision/resnet.py"), _write(entry / "their_nets/resnet.py")
    monkeypatch.setattr(sys, "path", [str(entry), *sys.path])
    package = ModuleType("my_nets")
    package.__path__ = [str(entry / "my_nets")]
    monkeypatch.setitem(sys.modules, "my_nets", package)
    assert not is_author_file(str(file))
    note_trainable("my_nets.vision.resnet")
    assert is_author_file(str(file))
    assert not is_author_file(str(other))


@pytest.mark.parametrize(
    "module", ["keras.applications", "trainables.digits_cnn", "sweep.functions", "__main__"]
)
def test_what_trials_run_on_never_becomes_the_author_s(module: str) -> None:
    note_trainable(module)
    assert not author_code.trainable_packages


def test_a_file_of_an_extension_module_is_not_the_author_s() -> None:
    assert not is_author_file("numpy/random/mtrand.pyx")


def test_a_script_is_the_author_s_by_its_relative_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(tmp_path / "train.py")
    monkeypatch.chdir(tmp_path)
    assert is_author_file("train.py")


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (np.__file__, "numpy"),
        (keras_tuner.__file__, "keras_tuner"),
        (str(Path(sysconfig.get_path("stdlib")) / "json/decoder.py"), "json"),
        (author_code.__file__, "sweep"),
        ("/tmp/__autograph_generated_file0.py", "tensorflow"),
        ("/nowhere/thing.py", "thing.py"),
    ],
)
def test_a_file_s_package_is_named(file: str, expected: str) -> None:
    assert get_package_name(file) == expected


def test_a_checkout_of_keras_is_not_the_author_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = _write(tmp_path / "keras/src/layers.py")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert not is_author_file(str(file))
