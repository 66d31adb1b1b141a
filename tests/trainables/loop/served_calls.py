"""What the processes of a parameter server are told by tests."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import keras
import numpy as np
from rank_processes import Here

from sweep.contract import Assignment, EpochReported, Facts
from sweep.hyperparameters import Hyperparameters
from trainables.click_through import ClickThrough
from trainables.data import sequences
from trainables.keras_trainable import ShardedEmbedding, session_of
from trainables.loop.served_program import ServedProgram
from trainables.replicas import sharded_embedding

TRAINING = {"strategy": "parameter_server"}
TABLE = "sharded_embedding/embeddings"


@dataclass
class Found:
    """What came of a trial."""

    metrics: list[Mapping[str, float]]
    table: np.ndarray[Any, Any]
    weights: dict[str, np.ndarray[Any, Any]]
    facts: Facts
    shards: dict[str, list[tuple[int, int, str]]] = field(default_factory=dict)


class TestedOnly(ClickThrough):
    """Holds back no validation data, and has the same examples as test data instead."""

    def data(self, hp: Hyperparameters) -> tuple[Any, ...]:
        train, validation = super().data(hp)
        return train, None, validation


class Constrained(ClickThrough):
    """Has weights that Keras keeps within bounds after each update."""

    def model(self, hp: Hyperparameters) -> Any:
        model = super().model(hp)
        hidden, last = model.layers[-2:]
        hidden.kernel.constraint = keras.constraints.MaxNorm(0.5)
        last.kernel.constraint = keras.constraints.NonNeg()
        return model


class Sequences(ClickThrough):
    """Requests of several lengths, in buckets."""

    def data(self, hp: Hyperparameters) -> Any:
        def part(ids: Any, clicked: Any) -> Any:
            lengths = np.arange(len(ids)) % 30 + 1
            rows = [np.resize(row, length) for row, length in zip(ids, lengths, strict=True)]
            return sequences.buckets(rows, clicked, count=3)

        return tuple(part(*examples) for examples in super().data(hp))

    def model(self, hp: Hyperparameters) -> Any:
        ids = keras.Input((None,), dtype="int32")
        x = keras.layers.GlobalAveragePooling1D()(
            ShardedEmbedding(hp.integer("rows", 2000), 8)(ids)
        )
        return keras.Model(ids, keras.layers.Dense(1, activation="sigmoid")(x))


def train_kind(here: Here, kind: type[ClickThrough], params: dict[str, Any]) -> Found | None:
    """A trial of a trainable of another class than that by which the processes have met."""
    if here.devices.ranks is not None and here.devices.ranks.rank:
        return None
    training = TRAINING if here.devices.ranks is not None else {}
    it = kind()
    it.begin(here.of(Assignment(trial=0, params=params, seed=3, epochs=2, training=training)))
    return trained(it, 0)


def test_alone(here: Here, params: dict[str, Any]) -> dict[str, float] | None:
    """The metrics on test data of a trial without validation data, after its epoch."""
    it = here.kept["it"] = TestedOnly()
    it.join(here.devices, TRAINING)
    if here.devices.ranks is None or here.devices.ranks.rank:
        return None
    it.begin(here.of(Assignment(trial=0, params=params, seed=3, epochs=1, training=TRAINING)))
    it.train(lambda epoch: True)
    return it.test()


def join(here: Here) -> bool:
    """Meet the others; whether this process coordinates."""
    here.kept["it"] = it = ClickThrough()
    it.join(here.devices, TRAINING)
    return here.devices.ranks is not None and not here.devices.ranks.rank


def train(
    here: Here, params: dict[str, Any], epochs: int, save: Path | None, restore: Path | None
) -> Found | None:
    """A trial, from a checkpoint and into one, on the coordinator."""
    if here.devices.ranks is None or here.devices.ranks.rank:
        return None
    it: ClickThrough = here.kept["it"]
    it.begin(here.of(Assignment(trial=0, params=params, seed=3, epochs=epochs, training=TRAINING)))
    last = here.kept.get("shard")
    if last is not None and last() is not None:
        raise RuntimeError("servers still have the weights of the last trial")
    (layer,) = sharded_embedding.list_sharded_embeddings(session_of(it).trial.program.model)
    here.kept["shard"] = weakref.ref(layer.shards[0].variable)
    del layer
    found = trained(it, it.restore(restore) if restore else 0)
    if save:
        it.save(save)()
    return found


def trained(it: ClickThrough, done: int) -> Found:
    """The rest of a trial that has begun, in whatever process."""
    reports: list[EpochReported] = []
    it.train(lambda epoch: not reports.append(epoch))
    program = session_of(it).trial.program
    weights = {v.path: v.numpy() for v in program.model.variables}
    shards = {}
    if isinstance(program, ServedProgram):
        (layer,) = sharded_embedding.list_sharded_embeddings(program.model)
        weights[TABLE] = np.concatenate([shard.variable.numpy() for shard in layer.shards])
        shards = {
            name: [(one.start, one.stop, one.device) for one in parts]
            for name, parts in program.tables.items()
        }
    return Found(
        [report.metrics for report in reports], weights.pop(TABLE), weights, it.facts(), shards
    )
