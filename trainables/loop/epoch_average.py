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
        """Create the average of the weights that ``graph`` trains, from ``first_epoch`` (from 1) on."""
        model = graph.model
        self._graph = graph
        self._first = first_epoch
        # Pairs of a layer of batch normalisation and one of its moving statistics. A layer that is frozen from the
        # beginning is not among them: it keeps its statistics.
        self._moving: list[tuple[Any, keras.Variable]] = []
        for layer in keras_private.flatten_layers(model):
            if isinstance(layer, keras.layers.BatchNormalization) and layer.trainable:
                self._moving += [(layer, variable) for variable in layer.non_trainable_variables]
        moving = [variable for _, variable in self._moving]
        super().__init__([*model.trainable_variables, *moving], first_epoch, graph.replicas)
        self._averaged = len(model.trainable_variables)  # the moving statistics come after these
        self._count = tf.function(self._count_weights, autograph=False)
        self.discard_trace()

    def discard_trace(self) -> None:
        """Make the next `count` trace its pass again; call it after layers were frozen or unfrozen."""
        self._normalise = tf.function(self._normalise_chunk, reduce_retracing=True, autograph=False)

    @property
    def _normalising(self) -> list[Any]:
        """The layers whose moving statistics are computed again: those that are trainable now, each once."""
        return list({id(layer): layer for layer, _ in self._moving if layer.trainable}.values())

    @property
    def first_epoch(self) -> float:
        """The first epoch (from 1) whose weights are averaged."""
        return float(self._first)

    @property
    def began(self) -> bool:
        """Whether any weights have been averaged."""
        return float(self.started.numpy()) > 0

    def count(self, chunks: Iterable[Chunk], batch_size: int, seed: int, first: int) -> None:
        """Add the present weights to the mean, and compute the moving statistics of batch normalisation for it.

        The statistics come from a forward pass over ``chunks``, the training data, in batches of ``batch_size``. If the
        trainable has a `train_step`, the pass calls it without updating weights. Layers that a hook or a callback has
        frozen keep the statistics that they train with. If no layer of batch normalisation is trainable, there is no
        pass, and ``chunks`` are not read. Random draws depend on ``seed`` and on ``first``, the number of the epoch's
        first update. The model's own weights, its moving statistics, and all else that a forward pass changes are the
        same afterwards.
        """
        self._count()
        for (layer, variable), average in zip(
            self._moving, self.variables[self._averaged :], strict=True
        ):
            if not layer.trainable:
                average.assign(variable.value)
        if not self._normalising:
            return
        done = 0
        with self.swapping():  # the forward pass needs the averaged weights
            for chunk in chunks:
                count = count_updates(len(chunk.order), batch_size)
                given = Batches.of(chunk, count, size=batch_size, seed=seed, first=first + done)
                self._normalise(given, tf.constant(done))
                done += count

    def _count_weights(self) -> None:
        """Add the present trainable weights to their running means, and count them in `started`."""
        count = self.started + 1.0
        for average, weight in list(zip(self.variables, self.weights, strict=True))[
            : self._averaged
        ]:
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
        a layer within a batch. ``done`` is the number of earlier batches in the pass. What else a batch changes, such
        as a layer's own counter, is restored after it. Call it inside `swapping`, so that the model has the averaged
        weights.
        """
        others = self._list_others()
        # Batch renormalisation has further statistics, which it averages by itself with its own momentum.
        moving = []
        for layer, variable in self._moving:
            if layer.trainable and variable.name.startswith("moving_"):
                moving.append(variable)

        def batch(i: tf.Tensor) -> tuple[tf.Tensor]:
            rows = batches.rows(i)
            earlier_batches = tf.cast(done + i, tf.float32)

            def on_each(tensors: Any) -> None:
                (cut,) = slices.cut_for_replica(tf.shape(rows)[0], 1)
                # not the draws of the updates
                cut.draw(batches.seed, batches.first + i, EVALUATION)
                example = self._graph.intake.take(tensors, rows, cut)
                means = [tf.identity(variable.value) for variable in moving]
                with slices.entering(cut):
                    self._graph.step.run_model(cut, example)
                for variable, mean in zip(moving, means, strict=True):
                    share = tf.cast(1.0 / (earlier_batches + 1.0), mean.dtype)
                    variable.assign((1.0 - share) * mean + share * variable.value)

            unchanged = program_variables.SavedVariables(self.replicas, others)
            with _averaging_over_calls(self._normalising):
                self.replicas.run(on_each, batches.tensors)
            unchanged.restore()
            return (i + 1,)

        tf.while_loop(lambda i: i < batches.count, batch, (tf.constant(0),))

    def _list_others(self) -> list[Any]:
        """Return all variables that a forward pass may change, except the moving statistics that it computes."""
        graph = self._graph
        computed = {id(variable.value) for _, variable in self._moving}
        others = []
        for variable in (*graph.state, *graph.counters, *graph.seed_states):
            if id(program_variables.unwrap_variable(variable)) not in computed:
                others.append(variable)
        return others


@contextmanager
def _averaging_over_calls(layers: Iterable[Any]) -> Iterator[None]:
    """Average the moving statistics of batch normalisation layers over their training calls inside the block.

    A `train_step` of the trainable may call the model several times for a batch, such as for two views of each example.
    """
    # by layer and slice; each replica has its own slice
    call_counts: Counter[tuple[int, Any]] = Counter()
    with ExitStack() as stack:
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

    ``original`` is the layer's `call`. The first call in training replaces the statistics. Calls in inference mode,
    which do not change them, are not counted. Calls are counted while the graph is traced: a call inside a loop counts
    once, and calls in both branches of a condition count twice. ``call_counts`` has the number of earlier calls by
    layer and slice, and is updated.
    """
    if kwargs.get("training") or any(value is True for value in args[1:]):
        # not one number per layer: replicas are traced in turns, and switch where they exchange values
        key = id(layer), slices.get_current_slice()
        earlier_calls = call_counts[key]
        call_counts[key] += 1
        layer.momentum = earlier_calls / (earlier_calls + 1)
    return original(*args, **kwargs)
