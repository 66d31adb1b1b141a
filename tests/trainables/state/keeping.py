"""A project that keeps state in every place, changed at the moment that the file `plan.json` names.

`LOOKS` has what the code finds, by moment. Its module is imported by the name `keeping`, from a copy.
"""

from __future__ import annotations

import functools
import itertools
import json
import logging
import os
import random
import sys
import warnings
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainables.keras_trainable import KerasTrainable

PLAN = Path(__file__).with_name("plan.json")
LOOKED = Path(__file__).with_name("looked.json")


class Counts:
    number = 0
    names = ["a"]  # noqa: RUF012 - on purpose

    class Inner:
        number = 0

    def __init__(self) -> None:
        self.seen: list[int] = []


@dataclass(slots=True)
class Slotted:
    number: int = 0


class Count(keras.callbacks.Callback):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        moment("callback")
        self.count += 1


def counter() -> Any:
    total = 0

    def add() -> int:
        nonlocal total
        total += 1
        return total

    return add


def remember(value: int, known: list[int] = []) -> list[int]:  # noqa: B006 - on purpose
    known.append(value)
    return known


@functools.cache
def cached(key: int) -> list[int]:
    return [key]


def marked() -> None: ...


NUMBER = 0
LIST, TABLE, SET, QUEUE, NESTED = [1], {"a": 1}, {1}, deque([1], 3), {"a": [{"b": 1}]}
ARRAY, ROWS = np.zeros(3), np.arange(4)
COUNTS, SPACE, SLOTS = Counts(), SimpleNamespace(number=0), Slotted()
ADD = counter()
CALLBACKS = [Count()]
INITIALIZER = keras.initializers.RandomNormal(stddev=1.0, seed=3)
OPTIMIZER, METRIC, VARIABLE = keras.optimizers.SGD(0.5), keras.metrics.Mean(), tf.Variable(0.0)
RANDOM, NUMPY, SEEDS = random.Random(0), np.random.default_rng(0), keras.random.SeedGenerator(0)
ORDER = itertools.count()
PART = functools.partial(dict, names=[])
marked.calls = 0  # type: ignore[attr-defined]  # state on a function, on purpose


def rebind_number() -> None:
    global NUMBER
    NUMBER += 1


def rebind_array() -> None:
    global ROWS
    ROWS = ROWS + 1


def count_env() -> None:
    os.environ["KEEPING"] = str(int(os.environ.get("KEEPING", 0)) + 1)


def umask() -> int:
    present = os.umask(0)
    os.umask(present)
    return present


CHANGES: dict[str, Any] = {
    "number": rebind_number,
    "list": lambda: LIST.append(2),
    "dictionary": lambda: TABLE.update(b=len(TABLE)),
    "set": lambda: SET.add(len(SET) + 1),
    "deque": lambda: QUEUE.append(2),
    "nested": lambda: NESTED["a"].append({"b": 2}),
    "array": lambda: np.add(ARRAY, 1, out=ARRAY),
    "another array": rebind_array,
    "class attribute": lambda: setattr(Counts, "number", Counts.number + 1),
    "class list": lambda: Counts.names.append("b"),
    "nested class": lambda: setattr(Counts.Inner, "number", Counts.Inner.number + 1),
    "object": lambda: COUNTS.seen.append(1),
    "namespace": lambda: setattr(SPACE, "number", SPACE.number + 1),
    "slots": lambda: setattr(SLOTS, "number", SLOTS.number + 1),
    "closure": ADD,
    "default": lambda: remember(1),
    "function attribute": lambda: setattr(marked, "calls", marked.calls + 1),  # type: ignore[attr-defined]  # the same
    "cache": lambda: cached(cached.cache_info().currsize),
    "cached result": lambda: cached(0).append(1),
    "partial": lambda: PART.keywords["names"].append(1),
    "initializer": lambda: setattr(INITIALIZER, "stddev", INITIALIZER.stddev * 2),
    "optimizer": lambda: OPTIMIZER.learning_rate.assign(float(OPTIMIZER.learning_rate) / 2),
    "metric": lambda: METRIC.update_state(1.0),
    "variable": lambda: VARIABLE.assign_add(1.0),
    "random": RANDOM.random,
    "numpy": NUMPY.random,
    "keras seeds": SEEDS.next,
    "iterator": lambda: next(ORDER),
    "os.environ": count_env,
    "umask": lambda: os.umask(umask() | 0o100),
    "recursion limit": lambda: sys.setrecursionlimit(sys.getrecursionlimit() + 1),
    "sys.path": lambda: sys.path.append("/nowhere"),
    "warnings": lambda: warnings.filterwarnings("ignore", f"keeping {len(warnings.filters)}"),
    "logging": lambda: logging.getLogger("keeping").addHandler(logging.NullHandler()),
    "epsilon": lambda: keras.config.set_epsilon(keras.config.epsilon() * 2),
    "folder": lambda: os.chdir(".."),
}


