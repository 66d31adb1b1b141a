"""What ARCHITECTURE.md and the decision records name in backticks exists: files, classes, methods and functions."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs" / "adr").glob("*.md"))]
FOLDERS = ("sweep", "trainables", "tests", "tools", "docs", "search_spaces")

NAMES_OF_OTHERS = {
    "BackupAndRestore",
    "ClusterCoordinator",
    "MultiWorkerMirroredStrategy",
    "RAY_preload_python_modules",
    "ScheduleFreeAdamW",
    "TUNE_RESULT_BUFFER_LENGTH",
    "UpdateFinishedTrialError",
    "clear_session",
    "external_captures",
    "list",  # a command of sweep, whose function has another name
    "minimize",
    "npz",
    "object_store",
    "pb2",
    "save_weights",
    "sqlite3",
    "steps_per_execution",
    "subprocess",
}
"""Names of Keras, TensorFlow, Ray, Python and others; those that the two packages define as well need not be here."""

OWNERS_OF_OTHERS = {"Model", "Tuner", "functools", "keras", "model", "np", "tf", "tune"}
"""What stands before the dot in names of others, such as `Model.fit`."""

KEYS = {"confirm.race", "resources.workers", "training.fuse"}
"""Keys of the sweep file."""

PATHS_OF_OTHERS = {"/user/ada/proxy/8421/"}


@cache
def read_modules() -> dict[str, str]:
    """Return the text of each module of the two packages by its path."""
    paths = [path for package in ("sweep", "trainables") for path in (ROOT / package).rglob("*.py")]
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in paths}


@cache
def list_files() -> set[str]:
    """Return all files and folders that a page may name, as paths."""
    paths = [*ROOT.glob("*"), *(ROOT / "results").glob("*.md")]
    for folder in FOLDERS:
        paths += (ROOT / folder).rglob("*")
    return {path.relative_to(ROOT).as_posix() for path in paths if "__pycache__" not in path.parts}


def find_definitions(text: str) -> set[str]:
    """Return the names that some code defines: classes, functions, methods, constants, fields and attributes."""
    found = re.findall(
        r"^ *(?:async )?(?:def|class) (\w+)|^ *(?:self\.)?(\w+)(?:: [^\n]*| = )", text, re.MULTILINE
    )
    return {name for pair in found for name in pair if name}


@cache
def list_definitions() -> set[str]:
    """Return the names that Python modules define, and the functions and constants of the page's scripts."""
    found = set().union(*map(find_definitions, read_modules().values()))
    for script in (
        *(ROOT / "sweep/ui/page").glob("*.js"),
        *(ROOT / "sweep/render/report").glob("*.js"),
    ):
        if not script.name.endswith(".min.js"):
            found |= set(
                re.findall(
                    r"^ *(?:async )?(?:function|const|let) (\w+)", script.read_text(), re.MULTILINE
                )
            )
    return found


def find_class(name: str) -> str:
    """Return the code of the class with this name and of its bases among ours; empty if there is none."""
    for text in read_modules().values():
        found = re.search(
            rf"^class {name}\b(?:\(([^)]*)\))?:\n((?:(?: .*|#.*|\).*)?\n)*)", text, re.MULTILINE
        )
        if found:
            bases = [base for base in re.findall(r"\w+", found[1] or "") if base != name]
            return found[2] + "".join(map(find_class, bases))
    return ""


def find_modules(path: str) -> list[str]:
    """Return the texts of the modules whose path ends like this."""
    return [text for file, text in read_modules().items() if f"/{file}".endswith(f"/{path}")]


def read_text(page: Path) -> str:
    """Return a page without its blocks of code, as one line."""
    return " ".join(re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL).split())


def quote_names(page: Path, pattern: str) -> list[str]:
    """Return what stands in backticks on a page and matches a pattern."""
    return [
        name for name in re.findall(r"`([^`]+)`", read_text(page)) if re.fullmatch(pattern, name)
    ]


def is_defined(name: str) -> bool:
    """Return whether the tree has what a name with dots stands for: a module, or a member of a class or a module."""
    owner, _, member = name.rpartition(".")
    path = name.replace(".", "/")
    if find_modules(f"{path}.py") or find_modules(f"{path}/__init__.py"):
        return True
    if owner[0].isupper():
        return member in find_definitions(find_class(owner))
    return any(
        member in find_definitions(text) for text in find_modules(f"{owner.replace('.', '/')}.py")
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_file_that_a_page_names_exists(page: Path) -> None:
    for name in quote_names(page, r"[\w./*-]*(?:/|\w\.(?:py|js|html|md|toml|yaml))"):
        if name not in PATHS_OF_OTHERS:
            ending = re.escape(name.rstrip("/")).replace(r"\*", "[^/]*")
            assert any(re.search(rf"(?:^|/){ending}$", file) for file in list_files()), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_name_is_defined(page: Path) -> None:
    names = set(quote_names(page, r"_*[a-zA-Z]\w*"))
    assert not names - list_definitions() - NAMES_OF_OTHERS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_name_with_dots_is_defined(page: Path) -> None:
    for name in quote_names(page, r"[a-zA-Z_]\w*(?:\.\w+)+"):
        is_file = re.search(
            r"\.(?:py|js|html|jinja|css|md|toml|yaml|json|csv|parquet|pkl|txt)$", name
        )
        if not is_file and name not in KEYS and name.split(".")[0] not in OWNERS_OF_OTHERS:
            assert is_defined(name), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_names_are_defined_in_the_class_or_the_file_that_they_are_said_to_be_in(page: Path) -> None:
    for names, owner in re.findall(
        r"((?:`[\w.]+`(?:,? and |, | ))+)(?:of|in) `([\w/]+(?:\.py)?)`", read_text(page)
    ):
        code = "\n".join(find_modules(owner)) if owner.endswith(".py") else find_class(owner)
        if not code:  # a name of others, or what is no code
            assert not owner.endswith(".py"), owner
            continue
        for name in re.findall(r"`([\w.]+)`", names):
            first, *members = name.split(".")
            assert first in find_definitions(code), f"{name} in {owner}"
            assert not members or is_defined(name), name


def test_a_name_that_is_gone_is_found() -> None:
    assert is_defined("Coordinator.take")
    assert is_defined("sweep.store.log")
    assert not is_defined("Coordinator.hear_of")
    assert "take" not in find_definitions(find_class("NextTrial"))
