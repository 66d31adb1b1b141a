from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from small import Small, assignment, metrics, train

from trainables.data.chunks import Chunk
from trainables.loop import stopwatch

pytestmark = pytest.mark.keras


def test_a_few_steps_of_a_chunk_are_kept() -> None:
    chunk = Chunk(None, np.arange(40, dtype=np.int32))
    parts = list(stopwatch.split_for_profile(chunk, 4))
    assert [kept for _, kept in parts] == [False, True, False]
    assert [len(part.order) // 4 for part, _ in parts] == [stopwatch.SKIPPED, stopwatch.KEPT, 3]
    np.testing.assert_array_equal(np.concatenate([part.order for part, _ in parts]), chunk.order)
    assert [kept for _, kept in stopwatch.split_for_profile(chunk, 20)] == [True]


@pytest.mark.slow
def test_a_profiled_trial_has_the_numbers_of_any_other(tmp_path: Path) -> None:
    given = assignment(batch_size=5)
    profiled = train(Small(), dataclasses.replace(given, profile=tmp_path))
    assert metrics(profiled) == metrics(train(Small(), given))
    assert list(tmp_path.rglob("*.xplane.pb"))
