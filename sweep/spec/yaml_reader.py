"""Reads YAML as plain data with places; the only module that knows ruamel.yaml.

It uses the core schema of YAML 1.2 (section 10.3), in which `1e-4` is a number and `off` and `no` are texts; numbers
must be finite and fit into 64 bits. A file is data, never code: one document, no tags except those of the schema, text
keys, and limits on size, depth and expansion of anchors. The merge key `<<`, which YAML 1.2 dropped, is supported
because users' files have it.

Also applies changes from outside a file: Python values, ``--set a.b=1`` and ``SWEEP_SET`` in the environment.
"""

from __future__ import annotations

import functools
import io
import math
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TypeAlias

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    CollectionStartEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from ruamel.yaml.reader import ReaderError

from sweep.errors import InputError, Problem
from sweep.events import Value
from sweep.spec.validation import (
    Document,
    KeyPath,
    TextPosition,
    describe_value,
    format_path,
    one_line,
)
from sweep.text import shortened

Scalar: TypeAlias = str | int | float | bool | None

TAG_PREFIX = "tag:yaml.org,2002:"
TAGS = {"bool", "float", "int", "map", "null", "seq", "str"}
"""The allowed tags, all harmless; W&B's documentation recommends ``!!float 1e-5``."""

_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_NULLS = {"", "~", "null", "Null", "NULL"}
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SPECIAL = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_BASES = {"0o": 8, "0x": 16}
_SURROGATE = re.compile("[\ud800-\udfff]")


def resolve_scalar(text: str, tag: str | None) -> Scalar:
    """Return the value of a YAML scalar, by its tag or, without a tag, by its form.

    ``tag`` is one of `TAGS`, without the prefix. Raises ``ValueError`` with a message for the user if the text does not
    fit the tag, is a number that is not finite or does not fit into 64 bits, or has half of a surrogate pair.
    """
    match tag:
        case "str":
            return _join_surrogates(text)
        case None | "null" if text in _NULLS:
            return None
        case None | "bool" if text in _BOOLS:
            return _BOOLS[text]
        case None | "int" if _INT.fullmatch(text):
            return _parse_int(text)
        case None | "float" if _FLOAT.fullmatch(text) or _SPECIAL.fullmatch(text):
            return _parse_float(text)
        case None:
            return _join_surrogates(text)
    raise ValueError(f"{shortened(text, 30)!r} is no {tag}")


_WORDS_1_1 = {"yes": True, "no": False, "on": True, "off": False}
_INT_1_1 = re.compile(r"[-+]?[1-9][0-9]*(_[0-9_]*)+")
_OCTAL_1_1 = re.compile(r"[-+]?0[0-7_]+")
_SIXTIES_1_1 = re.compile(r"[-+]?[1-9][0-9_]*(:[0-5]?[0-9])+")
_FLOAT_1_1 = re.compile(r"[-+]?[0-9][0-9]*(_[0-9_]*)?\.[0-9_]*([eE][-+][0-9]+)?")


def resolve_1_1(text: str) -> Value:
    """Return the value that a word has in YAML 1.1, which W&B reads, if YAML 1.2 may read it otherwise.

    These are ``yes``, ``no``, ``on`` and ``off``, and numbers such as ``1_000``, ``1:30`` and ``010``. A number with
    leading zeros may have the same value in both. Returns None for other words, and for all of more than 30 characters.
    """
    # YAML 1.1 knows these words in three spellings: off, Off and OFF.
    if text.lower() in _WORDS_1_1 and text in (text.lower(), text.capitalize(), text.upper()):
        return _WORDS_1_1[text.lower()]
    if len(text) > 30:  # because Python's conversion of long numbers takes quadratic time
        return None
    return _resolve_number_1_1(text)


def _resolve_number_1_1(text: str) -> Value:
    """Return the number that a text is in YAML 1.1 and may not be in YAML 1.2; None for other texts.

    It may have underscores, as in ``1_000``, be octal, as in ``010``, or have base 60, as in ``1:30``, which is 90.
    """
    if _OCTAL_1_1.fullmatch(text):
        return int(text.replace("_", ""), 8)
    if "_" in text and _INT_1_1.fullmatch(text):
        return int(text.replace("_", ""))
    if _SIXTIES_1_1.fullmatch(text):
        parts = []
        for part in text.lstrip("+-").replace("_", "").split(":"):
            parts.append(int(part))
        # in base 60
        number = functools.reduce(lambda total, part: 60 * total + part, parts)
        return -number if text[0] == "-" else number
    if "_" in text and _FLOAT_1_1.fullmatch(text):
        return float(text.replace("_", ""))
    return None


