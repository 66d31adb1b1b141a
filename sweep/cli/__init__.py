"""The command line: `commands` has the group of all commands, the other modules have the commands themselves."""

from sweep.cli.commands import main

__all__ = ["main"]
