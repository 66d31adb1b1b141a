"""A project folder with a trainable in it."""

from __future__ import annotations

from pathlib import Path

import curves
import pytest


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "curve.py").write_text(curves.TRAINABLE)
    return tmp_path
