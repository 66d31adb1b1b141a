"""Every model of docs/sources.md and docs/long_epochs.md trains."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from sampling import sampled
from small import assignment, train

from sweep.contract import NotExportable
from trainables.keras_trainable import KerasTrainable

pytestmark = [
    pytest.mark.keras,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
PAGES = [Path(__file__).parents[2] / "docs" / name for name in ("sources.md", "long_epochs.md")]
BLOCKS = [
    block
    for page in PAGES
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
]


@pytest.mark.parametrize(
    "block",
    sampled(BLOCKS, 3),
    ids=lambda block: re.findall(r"class (\w+)\(KerasTrainable\)", block)[0],
)
def test_a_block_trains(block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if "import datasets" in block:
        pytest.importorskip("datasets", reason="an extra of its own")
    module = types.ModuleType("block")
    monkeypatch.setitem(sys.modules, "block", module)
    exec(compile(block, "page", "exec"), vars(module))
    (kind,) = (
        k for k in vars(module).values() if isinstance(k, type) and KerasTrainable in k.__bases__
    )
    long = {"steps_per_epoch": 20, "validation_steps": 1} if kind.__name__ == "Words" else {}
    (epoch,) = train(kind(), assignment(epochs=1, **long))
    assert epoch.measures.get("passes", 20 / 13) == 20 / 13
    assert np.isfinite(epoch.metrics["loss"])
    assert "weighed" in epoch.metrics or kind.__name__ != "Weighed"


def test_the_model_that_reads_texts_is_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (block,) = [block for block in BLOCKS if "class Reviews" in block]
    module = types.ModuleType("block")
    monkeypatch.setitem(sys.modules, "block", module)
    exec(compile(block, "page", "exec"), vars(module))
    trainable = module.Reviews()
    train(trainable, assignment(epochs=1))
    exported = trainable.export(tmp_path, ["keras", "saved_model"])
    assert set(exported.files) == {"keras", "saved_model"}
    assert max(exported.differences.values()) < 1e-5
    pytest.importorskip("tf2onnx", reason="an extra of its own")
    with pytest.raises(NotExportable, match=r"model\.onnx cannot hold a model that reads texts"):
        trainable.export(tmp_path, ["onnx"])
