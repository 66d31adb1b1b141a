"""Finds the folders of sweeps by their names. Imports no large package."""

from __future__ import annotations

from pathlib import Path

from sweep.errors import UnknownNameError
from sweep.store.folder import ResultsFolder
from sweep.text import did_you_mean


def find_folder(results: Path, name: str) -> ResultsFolder:
    """Return the folder of a sweep, which has a sweep.json or a log, in a results folder.

    Raises `UnknownNameError`, with a similar name as a hint, if there is no such sweep. The name comes from an address,
    which anybody can type, so names with a slash or backslash, names that begin with a dot or a dash, and names of more
    than 200 bytes are never found.
    """
    is_plain = (
        bool(name) and name[0] not in ".-" and name.isprintable() and not set(name) & {"/", "\\"}
    )
    folder = ResultsFolder(results / name)
    # The system raises an error for a file with a longer name.
    if (
        is_plain
        and len(name.encode("utf-8", "replace")) <= 200
        and (folder.info.is_file() or folder.log.is_file())
    ):
        return folder
    known = list_names(results)
    hint = did_you_mean(name, known) if known else ""
    raise UnknownNameError.one(name, f"no such sweep in {results}", hint)


def list_names(results: Path) -> list[str]:
    """Return the sorted names of the visible folders with a sweep.json in a results folder; [] if it does not exist."""
    if not results.is_dir():
        return []
    names = []
    for path in results.iterdir():
        if path.name[0] != "." and (path / "sweep.json").is_file():
            names.append(path.name)
    return sorted(names)
