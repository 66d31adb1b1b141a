"""What a trainable's source says without running it: that it exists, what it reads, what it is made of."""

from sweep.inspection.definitions import importable
from sweep.inspection.source import HERE, KERAS_TRAINABLE, Source, inspect, inspect_given

__all__ = ["HERE", "KERAS_TRAINABLE", "Source", "importable", "inspect", "inspect_given"]
