"""The zoo: two, three or four replicas train as one. All of it: ``pytest -m "exhaustive or not exhaustive"``."""

from __future__ import annotations

import numpy as np
import pytest
from small import metrics, train
from zoo_checks import NAMES, given, trained_alone
from zoo_entries import ENTRIES

from trainables.keras_trainable import session_of

pytestmark = [pytest.mark.keras, pytest.mark.slow]


EVERY_DAY = {
    "AddedLoss": 3,
    "Hooked": 2,
    "LossOverridesCall": 3,
    "MaskedLSTM": 2,
    "MetricState": 3,
    "SeveralInputsAndOutputs": 3,
}
"""And on how many: an odd number cuts batches unevenly, and is added up in another way."""

EACH = [
    pytest.param(
        *name.values,
        count,
        marks=(*name.marks, *([] if EVERY_DAY.get(name.id) == count else [pytest.mark.exhaustive])),
    )
    for name in NAMES
    for count in (2, 3, 4)
]


@pytest.mark.parametrize(("name", "count"), EACH)
def test_replicas_are_one(name: str, count: int) -> None:
    found = ENTRIES[name]
    several = found.trainable()
    if found.replicas:
        with pytest.raises(Exception, match=found.replicas):
            train(several, given(found, count))
        return
    alone, together = trained_alone(name), metrics(train(several, given(found, count)))
    for a, b in zip(alone.metrics, together, strict=True):
        assert b == pytest.approx(a, abs=found.tolerance, rel=1e-6)
    theirs = session_of(several).trial.program.state.copy_all()
    for path, held in alone.state.items():
        np.testing.assert_allclose(
            theirs[path][0], held, atol=2 * found.tolerance, rtol=1e-6, err_msg=path
        )
