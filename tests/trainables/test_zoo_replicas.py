"""The zoo: four replicas train as one. All of it: ``pytest -m "exhaustive or not exhaustive"``."""

from __future__ import annotations

import numpy as np
import pytest
from small import metrics, train
from zoo_checks import NAMES, given
from zoo_entries import ENTRIES

pytestmark = [pytest.mark.keras, pytest.mark.slow]


@pytest.mark.parametrize("name", NAMES)
def test_four_replicas_are_one(name: str) -> None:
    found = ENTRIES[name]
    one, four = found.trainable(), found.trainable()
    if found.replicas:
        with pytest.raises(Exception, match=found.replicas):
            train(four, given(found, 4))
        return
    alone, together = metrics(train(one, given(found))), metrics(train(four, given(found, 4)))
    for a, b in zip(alone, together, strict=True):
        assert b == pytest.approx(a, abs=found.tolerance, rel=1e-6)
    theirs = four._begun().program.state
    for path, held in one._begun().program.state.arrays().items():
        np.testing.assert_allclose(theirs.arrays()[path][0], held[0], atol=2 * found.tolerance, rtol=1e-6, err_msg=path)
