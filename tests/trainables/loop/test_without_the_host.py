"""An update, once begun, asks the device for nothing: told from the traced graph and the kernels of the wheel."""

from __future__ import annotations

from collections import Counter
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from small import assignment, train
from zoo_checks import given
from zoo_entries import ENTRIES

from sweep.contract import Diverged
from trainables.devices import kernels
from trainables.keras_trainable import KerasTrainable, session_of
from trainables.loop import graph_program
from trainables.recipe import augmentation
from trainables.replicas import additivity

pytestmark = pytest.mark.keras

ONCE_A_BLOCK = ["LogicalAnd of bool: whether a while goes on"]


class Pictures(KerasTrainable):
    labels: Any = np.int32
    pixels = "uint8"

    def data(self, hp: Any) -> tuple[Any, Any]:
        random = np.random.default_rng(0)
        x = random.integers(0, 256, (64, 8, 8, 3), dtype=np.uint8)
        y = random.integers(0, 10, 64).astype(self.labels)
        return (x, y), (x[:16], y[:16])

    def model(self, hp: Any) -> keras.Model:
        inputs = keras.Input((8, 8, 3), dtype=self.pixels)
        x = keras.layers.Conv2D(4, 3, use_bias=False)(keras.ops.cast(inputs, "float32") / 255)
        x = keras.layers.ReLU()(keras.layers.BatchNormalization()(x))
        x = keras.layers.Dropout(self.dropout(hp))(keras.layers.GlobalAveragePooling2D()(x))
        return keras.Model(inputs, keras.layers.Dense(10, dtype="float32")(x))

    def metrics(self, hp: Any, model: Any) -> Any:
        return ["accuracy"]

    def augment(self, x: Any, hp: Any, draws: Any) -> Any:
        return augmentation.crop(augmentation.flip(x, draws), draws, 2.0)


class Floats(Pictures):
    """One CPU device holds arrays as they are, of which GPUs gather floats and int64."""

    labels, pixels = np.int64, "float32"

    def data(self, hp: Any) -> tuple[Any, Any]:
        return tuple((x.astype(np.float32), y) for x, y in super().data(hp))


def traced(trainable: Any, name: str = "train_chunk") -> Any:
    return (
        getattr(session_of(trainable).trial.program, name)._list_all_concrete_functions()[0].graph
    )


def inner(graph: Any) -> Any:
    """The body of a block, in which the loop over its updates is."""
    (loop,) = [op for op in graph.get_operations() if op.type in ("While", "StatelessWhile")]
    return graph._get_function(loop.node_def.attr["body"].func.name).graph


def begun(trainable: Any, gpus: int, params: dict[str, Any]) -> Any:
    training = {"precision": params.pop("precision", "float32")}
    trainable.begin(assignment(gpus, epochs=1, training=training, **params))
    return trainable


EVERYTHING = {"sam_rho": 0.05, "ema_momentum": 0.9, "clipnorm": 1.0, "micro_batches": 2}


@pytest.mark.parametrize(
    ("kind", "gpus", "params"),
    [
        (Floats, 0, {"dropout": 0.2}),
        (Pictures, 2, {"dropout": 0.2, "precision": "mixed_float16", **EVERYTHING}),
        pytest.param(Pictures, 2, {"dropout": 0.2}, marks=pytest.mark.exhaustive),
        pytest.param(Pictures, 2, {"precision": "mixed_float16"}, marks=pytest.mark.exhaustive),
        pytest.param(Pictures, 2, EVERYTHING, marks=pytest.mark.exhaustive),
        pytest.param(
            Pictures,
            2,
            {"mixup": 0.2, "cutmix": 0.2, "random_erasing": 0.2},
            marks=pytest.mark.exhaustive,
        ),
    ],
)
def test_updates_and_batches_wait_for_nothing(kind: Any, gpus: int, params: dict[str, Any]) -> None:
    trainable = begun(kind(), gpus, {"optimizer": "adamw", **params})
    training, evaluation = traced(trainable), traced(trainable, "evaluate_chunk")
    assert kernels.find_host_waits(training) == ONCE_A_BLOCK
    assert kernels.find_host_waits(inner(training)) == kernels.find_host_waits(evaluation) == []


def test_steps_of_an_author_wait_for_nothing() -> None:
    found = ENTRIES["SharpStep"]

    class Unchecked(found.trainable):
        augment = KerasTrainable.augment  # that of the zoo asserts something, which waits

    trainable = Unchecked()
    trainable.begin(given(found, 2))
    assert kernels.find_host_waits(traced(trainable)) == ONCE_A_BLOCK


