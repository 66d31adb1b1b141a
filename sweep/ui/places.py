"""Finds the folders of sweeps by their names. Imports no large package."""

from __future__ import annotations

from pathlib import Path

from sweep.errors import UnknownNameError
from sweep.store.features import store_of, update_copy
from sweep.store.folder import ResultsFolder, is_any_there
from sweep.text import did_you_mean


def find_folder(results: Path, name: str, *, update: bool = False) -> ResultsFolder:
    """Return the folder of a sweep, which has a sweep.json or a log, in a results folder.

    If the results are in an object store, ``update`` brings the copy of the sweep on this machine up to date before.
    Raises `UnknownNameError`, with a similar name as a hint, if there is no such sweep, and with ``update`` also
    `StoreError` if the store is unavailable. The name comes from an address, which anybody can type, so names with a
    slash or backslash, names that begin with a dot or a dash, and names of more than 200 bytes are never found.
    """
    is_plain = (
        bool(name)
        and name[0] not in ".-"
        and name.isprintable()
        and not set(name) & {"/", "\\"}
        # The system raises an error for a file with a longer name.
        and len(name.encode("utf-8", "replace")) <= 200
    )
    folder = ResultsFolder(results / name)
    store = store_of(results)
    if update and is_plain and store is not None:
        update_copy(folder.path, store.below(name))
    if is_plain and is_any_there(folder.info, folder.log):
        return folder
    known = list_names(results)
    hint = did_you_mean(name, known) if known else ""
    place = results if store is None else store.url
    raise UnknownNameError.one(name, f"no such sweep in {place}", hint)


def list_names(results: Path) -> list[str]:
    """Return the sorted names of the visible folders with a sweep.json in a results folder; [] if it does not exist.

    Folders that this user may not look into are left out.
    """
    if not results.is_dir():
        return []
    names = []
    for path in results.iterdir():
        if path.name[0] != "." and is_any_there(path / "sweep.json"):
            names.append(path.name)
    return sorted(names)
