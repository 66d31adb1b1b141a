"""Learning-rate schedules as plain functions of the training's progress.

A schedule returns a factor of the peak learning rate for each real optimizer update, so gradient accumulation, replicas
and partial batches do not distort it. The loop asks for the rates of one epoch at a time.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from sweep.hyperparameters import Hyperparameters
from sweep.patience import Plateau, State


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in the training, at which a schedule is evaluated."""

    share: float  # progress of the decay: 0 at the end of warm-up, 1 at the end of training
    epoch: float  # epochs trained before this update, with a fraction


Schedule: TypeAlias = Callable[[Moment], float]
"""Returns a factor of the peak rate at a moment after warm-up."""


def constant() -> Schedule:
    """Return a schedule that keeps the peak rate."""
    return lambda now: 1.0


def cosine(final: float) -> Schedule:
    """Return a schedule of half a cosine from 1 to ``final`` (Loshchilov & Hutter, SGDR, eq. 5, one period)."""
    return lambda now: _cosine(1.0, final, now.share)


def cosine_restarts(final: float, restarts: int, lengthening: float) -> Schedule:
    """Return a schedule of ``restarts`` + 1 cosines, each ``lengthening`` times as long as the one before.

    Each falls from 1 to ``final``; together they take the training after the warm-up. Source: SGDR, section 3.
    """
    lengths = [lengthening**i for i in range(restarts + 1)]  # in units of the first period
    ends = []  # of all periods but the last, as shares of the decay
    for i in range(restarts):
        ends.append(sum(lengths[: i + 1]) / sum(lengths))

    def factor(now: Moment) -> float:
        period = bisect.bisect_right(ends, now.share)  # the index of the present one
        start = ends[period - 1] if period else 0.0
        share_of_period = (now.share - start) * sum(lengths) / lengths[period]
        return _cosine(1.0, final, share_of_period)

    return factor


def one_cycle(rise: float, initial: float, final: float) -> Schedule:
    """Return a schedule that rises from ``initial`` to 1 and then falls to ``final``, both along cosines.

    The rise takes the share ``rise`` of what follows the warm-up, above 0 and below 1. Source: Smith & Topin,
    Super-Convergence, section 4; the cosine form is common in libraries.
    """

    def factor(now: Moment) -> float:
        if now.share < rise:
            return _cosine(initial, 1.0, now.share / rise)
        return _cosine(1.0, final, (now.share - rise) / (1 - rise))

    return factor


def polynomial(final: float, power: float) -> Schedule:
    """Return a schedule that decays from 1 to ``final``: ``final + (1 - final) * (1 - share) ** power``."""
    return lambda now: final + (1 - final) * (1 - min(now.share, 1.0)) ** power


def exponential(final: float) -> Schedule:
    """Return a schedule that decays from 1 to ``final`` as ``final ** share``; ``final`` must be above 0."""
    return lambda now: float(final ** min(now.share, 1.0))


def step(drops: int, factor: float) -> Schedule:
    """Return a schedule that multiplies the rate by ``factor`` ``drops`` times, evenly spaced over the decay.

    The drops divide the training after the warm-up into ``drops`` + 1 equal stretches.
    """
    return lambda now: float(factor ** min(int(now.share * (drops + 1)), drops))


def piecewise(epochs: Sequence[float], factor: float) -> Schedule:
    """Return a schedule that multiplies the rate by ``factor`` after each of ``epochs``, numbers of trained epochs.

    They are in any order, may be fractions, and count the epochs of the warm-up.
    """
    ends = sorted(epochs)
    return lambda now: float(factor ** bisect.bisect_right(ends, now.epoch))


READS = (
    "learning_rate",
    "lr_schedule",
    "lr_scaling",
    "warmup_epochs",
    "warmup_steps",
    "lr_final",
    "lr_lengthening",
    "lr_rise",
    "lr_initial",
    "lr_power",
    "lr_drop_factor",
)


