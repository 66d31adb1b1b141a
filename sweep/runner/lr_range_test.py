"""A learning-rate range test: train with a rising rate, one update per rate, and suggest rates from the losses.

Source: Smith, Cyclical Learning Rates for Training Neural Networks, 2015, section 3.3.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from sweep.contract import Assignment, Devices
from sweep.errors import TrainableError, in_short
from sweep.events import Params
from sweep.functions import load_trainable, offers_method
from sweep.runner.trials import Terms
from sweep.space.domains import configuration_key
from sweep.spec import Spec

LOWEST, HIGHEST, UPDATES = 1e-6, 10.0, 200
MEMORY = 0.9  # weight of the smoothed loss so far: averages about ten updates
DIVERGED = 4.0  # multiple of the lowest smoothed loss
FALLS = 1e-3  # share of the largest loss: a smaller fall is rounding error
CONFIGURATIONS = 2
RATE = "learning_rate"


class Tries(Protocol):
    """The methods that the test needs of a trainable; `KerasTrainable` has them."""

    def begin(self, assignment: Assignment) -> None:
        """Prepare a trial: build the model and load the data; see `sweep.contract.Trainable`."""

    def try_rates(self, rates: Sequence[float]) -> Iterable[float]:
        """Make one update at each rate, in order, and yield the loss of its batch after each.

        Each update is made when its loss is requested.
        """


@dataclass(frozen=True, slots=True)
class RateCurve:
    """The losses of one configuration at rising learning rates, and the rates that they suggest, which may be None."""

    params: Params  # without the learning rate
    rates: tuple[float, ...]
    losses: tuple[float, ...]
    smoothed: tuple[float, ...]
    steepest: float | None  # where the smoothed loss falls fastest, over the logarithm of the rate
    diverged: float | None  # rate from which on the smoothed loss is `DIVERGED` times its lowest

    @property
    def tenth(self) -> float | None:
        """A tenth of the rate at which the loss diverged; None if it did not."""
        if self.diverged is None:
            return None
        return self.diverged / 10


def list_rising_rates(
    lowest: float = LOWEST, highest: float = HIGHEST, updates: int = UPDATES
) -> list[float]:
    """Return ``updates`` rates, two or more, from ``lowest`` to ``highest``, each larger by the same factor.

    ``lowest`` must be above 0.
    """
    return [lowest * (highest / lowest) ** (i / (updates - 1)) for i in range(updates)]


def find_learning_rates(
    spec: Spec, devices: Devices, folders: Sequence[Path], sample: Sequence[Params]
) -> list[RateCurve]:
    """Run the test on the first `CONFIGURATIONS` configurations of ``sample``, and return one curve for each.

    Configurations of ``sample`` that differ in the learning rate alone count as one. Their trials train in this
    process, with the first seed, on ``devices``. ``folders`` are searched for the trainable before the installed
    modules. Raises TrainableError if the trainable cannot be imported, has no `try_rates` method, or its code fails.
    """
    distinct: dict[str, Params] = {}  # by what they have besides the learning rate
    for params in sample:
        distinct.setdefault(configuration_key(_drop_rate(params)), params)
    chosen = list(distinct.values())[:CONFIGURATIONS]
    with _raising_trainable_error():
        offers = offers_method("try_rates", spec.trainable, folders, seed=spec.data_seed)
    if not offers:
        raise TrainableError(
            f"{spec.trainable} has no try_rates(), which --find-lr needs; derive it from "
            "trainables.keras_trainable.KerasTrainable, or leave --find-lr out"
        )
    with _raising_trainable_error():
        trainable = cast(Tries, load_trainable(spec.trainable, folders, seed=spec.data_seed)())
    curves = []
    for number, params in enumerate(chosen):
        curves.append(_measure_curve(trainable, spec, devices, number, params))
    return curves


def compute_curve(params: Params, tried: Iterable[tuple[float, float]]) -> RateCurve:
    """Return the curve of (rate, loss) pairs with ascending rates; stop reading them once the loss diverges.

    It diverges if it is not finite, or if the smoothed loss exceeds about `DIVERGED` times its lowest value. A loss
    that is not finite is not in the curve, so all may be empty. ``params`` are those of the curve, without the learning
    rate.
    """
    rates = list[float]()
    losses = list[float]()
    smoothed = list[float]()
    moving_mean, lowest, diverged = 0.0, math.inf, None
    for rate, loss in tried:
        if not math.isfinite(loss):
            diverged = rate
            break
        moving_mean = MEMORY * moving_mean + (1 - MEMORY) * loss
        # corrects for the start at 0, which is no loss
        corrected = moving_mean / (1 - MEMORY ** (len(losses) + 1))
        rates.append(rate)
        losses.append(loss)
        smoothed.append(corrected)
        lowest = min(lowest, corrected)
        # a tenth of the first loss at least: near a lowest loss of 0, every loss would be a multiple of it
        limit = (DIVERGED - 1) * max(abs(lowest), abs(smoothed[0]) / 10)
        if corrected - lowest > limit:
            diverged = rate
            break
    return RateCurve(
        params,
        tuple(rates),
        tuple(losses),
        tuple(smoothed),
        _find_steepest(rates, smoothed),
        diverged,
    )


def _find_steepest(rates: Sequence[float], smoothed: Sequence[float]) -> float | None:
    """Return the rate at which the smoothed loss falls fastest per logarithm of the rate, before its minimum.

    Return None if the loss hardly falls, if it falls only within the first few updates, or if there are fewer than ten
    updates. ``rates`` are ascending, and ``smoothed`` has the loss after the update at each.
    """
    if len(rates) < 10:
        return None
    least = FALLS * max(abs(loss) for loss in smoothed)  # smaller falls are rounding errors
    if smoothed[0] - min(smoothed) < least:
        return None
    minimum = min(range(len(smoothed)), key=smoothed.__getitem__)  # its index
    slopes = []  # (slope, index): over five updates, because one by one the losses are noisy
    for i in range(5, min(minimum, len(rates) - 2)):  # the first few are hardly smoothed
        fall = smoothed[i + 2] - smoothed[i - 2]
        slopes.append((fall / math.log(rates[i + 2] / rates[i - 2]), i))
    slope, steepest = min(slopes, default=(0.0, 0))  # the most negative slope is the steepest fall
    return rates[steepest] if slope < 0 else None


def _measure_curve(
    trainable: Tries, spec: Spec, devices: Devices, number: int, params: Params
) -> RateCurve:
    """Begin trial ``number`` with ``params`` and train it at rising rates until the loss diverges; return the curve.

    The trial ends with the last rate if the loss does not diverge. Raises TrainableError if the user's code fails.
    """
    rates = list_rising_rates()
    with _raising_trainable_error():
        trainable.begin(Terms(spec).trial(number, dict(params), devices))
        # one update each time that the curve asks for the next pair
        tried = zip(rates, trainable.try_rates(rates), strict=False)
        return compute_curve(_drop_rate(params), tried)


@contextmanager
def _raising_trainable_error() -> Iterator[None]:
    """Raise `TrainableError` in place of any `Exception` in the block, where the user's code runs.

    Others, such as `KeyboardInterrupt`, pass unchanged.
    """
    try:
        yield
    except Exception as error:  # any error of the user's code
        raise TrainableError(f"the rates could not be tried: {in_short(error)}") from error


def _drop_rate(params: Params) -> Params:
    """Return the parameters without the learning rate."""
    return {name: value for name, value in params.items() if name != RATE}
