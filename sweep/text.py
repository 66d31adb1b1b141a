"""Formatting of numbers, times, names and foreign text for people, and suggestions for misspelled names."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime

# escape sequences of terminals
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(\x07|\x1b\\)|\x1b[@-Z\\^_]|\x9b[0-?]*[ -/]*[@-~]"
)


def printable(text: str) -> str:
    """Remove terminal escape sequences from a text, and escape other unprintable characters except newline and tab."""
    return escaped(_ESCAPES.sub("", text), "\n\t")


def escaped(text: str, kept: str = "") -> str:
    """Escape every unprintable character of a text with a backslash, as Python does, except those in ``kept``.

    Line breaks and tabs are unprintable; backslashes of the text stay as they are.
    """
    characters = []
    for character in text:
        if character.isprintable() or character in kept:
            characters.append(character)
        else:
            characters.append(character.encode("unicode_escape").decode())
    return "".join(characters)


def encodable(text: str, encoding: str = "utf-8") -> str:
    """Escape with a backslash the characters that an encoding cannot write, such as half a surrogate pair.

    All other characters stay. Raises LookupError for an unknown encoding.
    """
    return text.encode(encoding, "backslashreplace").decode(encoding)


def counted(count: int, noun: str) -> str:
    """Format a count with its noun: ``1 epoch``, ``1,200 epochs``. The plural is the noun with an s."""
    if count == 1:
        return f"{count} {noun}"
    return f"{count:,} {noun}s"


def percent(share: float) -> str:
    """Format a share as a percentage without decimals: ``56 %``."""
    return f"{100 * share:.0f} %"


def join_words(words: Sequence[str], last: str) -> str:
    """Join words for a sentence: ``tpe, gp or nsga2`` if ``last`` is "or"; a single word is returned as it is.

    Raises ValueError for no words.
    """
    *others, final = words
    if others:
        return f"{', '.join(others)} {last} {final}"
    return final


def numbered(numbers: Iterable[int], between: str = ", ", to: str = " to ") -> str:
    """Format distinct numbers in ascending order: ``3, 5``; three or more that are all consecutive as ``3 to 6``.

    ``between`` and ``to`` replace the comma and the word. Return "" for no numbers.
    """
    found = sorted(numbers)
    is_consecutive = len(found) > 2 and found[-1] - found[0] == len(found) - 1
    if is_consecutive:
        return f"{found[0]}{to}{found[-1]}"
    return between.join(map(str, found))


def trials_named(numbers: Collection[int]) -> str:
    """Format distinct trial numbers, at least one, in ascending order: ``trial 3``, ``trials 3, 5``, ``trials 3 to 6``.

    The short form with "to" is for three or more that are all consecutive.
    """
    if len(numbers) == 1:
        return f"trial {numbered(numbers)}"
    return f"trials {numbered(numbers)}"


# from here on, four digits round a number to 1e4, which Python formats with an exponent
LARGEST_SHORT = 9999.5


def figure(value: float) -> str:
    """Format a number with four significant digits, or as a whole number from 1e4 to 1e9.

    Zeros at the end of decimals are left out. Smaller numbers than 1e-4 and larger ones than 1e9 have an exponent.
    Numbers that are not finite are ``nan``, ``inf`` and ``-inf``.
    """
    if not math.isfinite(value):
        return str(value)
    if LARGEST_SHORT <= abs(value) < 1e9:
        return f"{value:.0f}"
    return f"{value:.4g}"


def score(value: float | None) -> str:
    """Format a number with four significant digits including trailing zeros, so that columns are easy to compare.

    Numbers whose absolute value is below 1e-4 or rounds to 1e4 or more, and those that are not finite, are formatted by
    `figure`. Returns "" for None.
    """
    if value is None:
        return ""
    if math.isfinite(value) and 1e-4 <= abs(value) < LARGEST_SHORT:
        return f"{value:#.4g}"
    return figure(value)


def money(amount: float) -> str:
    """Format an amount with two decimals, or with two significant digits if it is below a tenth: ``0.50``, ``0.0042``.

    Thousands are separated by commas. Less than a hundredth of a cent is ``< 0.0001``, but 0 and negative amounts have
    two decimals.
    """
    if 0 < amount < 1e-4:
        return "< 0.0001"
    if 0 < amount < 0.0995:  # from there on, two decimals are enough
        return f"{amount:.2g}"
    return f"{amount:,.2f}"


def format_setting(value: object) -> str:
    """Format a hyperparameter's value for a table or a line; line breaks and the like in a text are escaped.

    Floats have four significant digits; other values that are not texts are written as JSON.
    """
    if type(value) is float:
        return figure(value)
    if isinstance(value, str):
        return escaped(value)
    return json.dumps(value)


def format_settings(params: Mapping[str, object], names: Iterable[str]) -> str:
    """Format those of ``params`` that are in ``names``: ``learning_rate=0.001 augmentation=low``.

    They are in the order of ``names``, of which some may be missing. Values are formatted by `format_setting`. Returns
    "" if there are none.
    """
    return " ".join(f"{name}={format_setting(params[name])}" for name in names if name in params)


def duration(seconds: float) -> str:
    """Format a duration: ``1.9 s``, ``3 min 20 s``, ``2 h 05 min``, ``3 d 4 h``.

    It is rounded to a second from a minute on; the smaller of the two units is rounded down from an hour on. Days are
    used from 48 hours on.
    """
    if seconds < 59.95:  # from there on, one decimal would show 60.0
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02} min"
    return f"{hours // 24} d {hours % 24} h"


def roughly(seconds: float) -> str:
    """Format an estimated duration as `duration` does, but in whole seconds, at least 1, below a minute.

    ``about 45 s``, ``about 3 min 23 s``, ``about 2 h 05 min``
    """
    if seconds >= 59.95:  # from there on, `duration` has minutes
        return f"about {duration(seconds)}"
    return f"about {max(round(seconds), 1)} s"


def moment(time: float) -> str:
    """Format a time in seconds since 1970 in UTC, to the minute: ``2026-01-31 09:05 UTC``."""
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M UTC")


def in_one_line(text: str) -> str:
    """Replace each line feed and each tab of a text, with all whitespace around it, by one blank."""
    return re.sub(r"\s*[\n\t]\s*", " ", text)


def shortened(text: str, length: int = 300) -> str:
    """Shorten a text to at most ``length`` characters; a longer one is cut and ends in ``...``.

    It is cut after a word, or within a very long one.
    """
    if len(text) <= length:
        return text
    room = length - len("...")
    # one character more: a word may end exactly at ``room``
    words = text[: room + 1].rpartition(" ")[0].rstrip()
    # The text is cut within a word if that is so long that less than half of the room would be used otherwise.
    if len(words) <= room // 2:
        return f"{text[:room]}..."
    return f"{words}..."


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to ``name``; None if none is similar.

    Similar is one with a ratio of at least 0.6 in `difflib`. Upper and lower case differ.
    """
    matches = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.6)
    if not matches:
        return None
    return matches[0]


