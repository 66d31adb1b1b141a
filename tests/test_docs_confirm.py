"""The sweep of docs/confirm.md runs as it stands, but shorter, and ends with the answer that the page promises."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from sweep.cli import main
from sweep.spec import parse_spec

PAGE = (Path(__file__).parents[1] / "docs" / "confirm.md").read_text()
SWEEP, MODEL = (
    re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)[0] for language in ("yaml", "python")
)


def test_the_sweep_is_one() -> None:
    spec = parse_spec(SWEEP, "wine.yaml")
    assert spec.baseline == {"learning_rate": 1e-3, "width": 16}
    assert spec.confirm is not None


@pytest.mark.keras
@pytest.mark.slow
def test_it_ends_with_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wine_net.py").write_text(MODEL)
    (tmp_path / "wine.yaml").write_text(SWEEP)
    monkeypatch.chdir(tmp_path)
    small = "--set epochs=3 --set run_cap=2 --set confirm.seeds=2 --set confirm.budget=900%"
    result = CliRunner().invoke(main, f"run wine.yaml --inline {small}".split())
    sys.modules.pop("wine_net", None)
    assert result.exit_code == 0, result.output
    assert "baseline" in result.output
    assert "test.loss" in result.output
    assert re.search(
        r"in the search and is [\d.]+ with fresh seeds, [\d.]+ on the test data", result.output
    )
