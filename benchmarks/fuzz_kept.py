"""State that the models of `fuzz.py` keep outside of their trials, in every kind of place; it counts their changes.

In a fresh process it is as this file defines it, and `anew` restores that.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections import deque
from typing import Any

import keras
import numpy as np
import tensorflow as tf

PLAIN = ("number", "list", "table", "nested", "class attribute", "numpy")
"""Kinds of state that a checkpoint contains; for the others, a message says that a resumed trial lacks them."""


class Keeps:
    number = 0
    names: list[int] = []  # noqa: RUF012 - on purpose


class Counts(keras.callbacks.Callback):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.count += 1


def counter() -> Any:
    total = 0

    def add(more: int) -> int:
        nonlocal total
        total += more
        return total

    return add


def known(more: int, held: list[int] = []) -> int:  # noqa: B006 - on purpose
    held.extend([1] * more)
    return len(held)


@functools.cache
def cached(key: str) -> list[int]:
    return []


LIST: list[int] = []
TABLE: dict[str, int] = {}
SET: set[int] = set()
QUEUE: deque[int] = deque()
NESTED: dict[str, list[int]] = {"a": []}
ARRAY, NUMPY = np.zeros(2), np.random.default_rng(5)
NUMBER = {"is": 0}
CALLBACK, ADD = Counts(), counter()
OPTIMIZER, METRIC, VARIABLE = keras.optimizers.SGD(1.0), keras.metrics.Sum(), tf.Variable(0.0)


def _number() -> None:
    NUMBER["is"] += 1


def _of_class() -> None:
    Keeps.number += 1


def _array() -> None:
    ARRAY[0] += 1


CHANGES: dict[str, Any] = {
    "number": _number,
    "list": lambda: LIST.append(1),
    "table": lambda: TABLE.update({str(len(TABLE)): 1}),
    "set": lambda: SET.add(len(SET)),
    "deque": lambda: QUEUE.append(1),
    "nested": lambda: NESTED["a"].append(1),
    "array": _array,
    "class attribute": _of_class,
    "class list": lambda: Keeps.names.append(1),
    "closure": lambda: ADD(1),
    "default": lambda: known(1),
    "cache": lambda: cached("a").append(1),
    "optimizer": lambda: OPTIMIZER.learning_rate.assign_add(1.0),
    "metric": lambda: METRIC.update_state(1.0),
    "variable": lambda: VARIABLE.assign_add(1.0),
    "numpy": lambda: NUMPY.random(),
}
MOMENTS = ("data", "model", "callbacks", "schedule", "on_epoch_begin", "on_epoch_end")


def level() -> float:
    """Return a number that reflects all changes so far."""
    counted = [
        NUMBER["is"],
        len(LIST),
        len(TABLE),
        len(SET),
        len(QUEUE),
        len(NESTED["a"]),
        float(ARRAY[0]),
    ]
    counted += [Keeps.number, len(Keeps.names), ADD(0), known(0), len(cached("a")), CALLBACK.count]
    counted += [float(OPTIMIZER.learning_rate) - 1.0, float(METRIC.result()), float(VARIABLE)]
    return sum(counted) + NUMPY.bit_generator.state["state"]["state"] % 97 / 97


def at(moment: str, hp: Any) -> float:
    """Return the level, then make the changes that the trial's parameter ``keeps`` names for this moment."""
    with tf.init_scope():
        found = level()
        for one in str(hp.get("keeps", "")).split("+"):
            when, _, carrier = one.partition(":")
            if when == moment:
                CHANGES[carrier]()
    return found


def anew() -> None:
    """Import this module again, so that its state is that of a fresh process."""
    sys.modules.pop("fuzz_kept", None)
    importlib.import_module("fuzz_kept")
