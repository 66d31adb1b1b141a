"""Where each variable came from, so that what an author keeps between trials is found.

A fresh process makes all of a trial's variables anew. In a used one a layer may be older than the trial that it is
part of: kept in a module or by a decorator. Not making it again also shifts the draws of all that is made after it, so
that the trial would be another one than in a fresh process.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.distribute import numpy_dataset

from trainables.devices.replicas import in_scope_of_servers
from trainables.numbers import author_lines

_numbers = itertools.count()
_present = threading.local()
_NAME = "_sweep_origin"
_HOST = "/cpu:0"
SEED = "seed_generator_state"
"""What Keras calls the variable of a seed generator."""


def is_seed(variable: tf.Variable) -> bool:
    """Return whether a variable is where a generator of Keras is in its draws."""
    return f"/{variable.name}".rpartition("/")[2].partition(":")[0] == SEED


class Kept(Exception):
    """A variable made in one trial is used in another, where a fresh process would have made its own."""


@dataclass(frozen=True)
class _Origin:
    record: int
    place: str


@dataclass
class Record:
    """The variables made inside one block, in order."""

    seed: int
    number: int = field(default_factory=lambda: next(_numbers))
    made: list[Any] = field(default_factory=list)


@contextmanager
def recording(record: Record, *, to_copy: bool = False, seeds_on_host: bool = False) -> Iterator[None]:
    """Remember what is made inside the block; enter it inside of the strategy's scope.

    Initial values are drawn on the host, whatever the device: rounding may differ between them. ``to_copy``: the
    variables stay there as well, one for all replicas, for those of a program to take their values. ``seeds_on_host``:
    so do those of seed generators alone.
    """
    shards = in_scope_of_servers()

    def create(following: Any, **arguments: Any) -> Any:
        initial = arguments.get("initial_value")
        if callable(initial) and not shards:  # a shard's tells by its signature that it makes a part
            arguments["initial_value"] = lambda: _on_host(initial)
        if to_copy or (seeds_on_host and arguments.get("name") == SEED):
            arguments["colocate_with"] = numpy_dataset.SingleDevice(_HOST)
        variable = following(**arguments)
        record.made.append(variable)
        setattr(variable, _NAME, _Origin(record.number, author_lines.of_the_author()))
        return variable

    with tf.variable_creator_scope(create):
        yield


def check(variables: Mapping[str, Any], record: Record) -> None:
    """Raise Kept for a variable, by its path, that an earlier trial has made.

    What is older than all trials is the same in a fresh process.
    """
    for path, variable in variables.items():
        origin: _Origin | None = getattr(variable, _NAME, None)
        if origin is not None and origin.record != record.number:
            raise Kept(
                f"{path} was made at {origin.place} by an earlier trial and is kept; make it anew in model(), or keep "
                "its weights as arrays (get_weights) and set them there"
            )


def is_constant(value: np.ndarray[Any, Any]) -> bool:
    """Whether all elements are equal: nothing that was drawn."""
    return value.size == 0 or bool((value == value.flat[0]).all())


def initialises() -> bool:
    """Whether a variable is being given its first value."""
    return getattr(_present, "initialises", False)


def _on_host(initial: Callable[[], Any]) -> Any:
    before, _present.initialises = initialises(), True
    try:
        with tf.device(_HOST):
            return initial()
    finally:
        _present.initialises = before
