"""The zoo: updates through XLA train as those without. All of it: ``pytest -m "exhaustive or not exhaustive"``."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from small import metrics, train
from zoo_checks import given
from zoo_entries import ENTRIES

from trainables.keras_trainable import session_of

pytestmark = [pytest.mark.keras, pytest.mark.slow]

EVERY_DAY = ("Plain", "OfTexts", "Categories")
APART = (
    "MixedImages",
    "MixedWeights",
    "MixedNumbers",
    "MixedHalf",
    "MixedStep",
    "Segmented",
    "Detected",
)
REFUSED = {
    "Categories": "XLA has no kernel for AsString",
    "MixedWeights": "XLA would not draw the numbers of stateless_random_gamma_v3",  # in micro-batches: not apart
    "OfTexts": "XLA takes no texts",
    "OfTextsAdapted": "XLA takes no texts",
    "OfTextsAdaptedInTheModel": "XLA takes no texts",
    "RandomImages": "XLA has no kernel for ImageProjectiveTransformV3",  # in the model
}
HALF = ("Half", "MixedHalf")  # XLA leaves out roundings between operations
TOLERANCE, OF_HALF = 1e-6, 5e-3


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=() if n in EVERY_DAY else pytest.mark.exhaustive, id=n)
        for n in ENTRIES
    ],
)
def test_compiled_updates_are_the_same(name: str) -> None:
    found = ENTRIES[name]
    trial, through = given(found), found.trainable()
    compiled = replace(trial, training={**trial.training, "jit_compile": True})
    if name in REFUSED:
        with pytest.raises(Exception, match=REFUSED[name]):
            train(through, compiled)
        return
    without = found.trainable()
    expected, epochs = metrics(train(without, trial)), metrics(train(through, compiled))
    assert through.facts().numerics["xla"] == (
        "on, but for augmentation" if name in APART else "on"
    )
    tolerance = OF_HALF if name in HALF else max(found.tolerance, TOLERANCE)
    for a, b in zip(expected, epochs, strict=True):
        assert b == pytest.approx(a, abs=tolerance, rel=tolerance)
    theirs = session_of(through).trial.program.state.copy_all()
    for path, arrays in session_of(without).trial.program.state.copy_all().items():
        np.testing.assert_allclose(
            theirs[path][0], arrays[0], atol=2 * tolerance, rtol=tolerance, err_msg=path
        )


def test_the_exceptions_are_of_the_zoo() -> None:
    assert {*EVERY_DAY, *APART, *REFUSED, *HALF} <= ENTRIES.keys()
