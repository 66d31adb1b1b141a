"""Finds the folders of sweeps by their names. Imports no large package."""

from __future__ import annotations

from pathlib import Path

from sweep.errors import StoreAway, UnknownNameError
from sweep.store.features import store_of, update_copy
from sweep.store.folder import ResultsFolder, is_any_file
from sweep.text import did_you_mean


def find_folder(results: Path, name: str, *, update: bool = False) -> ResultsFolder:
    """Return the folder of a sweep, which has a sweep.json or a log, in a results folder.

    If the results are in an object store, ``update`` brings the copy of the sweep on this machine up to date before, as
    far as the store is available. Raises `UnknownNameError`, with a similar name as a hint, if there is no such sweep,
    and with ``update`` also `StoreError` if there is no copy and the store is unavailable, or if the update fails
    otherwise. The name comes from an address, which anybody can type, so names with a slash, backslash or unprintable
    character, names that begin with a dot or a dash, and names of more than 200 bytes are never found.
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
    if update and is_plain:
        _update(folder)
    if is_plain and is_any_file(folder.info, folder.log):
        return folder
    # There is no such sweep: the error names where it was looked for, and a similar name.
    store = store_of(results)
    if store is None:
        place, known = str(results), list_names(results)
    elif update:
        place, (known, _) = store.url, store.folder()
    else:
        place, known = store.url, list_names(results)
    raise UnknownNameError.one(name, f"no such sweep in {place}", did_you_mean(name, known))


def _update(folder: ResultsFolder) -> None:
    """Update the copy on this machine of a sweep in an object store; do nothing for an ordinary folder.

    Raises `StoreError` if that fails. But if the store is only unavailable, a copy with a sweep.json is left as it is,
    without an error.
    """
    store = store_of(folder.path.parent)
    if store is None:
        return
    try:
        update_copy(folder.path, store.below(folder.name))
    except StoreAway:
        if not is_any_file(folder.info):
            raise


def list_names(results: Path) -> list[str]:
    """Return the sorted names of the visible folders with a sweep.json in a results folder; [] if it does not exist.

    Folders whose names begin with a dot, and those that this user may not look into, are left out. Raises OSError if
    the results folder itself cannot be listed.
    """
    if not results.is_dir():
        return []
    names = []
    for path in results.iterdir():
        if path.name[0] != "." and is_any_file(path / "sweep.json"):
            names.append(path.name)
    return sorted(names)
