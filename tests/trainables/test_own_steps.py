"""Models that train themselves: like `Model.fit`, in a used worker as in a fresh one, resumed, exported."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from own_steps import KINDS
from small import assignment, go_on, metrics, train

from sweep.contract import Assignment, NotExportable
from sweep.hyperparameters import Hyperparameters
from trainables.data import trial_parts
from trainables.data.sources import normalize_examples, permutation
from trainables.keras_trainable import KerasTrainable, session_of
from trainables.loop import building, own_methods
from trainables.numbers.live import Live
from trainables.recipe import losses
from trainables.recipe.refusals import Refused

pytestmark = [
    pytest.mark.keras,
    pytest.mark.slow,
    # as in fit: call() leaves layers to the step
    pytest.mark.filterwarnings("ignore:`build\\(\\)` was called on layer"),
]

EPOCHS = 3
EVERY_DAY = ("CalledOnParts", "DomainAdaptation", "MaskedAutoencoder")
NAMES = [
    pytest.param(name, marks=() if name in EVERY_DAY else pytest.mark.exhaustive) for name in KINDS
]
IN_FIT = [pytest.param(name, "fit", marks=pytest.mark.exhaustive) for name in KINDS]
IN_OUR_LOOP = [pytest.param(*one.values, "own", marks=one.marks) for one in NAMES]


def given(name: str, seed: int = 1, **training: Any) -> Assignment:
    found = assignment(epochs=EPOCHS, seed=seed, training=training, **KINDS[name].params)
    own = {name: value for name, value in found.params.items() if name != "learning_rate"}
    object.__setattr__(found, "params", own)  # the optimizer keeps its own
    return found


def by_fit(author: KerasTrainable, trial: Assignment) -> list[dict[str, Any]]:
    """What `Model.fit` reports of the same model with the same order of examples."""
    hp = Hyperparameters(trial.params)
    author.live = Live(hp)
    data, held_out = (
        None if part is None else normalize_examples(part) for part in author.data(hp)
    )
    author.first_example = keras.tree.map_structure(lambda leaf: leaf[:1], data)
    author.some_targets, author.target_traits = (
        (*data, None)[1],
        losses.Targets.of((*data, None)[1]),
    )
    author.validates = held_out is not None
    model = building.build_model(author, hp, trial.seed)
    if not model.compiled:
        options = own_methods.get_compile_options(author, hp, model)
        model.compile(author.optimizer(hp), **options, jit_compile=False)
    data = tuple(
        trial_parts.add_class_weights(data, author.class_weights(hp, trial_parts.get_labels(data)))
    )
    history = []
    for epoch in range(1, trial.epochs + 1):
        order = permutation(len(keras.tree.flatten(data)[0]), trial.seed, epoch)
        x, y, weight = (
            *keras.tree.map_structure(lambda leaf, rows=order: leaf[rows], data),
            None,
            None,
        )[:3]
        seen = model.fit(x, y, 16, sample_weight=weight, shuffle=False, verbose=0).history
        found = {name: values[-1] for name, values in seen.items()}
        if held_out is not None:
            x, y = (*held_out, None)[:2]
            held = model.evaluate(x, y, 16, verbose=0, return_dict=True)
            found |= {f"val_{name}": value for name, value in held.items()}
        history.append(found)
    return history


def state(author: KerasTrainable) -> list[np.ndarray[Any, Any]]:
    return [parts[0] for parts in session_of(author).trial.program.state.copy_all().values()]


def same(one: list[np.ndarray[Any, Any]], other: list[np.ndarray[Any, Any]]) -> bool:
    return len(one) == len(other) and all(
        np.array_equal(a, b) for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize(("name", "loop"), [*IN_OUR_LOOP, *IN_FIT])
def test_it_trains_as_fit_does(name: str, loop: str) -> None:
    ours = train(KINDS[name].trainable(), given(name, loop=loop))
    expected = by_fit(KINDS[name].trainable(), given(name))
    assert expected[0].keys() == ours[0].metrics.keys()
    assert expected[0] != expected[-1]
    for mine, theirs in zip(metrics(ours), expected, strict=True):
        assert mine == pytest.approx(theirs, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_a_used_worker_and_a_resumed_trial_are_as_fresh_and_straight_ones(
    name: str, tmp_path: Path
) -> None:
    kind = KINDS[name]
    fresh = {}
    for seed in (1, 2):
        author = kind.trainable()
        fresh[seed] = metrics(train(author, given(name, seed))), state(author)
    assert fresh[1][0] != fresh[2][0]
    used = kind.trainable()
    for seed in (1, 2, 1, 1):
        found = metrics(train(used, given(name, seed)))
        assert (found, same(state(used), fresh[seed][1])) == (fresh[seed][0], True)
    used.begin(given(name, 2))
    first = go_on(used, pause_after=1)
    used.save(tmp_path)()
    resumed = kind.trainable()
    resumed.begin(given(name, 2))
    assert resumed.restore(tmp_path) == 1
    assert metrics([*first, *go_on(resumed)]) == fresh[2][0]
    assert same(state(resumed), fresh[2][1])


@pytest.mark.parametrize("name", NAMES)
def test_it_is_exported_or_says_what_it_needs(name: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    author = kind.trainable()
    train(author, given(name))
    if kind.export:
        with pytest.raises(NotExportable) as caught:
            author.export(tmp_path, ["saved_model"])
        assert re.search(kind.export, str(caught.value)), caught.value
        return
    exported = author.export(tmp_path, ["saved_model"])
    assert set(exported.differences) == {"saved_model"}


IN_A_PROCESS = """
from own_steps import KINDS
from small import assignment, metrics, train
epochs = metrics(train(KINDS["Vqvae"].trainable(), assignment(epochs=20)))
print([{name: value.hex() for name, value in epoch.items()} for epoch in epochs])
"""


@pytest.mark.exhaustive
def test_sums_of_several_losses_are_the_same_in_every_process() -> None:
    """Forks of one process do not show it: they share where TensorFlow's maps put their keys."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    found = {
        subprocess.run(
            [sys.executable, "-c", IN_A_PROCESS],
            env=environment,
            check=True,
            capture_output=True,
            timeout=300,
        ).stdout
        for _ in range(4)
    }
    assert len(found) == 1


def test_weights_that_the_step_does_not_unpack_are_named() -> None:
    class Unpacks(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.net = keras.layers.Dense(2)

        def train_step(self, data: Any) -> Any:
            _, _ = data
            return {"loss": 0.0}

    class Weighed(KINDS["NoCall"].trainable):
        def model(self, hp: Any) -> keras.Model:
            return Unpacks()

    told = r"train_step\(\) fails with 'too many values to unpack \(expected 2\)', and is given \(x, y, sample_weight\)"
    with pytest.raises(
        Refused, match=f"{told} as by Model.fit; the weights come from class_weights"
    ):
        Weighed().begin(assignment(class_weights="balanced"))


def test_a_model_that_keras_cannot_validate_on_these_data_is_refused() -> None:
    class Validated(KINDS["MetricLearning"].trainable):
        def data(self, hp: Any) -> Any:
            train, _ = super().data(hp)
            return train, train[:20]

    with pytest.raises(
        Refused,
        match=r"has no test_step\(\), and Keras's calls the model and its loss with the validation",
    ):
        Validated().begin(given("MetricLearning"))


def test_several_replicas_are_refused_before_its_step_is_traced() -> None:
    with pytest.raises(Refused, match="has its own train_step, and there are 2 replicas"):
        KINDS["NoCall"].trainable().begin(assignment(gpus=2))
