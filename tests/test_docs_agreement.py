"""docs/agreement.md: its example agrees with `Model.fit`, and its table has the rows of the benchmark."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PAGE = (Path(__file__).parents[1] / "docs/agreement.md").read_text()

pytestmark = pytest.mark.keras


def test_the_example_reports_what_fit_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {"__name__": "agreement_page"}
    exec(compile(code, "agreement.md", "exec"), names)  # the page's own example
    np.testing.assert_allclose(names["ours"], names["fit"]["val_loss"], rtol=1e-5)


@pytest.mark.exhaustive
def test_the_benchmark_has_the_rows_of_the_page() -> None:
    program = Path(__file__).parents[1] / "benchmarks/agreement.py"
    done = subprocess.run(
        [sys.executable, str(program), "--seeds", "1"], capture_output=True, text=True, check=True
    )
    found = {tuple(re.split(r"\s{2,}", line.strip())[:3]) for line in done.stdout.splitlines()}
    rows = re.findall(r"^\| (dense|convolutions)[^|]* \| (\w+) \| (\d+) \|", PAGE, re.MULTILINE)
    names = {"dense": "dense", "convolutions": "batch normalisation"}
    assert {(names[model], optimizer, updates) for model, optimizer, updates in rows} <= found
