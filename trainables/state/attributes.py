"""The attributes that an author's code sets on the trainable: compared by value, removed and restored.

`model`, `loss` and `augment` can see what `data` sets there and in modules, so it belongs to what a program was
compiled from. If `data` sets anything, its result cannot be shared with workers that have not run it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sweep.state import values
from sweep.state.pristine import Traces, find_changed_names

__all__ = ["as_left", "find_changed_names", "kept", "kept_by", "replace_all"]


def kept(author: object, own: frozenset[str]) -> dict[str, object]:
    """Return the attributes that the author has set on a trainable: all but ``own``, which sweep sets."""
    return {name: value for name, value in vars(author).items() if name not in own}


def replace_all(author: object, own: frozenset[str], attributes: Mapping[str, object]) -> None:
    """Replace the author's attributes of the trainable by these, which belong to one program or run of `data`."""
    for name in kept(author, own):
        delattr(author, name)
    vars(author).update(attributes)


@contextmanager
def as_left(author: object, own: frozenset[str], attributes: Mapping[str, object]) -> Iterator[None]:
    """Replace the author's attributes inside the block, and restore the previous ones afterwards."""
    before = kept(author, own)
    replace_all(author, own, attributes)
    try:
        yield
    finally:
        replace_all(author, own, before)


def kept_by(author: object, own: frozenset[str]) -> Traces:
    """Return digests of a trainable's attributes, except ``own``; variables, which may change, by identity."""
    return {name: _Held().digest(value) for name, value in vars(author).items() if name not in own}


class _Held(values.Digester):
    """A digester that ignores the contents of variables, layers and library objects."""

    def _of_parts(self, value: Any, identity: object) -> object:
        if values.is_variable(value) or values.is_library_object(value) or values.is_layer(value):
            return values.Same(value)
        return super()._of_parts(value, identity)
