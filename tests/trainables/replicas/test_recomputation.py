"""Gradient checkpointing changes the memory that training takes, not what it computes."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import Any

import keras
import pytest
from small import Small, assignment, metrics, train
from tensorflow.python.eager import context

from trainables.replicas import recomputation

pytestmark = pytest.mark.keras


def test_gradient_checkpointing_computes_again_and_changes_no_number() -> None:
    calls = []

    class Counted(keras.layers.Dense):
        def call(self, inputs: Any, training: Any = None) -> Any:
            calls.append(1)
            return super().call(inputs)

    class Counting(Small):
        def model(self, hp: Any) -> keras.Model:
            return keras.Sequential(
                [keras.Input((6,)), Counted(8, activation="tanh"), keras.layers.Dense(3)]
            )

    plain = metrics(train(Counting(), assignment()))
    once = len(calls)
    again = metrics(train(Counting(), assignment(gradient_checkpointing=True)))
    # a look at what it adds to the loss, and the backward pass
    assert len(calls) - once == once + 2
    for a, b in zip(plain, again, strict=True):
        assert b == pytest.approx(a, abs=1e-6)


def test_what_draws_or_has_state_is_not_computed_again() -> None:
    # its generators lie in parts of it
    inside = keras.layers.Bidirectional(keras.layers.LSTM(2, dropout=0.5))
    layers = [
        keras.layers.Reshape((2, 3)),
        inside,
        keras.layers.Dense(3),
        keras.layers.BatchNormalization(),
    ]
    model = keras.Sequential([keras.Input((6,)), *layers])
    recomputation.recompute_activations(model, ())
    assert [layer for layer in model.layers if "call" in vars(layer)] == [layers[2]]


class Gate(keras.layers.Layer):
    def build(self, *shapes: Any) -> None:
        self.kernel = self.add_weight(shape=(8, 8))

    def call(self, a: Any, b: Any) -> Any:
        return keras.ops.sigmoid(a @ self.kernel) * b


class Gated(Small):
    """A layer whose call gets one tensor twice."""

    def model(self, hp: Any) -> keras.Model:
        inputs = keras.Input((6,))
        x = keras.layers.Dense(8)(inputs)
        return keras.Model(inputs, keras.layers.Dense(3)(Gate()(x, x)))


def test_one_tensor_as_two_arguments() -> None:
    plain = metrics(train(Gated(), assignment()))
    again = metrics(train(Gated(), assignment(gradient_checkpointing=True)))
    for a, b in zip(plain, again, strict=True):
        assert b == pytest.approx(a, abs=1e-6)


class Activated(Small):
    def model(self, hp: Any) -> keras.Model:
        return keras.Sequential(
            [keras.Input((6,)), keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(3)]
        )


def test_what_is_computed_again_has_the_same_precision() -> None:
    half = {"precision": "mixed_bfloat16"}
    plain = metrics(train(Activated(), assignment(training=half)))
    again = metrics(train(Activated(), assignment(training=half, gradient_checkpointing=True)))
    for a, b in zip(plain, again, strict=True):
        assert b == pytest.approx(a, abs=1e-6)


@pytest.fixture
def recorded() -> Iterator[Any]:
    """Keeps the graphs that TensorFlow runs from now on; call it for them."""
    context.context().enable_run_metadata()
    yield context.context().export_run_metadata
    context.context().disable_run_metadata()


def test_recomputation_reads_weights_before_they_are_updated(recorded: Any) -> None:
    """In the graph that is run, not in the one that was traced: optimisation loses the order of the latter."""
    train(Small(), assignment(gradient_checkpointing=True, optimizer="lion"))
    checked = 0
    for graph in (g.post_optimization_graph for g in recorded().function_graphs):
        after = collections.defaultdict(list)
        for node in graph.node:
            for name in node.input if node.op != "NextIteration" else ():
                after[name.lstrip("^").split(":")[0]].append(node.name)
        reads = [
            (n.name, n.input[0])
            for n in graph.node
            if n.op == "ReadVariableOp" and "/lion/" not in n.name
        ]
        updates = {n.input[0]: n.name for n in graph.node if n.op == "AssignSubVariableOp"}
        for read, variable in reads:
            if variable in updates:
                assert updates[variable] in reachable(read, after), f"{read} of {variable}"
                checked += 1
    assert checked >= 5  # two kernels forward and again, a bias


def reachable(start: str, after: dict[str, list[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        new = set(after[waiting.pop()]) - seen
        seen |= new
        waiting.extend(new)
    return seen
