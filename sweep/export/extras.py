"""Libraries that only some need, and what to do where one is missing."""

from __future__ import annotations

from importlib import import_module, metadata
from types import ModuleType

from sweep.errors import InputError
from sweep.version import DISTRIBUTION


def load(module: str, package: str, extra: str) -> ModuleType:
    """A module of a package that comes with one of sweep's extras. Raises `InputError` where it is not installed."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or module
        what = f"is not installed{'' if missing == module.partition('.')[0] else f' ({missing} is missing)'}"
        raise InputError.one(package, what, f'pip install "{DISTRIBUTION}[{extra}]"') from error


def version(package: str) -> str:
    """The version of an installed package."""
    return metadata.version(package)
