"""The zoo: our loop trains as `Model.fit` does. All of it: ``pytest -m "exhaustive or not exhaustive"``."""

from __future__ import annotations

import numpy as np
import pytest
from sampling import chosen
from zoo_checks import NAMES, by_fit, given, trained_alone
from zoo_entries import ENTRIES

pytestmark = [pytest.mark.keras, pytest.mark.slow]


EVERY_DAY = (
    "AddedLoss",
    "Attention",
    "CachedPretrained",
    "Hooked",
    "LastBatchOfOne",
    "LossOverridesCall",
    "MaskedLSTM",
    "MetricState",
    "OfTexts",
    "ScheduleFree",
    "SeveralInputsAndOutputs",
    "Unshuffled",
)


@pytest.mark.parametrize("name", chosen(NAMES, *EVERY_DAY))
def test_our_loop_is_fit(name: str) -> None:
    found = ENTRIES[name]
    if found.fit:
        pytest.skip(found.fit)
    ours = trained_alone(name)
    expected, weights = by_fit(found, given(found))
    for mine, theirs in zip(ours.metrics, expected, strict=True):
        for key, value in theirs.items():
            if key.removeprefix("val_") in found.skip_metrics:
                continue
            flat = (
                [mine[key]] if value.ndim == 0 else [mine[f"{key}_{i}"] for i in range(value.size)]
            )
            np.testing.assert_allclose(
                flat, value.reshape(-1), atol=found.tolerance, rtol=1e-6, err_msg=key
            )
    compared = 0
    for (path, mine), theirs in zip(ours.weights, weights, strict=True):
        exactly = not np.issubdtype(theirs.dtype, np.floating)  # seeds of layers, say
        np.testing.assert_allclose(
            mine, theirs, atol=0 if exactly else found.tolerance, rtol=0, err_msg=path
        )
        compared += 1
    assert compared


def test_the_zoo_is_large() -> None:
    assert len(ENTRIES) >= 40
