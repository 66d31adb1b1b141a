"""Distinguishes the author's own code from installed code, by the location of files.

Used for tracebacks, for restoring what the author's modules keep, and for recording what a trial reads. Three kinds of
files are not the author's: Python's standard library, what an installer has put on the search path, and sweep itself.
All others are: files in the import folders, editable installations, notebooks, and the trainable's own package wherever
it is installed.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import re
import site
import sys
import sysconfig
from pathlib import Path

OWN_PACKAGES = ("sweep", "trainables")
FOUNDATIONS = ("keras", "tensorflow", "ray", "numpy")
"""Packages that trials need; never the author's, even if somebody works on a checkout of one of them."""

_INSTALL_FOLDERS = frozenset({"site-packages", "dist-packages"})
_NO_FILE = ("<string>", "<frozen", "<__array_function__")
_AUTOGRAPH_FILE = "__autograph_generated_file"
_ENGINE = re.compile(r"trainables/((__init__|keras_trainable|session|keras_private|tensorflow_private)\.py|\w+/.*)")
_HOME = Path(__file__).resolve().parents[1]

trainable_packages: dict[str, tuple[str, ...]] = {}
"""The folders or the file of each package that `note_trainable` has made the author's."""


def note_trainable(module: str) -> None:
    """Treat the top-level package of a trainable's module as the author's from now on, even if it is installed."""
    name = module.partition(".")[0]
    if name in (*OWN_PACKAGES, *FOUNDATIONS, "__main__"):
        return
    package = sys.modules.get(name)
    folders = tuple(f"{folder}{os.sep}" for folder in getattr(package, "__path__", ()))
    file = getattr(package, "__file__", None)
    places = folders or ((file,) if file else ())
    if places:
        trainable_packages[name] = places


def is_installed(file: str) -> bool:
    """Return whether a file belongs to Python itself or to an installed package.

    Installed packages are in a folder of the search path that only installers write to (``site-packages``,
    ``dist-packages``), or are listed by a distribution in their folder of the search path.
    """
    return _is_installed(file, tuple(sys.path))


@functools.cache
def _is_installed(file: str, search_path: tuple[str, ...]) -> bool:
    path = Path(file)
    return _lies_installed(path, search_path) or _lies_installed(path.resolve(), search_path)


def is_author_file(file: str) -> bool:
    """Return whether a file, as named by a frame or a module, is the author's.

    True for cells of notebooks. A relative name means a script if the file exists; otherwise the code was compiled
    elsewhere, as in extension modules.
    """
    return _is_author_file(file, tuple(sys.path), tuple(trainable_packages.values()))


@functools.cache
def _is_author_file(file: str, search_path: tuple[str, ...], packages: tuple[tuple[str, ...], ...]) -> bool:
    if file.startswith(_NO_FILE) or _AUTOGRAPH_FILE in file:
        return False
    if file.startswith("<"):  # a cell of IPython, or typed at a prompt
        return True
    path = Path(file)
    if not path.is_absolute() and not path.exists():
        return False
    if any(file.startswith(place) for places in packages for place in places):
        return True
    return not (_is_installed(file, search_path) or _is_of_foundation(path, search_path) or is_own_file(file))


@functools.cache
def is_own_file(file: str) -> bool:
    """Return whether a file is part of sweep or of the engine in `trainables`, whose example models do not count."""
    path = Path(file).resolve()
    if not path.is_relative_to(_HOME):
        return False
    inside = path.relative_to(_HOME).as_posix()
    return inside.startswith("sweep/") or _ENGINE.fullmatch(inside) is not None


def package_of(file: str) -> str:
    """Return the name of the package that a file belongs to, for messages; the file must not be the author's."""
    if _AUTOGRAPH_FILE in file:
        return "tensorflow"
    path = Path(file)
    for candidate in (path, path.resolve()):
        if candidate.is_relative_to(_HOME) and candidate.relative_to(_HOME).parts[0] in OWN_PACKAGES:
            return candidate.relative_to(_HOME).parts[0]
        entry = _search_path_entry(candidate, tuple(sys.path)) or _standard_folder(candidate)
        if entry is not None:
            return candidate.relative_to(entry).parts[0].removesuffix(".py")
    return path.name


def _is_of_foundation(path: Path, search_path: tuple[str, ...]) -> bool:
    entry = _search_path_entry(path, search_path)
    return entry is not None and path.relative_to(entry).parts[:1] in [(name,) for name in FOUNDATIONS]


def _lies_installed(path: Path, search_path: tuple[str, ...]) -> bool:
    if not _INSTALL_FOLDERS.isdisjoint(path.parts) or _standard_folder(path) is not None:
        return True
    entry = _search_path_entry(path, search_path)
    if entry is None:
        return False
    inside = path.relative_to(entry)
    return bool(inside.parts) and inside.parts[0] in _listed_names(str(entry))


def _standard_folder(path: Path) -> Path | None:
    """Return the folder of the standard library or of installed packages that contains a file; None if none does."""
    return next((folder for folder in _standard_folders() if path.is_relative_to(folder)), None)


@functools.cache
def _standard_folders() -> tuple[Path, ...]:
    """Return these folders, longest first, because ``site-packages`` is inside the folder of the standard library."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = {sysconfig.get_path(name) for name in names} | {*site.getsitepackages(), site.getusersitepackages()}
    paths = {path for folder in folders for path in (Path(folder), Path(folder).resolve())}
    return tuple(sorted(paths, key=lambda path: len(path.parts), reverse=True))


def _search_path_entry(path: Path, search_path: tuple[str, ...]) -> Path | None:
    """Return the innermost folder of the search path that contains a file; None if none does."""
    entries = []
    for entry in map(_absolute, search_path):
        if path.is_relative_to(entry):
            entries.append(entry)
    return max(entries, key=lambda entry: len(entry.parts), default=None)


def _absolute(entry: str) -> Path:
    return Path(entry or ".").absolute()


@functools.cache
def _listed_names(entry: str) -> frozenset[str]:
    """Return the top-level names that distributions in a folder list as installed there.

    Distributions without such a list are checkouts that somebody works on (``NAME.egg-info``).
    """
    names = set()
    for distribution in importlib.metadata.distributions(path=[entry]):
        record = distribution.read_text("RECORD") or ""
        names |= {line.partition(",")[0].partition("/")[0] for line in record.splitlines()}
    return frozenset(names)
