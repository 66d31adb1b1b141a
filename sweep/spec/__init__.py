"""Sweep files: from text to a `Spec`, or to a list of all mistakes."""

from sweep.spec.json_schema import json_schema
from sweep.spec.loading import load, load_with_text, of_mapping, parse_sweep
from sweep.spec.resolved import Spec

__all__ = ["Spec", "json_schema", "load", "load_with_text", "of_mapping", "parse_sweep"]
