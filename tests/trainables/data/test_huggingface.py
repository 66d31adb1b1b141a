from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from small import Small, assignment, metrics, train

from sweep.hyperparameters import Hyperparameters
from trainables.data import huggingface, residence
from trainables.data.chunks import make_examples
from trainables.data.sources import BlockArray, DataError
from trainables.devices.replicas import Replicas

datasets = pytest.importorskip("datasets", reason="an extra of its own")
pytestmark = [pytest.mark.keras, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

COLUMNS = {
    "features": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]],
    "width": [1.0, 2.0, 3.0],
    "text": ["a", "bb", ""],
    "label": [0, 1, 0],
    "weight": [1.0, 0.5, 2.0],
    "ragged": [[1], [1, 2], [3]],
    "missing": [1.0, None, 2.0],
    "holes": ["a", None, "b"],
}


@pytest.fixture(scope="module")
def table() -> Any:
    return datasets.Dataset.from_dict(COLUMNS)


def _arrays(data: Any) -> Any:
    return tf.nest.map_structure(
        lambda leaf: (
            residence.map_block_arrays((leaf,))[0] if isinstance(leaf, BlockArray) else leaf
        ),
        data,
    )


def test_columns_become_inputs_targets_and_weights(table: Any) -> None:
    x, y, weights = _arrays(huggingface.columns(table, "features", "label", "weight"))
    np.testing.assert_array_equal(x, COLUMNS["features"])
    assert (x.dtype, y.tolist(), weights.tolist()) == (np.float32, [0, 1, 0], [1.0, 0.5, 2.0])
    several, _ = _arrays(
        huggingface.columns(table.with_format("numpy"), ["width", "text"], "label")
    )
    assert several["width"].tolist() == [1.0, 2.0, 3.0]
    assert several["text"].tolist() == [b"a", b"bb", b""]
    (chunk,) = make_examples(
        huggingface.columns(table, "text", "label"),
        Replicas(tf.distribute.OneDeviceStrategy("/cpu:0")),
        "x",
    ).chunks(3, None, 0)
    assert chunk.tensors[0].numpy().tolist() == [b"a", b"bb", b""]


def test_a_selection_and_a_shuffle_of_theirs_are_kept(table: Any) -> None:
    _, y = _arrays(huggingface.columns(table.select([1, 0]), "width", "label"))
    assert y.tolist() == [1, 0]


def test_more_rows_than_a_block_are_shared_by_the_node(tmp_path: Any) -> None:
    many = datasets.Dataset.from_dict({"x": np.arange(3000.0), "y": np.arange(3000) % 2})

    def load() -> Any:
        return huggingface.columns(many, "x", "y"), None

    ((x, _), _), _ = residence.load_shared(tmp_path / "node", Hyperparameters({}), load)
    assert isinstance(x, np.memmap)
    np.testing.assert_array_equal(x, np.arange(3000))


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ("ragged", "lists of several lengths.*sequences.buckets"),
        ("missing", "'missing' has nulls"),
        ("holes", "'holes' has nulls"),
        ("nowhere", "no column 'nowhere'.*it has: features"),
    ],
)
def test_columns_that_are_no_arrays_are_refused(table: Any, inputs: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        _arrays(huggingface.columns(table, inputs, "label"))


def test_other_objects_are_refused(table: Any) -> None:
    with pytest.raises(DataError, match="splits train; expected one of them"):
        huggingface.columns(datasets.DatasetDict(train=table), "width", "label")
    with pytest.raises(DataError, match="streaming=True"):
        huggingface.columns(table.to_iterable_dataset(), "width", "label")
    with pytest.raises(DataError, match="a list, expected"):
        huggingface.columns([1], "width", "label")
    with pytest.raises(DataError, match="without a row"):
        huggingface.columns(table.select([]), "width", "label")
    with pytest.raises(DataError, match=r"huggingface\.columns\(dataset"):
        make_examples(table, Replicas(tf.distribute.OneDeviceStrategy("/cpu:0")), "training data")


def test_it_trains_as_the_arrays_do() -> None:
    class Table(Small):
        def data(self, hp: Any) -> Any:
            parts = (datasets.Dataset.from_dict({"x": x, "y": y}) for x, y in super().data(hp))
            return tuple(huggingface.columns(part, "x", "y") for part in parts)

    assert metrics(train(Table(), assignment())) == metrics(train(Small(), assignment()))
