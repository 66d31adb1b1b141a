"""Where modules lie, found as Python would find them and without importing any."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

SUFFIXES = (".py", *EXTENSION_SUFFIXES)
_STDLIB = {Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}
_STDLIB |= {path / "lib-dynload" for path in _STDLIB}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a top-level name was found."""

    entry: Path | None  # the folder of the search path; None: an import hook knows the place
    file: Path | None  # of the module, or of the package's ``__init__``; None: a package without one
    folders: tuple[Path, ...]  # where the package's modules are


class Search:
    """The search path of a worker: the folders given, then that of this process."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = tuple(folders)
        self.entries = tuple(dict.fromkeys((*self.folders, *(Path(entry or ".") for entry in sys.path))))
        self._tops: dict[str, Place | None] = {}

    def top(self, name: str) -> Place | None:
        """The place of a name without dots; None where there is none."""
        if name not in self._tops:
            self._tops[name] = self._by_path(name) or self._by_hook(name)
        return self._tops[name]

    def find(self, module: str) -> Path | None:
        """The file of a module; None where there is none."""
        top, *rest = module.split(".")
        place = self.top(top)
        if place is None or not rest:
            return place.file if place else None
        for folder in place.folders:
            base = folder.joinpath(*rest)
            for path in _files(base):
                if path.is_file():
                    return path
        return None

    def is_standard(self, name: str) -> bool:
        """Whether a top-level name is the standard library's, and nothing hides it."""
        place = self.top(name)
        return name in sys.stdlib_module_names and (place is None or place.entry is None or place.entry in _STDLIB)

    def _by_path(self, name: str) -> Place | None:
        portions = []
        for entry in self.entries:
            for path in _files(entry / name):
                if path.is_file():
                    return Place(entry, path, (path.parent,) if path.stem == "__init__" else ())
            if (entry / name).is_dir():
                portions.append(entry / name)
        return Place(portions[0].parent, None, tuple(portions)) if portions else None

    def _by_hook(self, name: str) -> Place | None:
        """By the hook of an editable installation: asked for a top-level name, it imports nothing."""
        for finder in sys.meta_path:
            spec = finder.find_spec(name, None)
            if spec is not None and spec.loader is not None:
                file = Path(spec.origin) if spec.origin else None
                folders = tuple(map(Path, spec.submodule_search_locations or ()))
                return Place(None, file if file is not None and file.is_file() else None, folders)
        return None


def _files(base: Path) -> Iterator[Path]:
    """The files that a module may be, in the order in which Python looks for them."""
    yield base / "__init__.py"
    for suffix in SUFFIXES:
        yield base.with_name(base.name + suffix)
