from __future__ import annotations

import itertools
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.hyperparameters import Hyperparameters
from sweep.patience import Plateau
from sweep.standard_hyperparameters import SCHEDULES
from trainables.recipe import schedules

DROPS = {"lr_drop_epochs": [1, 3]}
FALLING = sorted(set(SCHEDULES) - {"constant", "plateau", "cosine_restarts", "one_cycle"})


def _rates(
    name: str, epochs: int = 4, count: int = 5, warmup: int = 0, **params: object
) -> list[float]:
    hp = Hyperparameters({"lr_schedule": name, **DROPS, **params})
    schedule = schedules.build(hp)
    parts = [
        schedules.compute_rates(
            schedule, peak=2.0, epoch=epoch, count=count, epochs=epochs, warmup=warmup
        )
        for epoch in range(1, epochs + 1)
    ]
    return [float(rate) for rate in np.concatenate(parts)]


@pytest.mark.parametrize("name", FALLING)
def test_never_rises_after_the_peak(name: str) -> None:
    rates = _rates(name)
    assert rates[0] == 2.0
    assert all(a >= b for a, b in itertools.pairwise(rates))
    assert rates[-1] < 1.0


@pytest.mark.parametrize("name", sorted(set(SCHEDULES) - {"piecewise"}))
@given(count=st.integers(1, 7), warmup=st.integers(0, 8))
def test_only_the_updates_count(name: str, count: int, warmup: int) -> None:
    """Epochs join without a seam: six of ``count`` updates have the rates of one of six times as many."""
    assert _rates(name, 6, count, warmup) == pytest.approx(_rates(name, 1, 6 * count, warmup))


@pytest.mark.parametrize("name", SCHEDULES)
@given(warmup=st.integers(0, 8))
def test_rates_are_shares_of_the_peak(name: str, warmup: int) -> None:
    assert all(0 <= rate <= 2.0 for rate in _rates(name, warmup=warmup))


def test_warm_up_is_linear_and_ends_at_the_peak() -> None:
    np.testing.assert_allclose(_rates("cosine", warmup=4)[:5], [0.5, 1.0, 1.5, 2.0, 2.0])


def test_reading_values() -> None:
    np.testing.assert_allclose(_rates("cosine")[10], 1.0)
    np.testing.assert_allclose(_rates("linear")[5], 1.5)
    np.testing.assert_allclose(_rates("polynomial", lr_power=2.0)[10], 0.5)
    np.testing.assert_allclose(_rates("step")[::7], [2.0, 0.2, 0.02], rtol=1e-6)
    np.testing.assert_allclose(_rates("exponential")[10], 0.2, rtol=1e-6)
    np.testing.assert_allclose(
        _rates("piecewise", lr_drop_factor=0.5), np.repeat([2.0, 1.0, 1.0, 0.5], 5)
    )
    np.testing.assert_allclose(_rates("constant"), np.full(20, 2.0))


def test_one_cycle_rises_and_falls() -> None:
    rates = _rates("one_cycle", lr_rise=0.5)
    assert rates[0] == pytest.approx(0.08)
    assert max(rates) == rates[10] == 2.0
    assert rates[-1] < 0.1


