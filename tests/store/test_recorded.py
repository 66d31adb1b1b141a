"""Sweeps that earlier code has run: their logs come to the same tables, rankings and next trials as they did then."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import reader


@pytest.mark.parametrize("name", reader.NAMES)
def test_a_recorded_sweep_is_read_as_it_was(name: str, tmp_path: Path) -> None:
    known = json.loads((reader.RECORDED / name / "read.json").read_text())
    found = reader.read(name, tmp_path)
    assert found.keys() == known.keys()
    for part, was in known.items():
        assert json.dumps(found[part]) == json.dumps(was), part  # as text: NaN is NaN
