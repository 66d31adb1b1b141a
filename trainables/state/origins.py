"""Origins of variables, to detect those that an author keeps from one trial to the next.

A fresh process creates all variables of a trial. In a used process, a layer may be older than the trial that uses it,
because a module or a decorator keeps it. As it is not created again, the draws of everything created after it shift, so
the trial would differ from one in a fresh process.
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

from sweep import author_code
from trainables import tensorflow_private
from trainables.devices.replicas import in_scope_of_servers

_numbers = itertools.count()
_present = threading.local()
_NAME = "_sweep_origin"
_HOST = "/cpu:0"
SEED = "seed_generator_state"
"""Keras's name for the variable of a seed generator."""


def is_seed_state(variable: tf.Variable) -> bool:
    """Return whether a variable is the state of one of Keras's seed generators, by its name."""
    last_name = variable.name.rpartition("/")[
        2
    ]  # of a path such as model/dropout/seed_generator_state:0
    return bool(last_name.partition(":")[0] == SEED)


class StaleVariable(Exception):
    """Raised if a trial uses a variable of an earlier trial, where a new process would have created its own."""


@dataclass(frozen=True)
class _Origin:
    record: int
    place: str


@dataclass
class CreatedVariables:
    """The variables created inside one block of `recording_variables`, in order of creation."""

    seed: int
    number: int = field(default_factory=lambda: next(_numbers))
    created: list[Any] = field(default_factory=list)


@contextmanager
def recording_variables(
    record: CreatedVariables, *, to_copy: bool = False, seeds_on_host: bool = False
) -> Iterator[None]:
    """Record the variables that are created inside the block in ``record``; enter it inside the strategy's scope.

    Initial values are drawn on the host for any device, because rounding may differ between devices; only in the scope
    of parameter servers, TensorFlow chooses where. With ``to_copy``, the variables stay on the host, one for all
    replicas, so that the variables of a program can take their values. With ``seeds_on_host``, only the states of seed
    generators stay there. Each variable also gets a private attribute with the record and the author's line that
    created it, for `refuse_stale`.
    """
    on_servers = in_scope_of_servers()

    # TensorFlow calls it for each variable; ``following`` creates the variable.
    def create(following: Any, **arguments: Any) -> Any:
        initial = arguments.get("initial_value")
        # not on servers, where TensorFlow inspects the signature of a shard's initial value
        if callable(initial) and not on_servers:
            arguments["initial_value"] = lambda: _initialize_on_host(initial)
        if to_copy or (seeds_on_host and arguments.get("name") == SEED):
            arguments["colocate_with"] = tensorflow_private.SingleDevice(_HOST)
        variable = following(**arguments)
        record.created.append(variable)
        setattr(variable, _NAME, _Origin(record.number, author_code.find_present_line()))
        return variable

    with tf.variable_creator_scope(create):
        yield


def refuse_stale(variables: Mapping[str, Any], record: CreatedVariables) -> None:
    """Raise StaleVariable if an earlier trial, which is one with another record, has created one of the variables.

    ``variables`` are by path. Those that no `recording_variables` has recorded, as they are older than all trials, are
    accepted: they are the same in a new process.
    """
    for path, variable in variables.items():
        origin: _Origin | None = getattr(variable, _NAME, None)
        if origin is not None and origin.record != record.number:
            raise StaleVariable(
                f"{path} was made at {origin.place} by an earlier trial and is kept; make it anew in model(), or keep "
                "its weights as arrays (get_weights) and set them there"
            )


def has_one_value(value: np.ndarray[Any, Any]) -> bool:
    """Return whether an array is empty or all its elements are equal, so that it was not drawn at random.

    NaN equals nothing, so an array with NaN has not one value.
    """
    return value.size == 0 or bool((value == value.flat[0]).all())


def is_initializing() -> bool:
    """Return whether this code runs, in this thread, while a variable gets its initial value from a function."""
    return getattr(_present, "initialises", False)


def _initialize_on_host(initial: Callable[[], Any]) -> Any:
    before = is_initializing()
    _present.initialises = True
    try:
        with tf.device(_HOST):
            return initial()
    finally:
        _present.initialises = before
