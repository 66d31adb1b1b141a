"""Finds the folders of sweeps by their names. Imports no large package."""

from __future__ import annotations

from pathlib import Path

from sweep.errors import UnknownNameError
from sweep.store.folder import ResultsFolder, folders
from sweep.text import did_you_mean


def find_folder(results: Path, name: str) -> ResultsFolder:
    """Return the folder of a sweep in a results folder. Raises `UnknownNameError`.

    The name comes from an address, which anybody can type, so it must not lead out of the results folder.
    """
    is_plain = bool(name) and name[0] not in ".-" and name.isprintable() and not set(name) & {"/", "\\"}
    folder = ResultsFolder(results / name)
    if is_plain and len(name.encode("utf-8", "replace")) <= 200 and (folder.info.is_file() or folder.log.is_file()):
        return folder
    known = list_names(results)
    hint = did_you_mean(name, known) if known else ""
    raise UnknownNameError.one(name, f"no such sweep in {results}", hint)


def list_names(results: Path) -> list[str]:
    """Return the sorted names of the sweeps in a results folder; [] if the folder does not exist."""
    if not results.is_dir():
        return []
    names = []
    for folder in folders(results):
        if folder.info.is_file():
            names.append(folder.name)
    return sorted(names)
