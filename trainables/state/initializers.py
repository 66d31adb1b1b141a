"""Seeds for initializers that an author creates once, which would otherwise give all trials the same weights."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import keras

_SEEDS = 1, 10**9  # the range from which Keras draws seeds


def seed_initializers(objects: Iterable[tuple[str, object]], seed: int) -> None:
    """Set the seed of each initializer that was created without one.

    The seed is computed from ``seed``, which is the trial's, the initializer's name, and its number among those of this
    name. ``objects`` are pairs of name and object; objects that are no initializers are ignored. In a program that
    trains one model, such initializers are created once after a seed was set. Here, each trial sets its own.
    """
    count: dict[str, int] = {}
    for name, value in objects:
        if isinstance(value, keras.initializers.Initializer) and _is_unseeded(value):
            count[name] = count.get(name, 0) + 1  # a list or a layer, for example, may hold several
            initializer: Any = value
            initializer.seed = random.Random(f"{seed} {name} {count[name]}").randint(*_SEEDS)


def _is_unseeded(initializer: keras.initializers.Initializer) -> bool:
    """Return whether an initializer's seed was drawn by Keras, not set by the author.

    It was if the initializer has a whole number as seed, and None as seed in its config. An initializer without a
    config counts as seeded.
    """
    if type(getattr(initializer, "seed", None)) is not int:
        return False
    try:
        # 0: without this entry, it counts as seeded
        return initializer.get_config().get("seed", 0) is None
    except NotImplementedError:  # an author's own initializer may not define get_config
        return False
