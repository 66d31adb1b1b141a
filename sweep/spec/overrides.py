"""Sweeps and changes from outside of a file: Python values, ``--set a.b=1`` and ``SWEEP_SET`` in the environment."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath

from sweep.errors import InputError, shortened
from sweep.events import Value
from sweep.spec.mistakes import Document, KeyPath, dotted, one_line, show
from sweep.spec.yaml_reader import read_value


def document_of(given: Mapping[str, object], source: str) -> Document:
    """Return a mapping as what is read from a file; what is no plain value is noted as a mistake."""
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


VARIABLE = "SWEEP_SET"
"""Environment variable with assignments, separated and quoted as in a shell: ``epochs=5 name='a b'``."""


def apply(assignments: Iterable[str], label: str, document: Document) -> None:
    """Set values by dotted key in the order given; notes what cannot be set.

    ``label`` is what the user typed before the assignment. Values are YAML; missing levels are made.
    """
    for assignment in assignments:
        typed = one_line(f"{label} {shortened(assignment, 60)}")
        key, separator, text = assignment.partition("=")
        if not separator or not key or "" in key.split("."):
            document.outside(typed, "expected key=value", "such as epochs=5 or metric.goal=minimize")
            continue
        try:
            value = read_value(text, typed)
        except InputError as error:
            for problem in error.problems:
                document.outside(typed, problem.what, problem.hint)
            continue
        _set(key.split("."), value, typed, document)


def split(text: str) -> list[str]:
    """Return the assignments in the environment variable; raise InputError for unbalanced quotes."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise InputError.one(VARIABLE, f"{text!r}: {error}", "quote it as in a shell") from None


def _set(parts: list[str], value: Value, typed: str, document: Document) -> None:
    holder: Value = document.data
    path: KeyPath = ()
    while True:
        if isinstance(holder, dict):
            # A dotted name in the file is one key: the longest that is there wins.
            taken = next((n for n in range(len(parts), 0, -1) if ".".join(parts[:n]) in holder), 1)
            key, parts = ".".join(parts[:taken]), parts[taken:]
            path = (*path, key)
            if not parts:
                holder[key] = value
                break
            if holder.get(key) is None:
                holder[key] = {}
                document.override(path, typed)
            holder = holder[key]
        elif isinstance(holder, list) and parts[0].isdecimal() and int(parts[0]) < len(holder):
            index, parts = int(parts[0]), parts[1:]
            path = (*path, index)
            if not parts:
                holder[index] = value
                break
            holder = holder[index]
        else:
            expected = f"an index below {len(holder)}" if isinstance(holder, list) else "a mapping"
            there = f"{dotted(path)} is {show(holder)}, so {parts[0]!r} cannot be set in it"
            document.outside(typed, f"{there}, expected {expected}")
            return
    document.override(path, typed)
