"""The order of a stream is that of the trial's seed, whatever else the process has seeded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from trainables.data import sources

pytestmark = pytest.mark.keras

DATASETS: dict[str, Any] = {
    "numbers": lambda: tf.data.Dataset.range(12),
    "pairs": lambda: tf.data.Dataset.from_tensor_slices(({"a": np.arange(12), "b": np.eye(12)}, np.arange(12))),
    "ragged": lambda: tf.data.Dataset.from_tensor_slices(tf.ragged.range(tf.range(1, 13))),
}


@pytest.fixture
def global_seed() -> Iterator[None]:
    """None at first, whatever tests of the same process have set, and afterwards."""
    tf.random.set_seed(None)
    yield
    tf.random.set_seed(None)


def order(dataset: tf.data.Dataset) -> list[list[Any]]:
    return [[np.asarray(leaf).tolist() for leaf in tf.nest.flatten(one, expand_composites=True)] for one in dataset]


@pytest.mark.parametrize("kind", DATASETS)
def test_a_seed_of_the_process_does_not_change_it(kind: str, global_seed: None) -> None:
    """`keras.utils.set_random_seed` in one worker, and not in another, had them train in different orders."""
    dataset = DATASETS[kind]()
    theirs = order(dataset.shuffle(5, seed=sources.mixed(3, 1)))
    stream = sources.from_dataset(dataset, 5)
    assert order(stream.ordered(3, 1)) == theirs  # as it always was
    tf.random.set_seed(7)
    assert order(dataset.shuffle(5, seed=sources.mixed(3, 1))) != theirs
    assert order(stream.ordered(3, 1)) == theirs
    assert stream.ordered(3, 1).element_spec == dataset.element_spec
    assert stream.ordered(None, 1) is dataset
