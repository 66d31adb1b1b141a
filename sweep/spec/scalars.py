"""What a YAML scalar is: the core schema of YAML 1.2, section 10.3, with finite numbers of 64 bits only."""

from __future__ import annotations

import math
import re
from typing import TypeAlias

from sweep.errors import shortened

Scalar: TypeAlias = str | int | float | bool | None

TAG_PREFIX = "tag:yaml.org,2002:"
TAGS = {"bool", "float", "int", "map", "null", "seq", "str"}
"""The tags of the schema, all harmless; W&B's documentation recommends ``!!float 1e-5``."""

_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_NULLS = {"", "~", "null", "Null", "NULL"}
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SPECIAL = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_BASES = {"0o": 8, "0x": 16}
_SURROGATE = re.compile("[\ud800-\udfff]")


def resolve(text: str, tag: str | None) -> Scalar:
    """The value that a text stands for: by its tag, or by its form if it has none.

    Raises ``ValueError`` with a message for the user.
    """
    match tag:
        case "str":
            return _text(text)
        case None | "null" if text in _NULLS:
            return None
        case None | "bool" if text in _BOOLS:
            return _BOOLS[text]
        case None | "int" if _INT.fullmatch(text):
            return _int(text)
        case None | "float" if _FLOAT.fullmatch(text) or _SPECIAL.fullmatch(text):
            return _float(text)
        case None:
            return _text(text)
    raise ValueError(f"{shortened(text, 30)!r} is no {tag}")


def _int(text: str) -> int:
    # Python takes quadratic time for long numbers.
    if len(text) > 30 or abs(number := int(text, _BASES.get(text[:2], 10))) >= 2**63:
        raise ValueError(f"{shortened(text, 30)} does not fit into 64 bits")
    return number


def _float(text: str) -> float:
    if _SPECIAL.fullmatch(text) or math.isinf(number := float(text)):
        raise ValueError(f"{shortened(text, 30)} is not a finite number")
    return number


def _text(text: str) -> str:
    if _SURROGATE.search(text):  # JSON writes characters beyond 16 bits as two escapes
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        if "\ufffd" in text:
            raise ValueError("half of a surrogate pair in a text")
    return text
