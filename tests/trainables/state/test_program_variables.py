"""What a program owns: found wherever it is, put back, saved by path, or refused."""

from __future__ import annotations

import functools
import gc
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from small import Small, assignment, go_on, metrics, train, weights

from trainables.keras_trainable import session_of
from trainables.state import checkpoint, program_variables
from trainables.state.checkpoint import CheckpointError
from trainables.state.origins import StaleVariable
from trainables.state.program_variables import UnmanagedState

pytestmark = pytest.mark.keras

AT_IMPORT = tf.Variable(1.0, name="at_import", trainable=False)


class Counting(layers.Layer):
    def __init__(self, counter: Any) -> None:
        super().__init__()
        self.counter = counter

    def call(self, x: Any, training: bool = False) -> Any:
        if training:
            self.counter.assign_add(0.1)
        return x * self.counter


def counted(counter: Any) -> type[Small]:
    class Counted(Small):
        def model(self, hp: Any) -> keras.Model:
            return keras.Sequential([keras.Input((6,)), Counting(counter()), layers.Dense(3)])

    return Counted


@pytest.mark.parametrize("counter", [lambda: AT_IMPORT, lambda: tf.Variable(1.0, trainable=False)])
def test_variables_that_keras_does_not_know_begin_anew(counter: Any) -> None:
    trainable = counted(counter)()
    first = metrics(train(trainable, assignment()))
    assert metrics(train(trainable, assignment())) == first
    assert metrics(train(trainable, assignment(seed=1))) != first
    assert metrics(train(trainable, assignment())) == first
    assert metrics(train(counted(counter)(), assignment())) == first


def base() -> keras.Model:
    return keras.Sequential([keras.Input((6,)), layers.Dense(8, name="kept")])


def on(kept: keras.Model, units: int) -> keras.Model:
    inputs = keras.Input((6,))
    x = layers.Dense(units, name="new")(kept(inputs))
    return keras.Model(inputs, layers.Dense(3, name="head")(x))


def test_a_base_kept_on_the_trainable_is_made_anew() -> None:
    class Cached(Small):
        base: Any = None

        def model(self, hp: Any) -> keras.Model:
            if self.base is None:
                self.base = base()
            return on(self.base, hp.integer("units"))

    used = Cached()
    train(used, assignment(units=4))
    for given in (assignment(units=5), assignment(units=5, seed=1), assignment(units=4)):
        assert metrics(train(used, given)) == metrics(train(Cached(), given))


def test_a_base_that_a_cache_keeps_is_made_anew() -> None:
    """As in a fresh process: what a cached function has returned to a trial is forgotten with it."""
    kept = functools.cache(base)

    class Cached(Small):
        def model(self, hp: Any) -> keras.Model:
            return on(kept(), hp.integer("units"))

    trials = [assignment(units=4), assignment(units=5), assignment(units=4, seed=1)]
    fresh = []
    for given in trials:
        kept.cache_clear()
        fresh.append(metrics(train(Cached(), given)))
    kept.cache_clear()
    used = Cached()
    for given, expected in zip((*trials, trials[0]), (*fresh, fresh[0]), strict=True):
        assert metrics(train(used, given)) == expected


def test_a_base_kept_where_nobody_looks_is_refused_with_its_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(np, "kept_base", None, raising=False)  # an installed module

    class Hidden(Small):
        def model(self, hp: Any) -> keras.Model:
            np.kept_base = np.kept_base or base()
            return on(np.kept_base, hp.integer("units"))

    used = Hidden()
    first = metrics(train(used, assignment(units=4)))
    assert metrics(train(used, assignment(units=4))) == first  # the same program, put back
    with pytest.raises(
        StaleVariable,
        match=r"sequential/kept/kernel was made at test_program_variables\.py:\d+ by an earlier trial",
    ):
        used.begin(assignment(units=5))
    with pytest.raises(StaleVariable, match="make it anew in model"):
        used.begin(assignment(units=4, seed=1))


def test_attributes_that_model_sets_belong_to_its_program() -> None:
    class Remembering(Small):
        def model(self, hp: Any) -> keras.Model:
            self.scale = hp.number("scale")
            return super().model(hp)

        def augment(self, x: Any, hp: Any, draws: Any) -> Any:
            return x * self.scale

    used = Remembering()
    for scale in (1.0, 2.0, 1.0):
        train(used, assignment(scale=scale))
        assert used.scale == scale


