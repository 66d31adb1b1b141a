"""What a command tells, as JSON for programs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from enum import Enum
from pathlib import Path

from msgspec import Struct

from sweep.store.records import plain


def document(value: object) -> str:
    """Return indented JSON of records, enumerations, paths and plain values; NaN and infinities are texts."""
    return json.dumps(plain(_simple(value)), indent=2)


def _simple(value: object) -> object:
    """``value`` in the types of JSON; what is none of its types stays, for `plain` to refuse."""
    if isinstance(value, Struct):
        return {name: _simple(getattr(value, name)) for name in value.__struct_fields__}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _simple(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(_simple(name)): _simple(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_simple(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    return str(value) if isinstance(value, Path) else value
