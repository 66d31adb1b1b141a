"""Every model of docs/sources.md trains."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from small import assignment, train

from trainables.keras_trainable import KerasTrainable

pytestmark = [pytest.mark.keras, pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
PAGE = Path(__file__).parents[2] / "docs" / "sources.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: re.findall(r"class (\w+)\(KerasTrainable\)", block)[0])
def test_a_block_trains(block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if "import datasets" in block:
        pytest.importorskip("datasets", reason="an extra of its own")
    module = types.ModuleType("block")
    monkeypatch.setitem(sys.modules, "block", module)
    exec(compile(block, str(PAGE), "exec"), vars(module))
    (kind,) = (k for k in vars(module).values() if isinstance(k, type) and KerasTrainable in k.__bases__)
    (epoch,) = train(kind(), assignment(epochs=1))
    assert np.isfinite(epoch.metrics["loss"])
    assert "weighed" in epoch.metrics or kind.__name__ != "Weighed"
