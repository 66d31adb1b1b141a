"""Every example of the page on training steps trains."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from small import assignment, train

from trainables.keras_trainable import KerasTrainable

pytestmark = pytest.mark.keras

PAGE = Path(__file__).parents[2] / "docs" / "steps.md"


def examples() -> dict[str, str]:
    """The code of each class of the page."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return {name: block for block in blocks for name in re.findall(r"^class (\w+)\(", block, re.MULTILINE)}


@pytest.mark.parametrize("name", examples())
def test_an_example_of_the_page_trains(name: str) -> None:
    found: dict[str, Any] = {"__name__": __name__}
    exec(compile(examples()[name], str(PAGE), "exec"), found)
    kind = found[name]
    assert issubclass(kind, KerasTrainable)
    first, last = train(kind(), assignment(epochs=2, batch_size=256, learning_rate=1e-3, filters=2))
    assert last.metrics["loss"] != first.metrics["loss"]
    if name == "Watched":
        assert {"gradient_norm", "gap"} <= set(last.metrics)