def _parse_int(text: str) -> int:
    """Parse a whole number, also in base 8 (``0o``) or 16 (``0x``).

    Raises ValueError if its absolute value is 2**63 or more, or if ``text`` has more than 30 characters.
    """
    if len(text) > 30:
        number = 2**63  # not converted, which takes Python quadratic time, and refused below
    else:
        number = int(text, _BASES.get(text[:2], 10))
    return _check_64_bits(number, text)


def _check_64_bits(number: int, text: str) -> int:
    """Return the number. Raises ValueError, with ``text`` in its message, if its absolute value is 2**63 or more."""
    if abs(number) >= 2**63:
        raise ValueError(f"{shortened(text, 30)} does not fit into 64 bits")
    return number


def _parse_float(text: str) -> float:
    """Parse a number as a float. Raises ValueError if it is not finite, as ``.inf``, ``.nan`` and ``1e999``."""
    if _SPECIAL.fullmatch(text) or math.isinf(number := float(text)):
        raise ValueError(f"{shortened(text, 30)} is not a finite number")
    return number


def _join_surrogates(text: str) -> str:
    """Return a text in which the two halves of a surrogate pair, as JSON writes some characters, are one character.

    A text without such halves is returned unchanged. Raises ValueError for a single half.
    """
    if not _SURROGATE.search(text):
        return text
    # JSON writes characters beyond 16 bits as two escapes
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise ValueError("half of a surrogate pair in a text") from None


MAX_SIZE_BYTES = 1_000_000
MAX_DEPTH = 50
MAX_VALUES = 100_000  # including expanded anchors

_UNCLOSED = ("unexpected end of stream", "<stream end>", "could not find expected ':'")
_HINTS = {
    "'\\t'": "indent with spaces, not tabs",
    "mapping values are not allowed": "a text with ': ' in it needs quotes; or the indentation is off",
    "that cannot start any token": "a text that begins with this character needs quotes",
    "unexpected end of stream": "is a closing quote missing?",
    "<stream end>": "is a closing bracket missing?",
    "expected <block end>": "entries of one block must be indented alike",
    "could not find expected ':'": "a key needs ': ' and a value",
}


def decode_text(raw: bytes, source: str) -> str:
    """Decode a file in UTF-8, with or without a byte order mark.

    Raises InputError if it is not UTF-8, or has more than `MAX_SIZE_BYTES`. ``source`` is its path, for messages.
    """
    if len(raw) > MAX_SIZE_BYTES:
        raise InputError.one(
            source, f"more than {MAX_SIZE_BYTES:,} bytes, too large for a sweep file"
        )
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # The place of the byte is the end of what stands before it; the error counts from after a byte order mark.
        mark = _find_end_position(error.object[: error.start].decode("utf-8", errors="replace"))
        what = f"byte 0x{error.object[error.start]:02x} is not UTF-8"
        raise InputError.one(Document(source).where(mark), what, "save the file as UTF-8") from None


def parse_document(text: str, source: str) -> Document:
    """Parse the text of a sweep file, whose top level must be a mapping.

    Raises InputError if the text is too large, empty, no mapping, not YAML, nested too deeply, or has a second document
    or an alias that cannot be resolved. Other mistakes, such as a key that appears twice, are kept in the document.
    """
    if len(text) > MAX_SIZE_BYTES:
        raise InputError.one(
            source, f"more than {MAX_SIZE_BYTES:,} characters, too large for a sweep file"
        )
    document = Document(source)
    node = _Composer(text, document).compose()
    if node is None or node.value is None:
        raise InputError.one(source, "empty, expected a mapping such as 'method: grid'")
    if not isinstance(node.value, dict):
        if isinstance(node.value, list):
            kind = "a list"
        else:
            kind = "a single value"
        what = f"{kind} at the top level, expected a mapping such as 'method: grid'"
        raise InputError.one(document.where(node.mark), what)
    data = _Expansion(document).expand(node, ())
    if isinstance(data, dict):  # always, because ``node`` is a mapping
        document.data = data
    return document


