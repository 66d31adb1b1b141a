"""The wheel has all that a user without a checkout needs: installed into an empty environment, it runs a sweep."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = [pytest.mark.exhaustive, pytest.mark.keras, pytest.mark.ray]  # minutes, and downloads


def _run(*command: str | Path, cwd: Path = ROOT) -> str:
    clean = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "RAY_ADDRESS")
    }
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=clean, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    # the wheel out of the source distribution
    _run(sys.executable, "-m", "build", "--outdir", folder)
    (built,) = folder.glob("*.whl")
    return built


def _environment(folder: Path) -> Path:
    venv.create(folder, with_pip=True)
    return folder / "bin" / "python"


def test_all_files_that_are_no_modules_are_in_it(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder in ("sweep", "trainables", "search_spaces"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                assert str(path.relative_to(ROOT)) in names
    assert not any(name.startswith(("tests/", "docs/", "tools/", "benchmarks/")) for name in names)


def test_a_function_is_swept_from_it(wheel: Path, tmp_path: Path) -> None:
    """With the libraries of this environment, for the sake of time."""
    python = _environment(tmp_path / "env")
    _run(python, "-m", "pip", "install", "--no-deps", wheel)
    (site,) = (tmp_path / "env" / "lib").glob("*/site-packages")
    # its own .pth files are not read: no checkout
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib"))
    project = tmp_path / "project"
    project.mkdir()
    where = _run(
        python,
        "-c",
        "import sweep, trainables; print(sweep.__file__, trainables.__file__)",
        cwd=project,
    )
    assert str(ROOT) not in where
    command = tmp_path / "env" / "bin" / "sweep"
    assert "verdict" in _run(command, "examples", cwd=project)
    _run(command, "init", "first", "--function", cwd=project)
    _run(command, "run", "first.yaml", "--inline", cwd=project)
    assert "first" in _run(command, "list", cwd=project)


def test_an_empty_environment_trains_a_model_under_ray(wheel: Path, tmp_path: Path) -> None:
    """Everything that it needs is downloaded: minutes."""
    python = _environment(tmp_path / "env")
    _run(python, "-m", "pip", "install", "-c", ROOT / "constraints.txt", wheel)
    project = tmp_path / "project"
    project.mkdir()
    command = tmp_path / "env" / "bin" / "sweep"
    _run(command, "init", "wine", cwd=project)
    _run(command, "run", "wine.yaml", "--set", "run_cap=4", cwd=project)
    answer = _run(python, "-c", "import sweep; print(len(sweep.load('wine').trials))", cwd=project)
    assert answer.strip() == "4"
