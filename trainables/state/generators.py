"""Generators of random numbers that an author keeps: how far they are, and how to have them there again."""

from __future__ import annotations

import copy
import random
from typing import Any

import keras
import numpy as np
import tensorflow as tf

KINDS = (random.Random, np.random.Generator, np.random.RandomState, tf.random.Generator, keras.random.SeedGenerator)


def state_of(value: object) -> Any:
    """How far a generator is; None for what is none."""
    match value:
        case random.SystemRandom():
            return None
        case random.Random():
            return value.getstate()
        case np.random.Generator():
            return copy.deepcopy(value.bit_generator.state)
        case np.random.RandomState():
            return value.get_state()
        case tf.random.Generator() | keras.random.SeedGenerator():
            return np.asarray(value.state)
    return None


def put(value: Any, state: Any) -> None:
    """Have a generator as far as it was."""
    match value:
        case random.Random():
            value.setstate(state)
        case np.random.Generator():
            value.bit_generator.state = state
        case np.random.RandomState():
            value.set_state(state)
        case _:
            value.state.assign(state)
