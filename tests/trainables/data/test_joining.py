"""Training and validation data as one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from small import Small, assignment, train

from trainables.data.joining import joined
from trainables.data.sources import Buckets, DataError, Rows, Stream
from trainables.recipe.refusals import Refused

pytestmark = pytest.mark.keras


def arrays(first: int, count: int) -> Any:
    x = np.arange(first, first + count, dtype=np.float32)
    return {"a": x[:, None], "b": x}, x.astype(np.int32)


def test_arrays_and_what_holds_them() -> None:
    x, y = joined(arrays(0, 3), arrays(3, 2))
    assert x["a"].shape == (5, 1)
    assert list(x["b"]) == list(y) == [0, 1, 2, 3, 4]
    assert list(joined((tf.range(2), tf.range(2)), (tf.range(1), tf.range(1)))[0]) == [0, 1, 0]


def test_rows_in_files() -> None:
    def rows(*values: float) -> Rows:
        return Rows((len(values),), np.dtype(np.float32), lambda: iter([np.array(values, np.float32)]))

    found = joined((rows(1, 2), rows(0, 0)), (rows(3), rows(0)))[0]
    assert (len(found), [list(block) for block in found.blocks()]) == (3, [[1, 2], [3]])


def test_datasets_and_streams() -> None:
    one, other = (tf.data.Dataset.range(*ends).map(lambda n: (n, n)) for ends in ((0, 60), (60, 70)))
    assert [int(x) for x, _ in joined(one, other)] == list(range(70))
    streams = [Stream(lambda seed, epoch, data=data: data, size) for data, size in ((one, 60), (other, 10))]
    found = joined(*streams)
    assert found.size == 70
    assert [int(x) for x, _ in found.ordered(None, 0)] == list(range(70))
    orders = [[int(x) for x, _ in found.ordered(seed, 1)] for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == list(range(70))


@pytest.mark.parametrize(
    ("validation", "message"),
    [
        (None, "data\\(\\) returns no validation data"),
        (tf.data.Dataset.range(3), "returns arrays and "),
        ((*arrays(0, 2), np.ones(2)), "only the validation data has sample weights"),
        ((np.zeros((2, 1)), np.zeros(2)), "cannot be joined"),
    ],
)
def test_what_cannot_be_joined(validation: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        joined(arrays(0, 3), validation)


def test_a_trial_on_all_data_has_no_validation() -> None:
    trainable = Small()
    both = train(trainable, assignment(epochs=1))
    alone = train(trainable, assignment(epochs=1, training={"all_data": True}))
    assert set(both[-1].metrics) == {"loss", "accuracy", "val_loss", "val_accuracy"}
    assert set(alone[-1].metrics) == {"loss", "accuracy"}
    assert trainable._session.trial.walk.data.size == 90
    assert train(trainable, assignment(epochs=1))[-1].metrics == both[-1].metrics
    with pytest.raises(Refused, match="lr_schedule plateau waits for the validation"):
        trainable.begin(assignment(training={"all_data": True}, lr_schedule="plateau"))


def test_buckets_are_joined_and_batches_are_not() -> None:
    part = (np.zeros((2, 3)), np.zeros(2))
    assert len(joined(Buckets((part,)), Buckets((part, part))).parts) == 3
    batches = type("Batches", (), {})
    with pytest.raises(DataError, match="a Batches"):
        joined(batches(), batches())
