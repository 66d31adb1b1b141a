"""What travels with a class or function that no module has."""

from __future__ import annotations

import ast
import functools
import json
import linecache
import os.path
from pathlib import Path
from typing import Any

import numpy as np

import sweep.errors
from sweep.contract import Diverged
from sweep.inspection import dependencies, get_import_target, inspect_object

WIDTH = 3


def helper(x: int) -> int:
    return x + WIDTH


def make(width: int, other: object = None) -> Any:
    class Base:
        def inherited(self) -> object:
            return json.dumps(width)

    class Given(Base):
        size = 5

        @property
        def named(self) -> str:
            return os.path.join(str(width))  # noqa: PTH118  # a module below another

        def begin(self, assignment: Any) -> Any:
            if other:
                raise Diverged
            return [helper(n) for n in range(width)]

    return Given


def test_a_class_comes_with_its_bases_helpers_imports_and_values() -> None:
    found = dependencies.find_definitions(make(2))
    defined = [
        node.name
        for node in ast.parse(found.text).body
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
    ]
    assert defined == ["Given", "Base"]
    lines = found.text.splitlines()
    assert "from test_dependencies_given import helper" in lines
    assert "from sweep.contract import Diverged" in lines
    assert {"import json", "import posixpath", "import os"} & set(lines)
    values = json.loads(found.values)
    assert values["Given.size"] == 5
    assert values["Base.inherited.width"] == values["Given.begin.width"] == 2
    assert (found.unseen, found.unknown) == ((), ())


def test_other_values_are_another_source() -> None:
    digests = {inspect_object("__main__:Given", make(width), []).digest() for width in (2, 2, 3)}
    assert len(digests) == 2


def test_values_that_nothing_tells_are_unknown() -> None:
    found = dependencies.find_definitions(make(2, np.zeros(3)))
    assert found.unknown == ("Given.begin.other is a ndarray",)
    source = inspect_object("__main__:Given", make(2, np.zeros(3)), [])
    assert "Given.begin.other is a ndarray" in source.unknown


def test_partial_functions_and_defaults_are_followed() -> None:
    def train(hp: Any, report: Any, rate: float = 0.5, *, steps: int = 4) -> None:
        report(loss=hp.x * rate * steps)

    found = dependencies.find_definitions(functools.partial(train, rate=0.25))
    values = json.loads(found.values)
    assert values == {"partial.0": 0.5, "partial.steps": 4, "partial.rate": 0.25}
    assert found.text.startswith("def train(")


def test_code_without_a_text_is_unseen_and_may_read_anything() -> None:
    scope: dict[str, Any] = {}
    exec("def typed(hp, report):\n    return helper(hp.x)\ndef helper(x):\n    return x", scope)
    source = inspect_object("__main__:typed", scope["typed"], [])
    assert source.unseen == ("the text of typed cannot be had", "the text of helper cannot be had")
    assert source.unknown == source.unseen
    assert source.may_read("anything")
    assert not source.reads


def test_cells_of_a_notebook_have_a_text(tmp_path: Path) -> None:
    cell = "import json\nK = 1\nclass Cell:\n    def begin(self, hp):\n        return json.loads(hp.text('x')) + K\n"
    linecache.cache["<cell 1>"] = (len(cell), None, cell.splitlines(keepends=True), "<cell 1>")
    scope: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(cell, "<cell 1>", "exec"), scope)
    source = inspect_object("__main__:Cell", scope["Cell"], [tmp_path])
    assert source.unknown == ()
    assert source.reads == {"x"}
    assert source.texts["__main__"].startswith("import json\nclass Cell:")
    assert source.texts["__main__"].endswith('{"K": 1}')


def test_a_lambda_under_a_name_of_the_notebook_is_part_of_the_code() -> None:
    digests = set()
    for factor in (2, 3):
        cell = f"scale = lambda x: {factor} * x\ndef train(hp, report):\n    report(loss=scale(hp.x))\n"
        name = f"<cell {factor}>"
        linecache.cache[name] = (len(cell), None, cell.splitlines(keepends=True), name)
        scope: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(cell, name, "exec"), scope)
        source = inspect_object("__main__:train", scope["train"], [])
        assert source.unknown == ()
        digests.add(source.digest())
    assert len(digests) == 2


def make_with_a_line_at_the_margin() -> Any:
    class Given:
        def begin(self, assignment: Any) -> Any:
            return """two
lines"""

    return Given


def test_a_class_that_cannot_be_unindented_is_unseen() -> None:
    source = inspect_object("__main__:Given", make_with_a_line_at_the_margin(), [])
    assert source.unseen == ("the text of Given cannot be had",)


def test_the_first_argument_of_a_function_is_what_it_reads() -> None:
    def train(config: Any, report: Any) -> None:
        report(loss=config["a"] + config.get("b", 1) + config.number("c"))

    source = inspect_object("__main__:train", train, [])
    assert (source.reads, source.doubts) == ({"a", "b", "c"}, ())


def test_what_a_module_has_is_importable() -> None:
    assert get_import_target(helper) == "test_dependencies_given:helper"
    assert get_import_target(sweep.errors.InputError) == "sweep.errors:InputError"
    assert get_import_target(make(1)) is None
    assert get_import_target(5) is None
