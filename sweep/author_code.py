"""Distinguishes the author's own code from installed code, by the location of files.

Used for tracebacks, for the line of the author's code that is being executed, for restoring what the author's modules
keep, and for recording what a trial reads. Three kinds of files are not the author's: Python's standard library, what
an installer has put on the search path, and sweep itself. All others are: files in the import folders, editable
installations, notebooks, and the trainable's own package wherever it is installed.
"""

from __future__ import annotations

import functools
import linecache
import os
import re
import site
import sys
import sysconfig
from pathlib import Path
from types import FrameType

OWN_PACKAGES = ("sweep", "trainables")
FOUNDATIONS = ("keras", "tensorflow", "ray", "numpy")
"""Packages that trials need; never the author's, even if somebody works on a checkout of one of them."""

_INSTALL_FOLDERS = frozenset({"site-packages", "dist-packages"})
_INSTALL_PARTS = tuple(f"{os.sep}{folder}{os.sep}" for folder in sorted(_INSTALL_FOLDERS))
_NO_FILE = ("<string>", "<frozen", "<__array_function__")
_AUTOGRAPH_FILE = "__autograph_generated_file"
_ENGINE = re.compile(
    r"trainables/((__init__|keras_trainable|session|keras_private|tensorflow_private)\.py|\w+/.*)"
)
_HOME = Path(__file__).resolve().parents[1]

trainable_packages: dict[str, tuple[str, ...]] = {}
"""The folders or the file of each package that `note_trainable` has made the author's."""


def note_trainable(module: str) -> None:
    """Mark the top-level package of the module named ``module`` as the author's code, even if it is installed.

    It is added to `trainable_packages`, and from then on `is_author_file` is True for its files. Nothing happens if the
    package is not imported, has neither a folder nor a file, or is ``__main__``, one of `OWN_PACKAGES` or one of
    `FOUNDATIONS`.
    """
    name = module.partition(".")[0]
    if name in (*OWN_PACKAGES, *FOUNDATIONS, "__main__"):
        return
    package = sys.modules.get(name)
    folders = tuple(f"{folder}{os.sep}" for folder in getattr(package, "__path__", ()))
    file = getattr(package, "__file__", None)
    # A package has folders, a module that is a single file has none.
    places = folders or ((file,) if file else ())
    if places:
        trainable_packages[name] = places


def is_installed(file: str) -> bool:
    """Return whether the file at the path ``file`` belongs to Python's standard library or to an installed package.

    Installed packages are in a folder named ``site-packages`` or ``dist-packages``, or are listed by a distribution in
    their folder of the search path. Packages that are installed as editable do not count.
    """
    return _is_installed(file, tuple(sys.path))


@functools.cache
def _is_installed(file: str, search_path: tuple[str, ...]) -> bool:
    """Do what `is_installed` does; the result is cached for each file and search path."""
    path = Path(file)
    return _is_in_installed_folder(path, search_path) or _is_in_installed_folder(
        path.resolve(), search_path
    )


def is_author_file(file: str) -> bool:
    """Return whether a file, as named by a frame or a module, is the author's.

    Files of a package marked by `note_trainable` are; others of Python, installed packages, `FOUNDATIONS` and sweep
    (`is_own_file`) are not. Cells of notebooks and what is typed at a prompt are the author's; code that is compiled
    from a string or by AutoGraph is not. A relative name is that of a script if the file exists; otherwise the code was
    compiled elsewhere, as in extension modules, and is not the author's.
    """
    return _is_author_file(file, tuple(sys.path), tuple(trainable_packages.values()))


@functools.cache
def _is_author_file(
    file: str, search_path: tuple[str, ...], packages: tuple[tuple[str, ...], ...]
) -> bool:
    """Do what `is_author_file` does; the result is cached for each file, search path and set of marked packages."""
    if file.startswith(_NO_FILE) or _AUTOGRAPH_FILE in file:
        return False
    if file.startswith("<"):  # a cell of IPython, or typed at a prompt
        return True
    if any(file.startswith(place) for places in packages for place in places):
        return True
    if file.startswith(os.sep) and any(folder in file for folder in _INSTALL_PARTS):
        return False  # a shortcut: `_is_installed` would return True as well, but is slow for thousands of modules
    path = Path(file)
    if not path.is_absolute() and not path.exists():
        return False
    return not (
        _is_installed(file, search_path)
        or _is_in_foundation(path, search_path)
        or is_own_file(file)
    )


@functools.cache
def is_own_file(file: str) -> bool:
    """Return whether a file is part of sweep or of `trainables`, except the example models of `trainables`."""
    path = Path(file).resolve()
    if not path.is_relative_to(_HOME):
        return False
    inside = path.relative_to(_HOME).as_posix()
    return inside.startswith("sweep/") or _ENGINE.fullmatch(inside) is not None


