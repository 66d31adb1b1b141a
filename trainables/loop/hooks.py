"""An author's methods between updates and between epochs: what callbacks are in `Model.fit`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import keras
import tensorflow as tf

from sweep.hyperparameters import Hyperparameters, Reads
from trainables.recipe.author import Author, overrides
from trainables.recipe.refusals import Refused
from trainables.state import attributes

Gradients: TypeAlias = "list[tuple[Any, keras.Variable]]"
BatchHook: TypeAlias = Callable[[tf.Tensor, Mapping[str, tf.Tensor], Gradients], Mapping[str, Any] | None]


class Watch:
    """`on_train_batch_end` inside of the graph; what it returns is reported, as a mean over the epoch's examples."""

    def __init__(self, hook: BatchHook) -> None:
        self._hook = hook
        self.names: tuple[str, ...] = ()

    def prepare(self, losses: Mapping[str, tf.Tensor], variables: Sequence[keras.Variable]) -> None:
        """Learn which names it returns, by a trace that is thrown away; called across replicas."""

        def trace() -> None:
            pairs = [(tf.zeros(v.shape, v.dtype), v) for v in variables]
            self.names = tuple(self._values(tf.constant(0), losses, pairs))

        tf.function(trace, autograph=False).get_concrete_function()
        taken = sorted(set(self.names) & set(losses))
        if taken:
            raise Refused(f"on_train_batch_end() returns {', '.join(taken)}, which the loop reports itself; rename it")

    def __call__(
        self,
        number: tf.Tensor,
        losses: Mapping[str, tf.Tensor],
        gradients: Sequence[Any],
        variables: Sequence[keras.Variable],
    ) -> dict[str, tf.Tensor]:
        """The values of one update (from 0), whose gradients were applied to these variables."""
        return self._values(number, losses, list(zip(gradients, variables, strict=True)))

    def _values(self, number: tf.Tensor, losses: Mapping[str, Any], pairs: Gradients) -> dict[str, tf.Tensor]:
        found = self._hook(number, dict(losses), pairs) or {}
        if not isinstance(found, Mapping):
            raise Refused(f"on_train_batch_end() returned {type(found).__name__}, expected a dictionary or nothing")
        values = {str(name): tf.cast(value, tf.float32) for name, value in found.items()}
        for name, value in values.items():
            if value.shape.rank != 0:
                raise Refused(f"on_train_batch_end() returns {name!r} of shape {value.shape}, expected one number")
        return values


HOOKS = ("on_train_begin", "on_epoch_begin", "on_epoch_end")


class Hooks:
    """An author's hooks between epochs, and what they may keep from one to the next.

    That is variables, and plain values in ``memory``, all of which checkpoints hold. Anything else that they change on
    the trainable would be lost on resume, or left for the next trial, and is refused.
    """

    def __init__(
        self, author: Author, model: keras.Model, hp: Hyperparameters, reads: Reads, own: frozenset[str]
    ) -> None:
        """``reads``: where to note what they read; ``own``: the attributes that are not the author's."""
        self._author, self._model, self._hp, self._reads, self._own = author, model, hp, reads, own
        self._names = [name for name in HOOKS if overrides(author, name)]

    def __bool__(self) -> bool:
        return bool(self._names)

    def train_begin(self) -> None:
        """Tell of a trial that begins."""
        with self._told("on_train_begin"):
            self._author.on_train_begin(self._model, self._hp)

    def epoch_begin(self, epoch: int) -> None:
        """Tell of an epoch (from 1) that begins."""
        with self._told("on_epoch_begin"):
            self._author.on_epoch_begin(epoch, self._model, self._hp)

    def epoch_end(self, epoch: int, metrics: dict[str, float]) -> dict[str, float]:
        """The metrics of an epoch (from 1), with what the hook adds to them."""
        if "on_epoch_end" not in self._names:
            return metrics
        logs = dict(metrics)
        with self._told("on_epoch_end"):
            self._author.on_epoch_end(epoch, logs, self._model, self._hp)
        for name, value in metrics.items():
            if name not in logs or not (logs[name] == value or math.isnan(value)):
                raise Refused(f"on_epoch_end() has changed {name!r} in the logs, expected new names alone")
        return {name: _number(name, value) for name, value in logs.items()}

    @contextmanager
    def _told(self, hook: str) -> Iterator[None]:
        if hook not in self._names:
            yield
            return
        before = attributes.kept_by(self._author, self._own)
        with self._hp.recording(self._reads):
            yield
        for name in attributes.changed(before, attributes.kept_by(self._author, self._own)):
            raise Refused(
                f"{hook}() has changed self.{name}, which a resumed trial would not have; keep it in "
                f"self.memory[{name!r}] (a plain value) or in a variable"
            )


def checked_memory(memory: Any) -> dict[str, Any]:
    """A copy of what hooks remember, as a checkpoint holds it; raises Refused for what is no plain value."""
    if not isinstance(memory, dict):
        raise Refused(f"self.memory is {type(memory).__name__}, expected a dictionary")
    for name, value in memory.items():
        if not isinstance(name, str) or not _is_plain(value):
            raise Refused(
                f"self.memory[{name!r}] is {type(value).__name__}, expected a number, a text, true, false, None, or a "
                "list of them; arrays belong in variables"
            )
    return dict(memory)


def _is_plain(value: object) -> bool:
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return value is None or type(value) in (bool, int, float, str)


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise Refused(f"on_epoch_end() adds {name!r} = {value!r:.60}, expected a number") from error
