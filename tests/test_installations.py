"""A Keras model trains wherever its packages are installed, and wherever its author's code lies."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import sweep

pytestmark = [pytest.mark.keras, pytest.mark.slow]

PACKAGES = Path(sysconfig.get_path("purelib"))
PROJECT = Path(sweep.__file__).parents[1]
# the interpreter that this environment was made of
BASE_PYTHON = getattr(sys, "_base_executable", sys.executable)
VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"

MODEL = """
import keras
import numpy as np
import sklearn.datasets

from trainables.keras_trainable import KerasTrainable

SEEN = []


class Net(KerasTrainable):
    def data(self, hp):
        x, y = sklearn.datasets.load_iris(return_X_y=True)
        SEEN.append(len(x))
        return (x[::2].astype("float32"), y[::2]), (x[1::2].astype("float32"), y[1::2])

    def model(self, hp):
        return keras.Sequential([keras.Input((4,)), keras.layers.Dense(hp.integer("units")), keras.layers.Dense(3)])
"""

FILE = """
name: net
trainable: {trainable}
method: grid
metric: {{name: val_accuracy, goal: maximize}}
parameters: {{units: {{values: [2, 4]}}, learning_rate: {{value: 0.01}}}}
epochs: 2
run_cap: 1
"""


@dataclass(frozen=True)
class Layout:
    """A Python and where it finds its packages."""

    python: Path
    environment: Mapping[str, str] = field(default_factory=dict)


def _environment_of(folder: Path, packages: Path) -> Layout:
    """Return a new environment that finds packages in another folder, by a ``.pth`` file."""
    subprocess.run([BASE_PYTHON, "-m", "venv", "--without-pip", folder], check=True)
    own = folder / "lib" / VERSION / "site-packages"
    (own / "overlay.pth").write_text(f"import site; site.addsitedir({str(packages)!r})\n")
    return Layout(folder / "bin/python")


def _this(folder: Path) -> Layout:
    return Layout(Path(sys.executable))


def _symlinked_environment(folder: Path) -> Layout:
    (folder / "env").symlink_to(sys.prefix)
    return Layout(folder / "env/bin/python")


def _user_site(folder: Path) -> Layout:
    site = folder / "user/lib" / VERSION
    site.mkdir(parents=True)
    (site / "site-packages").symlink_to(PACKAGES)
    return Layout(Path(BASE_PYTHON), {"PYTHONUSERBASE": str(folder / "user")})


def _system_packages(folder: Path) -> Layout:
    system = folder / "usr/lib/python3"
    system.mkdir(parents=True)
    (system / "dist-packages").symlink_to(PACKAGES)
    return _environment_of(folder / "env", system / "dist-packages")


def _overlay(folder: Path) -> Layout:
    return _environment_of(folder / "env", PACKAGES)


def _module_stack(folder: Path) -> Layout:
    """As clusters have it: a folder of any name on PYTHONPATH, with no ``.pth`` file read."""
    stack = folder / "apps/tensorflow-2.21"
    shutil.copytree(PACKAGES, stack, copy_function=os.link, symlinks=True)
    return Layout(Path(BASE_PYTHON), {"PYTHONPATH": f"{stack}:{PROJECT}"})


LAYOUTS: dict[str, Callable[[Path], Layout]] = {
    "environment": _this,
    "symlinked environment": _symlinked_environment,
    "user site": _user_site,
    "over system packages": _system_packages,
    "pth file": _overlay,
    "module stack": _module_stack,
}


def _run(layout: Layout, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    cleared = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "VIRTUAL_ENV")
    }
    command = [str(layout.python), "-m", "sweep", *arguments]
    found = subprocess.run(
        command,
        cwd=folder,
        env={**cleared, **layout.environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, f"{' '.join(arguments)}: {found.stdout}{found.stderr}"
    return found


def _project(folder: Path) -> Path:
    project = folder / "project"
    project.mkdir()
    (project / "net.py").write_text(MODEL)
    (project / "net.yaml").write_text(FILE.format(trainable="net:Net"))
    return project


def test_a_model_trains_with_packages_of_the_user_site(tmp_path: Path) -> None:
    _run(_user_site(tmp_path), _project(tmp_path), "run", "net.yaml", "--inline")


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_command_works_in_every_layout(name: str, tmp_path: Path) -> None:
    layout, project = LAYOUTS[name](tmp_path), _project(tmp_path)
    _run(layout, project, "plan", "net.yaml")
    _run(layout, project, "run", "net.yaml")
    _run(layout, project, "run", "net.yaml", "--inline", "--name", "inline")
    answered = _run(layout, project, "run", "net.yaml", "--name", "again")
    assert "1 trial answered from" in answered.stderr + answered.stdout
    _run(layout, project, "resume", "net", "--run-cap", "2")
    _run(layout, project, "best", "net", "--export", "exported")
    checks = json.loads(_run(layout, project, "doctor", "--json").stdout)
    assert not [check for check in checks if check.get("level") == "error"], checks


def _installed(folder: Path) -> Path:
    """Install the author's package as `pip install .` does."""
    packages = folder / "packages/site-packages"
    (packages / "my_nets").mkdir(parents=True)
    (packages / "my_nets/__init__.py").touch()
    (packages / "my_nets/net.py").write_text(MODEL)
    about = packages / "my_nets-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-nets\nVersion: 1.0\n")
    (about / "RECORD").write_text(
        "my_nets/__init__.py,,\nmy_nets/net.py,,\nmy_nets-1.0.dist-info/RECORD,,\n"
    )
    return packages


def _source_folder(folder: Path) -> Path:
    """Lay the package out as `pip install -e .` finds it: ``src/my_nets``, named by a ``.pth`` file."""
    source = folder / "checkout/src"
    (source / "my_nets").mkdir(parents=True)
    (source / "my_nets/__init__.py").touch()
    (source / "my_nets/net.py").write_text(MODEL)
    return source


@pytest.mark.exhaustive
@pytest.mark.parametrize("place", [_installed, _source_folder])
def test_the_author_s_package_may_be_installed(
    place: Callable[[Path], Path], tmp_path: Path
) -> None:
    folder = place(tmp_path)
    layout = _environment_of(tmp_path / "env", PACKAGES)
    (tmp_path / "env/lib" / VERSION / "site-packages/my_nets.pth").write_text(f"{folder}\n")
    project = tmp_path / "project"
    project.mkdir()
    (project / "net.yaml").write_text(FILE.format(trainable="my_nets.net:Net"))
    _run(layout, project, "run", "net.yaml")
    _run(layout, project, "run", "net.yaml", "--inline", "--name", "inline")
    _run(layout, project, "resume", "net", "--run-cap", "2")
    _run(layout, project, "best", "net", "--export", "exported")
