"""Keras's callbacks between epochs, in any loop; those that hear single batches belong to `Model.fit`.

They see what they see in Keras: one training, epochs from 0 that end after validation, and a model that they may steer
(`steering`). What they keep on themselves is in checkpoints, as far as it is plain.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from sweep.hyperparameters import Hyperparameters
from trainables.recipe import refusals
from trainables.recipe.author import Author
from trainables.state.checkpoint import CheckpointError

_OF_KERAS = frozenset({"_model", "params"})  # which set_model and set_params set


class Callbacks:
    """An author's callbacks for one trial; raises Refused for one that cannot do its work here."""

    def __init__(self, callbacks: Sequence[keras.callbacks.Callback]) -> None:
        self._callbacks = list(callbacks)
        for callback in self:
            refusals.check_callback(callback)
        self._made = [_kept(callback) for callback in self._callbacks]
        self._kept_by_author: dict[str, Any] = {}

    @classmethod
    def of(cls, author: Author, hp: Hyperparameters) -> Callbacks:
        """Those of a trial that begins, which the author may also keep on his object."""
        before = dict(vars(author))
        found = cls(author.callbacks(hp))
        found._kept_by_author = {k: v for k, v in vars(author).items() if before.get(k) is not v}
        return found

    def __iter__(self) -> Iterator[keras.callbacks.Callback]:
        return iter(self._callbacks)

    def __bool__(self) -> bool:
        return bool(self._callbacks)

    @property
    def hear_batches(self) -> bool:
        """Whether one of them wants to be called after single updates."""
        return any(refusals.heard(callback, refusals.OF_BATCHES) for callback in self)

    def watch(self, author: Author, model: keras.Model, *, epochs: int, updates: int) -> None:
        """Tell them which model trains, for how many epochs of how many updates; making it has emptied the author."""
        vars(author).update(self._kept_by_author)
        for callback in self:
            callback.set_params({"verbose": 0, "epochs": epochs, "steps": updates})
            callback.set_model(model)

    def train_begin(self) -> None:
        """Tell them that a trial begins; not of one that goes on from a checkpoint."""
        for callback in self:
            callback.on_train_begin()

    def epoch_begin(self, epoch: int) -> None:
        """Tell them of an epoch (from 1) that begins."""
        for callback in self:
            callback.on_epoch_begin(epoch - 1)

    def epoch_end(self, epoch: int, metrics: Mapping[str, float]) -> None:
        """Tell them of a finished epoch (from 1), its validation included."""
        for callback in self:
            callback.on_epoch_end(epoch - 1, dict(metrics))

    def train_end(self) -> None:
        """Tell them that the trial's last epoch is over."""
        for callback in self:
            callback.on_train_end()

    def state(self) -> list[dict[str, Any]] | None:
        """What they have changed on themselves, for a checkpoint; None where that is more than plain values."""
        found = []
        for callback, made in zip(self, self._made, strict=True):
            changed = {name: value for name, value in _kept(callback).items() if not _same(made.get(name), value)}
            if not all(_is_plain(value) for value in changed.values()):
                return None
            found.append(changed)
        return found

    def restore(self, state: object) -> None:
        """Go on from what `state` gave; raises CheckpointError where it gave nothing."""
        if not isinstance(state, list) or len(state) != len(self._callbacks):
            raise CheckpointError("Keras callbacks keep state that no checkpoint holds; it begins anew")
        for callback, changed in zip(self, state, strict=True):
            vars(callback).update(changed)


def _kept(callback: keras.callbacks.Callback) -> dict[str, Any]:
    """A copy of what a callback has on itself."""
    found = {}
    for name, value in vars(callback).items():
        if name not in _OF_KERAS:
            found[name] = copy.deepcopy(value) if isinstance(value, list | dict) else _plain(value)
    return found


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    return _is_plain(one) and _is_plain(other) and type(one) is type(other) and bool(one == other)


def _is_plain(value: object) -> bool:
    if isinstance(value, list):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(name, str) and _is_plain(part) for name, part in value.items())
    return value is None or type(value) in (bool, int, float, str)
