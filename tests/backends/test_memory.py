from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from sweep.backends import memory


def test_what_is_allocated_is_seen() -> None:
    before = memory.measure_memory()
    block = np.ones(50_000_000, np.uint8)
    assert memory.measure_memory() - before > 40e6
    assert block.any()


@pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere the system tells only the most there ever was"
)
def test_data_that_is_mapped_belongs_to_all_and_not_to_this_process(tmp_path: Path) -> None:
    np.ones(50_000_000, np.uint8).tofile(tmp_path / "shared")
    before = memory.measure_memory()
    mapped = np.memmap(tmp_path / "shared", np.uint8, "r")
    assert mapped.sum() == 50_000_000  # all its pages are in memory now
    assert memory.measure_memory() - before < 10e6


def test_each_worker_of_a_machine_may_have_its_part() -> None:
    whole = memory.divide_memory(1)
    assert 1e8 < whole < os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert abs(memory.divide_memory(4) - whole / 4) <= 1
