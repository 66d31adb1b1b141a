"""How the models of the zoo are looked at: as trials of ours, and as `Model.fit` trains them."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import pytest
from small import assignment, metrics, train
from zoo import Entry
from zoo_entries import ENTRIES

from sweep.hyperparameters import Hyperparameters
from trainables.data import trial_parts
from trainables.data.sources import permutation
from trainables.keras_trainable import session_of
from trainables.loop import building
from trainables.numbers.live import Live
from trainables.recipe import losses

EPOCHS = 4  # of five updates
NAMES = [
    pytest.param(name, marks=() if found.fast else pytest.mark.exhaustive, id=name)
    for name, found in ENTRIES.items()
]


def given(found: Entry, gpus: int = 0, **params: Any) -> Any:
    training = {**found.training, **params.pop("training", {})}
    result = assignment(gpus, epochs=EPOCHS, training=training, **{**found.params, **params})
    own = {name: value for name, value in result.params.items() if name != "learning_rate"}
    object.__setattr__(result, "params", own)  # the optimizer keeps its own
    return result


@dataclass(frozen=True)
class Alone:
    """What a model of the zoo came to on one replica."""

    metrics: list[dict[str, float]]
    state: dict[str, Any]  # by path
    weights: list[tuple[str, Any]]  # of the model, in its order


@functools.cache
def trained_alone(name: str) -> Alone:
    """Train it once, for all tests of this process."""
    ours = ENTRIES[name].trainable()
    epochs = metrics(train(ours, given(ENTRIES[name])))
    program = session_of(ours).trial.program
    state = {path: np.array(parts[0]) for path, parts in program.state.copy_all().items()}
    return Alone(
        epochs,
        state,
        [(variable.path, np.asarray(variable).copy()) for variable in program.model.variables],
    )


def by_fit(found: Entry, trial: Any) -> tuple[list[dict[str, float]], list[Any]]:
    """What `Model.fit` makes of the same model, with the same order of examples; nothing of our loop takes part."""
    author, hp = found.trainable(), Hyperparameters(trial.params)
    author.live = Live(hp)
    data, held_out = author.data(hp)
    author.first_example = keras.tree.map_structure(lambda a: a[:1], data)
    author.some_targets, author.target_traits = data[1], losses.Targets.of(data[1])
    model = building.build_model(author, hp, trial.seed)
    if not model.compiled:
        loss, measured = author.loss(hp, model), author.metrics(hp, model)
        weighed = author.weighted_metrics(hp, model)
        model.compile(
            author.optimizer(hp),
            loss,
            metrics=measured,
            weighted_metrics=weighed,
            jit_compile=False,
        )
    # fit would while it traces, where ScheduleFreeAdamW goes wrong
    model.optimizer.build(model.trainable_variables)
    data = tuple(
        trial_parts.add_class_weights(data, author.class_weights(hp, trial_parts.get_labels(data)))
    )
    batch, steps, history = int(trial.params["batch_size"]), trial.params.get("steps_per_epoch"), []
    seed = trial.seed if trial.params.get("shuffle", True) else None
    batches = _batches(data, batch, seed)
    for epoch in range(1, trial.epochs + 1):
        if steps is None:
            a, b, *c = _rows(data, permutation(_size(data), seed, epoch))
            seen = model.fit(
                a, b, batch, sample_weight=c[0] if c else None, shuffle=False, verbose=0
            ).history
        else:
            some = [next(batches) for _ in range(steps)]
            some = (batch for batch in (*some, *some))  # fit reads ahead, and warns at the end
            seen = model.fit(some, steps_per_epoch=steps, shuffle=False, verbose=0).history
        at_once = int(trial.params.get("validation_batch_size", batch))  # as fit does
        count = int(trial.params.get("validation_steps", 256))
        v, w, *u = _rows(held_out, slice(count * at_once))
        held = model.evaluate(
            v, w, at_once, sample_weight=u[0] if u else None, verbose=0, return_dict=True
        )
        values = {name: found[-1] for name, found in seen.items()} | {
            f"val_{name}": found for name, found in held.items()
        }
        history.append({name: np.asarray(value, np.float64) for name, value in values.items()})
    return history, [np.asarray(v) for v in model.variables]


def _batches(data: Any, batch: int, seed: int | None) -> Iterator[Any]:
    for number in itertools.count(1):
        order = permutation(_size(data), seed, number)
        for start in range(0, len(order), batch):
            yield _rows(data, order[start : start + batch])


def _size(data: Any) -> int:
    return len(keras.tree.flatten(data)[0])


def _rows(data: Any, order: Any) -> Any:
    return keras.tree.map_structure(lambda leaf: leaf[order], data)
