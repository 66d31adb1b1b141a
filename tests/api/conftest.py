"""A folder to run sweeps in, and folders of sweeps that are written, not run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "analysis"))

from folders import sweep_of  # found by the line above

__all__ = ["sweep_of"]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, empty."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.delenv("SWEEP_SET", raising=False)
    return tmp_path
