"""What a trainable's source says without running it: that it exists, what it reads, what it is made of."""

from sweep.inspection.source import Source, inspect

__all__ = ["Source", "inspect"]
