"""How the models of the zoo are looked at: as trials of ours, and as `Model.fit` trains them."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
from small import assignment
from zoo import Entry
from zoo_entries import ENTRIES

from sweep.hyperparameters import Hyperparameters
from trainables.data import class_weights
from trainables.data.sources import permutation
from trainables.loop import building
from trainables.numbers.live import Live

EPOCHS = 4  # of five updates
NAMES = [
    pytest.param(name, marks=() if found.fast else pytest.mark.exhaustive, id=name) for name, found in ENTRIES.items()
]


def given(found: Entry, gpus: int = 0, **params: Any) -> Any:
    result = assignment(gpus, epochs=EPOCHS, training=dict(found.training), **{**found.params, **params})
    own = {name: value for name, value in result.params.items() if name != "learning_rate"}
    object.__setattr__(result, "params", own)  # the optimizer keeps its own
    return result


def by_fit(found: Entry, trial: Any) -> tuple[list[dict[str, float]], list[Any]]:
    """What `Model.fit` makes of the same model, with the same order of examples; nothing of our loop takes part."""
    author, hp = found.trainable(), Hyperparameters(trial.params)
    author.live = Live(hp)
    data, held_out = author.data(hp)
    author.first_example = keras.tree.map_structure(lambda a: a[:1], data)
    author.some_targets = data[1]
    model = building.build_model(author, hp, trial.seed)
    if not model.compiled:
        loss, measured = author.loss(hp, model), author.metrics(hp, model)
        weighed = author.weighted_metrics(hp, model)
        model.compile(author.optimizer(hp), loss, metrics=measured, weighted_metrics=weighed, jit_compile=False)
    model.optimizer.build(model.trainable_variables)  # fit would while it traces, where ScheduleFreeAdamW goes wrong
    x, y, *weight = class_weights.apply(data, author.class_weights(hp, class_weights.labels_of(data)))
    size, batch, history = len(keras.tree.flatten(x)[0]), int(trial.params["batch_size"]), []
    for epoch in range(1, trial.epochs + 1):
        order = permutation(size, trial.seed if trial.params.get("shuffle", True) else None, epoch)
        a, b, *c = _rows((x, y, *weight), order)
        seen = model.fit(a, b, batch, sample_weight=c[0] if c else None, shuffle=False, verbose=0).history
        v, w, *u = held_out
        held = model.evaluate(v, w, 256, sample_weight=u[0] if u else None, verbose=0, return_dict=True)
        values = {name: found[-1] for name, found in seen.items()} | {
            f"val_{name}": found for name, found in held.items()
        }
        history.append({name: np.asarray(value, np.float64) for name, value in values.items()})
    return history, [np.asarray(v) for v in model.variables]


def _rows(data: Any, order: Any) -> Any:
    return keras.tree.map_structure(lambda leaf: leaf[order], data)
