"""Which installed distribution a module is of, and what tells that distribution from its other versions."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path


class Distribution:
    """An installed one, by its folder ``<name>-<version>.dist-info`` or ``.egg-info``."""

    def __init__(self, info: Path) -> None:
        name, _, rest = info.stem.partition("-")
        self.name, self.version = _normalized(name), rest.split("-")[0]
        self._info = info

    @cached_property
    def record(self) -> str:
        """The list of its files, each with its hash; empty where the installer kept none."""
        return _text(self._info / "RECORD")

    def lists(self, file: str) -> bool:
        """Whether a file, relative to where packages are installed, is of it."""
        return self.record.startswith(f"{file},") or f"\n{file}," in self.record

    @property
    def identity(self) -> str:
        """Its version; where it was installed from elsewhere than an index, with a hash of all its files."""
        if not (self._info / "direct_url.json").exists():
            return self.version
        files = sorted(line for line in self.record.splitlines() if "sha256=" in line)
        return f"{self.version} {hashlib.sha256(chr(10).join(files).encode()).hexdigest()[:16]}"

    @property
    def is_editable(self) -> bool:
        """Whether it is a folder that somebody works on, so that its version says nothing."""
        try:
            about = json.loads(_text(self._info / "direct_url.json") or "{}")
        except ValueError:
            return False
        return bool(about.get("dir_info", {}).get("editable"))

    @property
    def requirements(self) -> Iterator[str]:
        """Names of the distributions that it needs, without those of extras."""
        for line in (_text(self._info / "METADATA") or _text(self._info / "PKG-INFO")).splitlines():
            if not line.strip():
                return  # the description follows
            found = re.match(r"Requires-Dist: *([A-Za-z0-9._-]+)", line)
            if found and "extra ==" not in line:
                yield _normalized(found[1])


class Distributions:
    """All that is installed in the folders of a search path."""

    def __init__(self, entries: Iterable[Path]) -> None:
        self._by_entry = {entry: list(_installed(entry)) for entry in entries}
        self._by_name: dict[str, Distribution] = {}
        for found in self._by_entry.values():
            for one in found:
                self._by_name.setdefault(one.name, one)

    def owner(self, entry: Path, file: Path) -> Distribution | None:
        """The distribution of a file; None where no installer put it there: its content is all that is known."""
        found, name = self._by_entry.get(entry, []), file.relative_to(entry).as_posix()
        alike = [one for one in found if one.name == _normalized(name.split("/")[0].partition(".")[0])]
        rest = (one for one in found if one not in alike)
        listing = next((one for group in (alike, rest) for one in group if one.lists(name)), None)
        # Some systems keep no lists: there a package is known by its name.
        return listing or next((one for one in alike if not one.record), None)

    def needed(self, first: Iterable[Distribution]) -> dict[str, Distribution]:
        """These and all that they need, directly or not, as far as it is installed."""
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


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
