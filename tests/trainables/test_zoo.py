"""The zoo: our loop is `Model.fit`, a used worker a fresh process, a resumed trial a straight one, 4 replicas are 1.

``pytest -m "exhaustive or not exhaustive" tests/trainables/test_zoo.py`` runs all of it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest
from isolation import Processes
from small import assignment, metrics, train
from zoo import Entry
from zoo_entries import ENTRIES
from zoo_runs import USED, resume, straight, used

from sweep.hyperparameters import Hyperparameters
from trainables import class_weights, preparation
from trainables.live import Live
from trainables.sources import permutation

pytestmark = [pytest.mark.keras, pytest.mark.slow]

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
    model = preparation.build_model(author, hp, trial.seed)
    if not model.compiled:
        loss, measured = author.loss(hp, model), author.metrics(hp, model)
        model.compile(author.optimizer(hp), loss, metrics=measured, jit_compile=False)
    model.optimizer.build(model.trainable_variables)  # fit would while it traces, where ScheduleFreeAdamW goes wrong
    x, y, *weight = class_weights.apply(data, author.class_weights(hp, class_weights.labels_of(data)))
    size, batch, history = len(keras.tree.flatten(x)[0]), int(trial.params["batch_size"]), []
    for epoch in range(1, trial.epochs + 1):
        order = permutation(size, trial.seed, epoch)
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


@pytest.mark.parametrize("name", NAMES)
def test_our_loop_is_fit(name: str) -> None:
    found = ENTRIES[name]
    if found.fit:
        pytest.skip(found.fit)
    trial = given(found)
    ours = found.trainable()
    epochs = metrics(train(ours, trial))
    expected, weights = by_fit(found, trial)
    for mine, theirs in zip(epochs, expected, strict=True):
        for key, value in theirs.items():
            if key.removeprefix("val_") in found.skip_metrics:
                continue
            flat = [mine[key]] if value.ndim == 0 else [mine[f"{key}_{i}"] for i in range(value.size)]
            np.testing.assert_allclose(flat, value.reshape(-1), atol=found.tolerance, rtol=1e-6, err_msg=key)
    mine = [np.asarray(v) for v in ours._begun().program.model.variables]
    compared = 0
    for variable, a, b in zip(ours._begun().program.model.variables, mine, weights, strict=True):
        if variable.dtype.startswith("float"):  # seeds of layers are drawn elsewhere
            np.testing.assert_allclose(a, b, atol=found.tolerance, rtol=0, err_msg=variable.path)
            compared += 1
    assert compared


@pytest.mark.parametrize("name", NAMES)
def test_four_replicas_are_one(name: str) -> None:
    found = ENTRIES[name]
    if found.replicas == "-":
        pytest.skip("see the entry")
    one, four = found.trainable(), found.trainable()
    if found.replicas:
        with pytest.raises(Exception, match=found.replicas):
            train(four, given(found, 4))
        return
    alone, together = metrics(train(one, given(found))), metrics(train(four, given(found, 4)))
    for a, b in zip(alone, together, strict=True):
        assert b == pytest.approx(a, abs=found.tolerance, rel=1e-6)
    theirs = four._begun().program.state
    for path, held in one._begun().program.state.arrays().items():
        np.testing.assert_allclose(theirs.arrays()[path][0], held[0], atol=2 * found.tolerance, rtol=1e-6, err_msg=path)


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    started = Processes(["zoo_runs"])
    yield started
    started.close()


@pytest.mark.parametrize("name", NAMES)
def test_a_used_worker_is_a_fresh_process_and_a_resumed_trial_a_straight_one(name: str, processes: Processes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        busy = processes.submit(used, name, folder)
        fresh = {kind: processes.submit(straight, name, kind) for kind in ("a", "b")}
        *outcomes, paused = busy.result()
        expected = {kind: future.result() for kind, future in fresh.items()}
        for kind, outcome in expected.items():
            assert outcome.status == "completed", f"{kind}: {outcome.reason}"
        assert expected["a"].metrics != expected["b"].metrics
        for position, (kind, outcome) in enumerate(zip(USED, outcomes, strict=True)):
            if kind in expected:
                assert outcome == expected[kind], f"{kind} after {USED[:position]}: {outcome.reason}"
        assert {"failed", "interrupted", "pruned"} <= {outcome.status for outcome in outcomes}
        resumed = processes.submit(resume, name, folder).result()
        assert [*paused.metrics, *resumed.metrics] == expected["a"].metrics
        assert resumed.state == expected["a"].state


def test_the_zoo_is_large() -> None:
    assert len(ENTRIES) >= 40
