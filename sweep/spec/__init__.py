"""Sweep files: from text to a `Spec`, or to a list of all mistakes."""

from sweep.spec.json_schema import json_schema
from sweep.spec.loading import (
    find_trainable,
    load_spec,
    load_spec_with_text,
    make_spec,
    parse_spec,
    read_text,
)
from sweep.spec.resolved import Spec

__all__ = [
    "Spec",
    "find_trainable",
    "json_schema",
    "load_spec",
    "load_spec_with_text",
    "make_spec",
    "parse_spec",
    "read_text",
]
