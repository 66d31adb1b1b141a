"""Every example of the pages on training steps and on augmentation trains."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from small import assignment, train

from trainables.keras_trainable import KerasTrainable

pytestmark = pytest.mark.keras

DOCS = Path(__file__).parents[2] / "docs"


def examples() -> dict[str, str]:
    """The code of each class of the pages."""
    text = "".join((DOCS / page).read_text() for page in ("steps.md", "augmentation.md"))
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    return {
        name: block
        for block in blocks
        for name in re.findall(r"^class (\w+)\(", block, re.MULTILINE)
    }


EVERY_DAY = ("Watched", "Doubtful")  # the zoo has what the others do


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in EVERY_DAY else pytest.mark.exhaustive)
        for name in examples()
    ],
)
def test_an_example_of_the_page_trains(name: str) -> None:
    found: dict[str, Any] = {"__name__": __name__}
    exec(compile(examples()[name], name, "exec"), found)
    kind = found[name]
    assert issubclass(kind, KerasTrainable)
    first, last = train(kind(), assignment(epochs=2, batch_size=256, learning_rate=1e-3, filters=2))
    assert last.metrics["loss"] != first.metrics["loss"]
    if name == "Watched":
        assert {"gradient_norm", "gap"} <= set(last.metrics)
