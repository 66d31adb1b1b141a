from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
from small import Small, assignment, go_on, metrics, train

from trainables.keras_trainable import session_of

pytestmark = pytest.mark.keras


def test_evaluates_with_the_average_and_trains_without() -> None:
    plain, averaged = Small(), Small()
    params = {"optimizer": "sgd", "learning_rate": 0.2}
    last = metrics(train(plain, assignment(**params)))
    ema = metrics(train(averaged, assignment(**params, ema_momentum=0.9)))
    assert [m["loss"] for m in last] == [m["loss"] for m in ema]
    assert ema[-1]["val_loss"] != last[-1]["val_loss"]
    for a, b in zip(
        session_of(plain).trial.program.model.weights,
        session_of(averaged).trial.program.model.weights,
        strict=True,
    ):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_is_the_exponential_average_of_the_weights_after_each_update() -> None:
    trainable = Small()
    given = assignment(
        epochs=3, batch_size=70, ema_momentum=0.75, optimizer="sgd", learning_rate=0.2
    )
    trainable.begin(given)
    program = session_of(trainable).trial.program
    expected = None
    for epoch in (1, 2, 3):  # one update an epoch
        go_on(trainable, pause_after=epoch)
        now = np.asarray(program.model.trainable_variables[0])
        expected = now if expected is None else 0.75 * expected + 0.25 * now
    np.testing.assert_allclose(np.asarray(program.average.variables[0]), expected, rtol=1e-5)


def test_an_averaging_optimizer_leaves_the_averaging_to_the_loop() -> None:
    class Averaging(Small):
        def optimizer(self, hp: Any) -> keras.optimizers.Optimizer:
            return keras.optimizers.SGD(0.2, use_ema=True, ema_momentum=0.9)

    own = Averaging()
    theirs = metrics(train(own, assignment(learning_rate=0.2)))
    assert session_of(own).trial.program.model.optimizer.use_ema is False
    assert theirs == metrics(
        train(Small(), assignment(optimizer="sgd", learning_rate=0.2, ema_momentum=0.9))
    )


def test_another_trial_starts_a_new_average() -> None:
    used, fresh = Small(), Small()
    train(used, assignment(ema_momentum=0.5, seed=3))
    assert metrics(train(used, assignment(ema_momentum=0.9))) == metrics(
        train(fresh, assignment(ema_momentum=0.9))
    )


def test_an_exception_in_an_evaluation_leaves_the_weights_as_they_were() -> None:
    def chunks() -> Any:
        raise ZeroDivisionError

    trainable = Small()
    train(trainable, assignment(ema_momentum=0.9))
    program = session_of(trainable).trial.program
    split = SimpleNamespace(updates=lambda size: 0)
    broken = SimpleNamespace(
        part_size=16, batch_size=16, split=split, chunks=chunks, first_batch=lambda epoch: 0
    )
    before = program.state.copy_all()
    with pytest.raises(ZeroDivisionError):
        program.evaluate(broken, seed=0, epoch=1)
    for path, values in program.state.copy_all().items():
        np.testing.assert_array_equal(values[0], before[path][0], err_msg=path)
