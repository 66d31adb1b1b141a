"""Reads the source of a trainable without running it: its module and all modules that it imports.

The standard library is left out. Importing the trainable would import TensorFlow, so `plan` and all checks before the
first epoch read the syntax trees instead.
"""

from sweep.inspection.dependencies import get_import_target
from sweep.inspection.import_closure import (
    find_import_folder,
    inspect,
    inspect_object,
    list_early_imports,
)
from sweep.inspection.source import HERE, KERAS_TRAINABLE, Source

__all__ = [
    "HERE",
    "KERAS_TRAINABLE",
    "Source",
    "find_import_folder",
    "get_import_target",
    "inspect",
    "inspect_object",
    "list_early_imports",
]
