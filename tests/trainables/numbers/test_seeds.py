from __future__ import annotations

import random

import numpy as np
import pytest

from trainables.numbers.seeds import seeding_python_and_numpy


def test_draws_inside_are_not_seen_outside() -> None:
    random.seed(1)
    np.random.seed(1)
    expected = random.random(), np.random.random()
    random.seed(1)
    np.random.seed(1)
    with seeding_python_and_numpy(5):
        inside = random.random(), np.random.random()
    assert (random.random(), np.random.random()) == expected != inside
    with seeding_python_and_numpy(5):
        assert (random.random(), np.random.random()) == inside


def test_a_seed_that_is_refused_seeds_nothing() -> None:
    random.seed(1)
    before = random.getstate()
    with pytest.raises(ValueError, match="Seed must be between"), seeding_python_and_numpy(-1):
        pass
    assert random.getstate() == before
