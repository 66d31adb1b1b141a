"""An embedding whose rows are divided among several servers; under any other strategy it is a single table.

Keras 3 has no variables in parts. Under a parameter server, its layers do not know the shards, and the training takes
them from this module.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import keras
import tensorflow as tf

from trainables import keras_private
from trainables.data.sources import mix_seeds
from trainables.devices import parameter_server
from trainables.devices.replicas import in_scope_of_servers
from trainables.numbers import seeds
from trainables.state.checkpoint import Shard

TABLE = "embeddings"
BLOCK = 4096
"""Rows that are drawn at once, so that a row's initial values do not depend on the number of servers."""
_DRAWN = (
    keras.initializers.RandomUniform,
    keras.initializers.RandomNormal,
    keras.initializers.TruncatedNormal,
)
_EQUAL = (keras.initializers.Zeros, keras.initializers.Ones, keras.initializers.Constant)
_keras_own: ContextVar[bool] = ContextVar("keras_own", default=False)


class ShardedEmbedding(keras.layers.Layer):
    """A layer like `keras.layers.Embedding`: integers below ``input_dim`` become vectors of length ``output_dim``.

    With ``lazy`` and a parameter server, an update changes only the rows of its batch, even if the optimizer has
    momentum or weight decay (like PyTorch's SparseAdam). Otherwise an update changes all rows, as in Keras, and costs
    as much as the whole table. ``embeddings_initializer`` must draw each number independently, such as uniform or
    normal.
    """

    _shards: tuple[Shard, ...]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Return this layer or, inside `creating_keras_embeddings`, Keras's own; a subclass is never replaced."""
        if cls is ShardedEmbedding and _keras_own.get():
            return _build_whole_embedding(*args, **kwargs)
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
        """Create the layer without its table; ``kwargs`` are those of `keras.layers.Layer`.

        Raises ValueError if a dimension is below 1, or for an initializer other than uniform, normal, truncated_normal,
        zeros, ones or Constant.
        """
        super().__init__(**kwargs)
        if input_dim < 1 or output_dim < 1:
            raise ValueError(
                f"input_dim is {input_dim} and output_dim {output_dim}, expected at least 1"
            )
        self.input_dim = input_dim
        self.output_dim = output_dim
        self.lazy = lazy
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)
        if not isinstance(self.embeddings_initializer, (*_DRAWN, *_EQUAL)):
            kind = type(self.embeddings_initializer).__name__
            raise ValueError(
                f"embeddings_initializer is {kind}, expected uniform, normal, truncated_normal, zeros, ones or "
                "Constant: the parts of a table are drawn apart"
            )
        object.__setattr__(self, "_shards", ())  # otherwise Keras would track the shards' variables

    @property
    def shards(self) -> tuple[Shard, ...]:
        """The parts of the table in the order of their rows, one for each server that has rows.

        It is empty without parameter servers, and before `build`.
        """
        return self._shards

    def build(self, input_shape: Any) -> None:
        """Create the weight ``embeddings``, or a shard of its rows on each parameter server if there are any.

        Shards are no weights of the layer, which has them in `shards`. ``input_shape`` has no effect.
        """
        if in_scope_of_servers():
            shards = tuple(self.make_shard(device, *rows) for device, rows in self._divide_rows())
            object.__setattr__(self, "_shards", shards)
            return
        self.embeddings = self.add_weight(
            shape=(self.input_dim, self.output_dim), initializer=self._whole, name=TABLE
        )

    def call(self, inputs: Any) -> Any:
        """Return the rows of the table for the integers ``inputs``, with shape (*inputs.shape, output_dim).

        Integers must be from 0 to before ``input_dim``; others are not checked here.
        """
        inputs = tf.convert_to_tensor(inputs)
        ids, places = tf.unique(tf.reshape(tf.cast(inputs, tf.int64), [-1]))
        # Look up each row once: it is sent once, and Keras's optimizers would square duplicate rows of a gradient
        # separately.
        if self.shards:
            rows = tf.nn.embedding_lookup([shard.variable for shard in self.shards], ids)
        else:
            rows = keras.ops.take(self.embeddings, ids, axis=0)
        shape = tf.concat([tf.shape(inputs), [self.output_dim]], 0)
        vectors = tf.reshape(tf.gather(rows, places), shape)
        return tf.ensure_shape(vectors, (*inputs.shape, self.output_dim))

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        """Return ``input_shape`` with ``output_dim`` as one more axis at the end."""
        return (*input_shape, self.output_dim)

    def compute_output_spec(self, inputs: Any) -> keras.KerasTensor:
        """Return the output's shape and type without looking up any shard."""
        return keras.KerasTensor(self.compute_output_shape(inputs.shape), dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments with which the layer can be created again."""
        initializer = keras.initializers.serialize(self.embeddings_initializer)
        own = {"input_dim": self.input_dim, "output_dim": self.output_dim, "lazy": self.lazy}
        return {**super().get_config(), **own, "embeddings_initializer": initializer}

    def _divide_rows(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """Yield (device, (first row, row after the last one)) for each server that gets rows.

        The parts are in order and equal, except that the first ones have one more row if the rows do not divide evenly,
        as `tf.nn.embedding_lookup` expects. With fewer rows than servers, the last servers get none.
        """
        devices = parameter_server.list_server_devices()
        least, rest = divmod(self.input_dim, len(devices))
        start = 0
        for number, device in enumerate(devices):
            count = least + 1 if number < rest else least
            if count:
                yield device, (start, start + count)
            start += count

    def make_shard(self, device: str, start: int, stop: int) -> Shard:
        """Create a variable on ``device`` for the table's rows from ``start`` to before ``stop``, and initialize it.

        The rows have the same initial values in a single table. Returns the variable as a `Shard`; it is not added to
        `shards`.
        """

        def begin() -> tf.Tensor:  # replaced below, block by block
            return tf.zeros((stop - start, self.output_dim))

        # optimizers exempt variables from decay by name, so it must be the same as elsewhere
        with tf.name_scope(""):
            table = parameter_server.create_variable_on_device(
                device, begin, trainable=self.trainable, name=TABLE
            )
        with tf.device(device):  # draw on the server
            for block in range(
                start // BLOCK, math.ceil(stop / BLOCK)
            ):  # all that have rows of the shard
                first = max(start, block * BLOCK)
                last = min(stop, (block + 1) * BLOCK)
                offset = block * BLOCK
                rows = self._block(block)[first - offset : last - offset]
                table[first - start : last - start].assign(rows)
        return Shard(table, device, start, stop, self.input_dim)

    def _whole(self, shape: Any, dtype: Any = None) -> tf.Tensor:
        """Return the initial values of the whole table, as an initializer of Keras's; the arguments have no effect."""
        blocks = []
        for number in range(math.ceil(self.input_dim / BLOCK)):
            blocks.append(self._block(number))
        return tf.concat(blocks, 0)[
            : self.input_dim
        ]  # the last block may have more rows than are needed

    def _block(self, number: int) -> tf.Tensor:
        """Return the initial values of the table's rows from ``number * BLOCK`` on, `BLOCK` rows as float32.

        A copy of the initializer draws them; if it draws at random, with a seed that depends on ``number``.
        """
        kind = type(self.embeddings_initializer)
        config = self.embeddings_initializer.get_config()
        if isinstance(self.embeddings_initializer, _DRAWN):
            config["seed"] = seeds.truncate_seed(
                mix_seeds(int(self.embeddings_initializer.seed), number)
            )
        return kind.from_config(config)((BLOCK, self.output_dim), dtype="float32")


@contextmanager
def creating_keras_embeddings() -> Iterator[None]:
    """Make `ShardedEmbedding(...)` return a `keras.layers.Embedding` inside the block, as for exported models.

    It predicts the same and does not need this package. Subclasses of `ShardedEmbedding` are not replaced.
    """
    token = _keras_own.set(True)
    try:
        yield
    finally:
        _keras_own.reset(token)


def _build_whole_embedding(
    input_dim: int,
    output_dim: int,
    embeddings_initializer: Any = "uniform",
    *,
    lazy: bool = False,
    **kwargs: Any,
) -> keras.layers.Embedding:
    """Return a `keras.layers.Embedding` with the given arguments, except ``lazy``, which only concerns training."""
    return keras.layers.Embedding(input_dim, output_dim, embeddings_initializer, **kwargs)


def list_sharded_embeddings(model: keras.Model) -> list[ShardedEmbedding]:
    """Return all `ShardedEmbedding` layers of a model, including layers within layers, each once."""
    layers = []
    for layer in keras_private.flatten_layers(model):
        if isinstance(layer, ShardedEmbedding):
            layers.append(layer)
    return layers
