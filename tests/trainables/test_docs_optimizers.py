"""Every example of the page on optimizers trains, and every block of parameters is one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from small import assignment, train

from sweep.spec import parse_spec
from trainables.digits_cnn import DigitsCNN
from trainables.keras_trainable import KerasTrainable

PAGE = Path(__file__).parents[2] / "docs" / "optimizers.md"
PYTHON = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
YAML = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
METRIC = "metric: {name: val_loss, goal: minimize}\n"
HEAD = f"name: page\ntrainable: trainables.digits_cnn:DigitsCNN\nmethod: random\n{METRIC}"


@pytest.mark.keras
@pytest.mark.parametrize("block", PYTHON, ids=lambda block: re.findall(r"class (\w+)", block)[0])
def test_an_example_of_the_page_trains(block: str) -> None:
    found: dict[str, Any] = {"__name__": __name__}
    exec(compile(block, str(PAGE), "exec"), found)
    (kind,) = [k for k in found.values() if isinstance(k, type) and DigitsCNN in k.__bases__]
    assert issubclass(kind, KerasTrainable)
    first, *_, last = train(
        kind(), assignment(epochs=3, batch_size=256, learning_rate=1e-3, filters=2)
    )
    assert last.metrics["loss"] != first.metrics["loss"]


@pytest.mark.parametrize("block", YAML)
def test_parameters_of_the_page_are_read(block: str) -> None:
    text = (
        HEAD
        + block
        + ("" if "epochs: " in block.splitlines()[-1] else "epochs: 1\n")
        + "run_cap: 2\n"
    )
    assert parse_spec(text, "page").space.parameters


def test_the_page_names_every_optimizer() -> None:
    from trainables.recipe.optimizers import OPTIMIZERS

    assert {f"`{name}`" for name in OPTIMIZERS} <= set(re.findall(r"`[a-z_]+`", PAGE.read_text()))
