"""What TensorFlow would keep of graphs that are gone."""

from __future__ import annotations

import gc
from itertools import pairwise

import pytest
import tensorflow as tf
from small import Small, assignment, train
from tensorflow.python.framework.ops import gradient_registry

pytestmark = pytest.mark.keras


def graphs() -> int:
    gc.collect()
    return sum(isinstance(one, tf.Graph) for one in gc.get_objects())


@pytest.mark.exhaustive
@pytest.mark.alone
def test_programs_on_replicas_go_without_a_trace() -> None:
    for loop in ("own", "fit"):
        leaves_nothing(loop)


def leaves_nothing(loop: str) -> None:
    given = assignment(2, epochs=1, units=9, batch_size=14, training={"loop": loop})
    train(Small(), given)  # what is made once
    held = [graphs()]
    for _ in range(3):
        known = set(gradient_registry.list())
        trainable = Small()
        train(trainable, given)
        registered = set(gradient_registry.list()) - known
        assert registered
        del trainable
        held.append(graphs())
        assert not registered & set(gradient_registry.list())
    # Others in this process may keep some now and then; what a program leaves is there each time.
    assert any(after <= before for before, after in pairwise(held)), held
