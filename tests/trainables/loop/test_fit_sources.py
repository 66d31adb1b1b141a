"""What `Model.fit` cannot take of the sources that our loop takes is refused by name."""

from __future__ import annotations

import pytest
from small import assignment
from zoo_sources import InBatches, InBuckets, OfTexts

from trainables.keras_trainable import KerasTrainable
from trainables.loop.fit_program import NotInFit

pytestmark = pytest.mark.keras


@pytest.mark.parametrize(
    ("kind", "gpus", "message"),
    [
        (InBuckets, 0, "batches of one length"),
        (OfTexts, 2, "2 replicas, which cannot share out texts"),
        (InBatches, 2, "2 replicas, which cannot share out the batches of a PyDataset"),
    ],
)
def test_fit_says_what_it_cannot_take(kind: type[KerasTrainable], gpus: int, message: str) -> None:
    with pytest.raises(NotInFit, match=message):
        kind().begin(assignment(gpus, training={"loop": "fit"}))
