"""Hooks of MkDocs for the documentation site (`make docs`): pages from outside of docs/, and a check of docstrings.

Pages link to each other by their paths in the repository, so that they can be read there. These links are turned into
those of the site.
"""

from __future__ import annotations

import logging
import posixpath
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from griffe import Alias, GriffeLoader
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
ELSEWHERE = {  # in the repository, and on the site
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "results/README.md": "columns.md",
    "examples/digits.ipynb": "files/digits.ipynb",
    "search_spaces/examples/click_through.yaml": "files/click_through.yaml",
}
SOURCES = {there: here for here, there in ELSEWHERE.items()}
LINK = re.compile(r"(?<=\]\()(?!https?:|#)([^)\s#]+)(?=[)#])")
API = re.compile(r"^::: (\S+)$", re.MULTILINE)
LOG = logging.getLogger("mkdocs.hooks.site")  # warnings are errors of a strict build


def on_files(files: Files, config: Any) -> Files:
    """Add the pages and files that lie outside of docs/."""
    for here, there in ELSEWHERE.items():
        files.append(File.generated(config, there, abs_src_path=str(ROOT / here)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return a page with links of the site, and warn about objects on it that have no docstring."""
    for name in API.findall(markdown):
        for missing in undocumented(name):
            LOG.warning("%s has no docstring", missing)
    return linked(markdown, page.file.src_uri)


def linked(markdown: str, page: str) -> str:
    """Return a page's text with links from its place on the site instead of its place in the repository."""
    folder = posixpath.dirname(SOURCES.get(page, f"docs/{page}"))

    def link(found: re.Match[str]) -> str:
        here = posixpath.normpath(posixpath.join(folder, found[1]))
        there = ELSEWHERE.get(
            here, here.removeprefix("docs/") if here.startswith("docs/") else None
        )
        return (
            found[1] if there is None else posixpath.relpath(there, posixpath.dirname(page) or ".")
        )

    return LINK.sub(link, markdown)


def undocumented(name: str) -> Iterator[str]:
    """Yield the names of an object and its public methods that have no docstring."""
    package, _, path = name.partition(".")
    described = _package(package)[path]
    described = described.final_target if isinstance(described, Alias) else described
    members = {**described.inherited_members, **described.members} if described.is_class else {}
    for label, one in {"": described, **members}.items():
        hidden = (
            label.startswith("_")
            or one.is_attribute
            or (label and one.is_alias and not one.inherited)
        )
        if not hidden and not one.has_docstring:
            yield f"{name}.{label}" if label else name


@cache
def _package(name: str) -> Any:
    loader = GriffeLoader(search_paths=[ROOT])
    package = loader.load(name)
    loader.resolve_aliases(implicit=True)
    return package
