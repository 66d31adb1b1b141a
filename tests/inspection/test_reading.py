"""Which hyperparameters functions read."""

from __future__ import annotations

import ast

import pytest

from sweep.inspection.hyperparameter_reads import (
    METHODS,
    analyze_reads,
    find_conventional_reads,
    find_reads_of_module,
    get_first_name,
    get_last_name,
)


@pytest.mark.parametrize(
    ("line", "names", "computed"),
    [
        (
            "hp.a.b; hp['c']; params.get('d'); 'e' in hp; live.number('f'); hp.below('g')",
            "a a.b c d e f g.*",
            False,
        ),
        ("def f(x: Hyperparameters): return x.a", "a", False),
        ("hp.get(name); other.get('x')", "", True),
        ("READS = ('a',)\nhp.get(name)", "a", False),
    ],
)
def test_by_convention(line: str, names: str, computed: bool) -> None:
    found, more = find_conventional_reads(ast.parse(line))
    assert (found, more) == (set(names.split()), computed)


def test_names_at_both_ends() -> None:
    node = ast.parse("a.b().c", mode="eval").body
    assert (get_first_name(node), get_last_name(node)) == ("a", "c")


OURS = """
class KerasTrainable:
    def model(self, hp): pass
    def augment(self, x, hp, draws): pass
class DigitsCNN(KerasTrainable): pass
def schedule(hp): return hp.learning_rate
"""


def reading(body: str, **more: str) -> tuple[set[str], int]:
    """What is read, and how many doubts there are."""
    trees = {name: ast.parse(text) for name, text in {"mine": body, **more}.items()}
    found = analyze_reads(
        trees, {"trainables.keras_trainable": find_reads_of_module(ast.parse(OURS))}
    )
    return set(found.names) - {"learning_rate"}, len(found.doubts)


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("class T(KerasTrainable):\n  def model(self, config): return config.a, config['b'], config.get('c')", "a b c"),
        ("class T(DigitsCNN):\n  def augment(self, x, cfg, draws): return x.shape, cfg.strength", "strength"),
        ("class T(KerasTrainable):\n  def model(self, hp):\n    h = hp\n    return h.a, h.integer('b')", "a b"),
        ("class T(KerasTrainable):\n  def model(self, hp):\n    self.all = hp\n    return self.all.a", "a"),
        ("def f(x, c): return c.a\nclass T(KerasTrainable):\n  def model(self, hp): return f(1, c=hp)", "a"),
        ("class T(KerasTrainable):\n  def model(self, hp): return self.g(hp)\n  def g(self, c): return 'a' in c", "a"),
        ("class B:\n  def __init__(self, c): self.c = c\n  def f(self): return self.c.a\n"
         "class T(KerasTrainable):\n  def model(self, hp): return B(hp).f()", "a"),
        ("@dataclass\nclass B:\n  n: int\n  c: object\n  def f(self): return self.c.a\n"
         "class T(KerasTrainable):\n  def model(self, hp): return B(1, hp).f()", "a"),
        ("class T:\n  def begin(self, given):\n    p = given.params\n    return p['a'], given.params.get('b')", "a b"),
        ("class T(KerasTrainable):\n  def model(self, hp): return (lambda: hp.a)(), print(hp)", "a"),
        ("from trainables import schedules\nfrom trainables.x import f\nclass T(KerasTrainable):\n"
         "  def model(self, hp): return schedules.build(hp), f(hp), super().model(hp), self.augment(1, hp, 2)", ""),
        ("class Net:\n  def model(self, x): return x.shape", ""),
        ("class T(KerasTrainable):\n  def model(self, hp): return hp[f'units_{1}'], hp.Int('n_' + str(2), 1, 3)",
         "units_* n_*"),
    ],
)  # fmt: skip
def test_followed(body: str, names: str) -> None:
    assert reading(body) == (set(names.split()), 0)


@pytest.mark.parametrize("name", sorted(name for name in METHODS if not name.startswith("_")))
@pytest.mark.parametrize("read", ["hp['{}']", "hp.get('{}')", "'{}' in hp"])
def test_a_parameter_may_have_the_name_of_a_method(name: str, read: str) -> None:
    body = (
        f"class T(KerasTrainable):\n  def model(self, hp): return {read.format(name)}, hp.{name}(1)"
    )
    assert name in reading(body)[0]
    assert name not in reading(body.replace(read.format(name), "1"))[0]


def test_followed_into_other_modules() -> None:
    body = "from lib import make\nclass T(KerasTrainable):\n  def model(self, hp): return make(hp)"
    assert reading(body, lib="def make(settings): return settings.depth") == ({"depth"}, 0)


@pytest.mark.parametrize(
    "use",
    [
        "f(hp)",
        "schedule(hp)",
        "third.build(hp)",
        "own(hp)",
        "dict(hp)",
        "hp[name]",
        "hp.get(name)",
        "getattr(hp, name)",
        "Net(**hp)",
        "[hp]",
        "hp or x",
        "hp.items",
        "hp[f'{name}']",
        "maker.build(hp)",
    ],
)
def test_lost_sight_of(use: str) -> None:
    # Other people's `build` is not ours.
    before = (
        "import third\nfrom fourth import own\nmaker = third.Maker()\ndef build(c): return c.a\n"
    )
    assert (
        reading(f"{before}class T(KerasTrainable):\n  def model(self, hp):\n    return {use}")[1]
        == 1
    )


def test_what_is_declared_is_no_doubt() -> None:
    assert reading(
        "READS = ('a',)\nclass T(KerasTrainable):\n  def model(self, hp): return dict(hp)"
    ) == ({"a"}, 0)


def test_words_are_of_the_users_modules_alone() -> None:
    trees = {"mine": ast.parse("x.units; f(width=1); 'aug.kind'")}
    found = analyze_reads(
        trees, {"trainables.keras_trainable": find_reads_of_module(ast.parse(OURS))}
    )
    assert {"units", "width", "aug.kind", "kind"} <= found.words
    assert "learning_rate" not in found.words
