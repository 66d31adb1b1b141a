"""What the analysis of a trainable needs to know about the modules of sweep that it imports.

A trainable imports more than a hundred of them, and to parse them takes a second. They seldom change, so what was found
in them is kept in a file of the user's cache folder, for later commands.
"""

from __future__ import annotations

import ast
import hashlib
import json
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep.errors import StoreError
from sweep.inspection.dependencies import list_first_imports, list_imports
from sweep.inspection.hyperparameter_reads import ModuleReads, find_reads_of_module
from sweep.inspection.syntax_nodes import parse
from sweep.store import disk

_writing = threading.Lock()  # two threads must not replace the same file at once


@dataclass(frozen=True, slots=True)
class OwnModule:
    """What is known about one of sweep's own modules."""

    imports: tuple[str, ...]
    """Full names of all modules that it may import, as `list_imports` yields them, each once."""
    first_imports: tuple[str, ...]
    """Those that it imports at its top level, as `list_first_imports` returns them."""
    reads: ModuleReads


def describe_own_module(tree: ast.Module, name: str, *, is_package: bool) -> OwnModule:
    """Return what is known about the module of sweep with this syntax tree and full name.

    ``is_package`` says whether it is a package's ``__init__``.
    """
    imports = dict.fromkeys(list_imports(tree, name, is_package=is_package))
    return OwnModule(tuple(imports), tuple(list_first_imports(tree)), find_reads_of_module(tree))


class OwnModules:
    """A cache of the analysis of sweep's own modules, in a file for later commands.

    A module is analyzed when it is first needed, and again if its file has changed. Nothing is kept if there is no
    folder for user caches, or it cannot be used.
    """

    def __init__(self) -> None:
        self._cache = _find_cache_file()
        # by the name of the module: the SHA-256 of its file, and what was found in it
        self._kept: dict[str, tuple[str, OwnModule]] = {}
        self._is_changed = False
        if self._cache is not None:
            self._kept = _read(self._cache)

    def describe(self, name: str, path: Path) -> OwnModule:
        """Return what is known about the module with this full name and file, which is read for its hash.

        If the file has changed or was not analyzed before, it is analyzed, which `save` then keeps. Raises InputError
        if it is not valid Python.
        """
        content = path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        kept_digest, kept_module = self._kept.get(name, ("", None))
        if kept_module is not None and kept_digest == digest:
            return kept_module
        tree = parse(content, path)
        found = describe_own_module(tree, name, is_package=path.stem == "__init__")
        self._kept[name] = digest, found
        self._is_changed = True
        return found

    def save(self) -> None:
        """Write all that is known to the file, if something was analyzed since the last call or the creation.

        The content of the file is replaced. Errors, as on a full disk, are ignored.
        """
        if self._cache is None or not self._is_changed:
            return
        content = {name: [digest, _encode(found)] for name, (digest, found) in self._kept.items()}
        # a cache that cannot be written, such as on a full disk, is no reason to fail
        with suppress(OSError, StoreError), _writing:
            self._cache.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with disk.replacing(self._cache) as path:
                path.write_text(json.dumps(content), encoding="utf-8")
        self._is_changed = False


class Trees(Mapping[str, ast.Module]):
    """The syntax trees of modules by name; those of sweep's modules are parsed when they are asked for first."""

    def __init__(self, trees: Mapping[str, ast.Module], own: Mapping[str, Path]) -> None:
        """Create a mapping of ``trees``, which is copied, and of the trees of the files ``own``, each by module."""
        self._trees = dict(trees)
        self._own = own

    def __getitem__(self, name: str) -> ast.Module:
        """Return the tree of a module.

        The tree of a file is parsed once. Raises KeyError if it is neither in ``trees`` nor in ``own``, InputError if
        its file is no longer valid Python, and OSError if that cannot be read.
        """
        if name not in self._trees:
            self._trees[name] = parse(self._own[name].read_bytes(), self._own[name])
        return self._trees[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._trees, *self._own)))

    def __len__(self) -> int:
        return len(self._trees.keys() | self._own.keys())

    def __contains__(self, name: object) -> bool:
        return name in self._trees or name in self._own


def _find_cache_file() -> Path | None:
    """Return the path of the file that keeps what was found in sweep's modules; None if there is no cache folder.

    The file need not exist yet. Each installation and each version of Python has its own. A change of any module in
    `sweep.inspection` gives it a new name, so that what an older version of this analysis has found is never read.
    """
    folder = disk.find_cache_folder()
    if folder is None or not folder.is_absolute():
        return None
    here = Path(__file__)
    identity = hashlib.sha256(f"{here} {sys.version}".encode())
    # the analysis itself, and `Hyperparameters`, of which names of methods are no parameters
    for path in [*sorted(here.parent.glob("*.py")), here.parents[1] / "hyperparameters.py"]:
        identity.update(path.read_bytes())
    return folder / f"modules-{identity.hexdigest()[:16]}.json"


def _read(path: Path) -> dict[str, tuple[str, OwnModule]]:
    """Return the content of a cache file: the hash of a module's file and what was found in it, by module.

    Returns {} if there is no file, or it cannot be read or understood.
    """
    try:
        content = json.loads(path.read_bytes())
        return {name: (str(digest), _decode(found)) for name, (digest, found) in content.items()}
    except (
        OSError,
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ):
        return {}


def _encode(found: OwnModule) -> dict[str, Any]:
    """Return what is known about a module as a dictionary that `json` can write, for `_decode`."""
    return {
        "imports": found.imports,
        "first_imports": found.first_imports,
        "names": sorted(found.reads.names),
        "is_computed": found.reads.is_computed,
        "definitions": sorted(found.reads.definitions),
        "positions": dict(found.reads.positions),
    }


def _decode(content: Mapping[str, Any]) -> OwnModule:
    """Return what `_encode` has encoded. Raises KeyError, TypeError or the like if something is missing or wrong."""
    reads = ModuleReads(
        names=frozenset(map(str, content["names"])),
        is_computed=bool(content["is_computed"]),
        definitions=frozenset(map(str, content["definitions"])),
        positions={str(name): int(index) for name, index in content["positions"].items()},
    )
    imports = tuple(map(str, content["imports"]))
    return OwnModule(imports, tuple(map(str, content["first_imports"])), reads)
