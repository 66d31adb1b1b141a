from __future__ import annotations

import os

import numpy as np

from sweep.backends import memory
from sweep.store import provenance


def test_what_is_allocated_is_seen() -> None:
    before = memory.used()
    block = np.ones(50_000_000, np.uint8)
    assert memory.used() - before > 40e6
    assert block.any()


def test_the_bound_is_a_worker_s_part_of_the_machine() -> None:
    cores = provenance.cpus()
    whole = memory.bound(cores)
    assert 1e8 < whole < os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert abs(memory.bound(cores / 2) - whole / 2) <= 1
    assert memory.bound(10 * cores) == whole