def read_value(text: str, source: str) -> Value:
    """Parse a text as a single YAML value, such as the right side of ``--set key=value``; None for an empty text.

    Raises InputError with all mistakes, each with ``source`` as its place.
    """
    document = Document(source)
    try:
        node = _Composer(text, document).compose()
        if node is None:
            value = None
        else:
            value = _Expansion(document).expand(node, ())
        document.check()
    except InputError as error:
        # A line and column within a word of the command line would not help.
        raise InputError(
            Problem(source, fault.what, fault.hint) for fault in error.problems
        ) from None
    return value


@dataclass(slots=True)
class _Node:
    """A node of the YAML tree: its value, or its inner nodes, and its position."""

    mark: TextPosition
    value: Scalar | list[_Node] | _Pairs


_Pairs: TypeAlias = dict[str, tuple[TextPosition, _Node]]


class _Composer:
    """Builds a tree of nodes from YAML events; aliases share the node of their anchor."""

    def __init__(self, text: str, document: Document) -> None:
        self.text = text
        self.document = document
        self.anchors: dict[str, _Node | None] = {}  # None: under construction
        self.merged = 0  # number of pairs copied by merge keys

    def compose(self) -> _Node | None:
        """Return the root of the tree, None for an empty text; call it once.

        Raises InputError if the text is not YAML, has a second document, is nested too deeply, or has an alias or merge
        keys that cannot be resolved. Other mistakes are added to the document.
        """
        try:
            return self._build_root(YAML(typ="safe", pure=True).parse(self.text))
        except MarkedYAMLError as error:
            reason = " ".join(filter(None, (error.context, error.problem)))
            # What was not closed is noticed only at the end of the text: then the context, where it begins, says more
            # than the place of the problem. Either may be missing.
            unclosed = any(sign in reason for sign in _UNCLOSED)
            marks = [error.context_mark, error.problem_mark]
            if not unclosed:
                marks.reverse()
            mark = next(mark for mark in marks if mark is not None)
            place = TextPosition(mark.line + 1, mark.column + 1)
        except ReaderError as error:
            place = _find_end_position(self.text[: error.position])
            reason = f"character #x{error.character:02x} is not allowed in a text file"
        except (YAMLError, ValueError, OverflowError) as error:
            # such as "\U00110000", which is beyond Unicode
            place = TextPosition(1, 1)
            reason = str(error)
        hint = next((hint for sign, hint in _HINTS.items() if sign in reason), "")
        self.document.fail(place, f"not YAML: {' '.join(reason.split())}", hint)

    def _build_root(self, events: Iterator[Event]) -> _Node | None:
        """Build the tree of the only document in the text; None for an empty text.

        Raises InputError for a second document. A ``%YAML`` line with another version than 1.2 is noted as a mistake.
        """
        root: _Node | None = None
        for event in events:
            if isinstance(event, DocumentStartEvent):
                if root is not None:
                    self.document.fail(
                        _get_position(event),
                        "a second document",
                        "a sweep file holds one; remove the '---'",
                    )
                if event.version not in (None, (1, 2)):
                    self.document.add_text_mistake(
                        _get_position(event),
                        "asks for another YAML than 1.2",
                        "remove the %YAML line",
                    )
            elif isinstance(event, NodeEvent):
                root = self._build_node(event, events, 0)
        return root

    def _build_node(self, event: Event, events: Iterator[Event], depth: int) -> _Node:
        """Build the node that begins with an event, and the nodes in it, whose events are taken from ``events``.

        ``depth`` is the number of nodes around it. An alias gets a node with its own position and the content of its
        anchor. Raises InputError beyond `MAX_DEPTH`, and for an alias that cannot be resolved.
        """
        node = _Node(_get_position(event), None)
        if depth > MAX_DEPTH:
            self.document.fail(node.mark, f"nested deeper than {MAX_DEPTH} levels")
        if isinstance(event, AliasEvent):
            node.value = self._resolve_alias(event.anchor, node.mark).value
        elif isinstance(event, (ScalarEvent, CollectionStartEvent)):
            tag = self._check_tag(event, node.mark)
            # While the node is built, so that an alias to it from within is noticed.
            if event.anchor is not None:
                self.anchors[event.anchor] = None
            if isinstance(event, ScalarEvent):
                node.value = self._read_scalar(event, tag, node.mark)
            elif isinstance(event, MappingStartEvent):
                node.value = self._build_mapping(events, depth)
            else:
                node.value = self._build_list(events, depth)
            if event.anchor is not None:
                self.anchors[event.anchor] = node
        return node

    def _resolve_alias(self, anchor: str, mark: TextPosition) -> _Node:
        """Return the node that an alias refers to. Raises InputError if there is none, or if the alias is within it."""
        if anchor not in self.anchors:
            self.document.fail(mark, f"alias *{anchor} without an anchor &{anchor} above it")
        node = self.anchors[anchor]
        if node is None:
            self.document.fail(mark, f"alias *{anchor} inside its own anchor never ends")
        return node

    def _build_list(self, events: Iterator[Event], depth: int) -> list[_Node]:
        """Build the items of a list, whose events are taken from ``events`` up to its end."""
        items: list[_Node] = []
        while not isinstance(event := next(events), SequenceEndEvent):
            items.append(self._build_node(event, events, depth + 1))
        return items

    def _build_mapping(self, events: Iterator[Event], depth: int) -> _Pairs:
        """Build the pairs of a mapping, whose events are taken from ``events`` up to its end.

        Own keys take precedence over those of merge keys, and of these the last one. A key that is no text, or that
        appears again, is noted as a mistake and left out.
        """
        own: _Pairs = {}
        merged: _Pairs = {}
        while not isinstance(event := next(events), MappingEndEvent):
            key = self._build_node(event, events, depth + 1)
            begin = next(events)
            value = self._build_node(begin, events, depth + 1)
            if _is_nothing(begin):
                value.mark = key.mark  # the parser is at the next key already
            # In quotes, << is a key like others.
            if isinstance(event, ScalarEvent) and event.value == "<<" and event.style is None:
                merged |= self._read_merge_key(value)
            elif not isinstance(key.value, str):
                self.document.add_text_mistake(
                    key.mark, "a key that is not text", "put it in quotes"
                )
            elif key.value in own:
                first = own[key.value][0].line
                self.document.add_text_mistake(
                    key.mark, f"key {key.value!r} appears twice, first in line {first}"
                )
            else:
                own[key.value] = (key.mark, value)
        return merged | own

    def _read_merge_key(self, node: _Node) -> _Pairs:
        """Return the pairs of a merge key ``<<``: of one mapping, or of a list whose first mappings take precedence.

        Anything that is no mapping is noted as a mistake. Raises InputError if merge keys copy more than `MAX_VALUES`
        pairs in all.
        """
        merged: _Pairs = {}
        for part in node.value if isinstance(node.value, list) else [node]:
            if isinstance(part.value, dict):
                self.merged += len(part.value)
                if self.merged > MAX_VALUES:
                    self.document.fail(
                        part.mark, f"merge keys expand to more than {MAX_VALUES:,} values"
                    )
                merged = part.value | merged
            else:
                self.document.add_text_mistake(part.mark, "the merge key '<<' takes a mapping")
        return merged

    def _read_scalar(self, event: ScalarEvent, tag: str | None, mark: TextPosition) -> Scalar:
        """Return the value of a scalar, by its tag or its form; `resolve_scalar` says how.

        If its text does not fit, add a mistake and return the text. If YAML 1.1 reads the scalar differently, add the
        text and its value there to `otherwise` of the document, under the position ``mark``.
        """
        # A text in quotes, or over several lines, has a style: without a tag, it is always a text.
        if event.style and tag is None:
            tag_or_text: str | None = "str"
        else:
            tag_or_text = tag
        try:
            value = resolve_scalar(event.value, tag_or_text)
        except ValueError as error:
            self.document.add_text_mistake(mark, str(error))
            return str(event.value)
        if event.style or tag:
            value_1_1 = None
        else:
            value_1_1 = resolve_1_1(event.value)
        if value_1_1 not in (None, value):
            self.document.otherwise[mark] = event.value, value_1_1
        return value

    def _check_tag(
        self, event: ScalarEvent | CollectionStartEvent, mark: TextPosition
    ) -> str | None:
        """Return the tag of a node without its prefix, such as "int", or None if it has none.

        For a tag that is not allowed for a node of this kind, add a mistake and return None.
        """
        if event.tag is None:
            return None
        tag = str(event.tag).removeprefix(TAG_PREFIX)
        allowed = {
            MappingStartEvent: {"map"},
            SequenceStartEvent: {"seq"},
            ScalarEvent: TAGS - {"map", "seq"},
        }
        if tag in allowed[type(event)]:
            return tag
        self.document.add_text_mistake(
            mark, f"tag {tag!r} is not allowed here", "a sweep file is plain data; remove the tag"
        )
        return None