def build(hp: Hyperparameters) -> Schedule:
    """Return the schedule that ``lr_schedule`` names; by default a constant one.

    Reads the parameters of this schedule among ``lr_final`` (share of the peak at the end, by default 0, but 0.01 for
    exponential and 4e-6 for one_cycle), ``lr_power`` (1), ``lr_drops`` (2), ``lr_drop_factor`` (0.1),
    ``lr_drop_epochs`` (no default), ``lr_restarts`` (2), ``lr_lengthening`` (1), ``lr_rise`` (0.3), ``lr_initial``
    (0.04). For ``plateau`` the schedule is constant, and `make_reduction` reads its parameters.
    Raises: ValueError or TypeError: if a parameter is wrong, or ``lr_drop_epochs`` is missing for piecewise.
    """
    name = hp.text("lr_schedule", "constant", standard=True)
    match name:
        case "constant" | "plateau":
            schedule = constant()
        case "cosine":
            schedule = cosine(_read_standard_number(hp, "lr_final", 0.0))
        case "cosine_restarts":
            schedule = cosine_restarts(
                _read_standard_number(hp, "lr_final", 0.0),
                hp.integer("lr_restarts", 2, standard=True),
                _read_standard_number(hp, "lr_lengthening", 1.0),
            )
        case "one_cycle":
            rise = _read_standard_number(hp, "lr_rise", 0.3)
            schedule = one_cycle(
                rise,
                _read_standard_number(hp, "lr_initial", 0.04),
                _read_standard_number(hp, "lr_final", 4e-6),
            )
        case "linear":
            schedule = polynomial(_read_standard_number(hp, "lr_final", 0.0), 1.0)
        case "polynomial":
            schedule = polynomial(
                _read_standard_number(hp, "lr_final", 0.0),
                _read_standard_number(hp, "lr_power", 1.0),
            )
        case "exponential":
            final = _read_standard_number(hp, "lr_final", 0.01)
            if final == 0:
                raise ValueError("lr_final is 0, an exponential schedule needs a share above 0")
            schedule = exponential(final)
        case "step":
            schedule = step(
                hp.integer("lr_drops", 2, standard=True),
                _read_standard_number(hp, "lr_drop_factor", 0.1),
            )
        case _:  # piecewise, the last of `SCHEDULES`
            schedule = piecewise(
                _read_drop_epochs(hp), _read_standard_number(hp, "lr_drop_factor", 0.1)
            )
    return schedule


