"""An embedding whose rows lie on several servers; under any other strategy it is one table like Keras's own.

Keras 3 cannot hold a variable in parts: under a parameter server its layers do not see the shards, and whoever trains
the model takes them from here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import keras
import tensorflow as tf

from trainables.data.sources import mixed
from trainables.devices import parameter_server
from trainables.devices.replicas import in_scope_of_servers
from trainables.numbers import seeds
from trainables.state.checkpoint import Shard

TABLE = "embeddings"
BLOCK = 4096
"""Rows that are drawn at once: a row begins with the same numbers however many servers there are."""
_DRAWN = (keras.initializers.RandomUniform, keras.initializers.RandomNormal, keras.initializers.TruncatedNormal)
_EQUAL = (keras.initializers.Zeros, keras.initializers.Ones, keras.initializers.Constant)
_keras_own: ContextVar[bool] = ContextVar("keras_own", default=False)


class ShardedEmbedding(keras.layers.Layer):
    """As `keras.layers.Embedding`: whole numbers from 0 to ``input_dim`` become vectors of ``output_dim``.

    ``lazy``: with a parameter server, an update changes the rows of its batch alone, also where the optimizer has
    momentum or decay (as PyTorch's SparseAdam); else all rows, as in Keras, at the cost of the whole table.
    ``embeddings_initializer``: uniform, normal or another that draws each number by itself.
    """

    _shards: tuple[Shard, ...]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """This layer, or Keras's own inside of `as_keras_own`; classes derived from it stay what they are."""
        if cls is ShardedEmbedding and _keras_own.get():
            return _plain(*args, **kwargs)
        return super().__new__(cls, *args, **kwargs)

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        embeddings_initializer: Any = "uniform",
        *,
        lazy: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if input_dim < 1 or output_dim < 1:
            raise ValueError(f"input_dim is {input_dim} and output_dim {output_dim}, expected at least 1")
        self.input_dim, self.output_dim, self.lazy = input_dim, output_dim, lazy
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)
        if not isinstance(self.embeddings_initializer, (*_DRAWN, *_EQUAL)):
            kind = type(self.embeddings_initializer).__name__
            raise ValueError(
                f"embeddings_initializer is {kind}, expected uniform, normal, truncated_normal, zeros, ones or "
                "Constant: the parts of a table are drawn apart"
            )
        object.__setattr__(self, "_shards", ())  # Keras would track their variables as its own

    @property
    def shards(self) -> tuple[Shard, ...]:
        """Where its rows lie; none but under a parameter server."""
        return self._shards

    def build(self, input_shape: Any) -> None:
        """Make the table, each part of it where it stays."""
        if in_scope_of_servers():
            shards = tuple(self._made(device, *rows) for device, rows in self._cut())
            object.__setattr__(self, "_shards", shards)
            return
        self.embeddings = self.add_weight(shape=(self.input_dim, self.output_dim), initializer=self._whole, name=TABLE)

    def call(self, inputs: Any) -> Any:
        """The rows of these numbers."""
        inputs = tf.convert_to_tensor(inputs)
        ids, places = tf.unique(tf.reshape(tf.cast(inputs, tf.int64), [-1]))
        # Each row once: it travels once, and Keras's optimizers square the parts of a gradient that name one twice.
        if self.shards:
            rows = tf.nn.embedding_lookup([shard.variable for shard in self.shards], ids)
        else:
            rows = keras.ops.take(self.embeddings, ids, axis=0)
        vectors = tf.reshape(tf.gather(rows, places), tf.concat([tf.shape(inputs), [self.output_dim]], 0))
        return tf.ensure_shape(vectors, (*inputs.shape, self.output_dim))

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        """One more axis."""
        return (*input_shape, self.output_dim)

    def compute_output_spec(self, inputs: Any) -> keras.KerasTensor:
        """As `compute_output_shape`, without a look at the shards."""
        return keras.KerasTensor(self.compute_output_shape(inputs.shape), dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """All arguments."""
        initializer = keras.initializers.serialize(self.embeddings_initializer)
        own = {"input_dim": self.input_dim, "output_dim": self.output_dim, "lazy": self.lazy}
        return {**super().get_config(), **own, "embeddings_initializer": initializer}

    def _cut(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """Equal parts in their order, the first ones with a row more: as `tf.nn.embedding_lookup` expects them."""
        devices, start = parameter_server.server_devices(), 0
        for number, device in enumerate(devices):
            count = self.input_dim // len(devices) + (number < self.input_dim % len(devices))
            if count:
                yield device, (start, start + count)
            start += count

    def _made(self, device: str, start: int, stop: int) -> Shard:
        def begin() -> tf.Tensor:
            return tf.zeros((stop - start, self.output_dim))

        with tf.name_scope(""):  # the name that the whole table has elsewhere tells optimizers what does not decay
            table = parameter_server.variable_on(device, begin, trainable=self.trainable, name=TABLE)
        with tf.device(device):  # what is drawn here is drawn there
            for block in range(start // BLOCK, -(-stop // BLOCK)):
                first, last = max(start, block * BLOCK), min(stop, (block + 1) * BLOCK)
                rows = self._block(block)[first - block * BLOCK : last - block * BLOCK]
                table[first - start : last - start].assign(rows)
        return Shard(table, device, start, stop, self.input_dim)

    def _whole(self, shape: Any, dtype: Any = None) -> tf.Tensor:
        blocks = [self._block(number) for number in range(-(-self.input_dim // BLOCK))]
        return tf.concat(blocks, 0)[: self.input_dim]

    def _block(self, number: int) -> tf.Tensor:
        kind, config = type(self.embeddings_initializer), self.embeddings_initializer.get_config()
        if isinstance(self.embeddings_initializer, _DRAWN):
            config["seed"] = seeds.short(mixed(int(self.embeddings_initializer.seed), number))
        return kind.from_config(config)((BLOCK, self.output_dim), dtype="float32")


@contextmanager
def as_keras_own() -> Iterator[None]:
    """What is made inside of the block predicts the same and needs nothing of this package."""
    token = _keras_own.set(True)
    try:
        yield
    finally:
        _keras_own.reset(token)


def _plain(
    input_dim: int, output_dim: int, embeddings_initializer: Any = "uniform", *, lazy: bool = False, **kwargs: Any
) -> keras.layers.Embedding:
    """The whole table; ``lazy`` is a matter of training."""
    return keras.layers.Embedding(input_dim, output_dim, embeddings_initializer, **kwargs)


def layers_of(model: keras.Model) -> list[ShardedEmbedding]:
    """Those of a model, also within layers."""
    return [layer for layer in model._flatten_layers() if isinstance(layer, ShardedEmbedding)]