def look() -> dict[str, Any]:
    """Everything as it is now."""
    return {
        "values": [
            NUMBER,
            LIST,
            TABLE,
            sorted(SET),
            [*QUEUE],
            NESTED,
            ARRAY.tolist(),
            ROWS.tolist(),
        ],
        "classes": [Counts.number, Counts.names, Counts.Inner.number],
        "objects": [COUNTS.seen, SPACE.number, SLOTS.number],
        "functions": [
            ADD.__closure__[0].cell_contents,
            remember.__defaults__,
            marked.calls,
            PART.keywords,
        ],  # type: ignore[attr-defined]  # functions and their attributes
        "cache": cached.cache_info().currsize,
        "keras": [
            CALLBACKS[0].count,
            INITIALIZER.stddev,
            float(OPTIMIZER.learning_rate),
            float(METRIC.result()),
        ],
        "variable": float(VARIABLE),
        "random": [
            RANDOM.getstate()[1][-1],
            NUMPY.bit_generator.state["state"]["state"],
            SEEDS.state.numpy().tolist(),
        ],
        "iterator": repr(ORDER),
        "process": [
            os.environ.get("KEEPING"),
            umask(),
            sys.getrecursionlimit(),
            len(sys.path),
            len(warnings.filters),
        ],
        "logging": len(logging.getLogger("keeping").handlers),
        "epsilon": keras.config.epsilon(),
        "folder": os.getcwd(),  # noqa: PTH109 - it may be gone
    }


def moment(name: str) -> None:
    """Note what there is, and change what the plan says."""
    plan = json.loads(PLAN.read_text())
    looked = json.loads(LOOKED.read_text())
    with tf.init_scope():  # also while a graph is traced
        looked.append([name, look()])
        LOOKED.write_text(json.dumps(looked))
        if name == plan["moment"]:
            CHANGES[plan["carrier"]]()


class Keeping(KerasTrainable):
    def data(self, hp: Any) -> Any:
        hp.integer("cell")
        moment("data")
        x = np.random.default_rng(0).normal(size=(24, 3)).astype(np.float32)
        return (x, x[:, :1]), (x, x[:, :1])

    def model(self, hp: Any) -> keras.Model:
        # so that a cell has a program of its own: building it changes what its plan says
        hp.integer("cell")
        moment("model")
        return keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])

    def loss(self, hp: Any, model: Any) -> Any:
        moment("loss")
        return "mse"

    def metrics(self, hp: Any, model: Any) -> Any:
        moment("metrics")
        return []

    def optimizer(self, hp: Any) -> Any:
        moment("optimizer")
        return super().optimizer(hp)

    def augment(self, x: Any, hp: Any, draws: Any) -> Any:
        moment("augment")
        return x

    def schedule(self, hp: Any) -> Any:
        moment("schedule")
        return super().schedule(hp)

    def phases(self, hp: Any) -> Any:
        moment("phases")
        return super().phases(hp)

    def callbacks(self, hp: Any) -> Any:
        moment("callbacks")
        return CALLBACKS

    def on_train_begin(self, model: Any, hp: Any) -> None:
        moment("on_train_begin")

    def on_epoch_begin(self, epoch: int, model: Any, hp: Any) -> None:
        moment("on_epoch_begin")

    def on_epoch_end(self, epoch: int, logs: Any, model: Any, hp: Any) -> None:
        moment("on_epoch_end")


def train(hp: Any, report: Any) -> None:
    moment("function")
    report(loss=1.0)
    moment("function")
