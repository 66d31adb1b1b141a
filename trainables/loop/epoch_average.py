"""The mean of a model's weights at the ends of its epochs, which is used to evaluate it."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import keras
import tensorflow as tf

from trainables import keras_private
from trainables.data.chunks import Chunk, count_updates
from trainables.data.passes import Batches
from trainables.loop.update import Graph
from trainables.numbers.draws import EVALUATION
from trainables.numbers.live import LiveNumber
from trainables.recipe.averaging import Average
from trainables.replicas import slices
from trainables.state import program_variables


class EpochAverage(Average):
    """Stochastic weight averaging: the mean of the weights at the end of each epoch from a first one on.

    Moving statistics of batch normalisation do not fit averaged weights, so they are computed again in a pass over
    the training data. Create it under the strategy's scope.

    Source: Izmailov et al., Averaging Weights Leads to Wider Optima and Better Generalization, 2018.
    """

    def __init__(self, graph: Graph, first_epoch: LiveNumber) -> None:
        """Create the average of the weights of ``graph``'s model that are trainable now, each with its present value.

        ``first_epoch`` (from 1) is only kept: the caller must call `count` after this epoch and each later one.
        """
        model = graph.model
        self._graph = graph
        self._first_epoch = first_epoch
        # Pairs of a layer of batch normalisation and one of its moving statistics. A layer that is frozen from the
        # beginning is not among them: it keeps its statistics.
        self._moving_statistics: list[tuple[Any, keras.Variable]] = []
        for layer in keras_private.flatten_layers(model):
            if isinstance(layer, keras.layers.BatchNormalization) and layer.trainable:
                self._moving_statistics += [
                    (layer, variable) for variable in layer.non_trainable_variables
                ]
        moving = [variable for _, variable in self._moving_statistics]
        # `weights` and `variables` of the base class have the trainable weights first, and then the moving statistics
        super().__init__([*model.trainable_variables, *moving], first_epoch, graph.replicas)
        self._weight_count = len(model.trainable_variables)
        self._count_graph = tf.function(self._count_weights, autograph=False)
        self.discard_trace()

    def discard_trace(self) -> None:
        """Make the next `count` trace its pass again; call it after layers were frozen or unfrozen."""
        self._normalise_graph = tf.function(
            self._normalise_chunk, reduce_retracing=True, autograph=False
        )

    @property
    def _layers_to_normalise(self) -> list[Any]:
        """The layers whose moving statistics are computed again: those that are trainable now, each once."""
        return list(
            {id(layer): layer for layer, _ in self._moving_statistics if layer.trainable}.values()
        )

    @property
    def first_epoch(self) -> float:
        """The first epoch (from 1) whose weights are averaged."""
        return float(self._first_epoch)

    @property
    def began(self) -> bool:
        """Whether any weights have been averaged since the start or the last `reset`; this waits for the device."""
        return float(self.started.numpy()) > 0

    def count(self, chunks: Iterable[Chunk], batch_size: int, seed: int, first: int) -> None:
        """Add the present weights to the mean, and compute the moving statistics of batch normalisation for it.

        All epochs have the same weight in the mean. The statistics come from a forward pass over ``chunks``, the
        training data, in batches of ``batch_size``. If the trainable has a `train_step`, the pass calls it without
        updating weights. Layers that a hook or a callback has frozen keep the statistics that they train with. If no
        layer of batch normalisation is trainable, there is no pass, and ``chunks`` are not read. Random draws depend on
        ``seed`` and on ``first``, the number of the epoch's first update. The model's own weights, its moving
        statistics, and all else that a forward pass changes are the same afterwards.
        """
        self._count_graph()
        averages_of_statistics = self.variables[self._weight_count :]
        for (layer, variable), average in zip(
            self._moving_statistics, averages_of_statistics, strict=True
        ):
            if not layer.trainable:  # frozen by a hook or a callback
                average.assign(variable.value)
        if not self._layers_to_normalise:
            return
        done = 0
        # The forward pass needs the averaged weights. At the end, what it has computed is swapped into the averages.
        with self.swapping():
            for chunk in chunks:
                count = count_updates(len(chunk.order), batch_size)
                given = Batches.of(chunk, count, size=batch_size, seed=seed, first=first + done)
                self._normalise_graph(given, tf.constant(done))
                done += count

    def _count_weights(self) -> None:
        """Add the present trainable weights to their running means, and add 1 to `started`, the number of additions.

        Moving statistics are left as they are. The first addition replaces the mean.
        """
        count = self.started + 1.0
        averages = self.variables[: self._weight_count]
        weights = self.weights[: self._weight_count]
        for average, weight in zip(averages, weights, strict=True):
            self.replicas.update_copies(
                average,
                lambda a, w, n: a.assign_add((w - a) / tf.cast(n, a.dtype)),
                weight.value,
                count,
            )
        self.started.assign(count)

    def _normalise_chunk(self, batches: Batches, done: tf.Tensor) -> None:
        """Update the moving statistics of batch normalisation by a forward pass over ``batches``.

        They become the means over all batches of the pass so far. Batches have equal weights, and so have the calls of
        a layer within a batch. ``done`` is the number of batches of earlier chunks in the pass. What else a batch
        changes, such as a layer's own counter, is restored after it. Call it inside `swapping`, so that the model has
        the averaged weights.
        """
        others = self._list_others()
        # Batch renormalisation has further statistics, which it averages by itself with its own momentum.
        moving = []
        for layer, variable in self._moving_statistics:
            if layer.trainable and variable.name.startswith("moving_"):
                moving.append(variable)

        # i: number of the batch in the chunk
        def normalise_batch(i: tf.Tensor) -> tuple[tf.Tensor]:
            rows = batches.rows(i)
            earlier_batches = tf.cast(done + i, tf.float32)

            def run_on_replica(tensors: Any) -> None:
                # the replica's part of the batch
                (cut,) = slices.cut_for_replica(tf.shape(rows)[0], 1)
                # not the draws of the updates
                cut.draw(batches.seed, batches.first + i, EVALUATION)
                example = self._graph.intake.take(tensors, rows, cut)
                means = [tf.identity(variable.value) for variable in moving]
                # leaves this batch's statistics alone in the variables
                with slices.entering(cut):
                    self._graph.step.run_model(cut, example)
                for variable, mean in zip(moving, means, strict=True):
                    share = tf.cast(1.0 / (earlier_batches + 1.0), mean.dtype)
                    variable.assign((1.0 - share) * mean + share * variable.value)

            unchanged = program_variables.SavedVariables(self.replicas, others)
            with _averaging_over_calls(self._layers_to_normalise):
                self.replicas.run(run_on_replica, batches.tensors)
            unchanged.restore()
            return (i + 1,)

        tf.while_loop(lambda i: i < batches.count, normalise_batch, (tf.constant(0),))

    def _list_others(self) -> list[Any]:
        """Return all variables that a forward pass may change, except those in `_moving_statistics`."""
        graph = self._graph
        computed = {id(variable.value) for _, variable in self._moving_statistics}
        others = []
        for variable in (*graph.state, *graph.counters, *graph.seed_states):
            if id(program_variables.unwrap_variable(variable)) not in computed:
                others.append(variable)
        return others


@contextmanager
def _averaging_over_calls(layers: Iterable[Any]) -> Iterator[None]:
    """Average the moving statistics of batch normalisation layers over their training calls inside the block.

    They no longer depend on what they were before the block, as each layer's first call replaces them. A `train_step`
    of the trainable may call the model several times for a batch, such as for two views of each example. `call` and
    `momentum` of ``layers`` are changed inside the block and restored after it.
    """
    # by layer and slice; each replica has its own slice
    call_counts: Counter[tuple[int, Any]] = Counter()
    with ExitStack() as stack:  # whose callbacks restore the layers
        for layer in layers:
            stack.callback(setattr, layer, "momentum", layer.momentum)
            # `call` may be replaced on the object already, such as to recompute activations
            if "call" in vars(layer):
                stack.callback(setattr, layer, "call", layer.call)
            else:
                stack.callback(delattr, layer, "call")
            layer.call = functools.partial(_call_and_average, layer, layer.call, call_counts)
        yield


def _call_and_average(
    layer: Any,
    original: Callable[..., Any],
    call_counts: Counter[tuple[int, Any]],
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Call a batch normalisation layer, and make its moving statistics their means over this and earlier calls.

    ``original`` is the layer's `call`, whose result is returned. The first call in training replaces the statistics, as
    the layer's `momentum` is set to 0 for it. Calls in inference mode, which do not change them, are not counted. Calls
    are counted while the graph is traced: a call inside a loop counts once, and calls in both branches of a condition
    count twice. ``call_counts`` has the number of earlier calls by layer and slice, and is updated.
    """
    # `training` may be the second argument or, by position, one after it
    if kwargs.get("training") or any(value is True for value in args[1:]):
        # not one number per layer: replicas are traced in turns, and switch where they exchange values
        key = id(layer), slices.get_current_slice()
        earlier_calls = call_counts[key]
        call_counts[key] += 1
        layer.momentum = earlier_calls / (earlier_calls + 1)
    return original(*args, **kwargs)
