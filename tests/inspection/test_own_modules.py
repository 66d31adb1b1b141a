"""What is known about sweep's own modules is kept for later commands, and never used for other content."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from sweep.errors import InputError
from sweep.inspection import import_closure, own_modules
from sweep.inspection.own_modules import OwnModules, Trees, describe_own_module

TEXT = """
import json
from sweep.text import shortened

class Widget:
    def model(self, hp): return hp.units, hp[hp.kind]

def lazy():
    from sweep import errors
"""
ROOT = Path(own_modules.__file__).parents[2]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("SWEEP_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "sweep"


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "widget.py"
    path.write_text(TEXT)
    return path


def list_cache(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir()) if cache.is_dir() else []


def test_what_is_found_in_a_module() -> None:
    found = describe_own_module(ast.parse(TEXT), "trainables.widget", is_package=False)
    assert found.imports == (
        "json",
        "sweep.text",
        "sweep.text.shortened",
        "sweep",
        "sweep.errors",
    )
    assert found.first_imports == ("sweep.text",)
    assert found.reads.names == {"units", "kind"}
    assert found.reads.is_computed
    assert found.reads.definitions == {"Widget", "model", "lazy"}
    assert found.reads.positions == {"model": 1}


def test_it_is_kept_until_the_file_changes(cache: Path, module: Path) -> None:
    first = OwnModules()
    found = first.describe("trainables.widget", module)
    assert list_cache(cache) == []
    first.save()
    (name,) = list_cache(cache)
    # what is read is what was written, not found again
    content = json.loads((cache / name).read_bytes())
    content["trainables.widget"][1]["definitions"] = ["Kept"]
    (cache / name).write_text(json.dumps(content))
    kept = OwnModules().describe("trainables.widget", module)
    assert kept.reads.definitions == {"Kept"}
    assert kept.imports == found.imports
    assert kept.reads.positions == found.reads.positions
    module.write_text(f"{TEXT}\nclass More: pass\n")
    changed = OwnModules().describe("trainables.widget", module)
    assert changed.reads.definitions == {"Widget", "model", "lazy", "More"}


@pytest.mark.parametrize(
    "content",
    [
        *("", "[]", "{", "[" * 100_000, "\udcff"),
        '{"trainables.widget": 1}',
        '{"trainables.widget": ["x", {}]}',
        '{"trainables.widget": ["x", {"imports": [], "first_imports": [], "names": [], "is_computed": false, '
        '"definitions": [], "positions": {"f": Infinity}}]}',
    ],
)
def test_a_damaged_file_is_written_anew(cache: Path, module: Path, content: str) -> None:
    first = OwnModules()
    found = first.describe("trainables.widget", module)
    first.save()
    (name,) = list_cache(cache)
    (cache / name).write_text(content, encoding="utf-8", errors="surrogateescape")
    second = OwnModules()
    assert second.describe("trainables.widget", module) == found
    second.save()
    assert json.loads((cache / name).read_bytes())["trainables.widget"]


@pytest.mark.parametrize("home", ["not/absolute", "file/below"])
def test_without_a_folder_nothing_is_kept(
    home: str, tmp_path: Path, module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / home) if "file" in home else home)
    modules = OwnModules()
    assert modules.describe("trainables.widget", module).reads.names == {"units", "kind"}
    modules.save()
    assert not Path(home).exists()


def test_a_trainable_is_the_same_with_what_was_kept(cache: Path) -> None:
    found = []
    for _ in range(2):
        source = import_closure.inspect("trainables.digits_cnn:DigitsCNN", [ROOT])
        found.append(
            (
                dict(source.files),
                source.packages,
                source.reads,
                source.doubts,
                source.first_imports,
                source.own_modules,
                source.possible_metrics(),
            )
        )
        assert len(list_cache(cache)) == 1
    assert found[0] == found[1]


def test_trees_of_own_modules_are_parsed_when_they_are_asked_for(module: Path) -> None:
    author = ast.parse("x = 1")
    trees = Trees({"mine": author}, {"trainables.widget": module, "gone": Path("gone.py")})
    assert list(trees) == ["mine", "trainables.widget", "gone"]
    assert len(trees) == 3
    assert "gone" in trees
    assert trees["mine"] is author
    assert trees["trainables.widget"] is trees["trainables.widget"]
    assert isinstance(trees["trainables.widget"].body[0], ast.Import)
    module.write_text("class")
    with pytest.raises(InputError, match="no valid Python"):
        Trees({}, {"trainables.widget": module})["trainables.widget"]