def test_a_checkpoint_is_by_path(tmp_path: Path) -> None:
    def named(*names: str) -> Small:
        class Named(Small):
            def model(self, hp: Any) -> keras.Model:
                hidden = [layers.Dense(6, name=name) for name in names]
                return keras.Sequential([keras.Input((6,)), *hidden, layers.Dense(3, name="head")])

        return Named()

    one, same, other = named("a", "b"), named("b", "a"), named("a", "c")
    train(one, assignment())
    one.save(tmp_path)()
    same.begin(assignment())
    same.restore(tmp_path)
    by_path = dict(zip(session_of(one).trial.program.state, weights(one), strict=True))
    for path, value in zip(session_of(same).trial.program.state, weights(same), strict=True):
        np.testing.assert_array_equal(value, by_path[path])
    other.begin(assignment())
    with pytest.raises(
        CheckpointError, match=r"another model's variables: no adam/sequential_c_bias_momentum"
    ):
        other.restore(tmp_path)


def test_a_damaged_checkpoint_names_its_folder(tmp_path: Path) -> None:
    trainable = Small()
    train(trainable, assignment())
    checkpoint.save(tmp_path, session_of(trainable).trial.program.state, {})()
    (tmp_path / "state.npz").write_bytes(b"PK")
    with pytest.raises(CheckpointError, match="unreadable"):
        trainable.restore(tmp_path)
    (tmp_path / "state.json").write_text("[]")  # JSON, and no object
    with pytest.raises(CheckpointError, match="unreadable"):
        checkpoint.read(tmp_path)


def test_two_trainables_in_one_process_leave_each_other_alone() -> None:
    one, two = Small(), Small()
    train(one, assignment())
    before = weights(one)
    train(two, assignment(seed=1))
    for a, b in zip(before, weights(one), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.alone
def test_what_a_trainable_that_is_gone_has_changed_is_put_back() -> None:
    AT_IMPORT.assign(1.0)  # whatever other tests have left, whose trainables may still be somewhere
    train(counted(lambda: AT_IMPORT)(), assignment())
    assert float(AT_IMPORT.numpy()) > 1.0
    gc.collect()
    Small().begin(assignment())
    assert float(AT_IMPORT.numpy()) == 1.0


def test_a_table_that_training_writes_is_refused() -> None:
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, 0.0)

    class Remembering(layers.Layer):
        def call(self, x: Any) -> Any:
            table.insert(tf.constant([1], tf.int64), tf.constant([2.0]))
            return x

    class Tabled(Small):
        def model(self, hp: Any) -> keras.Model:
            return keras.Sequential([keras.Input((6,)), Remembering(), layers.Dense(3)])

    with pytest.raises(UnmanagedState, match="writes to a lookup table while training"):
        train(Tabled(), assignment())


def test_draws_that_follow_no_seed_are_refused() -> None:
    class Sampled(layers.Layer):
        def call(self, x: Any) -> Any:
            drawn, *_ = tf.random.log_uniform_candidate_sampler(
                tf.zeros((1, 1), tf.int64), 1, 2, True, 9
            )
            return x + tf.cast(drawn[0], x.dtype)

    class Sampling(Small):
        def model(self, hp: Any) -> keras.Model:
            return keras.Sequential([keras.Input((6,)), Sampled(), layers.Dense(3)])

    with pytest.raises(
        UnmanagedState, match="draws random numbers that do not follow the trial's seed"
    ):
        train(Sampling(), assignment())


def test_nothing_is_undone_twice() -> None:
    trainable = Small()
    trainable.begin(assignment())
    go_on(trainable)
    program_variables.reset_changed_state(trainable)
    kernel = session_of(trainable).trial.program.model.trainable_variables[0]
    changed = np.full(kernel.shape, 7.0, np.float32)
    kernel.assign(changed)  # not by a trial
    program_variables.reset_changed_state(trainable)
    np.testing.assert_array_equal(kernel.numpy(), changed)


def test_what_a_part_of_a_graph_writes_is_known_also_within_loops() -> None:
    read, before, inside, after = (tf.Variable(float(i), name=f"v{i}") for i in range(4))
    written: list[set[int]] = []

    @tf.function(autograph=False)
    def run() -> None:
        before.assign_add(1.0)
        first = len(tf.compat.v1.get_default_graph().get_operations())

        def body(i: tf.Tensor) -> tuple[tf.Tensor]:
            inside.assign_add(read)
            written.append(
                program_variables.find_written_variables(tf.compat.v1.get_default_graph())
            )
            return (i + 1,)

        tf.while_loop(lambda i: i < 2, body, (tf.constant(0),))
        after.assign(read)
        written.append(
            program_variables.find_written_variables(tf.compat.v1.get_default_graph(), first)
        )

    run()
    assert written[0] == {id(inside.handle)}
    assert written[-1] == {id(inside.handle), id(after.handle)}
