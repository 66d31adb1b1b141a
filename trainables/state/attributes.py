"""What an author's code keeps on the trainable: compared by value, taken off and put on again.

What `data` leaves there, and in modules, is what `model`, `loss` and `augment` can see of the data, so it is part of
what a compiled program was made of; and data that left anything cannot be shared with workers that did not run `data`
themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sweep.state import values
from sweep.state.pristine import Traces, changed

__all__ = ["as_left", "changed", "kept", "kept_by", "put"]


def kept(author: object, own: frozenset[str]) -> dict[str, object]:
    """The attributes of a trainable but ``own``."""
    return {name: value for name, value in vars(author).items() if name not in own}


def put(author: object, own: frozenset[str], attributes: Mapping[str, object]) -> None:
    """Be what the author's methods have made of the trainable: what they keep on it belongs to one program."""
    for name in kept(author, own):
        delattr(author, name)
    vars(author).update(attributes)


@contextmanager
def as_left(author: object, own: frozenset[str], attributes: Mapping[str, object]) -> Iterator[None]:
    """Have these attributes inside the block, and those of before after it."""
    before = kept(author, own)
    put(author, own, attributes)
    try:
        yield
    finally:
        put(author, own, before)


def kept_by(author: object, own: frozenset[str]) -> Traces:
    """Return the attributes of a trainable but ``own``; variables, which may change, as themselves."""
    return {name: _Held().digest(value) for name, value in vars(author).items() if name not in own}


class _Held(values.Digester):
    """Digests a value as it is apart from its variables."""

    def _of_parts(self, value: Any) -> object:
        if values.is_variable(value) or values.is_library_object(value) or values.is_layer(value):
            return values.Same(value)
        return super()._of_parts(value)