class _Expansion:
    """Converts a tree of nodes to plain data, copying what aliases refer to, and records the position of each value."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.values_left = MAX_VALUES  # how many may still be made

    def expand(self, node: _Node, path: KeyPath) -> Value:
        """Return the data of a node at the place ``path``, and record the positions of its keys and values.

        What several aliases refer to is copied for each of them. Raises InputError if the tree expands to more than
        `MAX_VALUES` values or `MAX_DEPTH` levels.
        """
        self.values_left -= 1
        if self.values_left < 0 or len(path) > MAX_DEPTH:
            if self.values_left < 0:
                bound = f"{MAX_VALUES:,} values"
            else:
                bound = f"{MAX_DEPTH} levels"
            self.document.fail(node.mark, f"anchors expand to more than {bound}")
        self.document.values[path] = node.mark
        if isinstance(node.value, list):
            return [self.expand(item, (*path, index)) for index, item in enumerate(node.value)]
        if isinstance(node.value, dict):
            for key, (mark, _) in node.value.items():
                self.document.keys[*path, key] = mark
            return {key: self.expand(item, (*path, key)) for key, (_, item) in node.value.items()}
        return node.value


def _is_nothing(event: Event) -> bool:
    """Return whether an event stands for a value that is not written, as after ``key:``; quotes or a tag write it."""
    return (
        isinstance(event, ScalarEvent)
        and not event.value
        and event.style is None
        and event.tag is None
    )


def _get_position(event: Event) -> TextPosition:
    """Return the position at which an event begins."""
    return TextPosition(event.start_mark.line + 1, event.start_mark.column + 1)


def _find_end_position(text: str) -> TextPosition:
    """Return the position just behind the last character of a text."""
    return TextPosition(text.count("\n") + 1, len(text) - text.rfind("\n"))


def format_documents(documents: Iterable[Mapping[str, object]]) -> str:
    """Format mappings of plain data as the documents of one YAML file; the order of keys is kept."""
    yaml = YAML(typ="safe", pure=True)
    target = io.StringIO()
    yaml.default_flow_style = False
    yaml.width = 4096  # long enough that no command is broken into lines
    yaml.representer.sort_base_mapping_type_on_output = False
    yaml.dump_all([*documents], target)
    return target.getvalue()


def make_document(given: Mapping[str, object], source: str) -> Document:
    """Convert a mapping to a document, as if read from a file; add mistakes for values that a file cannot contain.

    The document has no positions. Top-level keys that are no texts are converted to texts. ``source`` stands in
    messages in place of a file.
    """
    made = Document(source)
    for key, value in given.items():
        made.data[str(key)] = _convert_to_plain_value(value, (str(key),), made)
    return made


def _convert_to_plain_value(value: object, path: KeyPath, document: Document) -> Value:
    """Convert a Python value to the types of a sweep file; add a mistake and return None if that is not possible.

    NumPy scalars and arrays, paths, sets and sequences are converted, also within lists and mappings. Integers beyond
    64 bits and texts with half of a surrogate pair are not possible; a float is not checked. A key that is no text is a
    mistake at ``path``, and is converted to a text all the same.
    """
    to_python_scalar = getattr(value, "item", None)
    if callable(to_python_scalar) and getattr(value, "ndim", None) == 0:  # a NumPy scalar
        value = to_python_scalar()
    elif callable(getattr(value, "tolist", None)):
        value = value.tolist()  # type: ignore[attr-defined]  # an array
    match value:
        case None | bool() | float():  # before int, because a bool is one
            return value
        case int() | str():
            return _check_scalar(value, path, document)
        case PurePath():
            return os.fspath(value)
        case Mapping():
            keys_not_text = [key for key in value if not isinstance(key, str)]
            # the values are converted all the same, so that their mistakes are found as well
            if keys_not_text:
                document.add_mistake(
                    path, f"a key that is {shortened(repr(keys_not_text[0]), 60)}, expected text"
                )
            return {
                str(key): _convert_to_plain_value(inner, (*path, str(key)), document)
                for key, inner in value.items()
            }
        case Sequence() | range() | set() | frozenset() if not isinstance(value, bytes | bytearray):
            return [
                _convert_to_plain_value(inner, (*path, at), document)
                for at, inner in enumerate(value)
            ]
    kind = type(value).__name__
    document.add_mistake(
        path, f"a {kind}, expected what a sweep file can hold: texts, numbers, lists and mappings"
    )
    return None


def _check_scalar(value: int | str, path: KeyPath, document: Document) -> Value:
    """Return a number or text; add a mistake and return None if a sweep file cannot contain it.

    It cannot contain an integer beyond 64 bits, or half of a surrogate pair; in the text that is returned, the halves
    of a pair are joined.
    """
    try:
        if isinstance(value, str):
            return _join_surrogates(value)
        return _check_64_bits(value, str(value))
    except ValueError as error:
        document.add_mistake(path, str(error))
        return None


VARIABLE = "SWEEP_SET"
"""Environment variable with assignments, separated and quoted as in a shell: ``epochs=5 name='a b'``."""


def apply_assignments(assignments: Iterable[str], label: str, document: Document) -> None:
    """Set values in ``document.data`` by their dotted keys, in the given order; add mistakes to the document.

    ``assignments`` are texts such as ``budget.hours=8``, and ``label`` is what the user typed before them, such as
    ``--set``. Values are YAML, and None if there is nothing after the "="; missing levels are created. Assignments with
    mistakes are skipped. Messages show an assignment in place of the position of what it has set.
    """
    for assignment in assignments:
        typed = one_line(f"{label} {shortened(assignment, 60)}")
        key, separator, text = assignment.partition("=")
        if not separator or not key or "" in key.split("."):
            document.add_outside_mistake(
                typed, "expected key=value", "such as epochs=5 or metric.goal=minimize"
            )
            continue
        try:
            value = read_value(text, typed)
        except InputError as error:
            for problem in error.problems:
                document.add_outside_mistake(typed, problem.what, problem.hint)
            continue
        _assign_value(key.split("."), value, typed, document)


def split_assignments(text: str) -> list[str]:
    """Split the content of ``SWEEP_SET`` into assignments, as a shell does. Raises InputError for unbalanced quotes."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise InputError.one(VARIABLE, f"{text!r}: {error}", "quote it as in a shell") from None


