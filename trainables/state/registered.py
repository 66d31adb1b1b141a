"""Removal of gradients that tracing registers with TensorFlow, which would keep each with a whole graph forever.

Every `tf.custom_gradient` in a graph registers one (each sum over replicas does), and TensorFlow never removes it, so
that a worker would grow with every structure. They are needed only while gradients are traced, so they can be removed
together with what was traced.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from itertools import islice
from typing import Concatenate, ParamSpec, TypeVar

from trainables.tensorflow_private import GRADIENTS

_Owner = TypeVar("_Owner")
_P = ParamSpec("_P")
_R = TypeVar("_R")


def unregister_with_owner(
    method: Callable[Concatenate[_Owner, _P], _R],
) -> Callable[Concatenate[_Owner, _P], _R]:
    """Decorate a method so that gradients registered while it runs are unregistered when its object is deleted.

    This also holds if the method fails. The object must allow weak references.
    """

    @functools.wraps(method)
    def run(self: _Owner, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        before = len(GRADIENTS)
        try:
            return method(self, *args, **kwargs)
        finally:
            if len(GRADIENTS) > before:  # the newest entries are at the end of the dictionary
                weakref.finalize(
                    self, _unregister, tuple(islice(reversed(GRADIENTS), len(GRADIENTS) - before))
                )

    return run


def _unregister(names: tuple[str, ...]) -> None:
    for name in names:
        GRADIENTS.pop(name, None)