def test_restarts_begin_at_the_peak_and_get_longer() -> None:
    assert [
        i for i, rate in enumerate(_rates("cosine_restarts", lr_restarts=3)) if rate == 2.0
    ] == [0, 5, 10, 15]
    longer = _rates("cosine_restarts", 7, 1, lr_restarts=2, lr_lengthening=2.0)
    assert [i for i, rate in enumerate(longer) if rate == pytest.approx(2.0)] == [0, 1, 3]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"lr_schedule": "cosinus"}, "lr_schedule is 'cosinus', expected one of constant"),
        (
            {"lr_schedule": "cosine", "lr_final": 2.0},
            "lr_final is 2.0, expected a number from 0 to 1",
        ),
        ({"lr_schedule": "exponential", "lr_final": 0.0}, "share above 0"),
        ({"lr_schedule": "piecewise"}, "lr_drop_epochs is None, expected a list of epochs"),
        (
            {"lr_schedule": "one_cycle", "lr_rise": 1.0},
            "lr_rise is 1.0, expected a number above 0 and below 1",
        ),
        ({"lr_schedule": "polynomial", "lr_power": 0}, "above 0"),
    ],
)
def test_wrong_values(params: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        schedules.build(Hyperparameters(params))


def test_warmup_in_epochs_or_steps() -> None:
    assert schedules.count_warmup_updates(Hyperparameters({"warmup_epochs": 1.5}), 10) == 15
    assert schedules.count_warmup_updates(Hyperparameters({"warmup_steps": 7}), 10) == 7
    with pytest.raises(ValueError, match="both set"):
        schedules.count_warmup_updates(Hyperparameters({"warmup_steps": 7, "warmup_epochs": 1}), 10)


def test_the_peak_follows_the_batch() -> None:
    def peak(**params: object) -> float:
        return schedules.compute_peak_rate(Hyperparameters({"learning_rate": 0.1, **params}), 256)

    assert peak() == 0.1
    assert peak(lr_scaling="linear", reference_batch_size=64) == pytest.approx(0.4)
    assert peak(lr_scaling="sqrt", reference_batch_size=64) == pytest.approx(0.2)
    with pytest.raises(ValueError, match="expected reference_batch_size beside it"):
        peak(lr_scaling="linear")
    with pytest.raises(ValueError, match="expected one of none, linear, sqrt"):
        peak(lr_scaling="log", reference_batch_size=64)


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_that_foresees_is_another_one_in_a_longer_training(name: str) -> None:
    schedule = schedules.build(Hyperparameters({"lr_schedule": name, **DROPS}))
    foresees = schedules.depends_on_trial_length(schedule, updates=20, count=5, warmup=3)
    assert foresees == (_rates(name, 4, 5, 3) != _rates(name, 9, 5, 3)[:20])
    assert foresees == (name not in ("constant", "piecewise", "plateau"))
    assert not schedules.depends_on_trial_length(schedule, updates=3, count=5, warmup=3)


def test_a_schedule_may_foresee_later() -> None:
    def schedule(now: schedules.Moment) -> float:
        return 1.0 if now.epoch < 2 else 1 - now.share

    assert not schedules.depends_on_trial_length(schedule, updates=10, count=5, warmup=0)
    assert schedules.depends_on_trial_length(schedule, updates=11, count=5, warmup=0)


def test_a_rate_that_was_reduced_to_nothing_stays_there() -> None:
    ended = schedules.Reduction(Plateau(maximize=False), 1e-200, 1, 0.0)
    for _ in range(4):
        ended.update(1.0)
    assert ended.scale == 0.0
    resumed = schedules.Reduction(Plateau(maximize=False), 1e-200, 1, 0.0)
    resumed.restore(ended.state())
    assert resumed.scale == 0.0


@pytest.mark.filterwarnings("ignore:__array__ implementation")  # in Keras's callback
@pytest.mark.parametrize("patience", [0, 1, 2])
def test_a_plateau_reduces_the_rate_when_keras_does(patience: int) -> None:
    losses = [1.0, 0.9, 0.8, 0.8, 0.7, 0.7, 0.7, 0.6, 0.6, 0.6, 0.6]
    optimizer = keras.optimizers.SGD(1.0)
    theirs = keras.callbacks.ReduceLROnPlateau(patience=patience, factor=0.5, min_delta=0.0)
    theirs.set_model(SimpleNamespace(optimizer=optimizer))
    theirs.on_train_begin()
    ours = schedules.Reduction(Plateau(maximize=False), 0.5, patience, 0.0)
    for epoch, loss in enumerate(losses):
        theirs.on_epoch_end(epoch, {"val_loss": loss})
        ours.update(loss)
        assert ours.scale == float(optimizer.learning_rate), epoch
