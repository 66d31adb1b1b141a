"""What a trainable surely reads, and which methods it has."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.inspection import inspect
from sweep.inspection.unconditional import find_method, is_function, list_lacking_methods

OTHER = "class Far:\n    def join(self): ...\n    leave = join\nclass Bare:\n    pass\ndef train(hp): ...\n"
NAMES = ("join", "leave")


def of(text: str) -> tuple[str, ...]:
    return list_lacking_methods("m:T", NAMES, {"m": ast.parse(text), "far.off": ast.parse(OTHER)})


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("def T(hp, report): ...", NAMES),
        ("@wrapped\ndef T(hp, report): ...", ()),
        ("class T:\n    'words'\n    def begin(self): ...", NAMES),
        ("class T:\n    def join(self): ...", ("leave",)),
        ("class T:\n    join: object\n    async def leave(self): ...", ()),
        ("class B:\n    def join(self): ...\n    def leave(self): ...\nclass T(B): ...", ()),
        ("class T(Elsewhere): ...", ()),
        ("from elsewhere import B\nclass T(B): ...", ()),
        ("from typing import Protocol\nclass T(Protocol): ...", NAMES),
        ("from far.off import Far as Near\nclass T(Near): ...", ()),
        ("import far.off\nclass T(far.off.Bare): ...", NAMES),
        ("import far.off as near\nclass T(near.Far): ...", ()),
        ("from far import off\nclass T(off.Bare): ...", NAMES),
        ("from far.off import train as T", NAMES),
        ("from far.off import gone as T", ()),
        ("T = make()", ()),
        ("if fast:\n    class T: ...\nelse:\n    class T:\n        def join(self): ...", ()),
        ("@made\nclass T: ...", ()),
        ("class T(metaclass=Meta): ...", ()),
        ("class T:\n    if True:\n        def join(self): ...", ()),
        ("class T(T): ...", ()),
        ("class T(bases[0]): ...", ()),
    ],
)
def test_a_method_is_missed_only_where_it_can_come_from_nowhere(
    text: str, missing: tuple[str, ...]
) -> None:
    assert of(text) == missing


def test_relative_imports_are_followed() -> None:
    trees = {
        "p": ast.parse(""),
        "p.m": ast.parse("from .far import Far as T"),
        "p.far": ast.parse(OTHER),
    }
    assert list_lacking_methods("p.m:T", NAMES, trees) == ()
    trees["p.m"] = ast.parse("from . import far\nclass T(far.Bare): ...")
    assert list_lacking_methods("p.m:T", NAMES, trees) == ()  # nobody knows: a name of the package


def test_functions_are_told_from_classes() -> None:
    trees = {"m": ast.parse("def f(hp): ...\nclass C: ...")}
    assert [is_function(f"m:{name}", trees) for name in ("f", "C", "g")] == [True, False, False]


def test_trainables_of_keras_have_what_ranks_need(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from trainables.digits_cnn import DigitsCNN\nclass Mine(DigitsCNN): ...\n"
    )
    assert inspect("mine:Mine", [tmp_path]).list_lacking_methods(*NAMES) == ()


CLASS = """
from trainables.keras_trainable import KerasTrainable

class Base(KerasTrainable):
    def data(self, hp):
        return hp.folder

class T(Base):
    def model(self, {hp}):
{body}
"""


def required(folder: Path, body: str, hp: str = "hp") -> set[str]:
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    (folder / "m.py").write_text(CLASS.format(body=lines, hp=hp))
    return {place.name for place in inspect("m:T", [folder]).list_certain_reads()} - {"folder"}


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ('return Dense(hp.units, hp["rate"], hp.number("depth"))', {"units", "rate", "depth"}),
        ("x = hp.aug.kind\nreturn x", {"aug"}),
        ("if hp.kind == 'a':\n    hp.units\nhp.rate", {"kind", "rate"}),
        ("if hp.kind == 'a':\n    return 1\nhp.rate", {"kind"}),
        ("for i in range(hp.depth):\n    hp.units", {"depth"}),
        ("with scope(hp.a):\n    hp.b\nhp.c", {"a", "b", "c"}),
        ("with suppress(AttributeError):\n    hp.a\nhp.b", {"b"}),
        ("with contextlib.suppress(AttributeError):\n    return hp.a\nhp.b", set()),
        ("try:\n    hp.a\nexcept AttributeError:\n    pass\nhp.b", set()),
        ("try:\n    hp.a\nexcept* AttributeError:\n    pass\nhp.b", set()),
        ("return hp.a if 'a' in hp else hp.b", set()),
        ("return 'a' in hp and hp.a", set()),
        ("assert hp.a > 0, f'{hp.b} is wrong'\nreturn hp.c", {"a", "c"}),
        ("return [hp.a for _ in range(hp.b)], lambda: hp.c", set()),
        (
            "hp.get('a', 1), hp.number('b', 2), hp.integer('c', default=3), hp.choice('d', ('x',), 'x')",
            set(),
        ),
        ("hp.to_dict(), hp._x, hp.below('aug')", set()),
        ("hp = merged(hp)\nreturn hp.a", set()),
        ("def later():\n    return hp.a\nreturn later", set()),
    ],
)
def test_reads_without_a_default_that_no_branch_can_leave_out(
    tmp_path: Path, body: str, names: set[str]
) -> None:
    assert required(tmp_path, body) == names


def test_their_places_and_those_of_inherited_methods(tmp_path: Path) -> None:
    assert required(tmp_path, "return params.units", hp="params") == {"units"}
    source = inspect("m:T", [tmp_path])
    assert [source.where(place) for place in source.list_certain_reads()] == [
        f"{tmp_path}/m.py:6",
        f"{tmp_path}/m.py:10",
    ]


SHARED_BASE = """
from trainables.keras_trainable import KerasTrainable

