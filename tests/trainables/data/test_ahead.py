from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from trainables.data.ahead import take

pytestmark = pytest.mark.keras


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_read_the_same_rows(threads: int, tmp_path: Path) -> None:
    whole = np.random.default_rng(0).integers(0, 256, (300, 128, 128, 3), np.uint8)
    np.save(tmp_path / "x.npy", whole)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    rows = np.random.default_rng(1).permutation(300)[:271].astype(np.int32)
    np.testing.assert_array_equal(take(mapped, rows, threads), whole[rows])


@pytest.mark.parametrize("threads", [1, 3])
def test_what_cannot_be_read_is_told(threads: int) -> None:
    with pytest.raises(IndexError, match="out of bounds"):
        take(np.zeros((300, 128, 128, 3), np.uint8), np.arange(100, 400, dtype=np.int32), threads)
