from __future__ import annotations

from typing import Any

import pytest
from small import Small, assignment, train

from trainables.programs import CAPACITY

pytestmark = pytest.mark.keras


@pytest.mark.slow
def test_the_program_used_longest_ago_makes_room() -> None:
    class Tiny(Small):
        def data(self, hp: Any) -> tuple[Any, Any]:
            training, _ = super().data(hp)
            return training, None

    trainable = Tiny()
    first = assignment(epochs=1, units=1)
    train(trainable, first)
    oldest = trainable._begun().program
    for units in range(2, CAPACITY + 1):
        train(trainable, assignment(epochs=1, units=units))
    train(trainable, first)
    assert trainable._begun().program is oldest
    train(trainable, assignment(epochs=1, units=CAPACITY + 1))  # evicts units=2
    train(trainable, first)
    assert trainable._begun().program is oldest
    assert len(trainable._programs._held) == CAPACITY
    assert {dict(structure.reads)["units"] for structure, _ in trainable._programs._held} == {1, *range(3, 10)}
