"""docs/private_names.md names all that the code uses of other libraries' private names, and nothing else."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest
from private_uses import uses

from sweep.backends.ray_tune import ray_private_api

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "private_names.md").read_text()
PRIVATE = ("keras.src", "tensorflow.python", "ray.air", "ray.tune.execution")


class Row(NamedTuple):
    section: str
    names: tuple[str, ...]
    files: tuple[str, ...]
    purpose: str
    loss: str
    test: str


def _rows() -> list[Row]:
    rows = []
    for section in PAGE.split("\n## ")[1:]:
        for line in re.findall(r"^\| `.*\|$", section, re.MULTILINE):
            names, files, purpose, loss, test = (cell.strip() for cell in line.strip("|").split("|"))
            quoted = (tuple(re.findall(r"`([^`]+)`", cell)) for cell in (names, files))
            rows.append(Row(section.splitlines()[0], *quoted, purpose, loss, test.strip("`")))
    return rows


ROWS = _rows()
OF_STATE = {f"sweep/{file}": names for file, names in uses(ROOT / "sweep" / "state", PRIVATE).items()}
FOUND = uses(ROOT / "trainables", PRIVATE) | OF_STATE
SECTIONS = ("Keras", "TensorFlow", "Python and NumPy, and what is asked where TensorFlow was imported")
TESTS = Counter(
    node.name
    for path in (ROOT / "tests").rglob("test_*.py")
    for node in ast.walk(ast.parse(path.read_text()))
    if isinstance(node, ast.FunctionDef)
)


@pytest.mark.parametrize("file", FOUND)
def test_every_private_name_is_on_the_page(file: str) -> None:
    named = {name for row in ROWS if row.section in SECTIONS and file in row.files for name in row.names}
    assert FOUND[file] <= named, "name them in docs/private_names.md, each with the test that notices its change"


@pytest.mark.parametrize("row", [row for row in ROWS if row.section in SECTIONS], ids=str)
def test_what_the_page_names_is_used_where_it_says(row: Row) -> None:
    assert all(FOUND.get(file, set()) & set(row.names) for file in row.files)
    assert set(row.names) <= set().union(*(FOUND[file] for file in row.files))


@pytest.mark.parametrize("row", [row for row in ROWS if row.section.startswith("What no")], ids=str)
def test_other_names_are_in_the_text(row: Row) -> None:
    for name in row.names:
        assert all(re.search(rf"\b{name}\b", (ROOT / file).read_text()) for file in row.files), name


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_each_row_has_a_test_and_a_reason(row: Row) -> None:
    assert TESTS[row.test] == 1, f"{TESTS[row.test]} tests are called {row.test}"
    assert row.purpose
    assert row.loss


def test_ray_s_names_are_those_of_its_list() -> None:
    listed = {use for use in vars(ray_private_api).values() if isinstance(use, ray_private_api.Use)}
    rows = [row for row in ROWS if row.section == "Ray"]
    assert {(row.names, row.loss) for row in rows} == {(use.names, use.loss) for use in listed}
    for row in rows:
        uses_of_row = {
            name for name, use in vars(ray_private_api).items() if use == ray_private_api.Use(row.names, row.loss)
        }
        for file in row.files:
            assert any(f"ray_private_api.{name}" in (ROOT / file).read_text() for name in uses_of_row), row


def test_the_service_has_no_private_names_but_ray_s_and_optuna_s() -> None:
    parts = {part for row in ROWS if row.section == "Ray" for name in row.names for part in re.split(r"[:.]", name)}
    optunas = {name for row in ROWS if row.section == "Optuna" for name in row.names}
    for file, names in uses(ROOT / "sweep", PRIVATE).items():
        if file in OF_STATE:
            continue  # which is on the page by file
        hidden = {name for name in names if not name.endswith(" =")}
        assert hidden <= (parts if "/ray_tune/" in file else optunas), file


def test_the_finder_sees_each_way_to_use_a_private_name(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "code.py").write_text(
        "from keras.src import backend\n"
        "from keras.src.utils.naming import reset_uids as anew\n"
        "import tensorflow.python.ops as ops\n"
        "from ray import _private\n"
        "class Own:\n"
        "    _field: int = 0\n"
        "    def _method(self): self.shape = self._field\n"
        "def use(layer, own):\n"
        "    backend.standardize(1), ops.add(1), _private.node\n"
        "    layer._losses, own._field, own._method(), getattr(layer, '_mask', None), row._replace(a=1)\n"
        "    layer.call, own.shape = 1, 2\n"
        "    del layer._hidden\n"
    )
    assert uses(tmp_path / "own", ("keras.src", "tensorflow.python")) == {
        "own/code.py": {
            "keras.src.backend:standardize", "keras.src.utils.naming:reset_uids", "tensorflow.python.ops:add",
            "ray._private:node", "_losses", "_mask", "call =", "_hidden",
        }
    }  # fmt: skip
