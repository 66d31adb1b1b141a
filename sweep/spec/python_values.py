"""A sweep given as Python's own values in place of a file: plain data, with mistakes told by key."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from sweep.errors import shortened
from sweep.events import Value
from sweep.spec.document import Document, KeyPath


def document(given: Mapping[str, object], source: str) -> Document:
    """A mapping as what is read from a file; what is no plain value is noted as a mistake."""
    made = Document(source)
    for key, value in given.items():
        made.data[str(key)] = _plain(value, (str(key),), made)
    return made


def _plain(value: object, path: KeyPath, document: Document) -> Value:
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "ndim", None) == 0:  # a number of NumPy's
        value = item()
    elif callable(getattr(value, "tolist", None)):
        value = value.tolist()  # type: ignore[attr-defined]  # an array
    match value:
        case None | bool() | int() | float() | str():
            return value
        case PurePath():
            return os.fspath(value)
        case Mapping():
            wrong = [key for key in value if not isinstance(key, str)]
            if wrong:
                document.mistake(path, f"a key that is {shortened(repr(wrong[0]), 60)}, expected text")
            return {str(key): _plain(inner, (*path, str(key)), document) for key, inner in value.items()}
        case Sequence() | range() | set() | frozenset() if not isinstance(value, bytes | bytearray):
            return [_plain(inner, (*path, at), document) for at, inner in enumerate(value)]
    kind = type(value).__name__
    document.mistake(path, f"a {kind}, expected what a sweep file can hold: texts, numbers, lists and mappings")
    return None
