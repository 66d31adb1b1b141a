"""What a trainable's source says without running it: its module and all that it imports except the standard library.

Importing the trainable would import TensorFlow. So `plan`, and every check before the first epoch, read the syntax
trees.
"""

from sweep.inspection.dependencies import get_import_target
from sweep.inspection.import_closure import find_import_folder, inspect, inspect_object
from sweep.inspection.source import HERE, KERAS_TRAINABLE, Source

__all__ = ["HERE", "KERAS_TRAINABLE", "Source", "find_import_folder", "get_import_target", "inspect", "inspect_object"]