def test_what_waits_is_found() -> None:
    @tf.function(autograph=False)
    def branch(x: tf.Tensor) -> tf.Tensor:
        labels = tf.bitcast(x, tf.int32)
        kept = tf.cond(tf.reduce_sum(x) > 0, lambda: labels + 1, lambda: labels)
        return tf.while_loop(
            lambda y: tf.reduce_max(y) < 1, lambda y: (y + 1,), (tf.cast(kept, tf.float32),)
        )

    found = kernels.find_host_waits(
        branch.get_concrete_function(tf.TensorSpec([None], tf.float32)).graph
    )
    assert "Greater of bool: cond of If" in found or "Greater of bool: cond of StatelessIf" in found
    assert "Less of bool: whether a while goes on" in found
    assert any(line.startswith("Bitcast of int32: input of") for line in found)


class Bursting(Floats):
    """What it learns from is not finite from the seventh update on."""

    def augment(self, x: Any, hp: Any, draws: Any) -> Any:
        late = tf.cast(draws.update >= 6, tf.float32)
        return x / (1.0 - late)


def test_a_trial_that_diverges_ends_within_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_program, "BLOCK", 2)
    trainable = Bursting()
    with pytest.raises(Diverged, match="epoch 1"):
        train(trainable, assignment(epochs=1, batch_size=4))
    assert int(session_of(trainable).trial.program.model.optimizer.iterations.numpy()) == 8  # of 16


def operations(graph: Any) -> Counter[str]:
    """How often each kind is in a graph and in the functions of it."""
    found: Counter[str] = Counter()
    for part in [graph, *(graph._get_function(name).graph for name in _functions(graph, set()))]:
        found.update(op.type for op in part.get_operations())
    return found


def _functions(graph: Any, seen: set[str]) -> set[str]:
    for op in graph.get_operations():
        for name in set(kernels.called_functions(op)) - seen:
            seen.add(name)
            _functions(graph._get_function(name).graph, seen)
    return seen


class Deep(Floats):
    """Nothing but layers."""

    augment = KerasTrainable.augment

    def model(self, hp: Any) -> keras.Model:
        inputs = x = keras.Input((8, 8, 3))
        for _ in range(6):
            x = keras.layers.BatchNormalization()(
                keras.layers.Conv2D(4, 3, padding="same", use_bias=False)(x)
            )
        return keras.Model(inputs, keras.layers.Dense(10)(keras.layers.GlobalAveragePooling2D()(x)))


def test_an_update_of_one_replica_is_kerass_with_a_sum_for_each_weight() -> None:
    ours = operations(traced(begun(Deep(), 0, {"optimizer": "adam"})))
    model = Deep().model(None)
    model.compile(
        "adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"]
    )
    (x, y), _ = Deep().data(None)
    model._symbolic_build(data_batch=(x, y))
    specs = [tf.TensorSpec([None, *a.shape[1:]], a.dtype) for a in (x, y)]
    step = tf.function(lambda x, y: model.train_step((x, y)), autograph=False)
    theirs = operations(step.get_concrete_function(*specs).graph)
    # of which no kernel is launched
    none = (
        "Const",
        "Placeholder",
        "Identity",
        "NoOp",
        "ReadVariableOp",
    )
    surplus = sum(
        (ours - theirs)[kind] - (theirs - ours)[kind] for kind in set(ours | theirs) - set(none)
    )
    # the other sum: of the weights, once an epoch
    assert surplus <= 2 * len(model.trainable_variables) + 50
    assert ours["While"] + ours["StatelessWhile"] == 2


def test_replicas_meet_twice_for_a_batch_norm_and_once_for_all_gradients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = 2
    met: list[int] = []
    original = tf.distribute.ReplicaContext.all_reduce

    def all_reduce(self: Any, op: Any, value: Any, options: Any = None) -> Any:
        met.append(len(value))
        return original(self, op, value, options)

    monkeypatch.setattr(tf.distribute.ReplicaContext, "all_reduce", all_reduce)
    monkeypatch.setattr(additivity, "check_parts", lambda *_: None)  # which is no update
    trainable = begun(Deep(), count, {"optimizer": "sgd"})
    weights = len(session_of(trainable).trial.program.model.trainable_variables)
    norms = 6
    assert met.count(weights + 1) == count  # with the loss
    assert met.count(1) == 2 * norms * count  # there, and back to the gradients
