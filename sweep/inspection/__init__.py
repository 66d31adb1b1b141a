"""What a trainable's source says without running it: its module and all that it imports except the standard library.

Importing the trainable would import TensorFlow. So `plan`, and every check before the first epoch, read the syntax
trees.
"""

from sweep.inspection.dependencies import importable
from sweep.inspection.import_closure import import_folder, inspect, inspect_given
from sweep.inspection.source import HERE, KERAS_TRAINABLE, Source

__all__ = ["HERE", "KERAS_TRAINABLE", "Source", "import_folder", "importable", "inspect", "inspect_given"]
