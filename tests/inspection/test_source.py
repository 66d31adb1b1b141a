"""What a trainable's source tells without being imported."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.errors import InputError
from sweep.inspection import inspect


def write(folder: Path, body: str, name: str = "mine.py") -> Path:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(body)
    return folder


@pytest.mark.parametrize(
    ("body", "reads"),
    [
        ("hp.a; hp['b']; hp.get('c', 1); hp.number('d'); 'e' in hp", {"a", "b", "c", "d", "e"}),
        ("hp.aug.kind", {"aug", "aug.kind"}),
        ("self.live.number('rate')", {"rate"}),
        ("hp.below('weights')", {"weights.*"}),
        ("other.a; other['b']; other.get('c')", set()),
    ],
)
def test_reads(tmp_path: Path, body: str, reads: set[str]) -> None:
    source = inspect("mine:T", [write(tmp_path, f"class T:\n    def f(self, hp, other):\n        {body}\n")])
    assert source.reads == reads


def test_an_annotated_argument_reads_whatever_its_name(tmp_path: Path) -> None:
    source = inspect("mine:T", [write(tmp_path, "class T:\n  def f(self, p: Hyperparameters): return p.x\n")])
    assert source.reads == {"x"}


def test_computed_names_are_unknown_unless_declared(tmp_path: Path) -> None:
    body = "class T:\n    def f(self, hp, name):\n        return hp.get(name, 0), hp.x\n"
    source = inspect("mine:T", [write(tmp_path, body)])
    assert (source.reads, source.doubts) == ({"x"}, ("mine:3: hp.get",))
    assert source.may_read("anything")
    source = inspect("mine:T", [write(tmp_path, 'READS = ("y", "z")\n' + body)])
    assert (source.reads, source.doubts) == ({"x", "y", "z"}, ())
    assert not source.may_read("anything")


def test_below_covers_what_is_below_it(tmp_path: Path) -> None:
    source = inspect("mine:T", [write(tmp_path, "class T:\n  def f(self, hp): hp.below('a.b'), hp.x\n")])
    assert [source.reads_parameter(n) for n in ("x", "a.b.c", "a.b.c.d", "a.b", "a.c")] == [
        True,
        True,
        True,
        False,
        False,
    ]


def test_follows_imports_of_the_project_and_no_others(tmp_path: Path) -> None:
    write(tmp_path, "import json\nfrom parts import net\nclass T: pass\n")
    write(tmp_path, "from . import deep\n", "parts/net.py")
    write(tmp_path, "def f(hp): return hp.width\n", "parts/deep.py")
    write(tmp_path, "", "parts/__init__.py")
    source = inspect("mine:T", [tmp_path])
    assert set(source.files) == {"mine", "parts", "parts.net", "parts.deep"}
    assert source.reads == {"width"}
    before = source.digest()
    write(tmp_path, "def f(hp): return hp.depth\n", "parts/deep.py")
    assert inspect("mine:T", [tmp_path]).digest() != before


def test_the_digest_does_not_depend_on_the_place(tmp_path: Path) -> None:
    digests = {inspect("mine:T", [write(tmp_path / name, "class T: pass\n")]).digest() for name in ("a", "b")}
    assert len(digests) == 1


def test_nothing_is_imported(tmp_path: Path) -> None:
    write(tmp_path, "raise SystemExit\nclass T: pass\n")
    assert set(inspect("mine:T", [tmp_path]).files) == {"mine"}


@pytest.mark.parametrize(
    ("trainable", "message"),
    [
        ("nowhere:T", "no module 'nowhere'"),
        ("mine:Net", "defines no 'Net'; did you mean 'Nets'?"),
        ("broken:T", "is no valid Python"),
    ],
)
def test_mistakes(tmp_path: Path, trainable: str, message: str) -> None:
    write(tmp_path, "class Nets: pass\n")
    write(tmp_path, "class T(\n", "broken.py")
    with pytest.raises(InputError, match=message.replace("?", r"\?")):
        inspect(trainable, [tmp_path])
