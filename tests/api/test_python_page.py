"""The page about Python: its lines run, in order, in one notebook."""

from __future__ import annotations

import inspect
import re
import sys
import types
from pathlib import Path

import pytest

import sweep
from sweep.api.running import How

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def _run(blocks: list[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """As cells of a notebook, whose texts can be had; without Ray, for the sake of time."""
    module = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    for number, block in enumerate(blocks):
        block = block.replace("trainable=Wine,\n", "trainable=Wine, inline=True\n")
        block = block.replace("trainable=train)\n", "trainable=train, inline=True)\n")
        path = Path(f"cell_{number}.py").absolute()
        path.write_text(block)
        exec(compile(block, str(path), "exec"), module.__dict__)
    return module.__dict__


@pytest.mark.keras
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Optuna's plots are experimental
def test_a_class_and_what_comes_back(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = _run(BLOCKS[:4], monkeypatch)
    assert cells["model"].count_params() in (139, 275)
    assert len(cells["study"].trials) == 6
    assert len(cells["both"].folders) == 1


def test_functions(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = _run(["import sweep\n", *BLOCKS[4:]], monkeypatch)
    assert cells["done"].trials["checkpoint"].notna().any()
    names = sorted(path.name for path in (project / "results").iterdir())
    assert names == ["call", "fit", "train", "train-2"]
    whole, saved = sweep.load("train"), sweep.load("train-2")
    assert set(whole.trials["status"]) == {"completed", "pruned"}
    assert whole.curves().equals(saved.curves())
    assert sweep.load("fit").trials["epochs"].tolist() == [1] * 8


def test_the_page_names_every_option() -> None:
    text = PAGE.read_text()
    for name in (*inspect.signature(sweep.run).parameters, *How.__annotations__):
        assert f"`{name}" in text or name in ("what", "how"), name
