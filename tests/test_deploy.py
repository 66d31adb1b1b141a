"""The files of `deploy/`: that they are clean, and name what is there. Images are built by hand: docs/containers.md."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sweep.spec import yaml_reader

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()
COPIED = {name for line in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE) for name in line.split()}


def test_hadolint_finds_nothing() -> None:
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if hadolint is None:
        pytest.skip("hadolint has no wheel for this system")
    done = subprocess.run([hadolint, ROOT / "deploy" / "Dockerfile"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_gets_all_that_the_package_is_made_of_and_nothing_else() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored[0] == "*"
    assert {line[1:] for line in ignored if line.startswith("!")} == COPIED
    assert all((ROOT / name).exists() for name in COPIED)
    packages = re.search(r"^include = (\[.*\])", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert packages is not None
    assert set(re.findall(r'"(\w+)\*"', packages[1])) <= COPIED


def test_who_runs_in_it_is_not_root_and_pip_is_gone() -> None:
    last = DOCKERFILE.rpartition("FROM ")[2]
    assert "USER 1000\n" in last
    assert "pip install" not in last
    assert (
        'HEALTHCHECK --interval=5m --timeout=1m CMD ["python", "-m", "sweep", "list"]' in last
    )  # `doctor` trains, beside the sweep


def test_the_services_are_built_of_it() -> None:
    found = yaml_reader.read((ROOT / "deploy" / "compose.yaml").read_text(), "compose.yaml")
    assert found is not None