class Base(KerasTrainable):
    def data(self, hp):
        return hp.old

class One(Base):
    pass

class Two(Base):
    def data(self, hp):
        return hp.new

class T(One, Two):
    def model(self, hp):
        return 1
"""


def test_a_base_that_two_bases_share_comes_after_both_as_in_python(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(SHARED_BASE)
    assert {place.name for place in inspect("m:T", [tmp_path]).list_certain_reads()} == {"new"}


def test_a_base_that_an_unknown_one_may_derive_from_is_not_sure_to_come_first(
    tmp_path: Path,
) -> None:
    (tmp_path / "m.py").write_text(
        SHARED_BASE.replace(
            "class Two(Base):", "from unknown import Two as Other\n\nclass Two(Other):"
        )
    )
    assert inspect("m:T", [tmp_path]).list_certain_reads() == ()


# the bases of each class, as indices of earlier classes, and whether the class defines the method
HIERARCHIES = st.lists(
    st.tuples(st.lists(st.integers(0, 6), max_size=3, unique=True), st.booleans()), max_size=7
)


@given(HIERARCHIES)
def test_methods_are_found_in_the_order_of_python(classes: list[tuple[list[int], bool]]) -> None:
    names: dict[str, Any] = {}
    text = ""
    for number, (bases, defines) in enumerate(classes):
        earlier = ", ".join(f"C{base}" for base in bases if base < number)
        body = "def method(self): ..." if defines else "pass"
        one = f"class C{number}({earlier}):\n    {body}\n"
        try:
            exec(one, names)
        except TypeError:  # Python finds no order of these bases
            return
        text += one
    trees = {"m": ast.parse(text)}
    for number in range(len(classes)):
        order = names[f"C{number}"].__mro__
        owner = next((one.__name__ for one in order if "method" in vars(one)), None)
        _, found = find_method(f"m:C{number}", "method", trees)
        definitions = [node for node in trees["m"].body if found in getattr(node, "body", ())]
        assert [getattr(node, "name", "") for node in definitions] == ([owner] if owner else [])


def test_classes_that_are_bases_of_each_other_have_no_method(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("class A(B): pass\nclass B(A): pass\nclass T(A): pass\n")
    assert inspect("m:T", [tmp_path]).list_certain_reads() == ()


def test_a_function_reads_of_its_first_argument_and_other_classes_of_what_they_like(
    tmp_path: Path,
) -> None:
    (tmp_path / "m.py").write_text(
        "def train(params, report): report(x=params['a'])\n"
        "@wrapped\ndef other(params, report): report(x=params['a'])\n"
        "class Torch:\n    def model(self, hp): return hp.a\n"
    )
    found = [
        [place.name for place in inspect(f"m:{name}", [tmp_path]).list_certain_reads()]
        for name in ("train", "other")
    ]
    assert found == [["a"], []]
    assert inspect("m:Torch", [tmp_path]).list_certain_reads() == ()


def test_imports_of_what_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(
        "import nowhere_at_all.deep\nimport helper\n"
        "try:\n    import perhaps\nexcept ImportError:\n    perhaps = None\n"
        "if False:\n    import never\ndef train(hp, report):\n    import later\n"
    )
    (tmp_path / "helper.py").write_text("import json\nfrom gone_too import this\n")
    source = inspect("m:train", [tmp_path])
    found = {source.where(place): place.name for place in source.list_missing_imports()}
    assert found == {
        f"{tmp_path}/m.py:1": "nowhere_at_all.deep",
        f"{tmp_path}/helper.py:2": "gone_too",
    }
    (tmp_path / "m.py").write_text(
        "import sys\nsys.path.append('lib')\nimport nowhere_at_all\ndef train(hp): ...\n"
    )
    assert inspect("m:train", [tmp_path]).list_missing_imports() == ()


def test_a_relative_import_of_a_package_is_not_a_module_beside_it() -> None:
    trees = {"p": ast.parse("from .far import Bare as T"), "far": ast.parse(OTHER)}
    assert list_lacking_methods("p:T", NAMES, trees) == ()  # p.far cannot be read
