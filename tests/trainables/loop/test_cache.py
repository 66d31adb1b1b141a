from __future__ import annotations

import random
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from sampling import sampled
from small import Small, assignment, metrics, train

from sweep import contract
from sweep.contract import Devices, cpus
from sweep.hyperparameters import Hyperparameters, Reads
from trainables.devices.placement import place
from trainables.keras_trainable import session_of
from trainables.loop import cache
from trainables.loop.cache import Programs, Structure
from trainables.replicas import keras_corrections

pytestmark = pytest.mark.keras


class Fake:
    """What the cache asks of a program."""

    live = property(lambda self: self)
    spent = False
    graph: object = None

    def accepts(self, hp: Hyperparameters) -> bool:
        return True


def _held(programs: Programs, count: int, share: float) -> list[int]:
    """Which of so many structures, made one after the other, are found when all of them were."""
    for units in range(count):
        reads: Reads = {}
        hp = Hyperparameters({"units": units})
        with hp.recording(reads):
            hp.integer("units")
        assert programs.find(Structure(()), hp) is None
        programs.add(Structure((), reads=reads), Fake(), share)
        programs.find(Structure(()), Hyperparameters({"units": 0}))  # is used again and again
    return [
        units
        for units in range(count)
        if programs.find(Structure(()), Hyperparameters({"units": units}))
    ]


def test_programs_used_longest_ago_make_room() -> None:
    assert _held(Programs(), 6, share=0.25) == [0, 3, 4, 5]
    # not a number of them, but memory is the bound
    assert len(_held(Programs(), 40, share=0.0)) == 40


def test_a_program_that_fills_the_room_is_kept_alone() -> None:
    assert _held(Programs(), 3, share=2.0) == [2]


def test_a_program_that_a_hook_has_spent_is_dropped() -> None:
    programs, spent = Programs(), Fake()
    programs.add(Structure(()), spent)
    programs.add(Structure((1,)), Fake())
    spent.spent = True
    assert programs.find(Structure(()), Hyperparameters({})) is None
    assert len(programs) == 1


def test_the_memory_of_a_spent_program_is_free_before_another_is_built() -> None:
    programs, spent = Programs(), Fake()
    spent.graph = spent  # a reference cycle, as models and graphs are
    known = weakref.ref(spent)
    programs.add(Structure(()), spent)
    spent.spent = True
    del spent
    programs.find(Structure(()), Hyperparameters({}))
    assert known() is None


def test_the_room_of_a_program_is_where_least_is_left() -> None:
    bounds = {"host": 1000.0, "gpu:0": 100.0}
    assert (
        cache.compute_share_of_room(
            {"host": 0.0, "gpu:0": 50.0}, {"host": 100.0, "gpu:0": 90.0, "gpu:1": 0.0}, bounds
        )
        == 0.4
    )


def test_a_program_takes_no_share_of_a_room_of_unknown_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cache, "memory_bytes", lambda: None)
    placement = place(Devices())
    room = cache.compute_room(placement, Devices())
    used = cache.measure_used_bytes(placement)
    assert room == {}
    assert cache.compute_share_of_room(used, used, room) == 0.0


def test_a_trial_on_half_of_the_cpus_has_half_of_the_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    placement = place(Devices())
    whole, half = (
        cache.compute_room(placement, Devices(cpus=part * cpus()))["host"] for part in (1, 0.5)
    )
    assert half == pytest.approx(whole / 2)
    monkeypatch.setattr(contract, "CONTAINER", tmp_path)
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("4000000\n")
    assert cache.compute_room(placement, Devices(cpus=cpus()))["host"] == cache.KEPT_ON_HOST * 4e6
    assert cache.measure_used_bytes(placement)["host"] > 0


class Live(Small):
    """All numbers that may be live, a metric with state, and dropout."""

    def model(self, hp: Any) -> keras.Model:
        hidden = keras.layers.Dense(8, activation="tanh")
        return keras.Sequential(
            [
                keras.Input((6,)),
                hidden,
                keras.layers.Dropout(self.dropout(hp)),
                keras.layers.Dense(3),
            ]
        )


@pytest.mark.parametrize("kind", sampled([Live, Small], 1))
def test_another_seed_needs_no_other_program(kind: type[Small]) -> None:
    trainable, programs = kind(), []
    for seed in (0, 1, 0, 2):
        given = assignment(
            seed=seed,
            epochs=1,
            weight_decay=0.1 + seed,
            dropout=0.1 * seed,
            ema_momentum=0.9,
            label_smoothing=0.1,
        )
        assert metrics(train(trainable, given)) == metrics(train(kind(), given))
        programs.append(session_of(trainable).trial.program)
    assert len(set(map(id, programs))) == 1


