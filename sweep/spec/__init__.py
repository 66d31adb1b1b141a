"""The sweep file: read, checked and resolved into a `Spec`."""

from sweep.spec.models import Spec
from sweep.spec.parser import load, load_with_text, of_mapping, parse
from sweep.spec.schema import json_schema

__all__ = ["Spec", "json_schema", "load", "load_with_text", "of_mapping", "parse"]
