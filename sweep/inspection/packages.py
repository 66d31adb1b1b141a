"""Where modules lie, which distributions they belong to and what they import, found without importing any."""

from __future__ import annotations

import ast
import hashlib
import json
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import PathDistribution
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

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
        PathFinder.invalidate_caches()  # files may be younger than what it remembers of their folder

    def top(self, name: str) -> Place | None:
        """Return the place of a name without dots; None where there is none."""
        if name not in self._tops:
            self._tops[name] = self._by_path(name) or self._by_hook(name)
        return self._tops[name]

    def find(self, module: str) -> Path | None:
        """Return the file of a module; None where there is none."""
        top, *rest = module.split(".")
        place = self.top(top)
        if place is None or not rest:
            return place.file if place else None
        file, folders = place.file, place.folders
        for part in rest:  # by its last part alone, for which nobody looks for parents that were not imported
            spec = PathFinder.find_spec(part, list(map(str, folders)))
            if spec is None:
                return None
            file, folders = _file(spec), _folders(spec)
        return file

    def is_standard(self, name: str) -> bool:
        """Return whether a top-level name is the standard library's, and nothing hides it."""
        place = self.top(name)
        return name in sys.stdlib_module_names and (place is None or place.entry is None or place.entry in _STDLIB)

    def _by_path(self, name: str) -> Place | None:
        spec = PathFinder.find_spec(name, list(map(str, self.entries)))
        if spec is None:
            return None
        file, folders = _file(spec), _folders(spec)
        inside = folders[0] if folders else file
        return None if inside is None else Place(inside.parent, file, folders)

    def _by_hook(self, name: str) -> Place | None:
        """By the hook of an editable installation: asked for a top-level name, it imports nothing."""
        for finder in sys.meta_path:
            spec = finder.find_spec(name, None)
            if spec is not None and spec.loader is not None:
                return Place(None, _file(spec), _folders(spec))
        return None


def _file(spec: ModuleSpec) -> Path | None:
    file = Path(spec.origin) if spec.has_location and spec.origin else None
    return file if file is not None and file.is_file() else None


def _folders(spec: ModuleSpec) -> tuple[Path, ...]:
    return tuple(map(Path, spec.submodule_search_locations or ()))


class Distribution:
    """An installed distribution, by its folder ``<name>-<version>.dist-info`` or ``.egg-info``."""

    def __init__(self, info: Path) -> None:
        name, _, rest = info.stem.partition("-")  # reading the metadata of all takes half a second
        self.name, self.version = canonicalize_name(name), rest.split("-")[0]
        self._info = PathDistribution(info)

    @cached_property
    def record(self) -> str:
        """The list of its files, each with its hash; empty where the installer kept none."""
        return self._info.read_text("RECORD") or ""

    def lists(self, file: str) -> bool:
        """Return whether a file, relative to where packages are installed, is of it."""
        return self.record.startswith(f"{file},") or f"\n{file}," in self.record

    @cached_property
    def _origin(self) -> Mapping[str, Any] | None:
        """Where it was installed from, if not from an index."""
        text = self._info.read_text("direct_url.json")
        try:
            return None if text is None else dict(json.loads(text))
        except (TypeError, ValueError):
            return {}

    @property
    def identity(self) -> str:
        """Its version; where it was installed from elsewhere than an index, with a hash of all its files."""
        if self._origin is None:
            return self.version
        files = sorted(line for line in self.record.splitlines() if "sha256=" in line)
        return f"{self.version} {hashlib.sha256(chr(10).join(files).encode()).hexdigest()[:16]}"

    @property
    def is_editable(self) -> bool:
        """Whether it is a folder that somebody works on, so that its version says nothing."""
        return bool((self._origin or {}).get("dir_info", {}).get("editable"))

    @property
    def requirements(self) -> Iterator[str]:
        """Names of the distributions that it needs here, without those of extras."""
        for line in self._info.requires or ():
            try:
                needed = Requirement(line)
            except InvalidRequirement:  # of old packages, which pip passes over as well
                continue
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                yield canonicalize_name(needed.name)


class Distributions:
    """All that is installed in the folders of a search path."""

    def __init__(self, entries: Iterable[Path]) -> None:
        self._by_entry = {entry: list(_installed(entry)) for entry in entries}
        self._by_name: dict[str, Distribution] = {}
        for found in self._by_entry.values():
            for one in found:
                self._by_name.setdefault(one.name, one)

    def owner(self, entry: Path, file: Path) -> Distribution | None:
        """Return the distribution of a file; None where no installer put it there: its content is all that is known."""
        found, name = self._by_entry.get(entry, []), file.relative_to(entry).as_posix()
        alike = [one for one in found if one.name == canonicalize_name(name.split("/")[0].partition(".")[0])]
        rest = (one for one in found if one not in alike)
        listing = next((one for group in (alike, rest) for one in group if one.lists(name)), None)
        # Some systems keep no lists: there a package is known by its name.
        return listing or next((one for one in alike if not one.record), None)

    def needed(self, first: Iterable[Distribution]) -> dict[str, Distribution]:
        """Return these and all that they need, directly or not, as far as it is installed."""
        needed: dict[str, Distribution] = {}
        queue = list(first)
        while queue:
            one = queue.pop()
            if one.name not in needed:
                needed[one.name] = one
                queue += [self._by_name[name] for name in one.requirements if name in self._by_name]
        return needed


def _installed(entry: Path) -> Iterator[Distribution]:
    if entry.is_dir():
        yield from (
            Distribution(path) for path in sorted(entry.iterdir()) if path.suffix in (".dist-info", ".egg-info")
        )


_LOADERS = frozenset({"spec_from_file_location", "SourceFileLoader", "run_path", "run_module"})


def imports(tree: ast.Module, module: str, *, is_package: bool) -> Iterator[str]:
    """Full names of all modules that may be meant: ``from a import b`` gives ``a`` and ``a.b``."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                yield from (alias.name for alias in aliases)
            case ast.ImportFrom(module=source, names=aliases, level=level):
                base = source or ""
                if level:
                    parents = module.split(".")
                    parents = parents[: len(parents) - level + (1 if is_package else 0)]
                    base = ".".join([*parents, *([source] if source else [])])
                if base:
                    yield base
                    yield from (f"{base}.{alias.name}" for alias in aliases if alias.name != "*")
            case ast.Call(args=[ast.Constant(value=str(name)), *_]) if _called(node) in ("import_module", "__import__"):
                yield name.lstrip(".")


def obscure(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and reason of each import whose module is not named."""
    for node in ast.walk(tree):
        match node:
            case ast.Call() if _called(node) in ("import_module", "__import__"):
                if not (node.args and isinstance(node.args[0], ast.Constant)):
                    yield node.lineno, "imports a module whose name is computed"
            case ast.Call(func=ast.Name(id="exec")):
                yield node.lineno, "runs a text as code"
            case ast.Call() if _called(node) in _LOADERS:
                yield node.lineno, "runs a file as code"
            case ast.Attribute(value=ast.Name(id="sys"), attr="path"):
                yield node.lineno, "changes where modules are found (sys.path)"


def _called(call: ast.Call) -> str:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""
