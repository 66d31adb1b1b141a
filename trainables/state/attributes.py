"""The attributes that an author's code sets on the trainable: compared by value, removed and restored.

`model`, `loss` and `augment` can see what `data` sets there and in modules, so it belongs to what a program was
compiled from. If `data` sets anything, its result cannot be shared with workers that have not run it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sweep.state import values
from sweep.state.recorded_values import Digests, find_changed_names

__all__ = [
    "attributes_replaced",
    "digest_attributes",
    "find_changed_names",
    "get_author_attributes",
    "replace_all",
]


def get_author_attributes(author: object, own: frozenset[str]) -> dict[str, object]:
    """Return the attributes of a trainable by name, except those named in ``own``, which sweep itself sets."""
    attributes = {}
    for name, value in vars(author).items():
        if name not in own:
            attributes[name] = value
    return attributes


def replace_all(author: object, own: frozenset[str], attributes: Mapping[str, object]) -> None:
    """Replace the author's attributes of a trainable by ``attributes``.

    Attributes whose names are in ``own``, which sweep itself sets, stay.
    """
    for name in get_author_attributes(author, own):
        delattr(author, name)
    vars(author).update(attributes)


@contextmanager
def attributes_replaced(
    author: object, own: frozenset[str], attributes: Mapping[str, object]
) -> Iterator[None]:
    """Replace the author's attributes of a trainable inside the block, and restore the previous ones afterwards."""
    before = get_author_attributes(author, own)
    replace_all(author, own, attributes)
    try:
        yield
    finally:
        replace_all(author, own, before)


def digest_attributes(author: object, own: frozenset[str]) -> Digests:
    """Return digests of a trainable's attributes by name, except those named in ``own``.

    Variables, layers and objects of libraries are digested by identity, not by value.
    """
    digests = {}
    for name, value in vars(author).items():
        if name not in own:
            digests[name] = _IdentityDigester().digest(value)
    return digests


class _IdentityDigester(values.Digester):
    """A digester that ignores the contents of variables, layers and library objects."""

    def _digest_parts(self, value: Any, identity: object) -> object:
        if values.is_variable(value) or values.is_library_object(value) or values.is_layer(value):
            return values.IdentityDigest(value)
        return super()._digest_parts(value, identity)
