"""Reads the keys and values of a sweep file while it is being typed, and finds what is at the cursor.

The reader of sweep files refuses a text that is not valid YAML. An editor needs answers while a bracket is open or a
colon is missing, so this reader accepts any text: block and flow style, comments and quotes. It never raises.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from sweep.spec.validation import KeyPath

Kind: TypeAlias = Literal["key", "value", "item"]

MAX_DEPTH = 50  # depth of brackets and of items in a line; deeper ones are not read
MAX_CHARACTERS = 300_000  # length of the longest text that is read

_BLOCK_KEY = re.compile(
    r"""(?P<key>"(?:[^"\\\n]|\\.)*"[ \t]*|'(?:[^'\n]|'')*'[ \t]*"""
    r"""|[^\s'"\[\]{},#&*!|>%@`](?:(?!\s\#)[^\n:]|:(?!\s|$))*):(?=\s|$)"""
)
_WORD = re.compile(r"[A-Za-z_][\w.-]*[ \t]*")  # a word that may become a key
_ANCHORS_AND_TAGS = re.compile(r"(?:[&!][^\s,\[\]{}]*[ \t]+)+")  # anchors and tags before a value
_QUOTED_LINES = re.compile(r""""(?:[^"\\]|\\.)*"|'(?:[^']|'')*'""", re.DOTALL)
_QUOTED = re.compile(r""""(?:[^"\\\n]|\\.)*("|(?=\n|$))|'(?:[^'\n]|'')*('|(?=\n|$))""")
_PLAIN_IN_BLOCK = re.compile(r"(?:(?!\s\#)[^\n])*")
_PLAIN_IN_FLOW = re.compile(r"(?:(?!\s\#|:(?:[\s,\[\]{}]|$))[^,\[\]{}\n])*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What can be typed at the cursor, and where in the file's structure it belongs.

    ``path`` is the path of the mapping that a key belongs to, or the path of a value. An item of a block list may be a
    value, or be the first key of a mapping. ``start`` and ``end`` are the offsets of the text that a proposal replaces.
    """

    kind: Kind
    path: KeyPath
    start: int
    end: int
    key: str = ""  # the key that is there already, with its colon
    in_quotes: bool = False
    in_flow: bool = False
    # whether a space must be put before the value, which would touch the colon
    needs_space: bool = False


@dataclass(slots=True)
class Outline:
    """The keys and values of the text of a sweep file, and what can be typed at the cursor.

    ``values`` has the text of each scalar as it is written, by its path, and "" for all other values.
    """

    text: str
    cursor: int
    values: dict[KeyPath, str] = field(default_factory=dict)
    place: Place | None = None

    @property
    def typed(self) -> str:
        """The part of the word at the cursor that stands before the cursor; "" if nothing can be typed there."""
        return "" if self.place is None else self.text[self.place.start : self.cursor]

    def list_keys(self, path: KeyPath) -> list[str]:
        """Return the keys of the mapping at a path, in their order; [] if there is none."""
        return [
            inner[-1]
            for inner in self.values
            if inner[:-1] == path and inner and isinstance(inner[-1], str)
        ]

    def list_items(self, path: KeyPath) -> list[str]:
        """Return the scalars directly below a path, of a list or of a mapping, as they are written.

        Lists, mappings and missing values are left out.
        """
        return [
            text for inner, text in self.values.items() if inner[:-1] == path and inner and text
        ]

    def find_scalar(self, path: KeyPath) -> str:
        """Return the scalar at a path without its quotes; "" for a missing value, a list or a mapping."""
        return remove_quotes(self.values.get(path, ""))


def remove_quotes(text: str) -> str:
    """Return a scalar without the quotes around it, even if the closing one is missing; escapes in it stay."""
    if text[:1] in ("'", '"'):
        return text[1:-1] if len(text) > 1 and text[-1] == text[0] else text[1:]
    return text


def read_outline(text: str, cursor: int) -> Outline:
    """Return the outline of a text, which may be unfinished YAML; ``cursor`` is an offset in characters.

    An offset outside of the text counts as its beginning or end. A text of more than 300,000 characters is not read:
    its outline has no values, and nothing can be typed at the cursor. Never raises an error.
    """
    outline = Outline(text, min(max(cursor, 0), len(text)))
    if len(text) <= MAX_CHARACTERS:
        _Reader(outline).read()
    return outline


@dataclass(frozen=True, slots=True)
class _Level:
    """A key or a list item of a block that encloses the present line."""

    column: int
    path: KeyPath
    is_item: bool


class _Unclosed(Exception):
    """Raised if a bracket is not closed before the next key of the block around it, which begins at ``at``."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.at = at


class _Reader:
    """Reads a text into an outline: blocks line by line, brackets character by character."""

    def __init__(self, outline: Outline) -> None:
        self._outline = outline
        self._text, self._cursor = outline.text, outline.cursor
        self._levels = [_Level(-1, (), is_item=False)]
        self._item_counts: dict[KeyPath, int] = {}  # number of items of each list so far
        # column of the key whose text goes on in deeper lines, after | or >
        self._text_block_column: int | None = None
        self._brackets_column = 0  # column of the key before the brackets

    def read(self) -> None:
        """Read the whole text into the outline."""
        at = 0
        while at <= len(self._text):
            at = self._read_line(at)

    # ---- blocks ----

    def _read_line(self, start: int) -> int:
        """Read the line that begins at ``start`` and further lines of its value; return where the next line begins."""
        end = self._find_line_end(start)
        content = start  # after the indentation
        while content < end and self._text[content] == " ":
            content += 1
        column = content - start
        # A blank line comes first: it may be part of a text after `|`, or the place of the next key.
        if content == end:
            self._record_blank_line(start, end)
            return end + 1
        # A deeper line belongs to the text after `|` or `>`; any other line ends that text.
        if self._text_block_column is not None and column > self._text_block_column:
            return end + 1
        self._text_block_column = None
        # Comments, directives, and lines between documents; a tab cannot indent in YAML.
        if self._text[content] in "#%\t" or self._text.startswith(("---", "..."), start):
            return end + 1
        at = content
        # A line may open several lists, as "- - a" does.
        while (
            self._text[at] == "-"
            and (at + 1 == end or self._text[at + 1] == " ")
            and len(self._levels) < MAX_DEPTH
        ):
            self._open_item(at - start)
            dash = at
            at += 1
            while at < end and self._text[at] == " ":
                at += 1
            if at == end:
                self._record_empty_item(dash, end)
                return end + 1
        return self._read_entry(at, end, at - start)

    def _find_line_end(self, start: int) -> int:
        """Return where the line at an offset ends: the offset of its line feed, or the end of the text."""
        end = self._text.find("\n", start)
        return len(self._text) if end < 0 else end

    def _record_blank_line(self, start: int, end: int) -> None:
        """Record the place of the cursor if it is in the blank line from ``start`` to ``end``: a key can begin there.

        Its column is that of the cursor. In a text of several lines after ``|`` or ``>``, there is no such place.
        """
        if not start <= self._cursor <= end:
            return
        column = self._cursor - start
        # deeper than the key before `|` or `>`: within its text
        if self._text_block_column is not None and column > self._text_block_column:
            return
        path = self._find_parent(column)
        self._record_place(kind="key", path=path, start=self._cursor, end=self._cursor)

    def _find_parent(self, column: int) -> KeyPath:
        """Return the path of the mapping that a key in the column ``column`` of the present line would belong to.

        It is () for the top level.
        """
        return next(level.path for level in reversed(self._levels) if level.column < column)

    def _open_item(self, column: int) -> None:
        """Enter the list item whose dash is in the column ``column``, after leaving the blocks that end before it.

        The item is added to the outline, with "" as its value if it has none there yet.
        """
        # A key in the same column stays open: its list need not be indented.
        while self._levels[-1].column > column or (
            self._levels[-1].column == column and self._levels[-1].is_item
        ):
            self._levels.pop()
        parent = self._levels[-1].path
        number = self._item_counts.get(parent, 0)
        self._item_counts[parent] = number + 1
        path = (*parent, number)
        self._outline.values.setdefault(path, "")
        self._levels.append(_Level(column, path, is_item=True))

    def _record_empty_item(self, dash: int, end: int) -> None:
        """Record the place of the cursor if it is after a dash without a value, in the same line.

        ``dash`` is the offset of the dash, ``end`` that of the end of its line.
        """
        if dash < self._cursor <= end:
            space = self._cursor == dash + 1  # directly after the dash
            path = self._levels[-1].path  # of the item, which has just been entered
            self._record_place(
                kind="item", path=path, start=self._cursor, end=self._cursor, needs_space=space
            )

    def _read_entry(self, at: int, end: int, column: int) -> int:
        """Read a key with its value, a value in a list, or an unfinished word; return where the next line begins.

        It begins at ``at``, in the column ``column`` of the line that ends at ``end``.
        """
        found = _BLOCK_KEY.match(self._text, at, end)
        if found is None:
            return self._read_word(at, end, column)
        while self._levels[-1].column >= column:  # blocks that end before this key
            self._levels.pop()
        parent, written = self._levels[-1].path, found["key"].rstrip()
        key = remove_quotes(written)
        path = (*parent, key)
        self._outline.values.setdefault(path, "")
        self._levels.append(_Level(column, path, is_item=False))
        self._record_key(parent, key, at, at + len(written), in_flow=False)
        return self._read_value(path, found.end(), end, column)

    def _read_word(self, at: int, end: int, column: int) -> int:
        """Read a value in a list, brackets in a line of their own, or an unfinished word.

        It begins at ``at``, in the column ``column`` of the line that ends at ``end``. Only a value is added to the
        outline; an unfinished word is the place of a key. Returns where the next line begins.
        """
        top = self._levels[-1]  # the innermost key or item around it
        # The dash must be in this line: a word in a later line belongs to no item, and may become a key.
        is_item = top.is_item and top.column < column and self._has_dash_in_line(at, top.column)
        if self._text[at] in "[{":
            path = top.path if is_item else self._find_parent(column)
            return self._read_brackets(path, at, column)
        word_end = self._find_scalar_end(at, _PLAIN_IN_BLOCK)
        if is_item:
            self._outline.values[top.path] = self._text[at:word_end]
            self._record_word("item", top.path, at, word_end, in_flow=False)
            return self._find_last_line_end(at, end, top.column) + 1
        self._record_word("key", self._find_parent(column), at, word_end, in_flow=False)
        return end + 1

    def _has_dash_in_line(self, at: int, column: int) -> bool:
        """Return whether the line of the offset ``at`` has a dash in the column ``column``, which it must reach."""
        start = self._text.rfind("\n", 0, at) + 1
        return self._text[start + column] == "-"

    def _read_value(self, path: KeyPath, after_colon: int, end: int, column: int) -> int:
        """Read the value after a colon; return where the next line begins.

        ``path`` is its path, ``end`` the end of the line, ``column`` the column of the key. If the value is missing and
        the cursor is there, record the place where a value may be proposed.
        """
        at = after_colon
        while at < end and self._text[at] in " \t":
            at += 1
        anchors_and_tags = _ANCHORS_AND_TAGS.match(self._text, at, end)
        if anchors_and_tags:
            at = anchors_and_tags.end()
        if at == end or self._text[at] == "#":
            first = at if anchors_and_tags else after_colon  # a value comes after its anchor or tag
            if first <= self._cursor <= at:
                space = self._text[self._cursor - 1] not in " \t"  # it is directly after the colon
                self._record_place(
                    kind="value", path=path, start=self._cursor, end=self._cursor, needs_space=space
                )
            return end + 1
        if self._text[at] in "[{":
            return self._read_brackets(path, at, column)
        # the value is the text in the lines below: nothing is proposed in it
        if self._text[at] in "|>":
            self._text_block_column = column
            return end + 1
        value_end = self._find_scalar_end(at, _PLAIN_IN_BLOCK)
        self._outline.values[path] = self._text[at:value_end]
        self._record_word("value", path, at, value_end, in_flow=False)
        return self._find_last_line_end(at, end, column) + 1

    def _find_scalar_end(self, at: int, plain: re.Pattern[str]) -> int:
        """Return where the scalar at an offset ends in its line, without trailing spaces and comments.

        ``plain`` matches one without quotes, and so decides which characters end it. One that begins with a quote ends
        after the closing quote, or else with its line. Returns the offset itself if no scalar begins there.
        """
        found = (_QUOTED if self._text[at] in "'\"" else plain).match(self._text, at)
        return at + len(found[0].rstrip(" \t\r")) if found else at

    def _find_last_line_end(self, at: int, end: int, column: int) -> int:
        """Return where the last line of the scalar at an offset ends: ``end``, unless it is quoted over several lines.

        ``end`` is the end of its first line. The further lines of a quoted scalar are indented further than ``column``;
        if they are not, its closing quote has not been typed yet, and ``end`` is returned, too.
        """
        found = _QUOTED_LINES.match(self._text, at)
        if found is None:
            return end
        for line in found[0].split("\n")[1:]:
            indentation = len(line) - len(line.lstrip(" "))
            if line.strip(" \t\r") and indentation <= column:
                return end
        return self._find_line_end(found.end())

    # ---- brackets ----

    def _read_brackets(self, path: KeyPath, at: int, column: int) -> int:
        """Read the value in brackets at the offset ``at``, whose path is ``path``; return where the next line begins.

        ``column`` is that of the key before the value, or of the value itself if there is none. A bracket that is not
        closed ends before the next key or list item that is not indented further than that.
        """
        self._brackets_column = column
        try:
            closed = self._read_node(path, at, 0)
        except _Unclosed as unclosed:
            return unclosed.at
        return self._find_line_end(closed) + 1

    def _read_node(self, path: KeyPath, at: int, depth: int) -> int:
        """Read the value at the offset ``at``, within brackets, into the outline; return the offset where it ends.

        ``path`` is the value's path: a scalar is stored there, and what is in a mapping or list at paths below it. If
        the cursor is in the value, its place is recorded. The end is always after ``at``. Values in more than 50
        brackets are not read: the end of the text is returned. Raises `_Unclosed` if a bracket is still open at a line
        that looks like a key or an item of the outer block; one that is open at the end of the text ends there.
        """
        if depth > MAX_DEPTH:
            return len(self._text)
        if self._text[at] == "{":
            return self._read_mapping(path, at + 1, depth)
        if self._text[at] == "[":
            return self._read_list(path, at + 1, depth)
        end = self._find_scalar_end(at, _PLAIN_IN_FLOW)
        self._outline.values[path] = self._text[at:end]
        self._record_word("value", path, at, end, in_flow=True)
        return max(end, at + 1)

    def _read_mapping(self, path: KeyPath, at: int, depth: int) -> int:
        """Read the pairs of a mapping in braces into the outline, below ``path``; return the offset where it ends.

        The opening brace is before the offset ``at``. Raises `_Unclosed` as `_read_node` does.
        """
        while True:
            begin, at = at, self._skip_blanks(at)
            self._record_gap("key", path, begin, at, after="{,")
            if at == len(self._text):
                return at
            if self._text[at] in "}]":  # a wrong bracket closes it, too, as one that is mistyped
                return at + 1
            if self._text[at] in ",:[{":  # between two pairs, or a mistake: no key begins so
                at += 1
                continue
            at = self._read_pair(path, at, depth)

    def _read_pair(self, path: KeyPath, at: int, depth: int) -> int:
        """Read a key within braces with its value, or an unfinished word; return the offset where it ends.

        It begins at the offset ``at``; ``path`` is the path of the mapping. Raises `_Unclosed` as `_read_node` does.
        """
        end = self._find_scalar_end(at, _PLAIN_IN_FLOW)
        key = remove_quotes(self._text[at:end])
        colon = self._skip_spaces(end)
        if not self._text.startswith(":", colon):  # the key is still being typed
            self._record_word("key", path, at, end, in_flow=True)
            return max(end, at + 1)  # always further, even if the character at `at` begins no word
        self._record_key(path, key, at, end, in_flow=True)
        inner = (*path, key)
        self._outline.values.setdefault(inner, "")
        begin = colon + 1
        value = self._skip_blanks(begin)
        anchors_and_tags = _ANCHORS_AND_TAGS.match(self._text, value)
        if anchors_and_tags:
            value = anchors_and_tags.end()
        if value == len(self._text) or self._text[value] in ",}]":
            self._record_gap("value", inner, begin, value, after=":")
            return value
        return self._read_node(inner, value, depth + 1)

    def _read_list(self, path: KeyPath, at: int, depth: int) -> int:
        """Read the items of a list in brackets into the outline, below ``path``; return the offset where it ends.

        The opening bracket is before the offset ``at``. Raises `_Unclosed` as `_read_node` does.
        """
        number = 0
        while True:
            begin, at = at, self._skip_blanks(at)
            inner = (*path, number)
            self._record_gap("value", inner, begin, at, after="[,")
            if at == len(self._text):
                return at
            if self._text[at] in "]}":  # a wrong bracket closes it, too, as one that is mistyped
                return at + 1
            if self._text[at] == ",":
                number += 1
                at += 1
                continue
            at = self._read_node(inner, at, depth + 1)

    def _skip_spaces(self, at: int) -> int:
        """Return the offset of the next character, from ``at`` on, that is no space or tab."""
        while at < len(self._text) and self._text[at] in " \t":
            at += 1
        return at

    def _skip_blanks(self, at: int) -> int:
        """Return the offset of the next character within brackets, from ``at`` on, after blanks and comments.

        Line feeds are blanks, too. Returns the length of the text if nothing else follows. Raises `_Unclosed` at a line
        that looks like a key or an item of the outer block.
        """
        while at < len(self._text):
            if self._text[at] == "#" and (at == 0 or self._text[at - 1] in " \t\n"):
                at = self._find_line_end(at)
            elif self._text[at] == "\n":
                self._check_closed(at + 1)
                at += 1
            elif self._text[at] in " \t\r":
                at += 1
            else:
                break
        return at

    def _check_closed(self, start: int) -> None:
        """Raise `_Unclosed` if the line that begins at ``start`` looks like a key or an item of the outer block.

        Such a line is not indented further than the key before the brackets, and begins with a key or a dash, or is a
        single word.
        """
        content = self._skip_spaces(start)
        if content - start > self._brackets_column:  # such lines belong to the brackets
            return
        if self._text[content : content + 1] in ("", "\n", "#"):  # these tell nothing
            return
        end = self._find_line_end(content)
        is_item = self._text.startswith("- ", content)
        is_key = _BLOCK_KEY.match(self._text, content, end) is not None
        if is_item or is_key or _WORD.fullmatch(self._text, content, end):
            raise _Unclosed(start)

    # ---- what is at the cursor ----

    def _record_place(
        self,
        *,
        kind: Kind,
        path: KeyPath,
        start: int,
        end: int,
        in_flow: bool = False,
        needs_space: bool = False,
    ) -> None:
        """Store what can be typed at the cursor as the outline's place, instead of any other; see `Place`."""
        self._outline.place = Place(
            kind=kind, path=path, start=start, end=end, in_flow=in_flow, needs_space=needs_space
        )

    def _record_gap(self, kind: Kind, path: KeyPath, begin: int, end: int, *, after: str) -> None:
        """If the cursor is in the blanks from ``begin`` to ``end``, and not in a comment there, record its place.

        The character before the blanks must be one of the characters in ``after``; otherwise nothing is recorded.
        ``path`` is that of the mapping of a key, or of the value.
        """
        if not begin <= self._cursor <= end or self._text[begin - 1] not in after:
            return
        # In the part of the cursor's line that belongs to the blanks, a `#` begins a comment.
        line = self._text[self._text.rfind("\n", 0, self._cursor) + 1 : self._cursor]
        if "#" in line[max(0, len(line) - (self._cursor - begin)) :]:
            return
        space = after == ":" and self._cursor == begin  # the value would touch the colon
        self._record_place(
            kind=kind,
            path=path,
            start=self._cursor,
            end=self._cursor,
            in_flow=True,
            needs_space=space,
        )

    def _record_key(
        self, parent: KeyPath, key: str, start: int, end: int, *, in_flow: bool
    ) -> None:
        """If the cursor is in or at an end of the key from ``start`` to ``end``, record its place.

        ``parent`` is the path of its mapping, ``key`` the key without quotes.
        """
        if start <= self._cursor <= end:
            self._outline.place = Place(
                kind="key", path=parent, start=start, end=end, key=key, in_flow=in_flow
            )

    def _record_word(
        self, kind: Kind, path: KeyPath, start: int, end: int, *, in_flow: bool
    ) -> None:
        """If the cursor is in or at an end of the word from ``start`` to ``end``, record its place.

        ``path`` is that of the mapping of a key, or of the value. Within quotes, only the text between them is
        replaced; a cursor on the outer side of a quote has no place.
        """
        in_quotes = self._text[start : start + 1] in ("'", '"')
        if in_quotes:
            quote = self._text[start]
            start += 1
            # otherwise the closing quote has not been typed yet
            if end > start and self._text[end - 1] == quote:
                end -= 1
        if not start <= self._cursor <= end:
            return
        self._outline.place = Place(
            kind=kind, path=path, start=start, end=end, in_quotes=in_quotes, in_flow=in_flow
        )
