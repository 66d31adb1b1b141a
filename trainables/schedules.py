"""Learning-rate schedules as plain functions of the update step.

A schedule gives a factor between 0 and 1 of the peak learning rate for each real optimizer update, so
accumulation, replicas and partial batches cannot bend it. The loop asks for the rates of one epoch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from sweep.hyperparameters import Hyperparameters

Schedule: TypeAlias = Callable[[float], float]
"""Factor of the peak rate after a share of the decay (0 at the end of warm-up, 1 at the end of training)."""


def constant() -> Schedule:
    """The peak rate throughout."""
    return lambda share: 1.0


def cosine(final: float) -> Schedule:
    """Half a cosine from 1 to ``final`` (Loshchilov & Hutter, SGDR, eq. 5, one period)."""
    return lambda share: final + (1 - final) * 0.5 * (1 + math.cos(math.pi * min(share, 1.0)))


def polynomial(final: float, power: float) -> Schedule:
    """``(1 - share) ** power`` from 1 to ``final``; power 1 is linear decay."""
    return lambda share: final + (1 - final) * (1 - min(share, 1.0)) ** power


def exponential(final: float) -> Schedule:
    """Geometric decay from 1 to ``final``."""
    return lambda share: float(final ** min(share, 1.0))


def step(drops: int, factor: float) -> Schedule:
    """``drops`` multiplications by ``factor``, evenly spaced over the decay."""
    return lambda share: float(factor ** min(int(share * (drops + 1)), drops))


SCHEDULES = ("constant", "step", "exponential", "cosine", "polynomial")
READS = ("lr_final",)


def build(hp: Hyperparameters) -> Schedule:
    """The schedule that the hyperparameters name (``lr_schedule``); raises ValueError for an unknown one.

    Reads ``lr_final`` (share of the peak at the end; 0, for exponential 0.01), ``lr_power`` (1),
    ``lr_drops`` (2) and ``lr_drop_factor`` (0.1).
    """
    name = hp.text("lr_schedule", "constant")
    match name:
        case "constant":
            return constant()
        case "cosine":
            return cosine(_share(hp, "lr_final", 0.0))
        case "polynomial":
            return polynomial(_share(hp, "lr_final", 0.0), hp.number("lr_power", 1.0))
        case "exponential":
            final = _share(hp, "lr_final", 0.01)
            if final == 0:
                raise ValueError("lr_final is 0, an exponential schedule needs a share above 0")
            return exponential(final)
        case "step":
            return step(hp.integer("lr_drops", 2), hp.number("lr_drop_factor", 0.1))
        case _:
            raise ValueError(f"lr_schedule is {name!r}, expected one of {', '.join(SCHEDULES)}")


def rates(
    schedule: Schedule, *, peak: float, first: int, count: int, total: int, warmup: int
) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """The learning rates of updates ``first`` to ``first + count - 1`` of ``total``, float32.

    The first ``warmup`` updates rise linearly to the peak: update i (from 0) has ``(i + 1) / warmup`` of it.
    """
    decay = max(total - warmup, 1)
    factors = [(i + 1) / warmup if i < warmup else schedule((i - warmup) / decay) for i in range(first, first + count)]
    return np.asarray([peak * factor for factor in factors], np.float32)


def warmup_updates(hp: Hyperparameters, updates_per_epoch: int) -> int:
    """Length of the warm-up in updates, from ``warmup_epochs`` (may be a fraction) or ``warmup_steps``."""
    epochs, steps = hp.get("warmup_epochs", None), hp.get("warmup_steps", None)
    if epochs is not None and steps is not None:
        raise ValueError("warmup_epochs and warmup_steps are both set, expected one of them")
    if steps is not None:
        return hp.integer("warmup_steps")
    return round(hp.number("warmup_epochs", 0.0) * updates_per_epoch)


def _share(hp: Hyperparameters, name: str, default: float) -> float:
    share = hp.number(name, default)
    if not 0 <= share <= 1:
        raise ValueError(f"{name} is {share}, expected a share of the peak rate from 0 to 1")
    return share
