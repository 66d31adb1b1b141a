"""Where each variable came from, so that what an author keeps between trials is found.

A fresh process makes all of a trial's variables anew. In a used one a layer may be older than the trial that it is
part of: cached on the trainable, in a module or by a decorator. `recording` remembers of each variable which trial
made it, at which line, and whether its value was drawn from that trial's seed.
"""

from __future__ import annotations

import itertools
import sys
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

_OURS = str(Path(__file__).parent)
_LIBRARIES = (str(Path(keras.__file__).parent), str(Path(tf.__file__).parent), _OURS, "<")
_numbers = itertools.count()
_NAME = "_sweep_origin"


class Kept(Exception):
    """A variable made in one trial is used in another, whose seed would have given it another value."""


@dataclass(frozen=True)
class Origin:
    """Which recording made a variable, under which seed, where in the author's code, and with which value."""

    record: int
    seed: int
    place: str
    digest: int


@dataclass
class Record:
    """The variables made inside one block, in order."""

    seed: int
    number: int = field(default_factory=lambda: next(_numbers))
    made: list[Any] = field(default_factory=list)


@contextmanager
def recording(record: Record) -> Iterator[None]:
    """Remember what is made inside the block; enter it inside of the strategy's scope."""

    def create(following: Any, **arguments: Any) -> Any:
        variable = following(**arguments)
        record.made.append(variable)
        setattr(variable, _NAME, Origin(record.number, record.seed, _place(), digest(variable)))
        return variable

    with tf.variable_creator_scope(create):
        yield


def check(variables: Mapping[str, Any], record: Record) -> None:
    """Raise Kept for a variable (by its path) drawn from the seed of an earlier trial, if this one has another seed."""
    for path, variable in variables.items():
        origin: Origin | None = getattr(variable, _NAME, None)
        if origin is None or origin.record == record.number or origin.seed == record.seed:
            continue
        if digest(variable) == origin.digest and not is_constant(np.asarray(variable)):
            raise Kept(
                f"{path} was made at {origin.place} by an earlier trial with seed {origin.seed} and is kept for one "
                f"with seed {record.seed}, which would have drawn other weights; make it anew in model(), or load "
                "its weights there"
            )


def is_constant(value: np.ndarray[Any, Any]) -> bool:
    """Whether all elements are equal: nothing that was drawn."""
    return value.size == 0 or bool((value == value.flat[0]).all())


def digest(variable: Any) -> int:
    """A checksum of the present value; 0 where there is none yet."""
    if not tf.executing_eagerly():
        return 0
    return zlib.crc32(np.ascontiguousarray(variable.numpy()).tobytes())


def _place() -> str:
    """The author's line that is being executed."""
    frame = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_LIBRARIES) and "contextlib" not in file:
            return f"{Path(file).name}:{frame.f_lineno}"
        if frame.f_back is None:
            break
        frame = frame.f_back
    return "an unknown line"
