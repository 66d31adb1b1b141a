"""The zoo: trials that are trained together are what they are alone. All of it: ``-m "keras or exhaustive"``."""

from __future__ import annotations

import re

import pytest
from sampling import chosen
from zoo_entries import ENTRIES
from zoo_together import TOLERANCE, compare

pytestmark = [pytest.mark.keras, pytest.mark.slow]

# OTHER: constants of the graph follow from the seed, or the program is not kept.
OWN_STEP, STREAMED, OTHER = (
    "train_step\\(\\) is one's own",
    "another way through the data",
    "another structure",
)
MIXED, TEXTS = "StatelessRandomGammaV3 has no form", "StringLower has no form"
APART = {
    **dict.fromkeys(
        ["MixedStep", "Distilled", "Alternating", "AtOnce", "Wasserstein", "Physics"], OWN_STEP
    ),
    **dict.fromkeys(
        ["Contrastive", "ContrastiveInParts", "SharpStep", "Adversaries", "TeachesItself"], OWN_STEP
    ),
    **dict.fromkeys(
        ["InBuckets", "TaggedInBuckets", "AcrossStreams", "InBatches", "AcrossBatches"], STREAMED
    ),
    "AcrossBuckets": STREAMED,
    **dict.fromkeys(["Phased", "PhasedWithAverages", "PhasedWithMeans"], "they have phases"),
    "PhasedByAuthor": OTHER,
    **dict.fromkeys(["DrawnConstant", "DrawnTable", "TensorFlowNoise"], OTHER),
    "Positions": STREAMED,
    **dict.fromkeys(
        ["TensorFlowState", "WithFeaturesInTheGraph", "AcrossInFit", "TaughtByFit"], OTHER
    ),
    **dict.fromkeys(["MixedImages", "MixedHalf", "Segmented"], MIXED),
    **dict.fromkeys(["OfTexts", "OfTextsAdapted", "OfTextsAdaptedInTheModel"], TEXTS),
    **dict.fromkeys(["MixedWeights", "NewWeights"], "micro_batches"),
    **dict.fromkeys(["MixedNumbers", "AveragedWithin", "EpochsAveraged"], "swa_from"),
    **dict.fromkeys(["OwnAverages", "Averaged"], "ema_momentum"),
    "Categories": "AsString has no form",
    "LossState": "is a tf.Variable",
    "SpectralNorm": "is assigned while the loss is computed",
    "Hooked": "hooks or callbacks",
    "Sharp": "sam_rho",
    "ScheduleFree": "they are not what they are alone",  # it reads its momentum again once that was assigned
}
"""What is trained one trial at a time, and why."""
EVERY_DAY = (
    "MaskedLSTM",
    "LastBatchOfOne",
    "Recomputed",
    "Segmented",
    "ScheduleFree",
    "Wasserstein",
    "OfTexts",
    "SummedLoss",
)
"""Between them they call all of ours that ten of any kind did."""


@pytest.mark.parametrize("name", chosen(ENTRIES, *EVERY_DAY))
def test_trials_together_are_what_they_are_alone(name: str) -> None:
    why = compare(ENTRIES[name], max(ENTRIES[name].tolerance, TOLERANCE))
    assert re.search(APART[name], why) if name in APART else not why, why


def test_the_exceptions_are_of_the_zoo() -> None:
    assert APART.keys() <= ENTRIES.keys()
