"""Initializers that an author keeps: made once without a seed, they would begin all trials with the same weights."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import keras

_SEEDS = 1, 10**9  # as Keras draws them


def follow_the_trial(objects: Iterable[tuple[str, object]], seed: int) -> None:
    """Give those initializers that were made without a seed one that follows from the trial's and from their name.

    In a program that trains one model they are made once, after a seed was set; so here each trial makes its own.
    """
    count: dict[str, int] = {}
    for name, one in objects:
        if isinstance(one, keras.initializers.Initializer) and _is_unseeded(one):
            count[name] = count.get(name, 0) + 1
            kept: Any = one
            kept.seed = random.Random(f"{seed} {name} {count[name]}").randint(*_SEEDS)


def _is_unseeded(initializer: keras.initializers.Initializer) -> bool:
    """Return whether one has a seed of Keras's, not its author's."""
    if type(getattr(initializer, "seed", None)) is not int:
        return False
    try:
        return initializer.get_config().get("seed", 0) is None
    except NotImplementedError:  # an author's own may have none
        return False