DRAWS: dict[str, Callable[[], float]] = {
    "numpy": np.random.rand,
    "random": random.random,
    "randint": lambda: random.randint(*keras_corrections.SEEDS) / 1e9,  # as Keras draws its seeds
    "tensorflow": lambda: float(tf.random.uniform([])),
    "keras": lambda: float(keras.random.uniform([])),
}


@pytest.mark.parametrize("way", sampled(DRAWS, 1))
def test_a_number_that_is_drawn_while_the_model_is_made_is_that_of_its_seed(way: str) -> None:
    class Drawn(Small):
        def model(self, hp: Any) -> keras.Model:
            first = keras.layers.Dense(4)
            rescaled = keras.layers.Rescaling(0.1 + DRAWS[way]())
            return keras.Sequential([keras.Input((6,)), first, rescaled, keras.layers.Dense(3)])

    used = Drawn()
    for seed in (0, 1):
        given = assignment(epochs=1, seed=seed)
        assert metrics(train(used, given)) == metrics(train(Drawn(), given))


class Folds(Small):
    """What `data` reads decides what the model has built in."""

    def data(self, hp: Any) -> tuple[Any, Any]:
        (x, y), held_out = super().data(hp)
        fold = hp.integer("fold")
        kept = np.arange(len(x)) % 3 != fold
        x, y = x[kept] * (1 + fold), y[kept]
        self.x, self.weights = x, np.bincount(y, minlength=3) / len(y)
        return (x, y), held_out

    def model(self, hp: Any) -> keras.Model:
        raise NotImplementedError  # those derived from it have one each

    def begun(self, first: keras.layers.Layer) -> keras.Model:
        return keras.Sequential([keras.Input((6,)), first, keras.layers.Dense(3)])


class Adapted(Folds):
    def model(self, hp: Any) -> keras.Model:
        normalise = keras.layers.Normalization()
        normalise.adapt(self.x)
        return self.begun(normalise)


class Rescaled(Folds):
    def model(self, hp: Any) -> keras.Model:
        return self.begun(keras.layers.Rescaling(1 / float(self.x.std())))


class WeighedLoss(Folds):
    def model(self, hp: Any) -> keras.Model:
        return self.begun(keras.layers.Dense(4))

    def loss(self, hp: Any, model: Any) -> Any:
        weights = tf.constant(self.weights, tf.float32)

        def loss(y: Any, p: Any) -> Any:
            each = keras.losses.sparse_categorical_crossentropy(y, p, from_logits=True)
            return each * tf.gather(weights, tf.cast(y, tf.int32))

        return loss


class Augmented(Folds):
    def model(self, hp: Any) -> keras.Model:
        return self.begun(keras.layers.Dense(4))

    def augment(self, x: Any, hp: Any, draws: Any) -> Any:
        return x - self.x.mean()


class Example(Folds):
    """Looks at the first example, which is another one in each fold."""

    def data(self, hp: Any) -> tuple[Any, Any]:
        data = super().data(hp)
        del self.x, self.weights
        return data

    def model(self, hp: Any) -> keras.Model:
        return self.begun(keras.layers.Rescaling(float(abs(self.example[0]).max())))


class Classes(Small):
    def data(self, hp: Any) -> tuple[Any, Any]:
        (x, y), (v, w) = super().data(hp)
        self.classes = hp.integer("fold") + 3
        return (x, y % self.classes), (v, w % self.classes)

    def model(self, hp: Any) -> keras.Model:
        return keras.Sequential([keras.Input((6,)), keras.layers.Dense(self.classes)])


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", sampled([Adapted, Rescaled, WeighedLoss, Example, Augmented, Classes], 2)
)
def test_a_program_is_keyed_by_what_its_making_saw_of_the_data(kind: type[Small]) -> None:
    used = kind()
    fresh = {fold: metrics(train(kind(), assignment(fold=fold))) for fold in (0, 1)}
    assert fresh[0] != fresh[1]
    for fold in (0, 1, 0):
        assert metrics(train(used, assignment(fold=fold))) == fresh[fold]


def test_what_no_making_saw_needs_no_other_program() -> None:
    class Halved(Small):
        def data(self, hp: Any) -> tuple[Any, Any]:
            (x, y), held_out = super().data(hp)
            return (x * hp.number("scale"), y), held_out

    trainable, programs = Halved(), []
    for scale in (1.0, 0.5):
        train(trainable, assignment(scale=scale))
        programs.append(session_of(trainable).trial.program)
    assert programs[0] is programs[1]


class Declares(Small):
    """Declares what the file does not have: a kept program runs none of this."""

    def model(self, hp: Any) -> keras.Model:
        hp.Float("learning_rate", 0.02, 0.5)
        return super().model(hp)


def test_what_code_declares_is_no_hyperparameter_of_a_trial() -> None:
    given = assignment(epochs=1)
    object.__setattr__(given, "params", {"batch_size": 16})
    used = Declares()
    train(used, given)
    assert metrics(train(used, given)) == metrics(train(Declares(), given))