def find_present_line(*, quoted: bool = False) -> str:
    """Return the line of the author's code that is being executed, such as "file.py:12".

    It is the line of the nearest frame, from the caller outwards, that is in a file of the author's (`is_author_file`).
    Returns "an unknown line" if there is no such frame. With ``quoted``, a comma and the source text of the line
    follow, in quotes and cut off after 100 characters.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        line = frame.f_lineno
        if is_author_file(file):
            place = f"{Path(file).name}:{line}"
            if not quoted:
                return place
            return f"{place}, {linecache.getline(file, line).strip()!r:.100}"
        frame = frame.f_back
    return "an unknown line"


def get_package_name(file: str) -> str:
    """Return the top-level package or module that a library's file belongs to, for messages; its file name if unknown.

    Code that AutoGraph has generated belongs to "tensorflow". The file must not be the author's. It need not exist.
    """
    if _AUTOGRAPH_FILE in file:
        return "tensorflow"
    path = Path(file)
    # Also the resolved path, because the file may be named through a link that is not on the search path.
    for candidate in (path, path.resolve()):
        # sweep itself, which may be a checkout that is in no folder of the search path
        if candidate.is_relative_to(_HOME):
            first_part = candidate.relative_to(_HOME).parts[0]
            if first_part in OWN_PACKAGES:
                return first_part
        entry = _find_search_path_entry(candidate, tuple(sys.path)) or _find_standard_folder(
            candidate
        )
        if entry is not None:
            # a module may be a single file
            return candidate.relative_to(entry).parts[0].removesuffix(".py")
    return path.name


def _is_in_foundation(path: Path, search_path: tuple[str, ...]) -> bool:
    """Return whether a file is in a package of `FOUNDATIONS` that lies directly in a folder of ``search_path``."""
    entry = _find_search_path_entry(path, search_path)
    if entry is None:
        return False
    inside = path.relative_to(entry).parts
    # The path may be the folder itself, which has no parts inside.
    return bool(inside) and inside[0] in FOUNDATIONS


def _is_in_installed_folder(path: Path, search_path: tuple[str, ...]) -> bool:
    """Return whether a path is in a folder of Python's library or of installed packages, or an installation lists it.

    The list is that of the distributions in the innermost folder of ``search_path`` that contains the path.
    """
    if not _INSTALL_FOLDERS.isdisjoint(path.parts) or _find_standard_folder(path) is not None:
        return True
    entry = _find_search_path_entry(path, search_path)
    if entry is None:
        return False
    inside = path.relative_to(entry)
    # The path may be the folder itself, which has no parts inside.
    return bool(inside.parts) and inside.parts[0] in _read_installed_names(str(entry))


def _find_standard_folder(path: Path) -> Path | None:
    """Return the innermost folder of the standard library or of installed packages that contains a file, or None."""
    return next(
        (folder for folder in _list_standard_folders() if path.is_relative_to(folder)), None
    )


@functools.cache
def _list_standard_folders() -> tuple[Path, ...]:
    """Return the folders of the standard library and of installed packages, those with most parts first.

    They come first because ``site-packages`` is inside the folder of the standard library. Each folder is there by its
    own path and, if that differs, by the path without symbolic links.
    """
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = {sysconfig.get_path(name) for name in names} | {
        *site.getsitepackages(),
        site.getusersitepackages(),
    }
    paths = {path for folder in folders for path in (Path(folder), Path(folder).resolve())}
    return tuple(sorted(paths, key=lambda path: len(path.parts), reverse=True))


def _find_search_path_entry(path: Path, search_path: tuple[str, ...]) -> Path | None:
    """Return the innermost folder of the search path that contains a file; None if none does."""
    entries = []
    for entry in map(_make_absolute, search_path):
        if entry is not None and path.is_relative_to(entry):
            entries.append(entry)
    return max(entries, key=lambda entry: len(entry.parts), default=None)


def _make_absolute(entry: str) -> Path | None:
    """Return an entry of the search path as an absolute path; "" is the working folder, None if that was deleted."""
    try:
        return Path(entry or ".").absolute()
    except FileNotFoundError:
        return None


@functools.cache
def _read_installed_names(entry: str) -> frozenset[str]:
    """Return the top-level names that the installed distributions in a folder of the search path list in RECORD.

    Distributions without such a list are checkouts that somebody works on (``NAME.egg-info``), and add no names. The
    result is kept for each folder, so that later installations are not seen.
    """
    from importlib import metadata  # slow to import, and most commands do not need it

    names = set()
    for distribution in metadata.distributions(path=[entry]):
        record = distribution.read_text("RECORD") or ""
        # a line is a path, its hash and its size: "numpy/version.py,sha256=...,293"
        names |= {line.partition(",")[0].partition("/")[0] for line in record.splitlines()}
    return frozenset(names)