def _count_key_parts(parts: Sequence[str], holder: Mapping[str, Value]) -> int:
    """Return how many of the first ``parts``, joined by dots, form the longest key in ``holder``; 1 if none do.

    A parameter with a dotted name is one key in the file. Of missing keys, the first part is taken as one.
    """
    for count in range(len(parts), 1, -1):
        if ".".join(parts[:count]) in holder:
            return count
    return 1


def _assign_value(parts: list[str], value: Value, typed: str, document: Document) -> None:
    """Set one value in ``document.data`` by the parts of its dotted key; add a mistake if a part leads nowhere.

    Levels that are missing or null are created. Within a list, a part is the index of an existing item.
    ``typed`` is the assignment as the user typed it, which messages show in place of the position of the value.
    """
    # The mapping or list at ``path``, in which the first of the parts that are left is looked up next.
    holder: Value = document.data
    path: KeyPath = ()
    while True:
        if isinstance(holder, dict):
            taken = _count_key_parts(parts, holder)  # several for a parameter whose name has dots
            key = ".".join(parts[:taken])
            parts = parts[taken:]
            path = (*path, key)
            if not parts:
                holder[key] = value
                break
            if holder.get(key) is None:  # a missing level, or one that is null
                holder[key] = {}
                document.override(path, typed)
            holder = holder[key]
        elif isinstance(holder, list) and parts[0].isdecimal() and int(parts[0]) < len(holder):
            index = int(parts[0])
            parts = parts[1:]
            path = (*path, index)
            if not parts:
                holder[index] = value
                break
            holder = holder[index]
        else:
            if isinstance(holder, list):
                expected = f"an index below {len(holder)}"
            else:
                expected = "a mapping"
            there = f"{format_path(path)} is {describe_value(holder)}, so {parts[0]!r} cannot be set in it"
            document.add_outside_mistake(typed, f"{there}, expected {expected}")
            return
    document.override(path, typed)
