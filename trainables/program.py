"""One compiled structure: a graph and the state that its trials begin with.

This is the training loop as the host sees it: chunks of data go in, sums of losses come out, and `reset` makes
it ready for another trial of the same structure.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainables import profile
from trainables.data import Chunk, Split, updates
from trainables.graph import Graph


@dataclass(frozen=True)
class Trained:
    """What training an epoch brought."""

    metrics: dict[str, float]
    finite: bool  # all losses, gradients and weights
    wait_s: float  # spent waiting for data


class Program:
    """A graph with its compiled training and evaluation; create it under the strategy's scope."""

    def __init__(self, graph: Graph) -> None:
        self.model, self.live = graph.model, graph.live
        self.loss_scale, self.average = graph.loss_scale, graph.average
        self._initial = [np.asarray(v) for v in self.model.optimizer.variables]
        # AutoGraph would translate all of our code and the author's, which takes longer than tracing it.
        self.train_chunk = tf.function(graph.train_chunk, reduce_retracing=True, autograph=False)
        self.evaluate_chunk = tf.function(graph.evaluate_chunk, reduce_retracing=True, autograph=False)
        self._read_metrics = tf.function(graph.read_metrics, autograph=False)
        self.compiled = False

    @property
    def variables(self) -> list[keras.Variable | tf.Variable]:
        """All state that training changes, in an order that is the same in every process."""
        scale = self.loss_scale.variables if self.loss_scale else []
        average = self.average.state if self.average else []
        return [*self.model.variables, *self.model.optimizer.variables, *scale, *average]

    def reset(self, fresh: keras.Model | None) -> None:
        """Back to the start of a trial: weights from a freshly built model (None: as they are), the rest as new."""
        if fresh is not None:
            for mine, new in zip(self.model.variables, fresh.variables, strict=True):
                mine.assign(new.value)
        for variable, value in zip(self.model.optimizer.variables, self._initial, strict=True):
            variable.assign(value)
        if self.loss_scale:
            self.loss_scale.reset()
        if self.average:
            self.average.reset()
        self._read_metrics()

    def compile(self, train: Split, validation: Split | None) -> None:
        """Trace and optimise both graphs by running them over no batch at all, which changes nothing."""
        self._train(next(train.chunks(1, None, 0)), np.zeros(0), batch_size=1, seed=0, first_update=0)
        if validation is not None:
            chunk, none = next(validation.chunks(1, None, 0)), tf.constant(0)
            self.evaluate_chunk(chunk.tensors, tf.constant(chunk.order), none, none)
        self.compiled = True

    def train_epoch(
        self,
        data: Split,
        rates: np.ndarray[Any, Any],
        *,
        batch_size: int,
        seed: int,
        epoch: int,
        profile_into: Path | None = None,
    ) -> Trained:
        """Train one epoch (from 1), one rate per update."""
        first, done, finite = (epoch - 1) * len(rates), 0, True
        totals: dict[str, float] = {}
        chunks = _Timed(data.chunks(batch_size, seed, epoch))
        for chunk, kept in _parts(chunks, batch_size, profile_into):
            count = updates(len(chunk.order), batch_size)
            part = rates[done : done + count]
            with profile.kept(profile_into if kept else None):
                sums, finite = self._train(chunk, part, batch_size=batch_size, seed=seed, first_update=first + done)
            totals, done = {name: totals.get(name, 0.0) + value for name, value in sums.items()}, done + count
            if not finite:
                break
        means = {name: total / data.size for name, total in totals.items()}
        return Trained({**self._metrics(), **means}, finite, chunks.waited_s)

    def evaluate(self, data: Split, *, batch_size: int) -> dict[str, float]:
        """The loss and metrics over a whole data set, with the averaged weights where there are such."""
        totals: dict[str, float] = {}
        if self.average:
            self.average.swap()
        for chunk in data.chunks(batch_size, None, 0):
            count = tf.constant(updates(len(chunk.order), batch_size))
            sums = self.evaluate_chunk(chunk.tensors, tf.constant(chunk.order), count, tf.constant(batch_size))
            totals = {name: totals.get(name, 0.0) + float(value) for name, value in sums.items()}
        if self.average:
            self.average.swap()
        return {**self._metrics(), **{name: total / data.size for name, total in totals.items()}}

    def _train(
        self, chunk: Chunk, rates: np.ndarray[Any, Any], *, batch_size: int, seed: int, first_update: int
    ) -> tuple[dict[str, float], bool]:
        padded = np.zeros(len(chunk.order), np.float32)  # one shape whatever the batch size: one trace
        padded[: len(rates)] = rates
        sums, finite = self.train_chunk(
            chunk.tensors,
            tf.constant(chunk.order),
            tf.constant(padded),
            tf.constant(len(rates)),
            tf.constant(batch_size),
            tf.constant(seed & 0x7FFFFFFF),
            tf.constant(first_update),
        )
        return {name: float(value) for name, value in sums.items()}, bool(finite)

    def _metrics(self) -> dict[str, float]:
        """The metrics since the last call; each output's loss is among them, as Keras averages it over slices."""
        return {name: float(value) for name, value in self._read_metrics().items()}


class _Timed:
    """Iterates and adds up the time spent in waiting for the next item."""

    def __init__(self, chunks: Iterator[Chunk]) -> None:
        self._chunks = chunks
        self.waited_s = 0.0

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        began = time.perf_counter()
        try:
            return next(self._chunks)
        finally:
            self.waited_s += time.perf_counter() - began


def _parts(chunks: Iterator[Chunk], batch_size: int, profile_into: Path | None) -> Iterator[tuple[Chunk, bool]]:
    """The chunks as they are, but the first in parts where one of them is to be profiled."""
    if profile_into is not None:
        yield from profile.parts(next(chunks), batch_size)
    for chunk in chunks:
        yield chunk, False
