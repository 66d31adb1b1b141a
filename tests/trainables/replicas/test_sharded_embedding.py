"""The layer without servers: one table, whose rows begin with the same numbers however it is cut."""

from __future__ import annotations

import itertools
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from trainables.replicas import sharded_embedding
from trainables.replicas.sharded_embedding import ShardedEmbedding

pytestmark = pytest.mark.keras


def test_without_servers_it_is_an_embedding() -> None:
    layer = ShardedEmbedding(5, 2)
    ids = np.array([[1, 4], [1, 0]], np.int32)
    vectors = layer(ids)
    table = layer.embeddings.numpy()
    np.testing.assert_array_equal(vectors, table[ids])
    assert layer.shards == ()
    assert vectors.shape == (2, 2, 2)
    assert np.abs(table).max() <= 0.05
    assert len(np.unique(table)) == table.size
    model = keras.Sequential(
        [keras.Input((3,), dtype="int32"), ShardedEmbedding(5, 2), keras.layers.Flatten()]
    )
    assert model.output_shape == (None, 6)
    again = keras.Sequential.from_config(
        model.get_config(), custom_objects={"ShardedEmbedding": ShardedEmbedding}
    )
    assert again.layers[0].get_config()["input_dim"] == 5


@pytest.mark.parametrize("initializer", ["uniform", "normal", "truncated_normal", "ones"])
def test_rows_begin_alike_however_the_table_is_cut(
    initializer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharded_embedding, "BLOCK", 4)
    layer = ShardedEmbedding(11, 2, initializer)
    layer.build((None,))
    whole = layer.embeddings.numpy()
    for cut in ([0, 11], [0, 6, 11], [0, 4, 8, 11], [0, 1, 2, 11]):
        made = [layer.make_shard("/cpu:0", *rows).variable for rows in itertools.pairwise(cut)]
        np.testing.assert_array_equal(np.concatenate([part.numpy() for part in made]), whole)


def test_a_row_that_a_batch_names_twice_has_one_gradient() -> None:
    layer = ShardedEmbedding(5, 1, "ones")
    layer.build((None,))
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(layer(tf.constant([1, 1, 3])))
    gradient = tape.gradient(total, layer.embeddings.value)
    assert sorted(zip(gradient.indices.numpy(), gradient.values.numpy()[:, 0], strict=True)) == [
        (1, 2.0),
        (3, 1.0),
    ]


def test_parts_of_a_table_are_made_past_the_strategy() -> None:
    asked: list[object] = []

    def create(following: Any, **arguments: Any) -> Any:
        asked.append(arguments)
        return following(**arguments)

    layer = ShardedEmbedding(5, 2)
    with tf.variable_creator_scope(create):
        assert layer.make_shard("/cpu:0", 1, 4).variable.shape == (3, 2)
        assert not asked
        tf.Variable(0.0)
    assert len(asked) == 1


def test_mistakes_are_said() -> None:
    with pytest.raises(ValueError, match="input_dim is 0 and output_dim 2"):
        ShardedEmbedding(0, 2)
    with pytest.raises(
        ValueError, match="embeddings_initializer is GlorotUniform, expected uniform"
    ):
        ShardedEmbedding(3, 2, "glorot_uniform")
