"""The command line; each command's module imports what it needs when it runs."""

from sweep.cli.main import main

__all__ = ["main"]