def is_typo(name: str, meant: str) -> bool:
    """Return whether ``name`` may be ``meant`` with one letter wrong, missing or too much, or two letters swapped.

    Equal texts count, too.
    """
    # what is left of both without the letters that they have in common at the beginning and at the end
    start = _count_same_letters(name, meant)
    one, other = name[start:], meant[start:]
    end = _count_same_letters(one[::-1], other[::-1])
    one, other = one[: len(one) - end], other[: len(other) - end]
    are_swapped = len(one) == 2 and one[::-1] == other
    return are_swapped or max(len(one), len(other)) <= 1


def _count_same_letters(one: str, other: str) -> int:
    """Return how many letters two texts have in common at their beginning."""
    count = 0
    for letter, other_letter in zip(one, other, strict=False):
        if letter != other_letter:
            break
        count += 1
    return count


def guess(name: str, known: Iterable[str]) -> str:
    """Return the hint ``did you mean 'NAME'?`` with the known name most like ``name``, or "" if none is similar."""
    near = nearest(name, known)
    if not near:
        return ""
    return f"did you mean {near!r}?"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the hint ``did you mean 'NAME'?`` with the known name most similar to ``name``.

    If none is similar, return ``known: A, B`` with all known names in order; "" if ``known`` is empty.
    """
    known = sorted(known)
    if not known:
        return ""
    return guess(name, known) or f"known: {', '.join(known)}"


def parse_percent(text: str) -> float:
    """Convert a text such as ``20%`` or ``20`` to a fraction: 0.2. Raises ValueError if it is not a number."""
    return float(text.rstrip("% ")) / 100
