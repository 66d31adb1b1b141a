"""The zoo: our loop trains as `Model.fit` does. All of it: ``pytest -m "exhaustive or not exhaustive"``."""

from __future__ import annotations

import numpy as np
import pytest
from small import metrics, train
from zoo_checks import NAMES, by_fit, given
from zoo_entries import ENTRIES

pytestmark = [pytest.mark.keras, pytest.mark.slow]


@pytest.mark.parametrize("name", NAMES)
def test_our_loop_is_fit(name: str) -> None:
    found = ENTRIES[name]
    if found.fit:
        pytest.skip(found.fit)
    trial = given(found)
    ours = found.trainable()
    epochs = metrics(train(ours, trial))
    expected, weights = by_fit(found, trial)
    for mine, theirs in zip(epochs, expected, strict=True):
        for key, value in theirs.items():
            if key.removeprefix("val_") in found.skip_metrics:
                continue
            flat = [mine[key]] if value.ndim == 0 else [mine[f"{key}_{i}"] for i in range(value.size)]
            np.testing.assert_allclose(flat, value.reshape(-1), atol=found.tolerance, rtol=1e-6, err_msg=key)
    mine = [np.asarray(v) for v in ours._begun().program.model.variables]
    compared = 0
    for variable, a, b in zip(ours._begun().program.model.variables, mine, weights, strict=True):
        exactly = not variable.dtype.startswith("float")  # seeds of layers, say
        np.testing.assert_allclose(a, b, atol=0 if exactly else found.tolerance, rtol=0, err_msg=variable.path)
        compared += 1
    assert compared


def test_the_zoo_is_large() -> None:
    assert len(ENTRIES) >= 40
