"""Tells the author's own code from what is installed, by where a file lies.

Used for tracebacks, for the watch over what the author's modules keep, and for the record of what a trial has read.
Three kinds of files are not the author's: Python's standard library, what an installer has put on the search path, and
sweep itself. All else is: what lies in the import folders, editable installations, notebooks, and the trainable's own
package wherever it is installed.
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
"""Packages that a trial runs on: never the author's, also where somebody works on a checkout of one of them."""

_INSTALL_FOLDERS = frozenset({"site-packages", "dist-packages"})
_NO_FILE = ("<string>", "<frozen", "<__array_function__")
_AUTOGRAPH_FILE = "__autograph_generated_file"
_ENGINE = re.compile(r"trainables/((__init__|keras_trainable|session)\.py|\w+/.*)")
_HOME = Path(__file__).resolve().parents[1]

_trainable_packages: dict[str, tuple[str, ...]] = {}  # name to the folders or the file that it lies in


def note_trainable(module: str) -> None:
    """Count the top-level package of a trainable's module as the author's from now on, also where it is installed."""
    name = module.partition(".")[0]
    if name in (*OWN_PACKAGES, *FOUNDATIONS, "__main__"):
        return
    package = sys.modules.get(name)
    folders = tuple(f"{folder}{os.sep}" for folder in getattr(package, "__path__", ()))
    file = getattr(package, "__file__", None)
    places = folders or ((file,) if file else ())
    if places and _trainable_packages.get(name) != places:
        _trainable_packages[name] = places
        _is_author_file.cache_clear()


def is_installed(file: str) -> bool:
    """Return whether a file belongs to Python itself or to an installed package.

    An installed package lies in a folder of the search path in which only installers write (``site-packages``,
    ``dist-packages``), or is listed by one of the distributions in its folder of the search path.
    """
    return _is_installed(file, tuple(sys.path))


@functools.cache
def _is_installed(file: str, search_path: tuple[str, ...]) -> bool:
    path = Path(file)
    return _lies_installed(path, search_path) or _lies_installed(path.resolve(), search_path)


def is_author_file(file: str) -> bool:
    """Return whether a file, as a frame or a module names it, is the author's.

    True for the cells of notebooks. A relative name is one of a script if such a file exists; otherwise it was compiled
    elsewhere, as in extension modules.
    """
    return _is_author_file(file, tuple(sys.path))


@functools.cache
def _is_author_file(file: str, search_path: tuple[str, ...]) -> bool:
    if file.startswith(_NO_FILE) or _AUTOGRAPH_FILE in file:
        return False
    if file.startswith("<"):  # a cell of IPython, or typed at a prompt
        return True
    path = Path(file)
    if not path.is_absolute() and not path.exists():
        return False
    if any(file.startswith(place) for places in _trainable_packages.values() for place in places):
        return True
    return not (_is_installed(file, search_path) or _is_of_foundation(path, search_path) or is_own_file(file))


@functools.cache
def is_own_file(file: str) -> bool:
    """Return whether a file is a part of sweep, or of the engine in `trainables`; its models are there to be copied."""
    path = Path(file).resolve()
    if not path.is_relative_to(_HOME):
        return False
    inside = path.relative_to(_HOME).as_posix()
    return inside.startswith("sweep/") or _ENGINE.fullmatch(inside) is not None


def package_of(file: str) -> str:
    """Return the name of the package that a file which is not the author's belongs to, for messages."""
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
    """Return the folder of Python's own that a file lies in: of its library, or where its installers put packages."""
    return next((folder for folder in _standard_folders() if path.is_relative_to(folder)), None)


@functools.cache
def _standard_folders() -> tuple[Path, ...]:
    """Return these folders, the longest first: ``site-packages`` lies in the folder of the standard library."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = {sysconfig.get_path(name) for name in names} | {*site.getsitepackages(), site.getusersitepackages()}
    paths = {path for folder in folders for path in (Path(folder), Path(folder).resolve())}
    return tuple(sorted(paths, key=lambda path: len(path.parts), reverse=True))


def _search_path_entry(path: Path, search_path: tuple[str, ...]) -> Path | None:
    """Return the folder of the search path that a file lies in, the innermost one; None where there is none."""
    entries = [entry for entry in map(_absolute, search_path) if path.is_relative_to(entry)]
    return max(entries, key=lambda entry: len(entry.parts), default=None)


def _absolute(entry: str) -> Path:
    return Path(entry or ".").absolute()


@functools.cache
def _listed_names(entry: str) -> frozenset[str]:
    """Return the top-level names that the distributions in a folder list as installed there.

    Distributions without such a list are folders that somebody works on (``NAME.egg-info`` of a checkout).
    """
    names = set()
    for distribution in importlib.metadata.distributions(path=[entry]):
        record = distribution.read_text("RECORD") or ""
        names |= {line.partition(",")[0].partition("/")[0] for line in record.splitlines()}
    return frozenset(names)