def compute_rates(
    schedule: Schedule,
    *,
    peak: float,
    epoch: int,
    count: int,
    epochs: int,
    warmup: int,
    by_time: tuple[float, float] | None = None,
) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Return the learning rates of the ``count`` updates of epoch ``epoch`` (from 1) of ``epochs`` epochs, as float32.

    Updates are numbered over all epochs, from 0. The first ``warmup`` of them rise linearly to the ``peak``: the rate
    of update i is ``(i + 1) / warmup`` of it. After them, ``schedule`` gives the factor of the ``peak``. ``by_time``
    has the shares of the trial's minutes that have passed at the start and at the end of the epoch; None without
    minutes. The decay follows the epochs or the minutes, whichever is further.
    """
    decay = max(epochs * count - warmup, 1)  # in updates; the warm-up may be as long as the trial
    first = (epoch - 1) * count
    factors = []
    for i in range(first, first + count):
        if i < warmup:
            factors.append((i + 1) / warmup)
            continue
        share = (i - warmup) / decay
        if by_time is not None:
            begun, ended = by_time
            used = begun + (ended - begun) * (i - first) / count  # of the minutes, before update i
            share = max(share, _share_after_warmup(min(used, 1.0), i, warmup))
        factors.append(schedule(Moment(share, i / count)))
    return np.asarray([peak * factor for factor in factors], np.float32)


def _share_after_warmup(used: float, updates: int, warmup: int) -> float:
    """Return the progress of the decay, from 0 to 1, when the share ``used`` of the trial's minutes has passed.

    It is the fraction that has passed of the minutes after the warm-up. ``updates`` is the number of updates so far, at
    least ``warmup``, the length of the warm-up in updates. The warm-up is assumed to have taken the fraction
    ``warmup / updates`` of the time so far. Returns 1 if, by this, the warm-up has taken all minutes of the trial.
    """
    if updates:
        warmed = used * warmup / updates
    else:
        warmed = 0.0
    if warmed < 1:
        return (used - warmed) / (1 - warmed)
    return 1.0  # the warm-up has taken all of the time


class _EndAsked(Exception):
    pass


@dataclass(frozen=True, slots=True)
class _EndlessMoment:
    """A `Moment` of a training with an unknown end."""

    epoch: float

    @property
    def share(self) -> float:
        raise _EndAsked


def depends_on_trial_length(schedule: Schedule, *, updates: int, count: int, warmup: int) -> bool:
    """Return whether a rate among the first ``updates`` updates depends on the length of the trial.

    An epoch has ``count`` updates. The rates of the first ``warmup`` updates never do. ``schedule`` is called for each
    of the others, and depends on the length if it reads `Moment.share`. Its errors are passed on.
    """
    try:
        for i in range(warmup, updates):
            schedule(_EndlessMoment(i / count))  # type: ignore[arg-type]  # it has the same attributes
    except _EndAsked:
        return True  # the schedule has asked for `share`, which depends on where the trial ends
    return False


def count_warmup_updates(hp: Hyperparameters, updates_per_epoch: int) -> int:
    """Return the length of the warm-up in updates, from ``warmup_epochs`` (may be a fraction) or ``warmup_steps``.

    Epochs are rounded to whole updates. It is 0 if neither is set.
    Raises: ValueError: if both are set. ValueError or TypeError: if one is wrong.
    """
    epochs = hp.get("warmup_epochs", None)
    steps = hp.get("warmup_steps", None)
    if epochs is not None and steps is not None:
        raise ValueError("warmup_epochs and warmup_steps are both set, expected one of them")
    if steps is not None:
        return hp.integer("warmup_steps", standard=True)
    return round(hp.number("warmup_epochs", 0.0, standard=True) * updates_per_epoch)


def compute_peak_rate(hp: Hyperparameters, batch_size: int, own: float | None = None) -> float:
    """Return ``learning_rate`` (default 0.001), or an optimizer's ``own`` rate if given, scaled as ``lr_scaling`` says.

    ``lr_scaling`` is none, linear (Goyal et al., Accurate, Large Minibatch SGD, section 2.1) or the square root
    (Krizhevsky, One Weird Trick, section 5) of the global batch size ``batch_size``, relative to
    ``reference_batch_size``, the batch size for which the rate was chosen.
    Raises: ValueError: if ``reference_batch_size`` is missing, unless ``lr_scaling`` is none. ValueError or TypeError:
    if a parameter is wrong.
    """
    if own is None:
        rate = _read_standard_number(hp, "learning_rate", 1e-3)
    else:
        rate = own
    scaling = hp.text("lr_scaling", "none", standard=True)
    if scaling == "none":
        return rate
    if "reference_batch_size" not in hp:
        raise ValueError(f"lr_scaling is {scaling}, expected reference_batch_size beside it")
    ratio = batch_size / hp.integer("reference_batch_size", standard=True)
    return rate * (ratio if scaling == "linear" else math.sqrt(ratio))


def _cosine(start: float, end: float, share: float) -> float:
    return end + (start - end) * 0.5 * (1 + math.cos(math.pi * min(share, 1.0)))


def _read_standard_number(hp: Hyperparameters, name: str, default: float) -> float:
    return hp.number(name, default, standard=True)


def _read_drop_epochs(hp: Hyperparameters) -> list[float]:
    """Return ``lr_drop_epochs`` as floats; raise ValueError unless it is a list of numbers above 0."""
    value = hp.get("lr_drop_epochs", None)
    wrong = ValueError(f"lr_drop_epochs is {value!r}, expected a list of epochs such as [30, 60]")
    if not isinstance(value, list):
        raise wrong
    epochs = []
    for epoch in value:
        if not isinstance(epoch, int | float) or not epoch > 0:  # not > 0: refuses NaN, too
            raise wrong
        epochs.append(float(epoch))
    return epochs


@dataclass
class Reduction:
    """Reduction of the learning rate by ``factor`` after ``patience`` epochs without a better objective.

    It does the same as Keras's ReduceLROnPlateau. The factor so far depends on past epochs, so it is saved as state.
    """

    plateau: Plateau
    factor: float
    patience: int
    final: float
    scale: float = 1.0

    def update(self, value: float) -> None:
        """Record the objective ``value`` of one epoch; NaN is no improvement.

        After ``patience`` epochs in a row without improvement (one if it is 0), multiply `scale` by ``factor`` and
        begin to count anew. The scale does not fall below ``final``.
        """
        self.plateau.count_epoch(value)
        # with 0, too, only after an epoch without improvement
        if self.plateau.waited >= max(self.patience, 1):
            self.scale = max(self.scale * self.factor, self.final)
            self.plateau.waited = 0

    def state(self) -> State:
        """Return the state for a checkpoint, from which `restore` continues: ``best``, ``waited`` and ``scale``."""
        return {**self.plateau.state(), "scale": self.scale}

    def restore(self, state: State) -> None:
        """Continue from a checkpoint's state, which `state` has returned.

        With None as its ``scale``, the present scale is kept. Raises KeyError if an entry is missing.
        """
        self.plateau.restore(state)
        scale = state["scale"]
        if scale is not None:  # 0 is a scale, too
            self.scale = scale


def is_plateau(hp: Hyperparameters) -> bool:
    """Return whether the trial's ``lr_schedule`` is plateau; raises ValueError or TypeError if it is wrong."""
    return hp.text("lr_schedule", "constant", standard=True) == "plateau"


def make_reduction(hp: Hyperparameters, *, maximize: bool) -> Reduction | None:
    """Return the reduction of a trial whose ``lr_schedule`` is plateau; None for other schedules.

    Reads ``lr_patience`` (5 epochs), ``lr_drop_factor`` (0.1) and ``lr_final`` (lowest share of the rate, 0). With
    ``maximize``, a larger objective is better. Raises ValueError or TypeError if a parameter is wrong.
    """
    if not is_plateau(hp):
        return None
    return Reduction(
        Plateau(maximize),
        factor=hp.number("lr_drop_factor", 0.1, standard=True),
        patience=hp.integer("lr_patience", 5, standard=True),
        final=hp.number("lr_final", 0.0, standard=True),
    )
