"""Data without an end: how many epochs there are of it, and what has no last batch."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf
from small import Small, assignment, train

pytestmark = pytest.mark.keras


class EndlessValidation(Small):
    """Its validation data repeats for ever."""

    def data(self, hp: Any) -> tuple[Any, Any]:
        training, validation = super().data(hp)
        return training, tf.data.Dataset.from_tensor_slices(validation).repeat()


class EndlessTraining(Small):
    """Its training data repeats for ever, and it has no validation data."""

    def data(self, hp: Any) -> tuple[Any, Any]:
        training, _ = super().data(hp)
        return tf.data.Dataset.from_tensor_slices(training).repeat(), None


def test_the_numbers_of_validation_batches_have_32_bits_in_every_epoch() -> None:
    """Counted as one pass an epoch, they would have more from epoch 4 on."""
    given = assignment(epochs=5, validation_steps=2, validation_batch_size=4)
    assert len(train(EndlessValidation(), given)) == 5


def test_replicas_of_fit_have_no_smaller_batch_at_the_end_of_endless_data() -> None:
    given = assignment(gpus=2, training={"loop": "fit"}, steps_per_epoch=2)
    assert len(train(EndlessTraining(), given)) == 2
