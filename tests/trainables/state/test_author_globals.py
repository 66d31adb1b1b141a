from __future__ import annotations

import random
import sys
import types
from collections import Counter, deque
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from small import Small

from sweep.state import values
from sweep.state.draws import seeding_entropy
from trainables.state.author_globals import AuthorSurroundings, HookChanges, NotPutBack

pytestmark = pytest.mark.keras

WORDS = """
from collections import Counter, deque
import random
import numpy as np
import tensorflow as tf
import keras

class Scaler:
    means = {}
    def __init__(self):
        self.scale = 1.0

STATE = {}
LIMIT = 3
NAMES = ["a"]
SEEN = set()
COUNTS = Counter()
LAST = deque([1], 3)
PAIR = (1, [2])
X = np.arange(6.0)
SCALER = Scaler()
RANDOM = random.Random(0)
RNG = np.random.default_rng(0)
OLD = np.random.RandomState(0)
TF = tf.random.Generator.from_seed(0)
SEED = keras.random.SeedGenerator(0)
LOOKUP = keras.layers.StringLookup()
LAYER = keras.layers.Normalization()
BIG = np.zeros(2**22)
CODE = None
"""
GENERATORS = {"RANDOM", "RNG", "OLD", "TF", "SEED"}


def an_author() -> Any:
    """Stands for a trainable, of a class of its own: what `data` leaves is known by class."""
    return type("Author", (), {})()


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "some_words.py").write_text(WORDS)
    monkeypatch.syspath_prepend(str(tmp_path))
    import some_words

    yield some_words
    del sys.modules["some_words"]


def fit(words: Any, author: Any) -> None:
    words.STATE["vocabulary"] = ["a", "b"]
    words.LIMIT += 1
    words.NAMES.append("b")
    words.SEEN.add("b")
    words.COUNTS["b"] += 1
    words.LAST.append(len(words.LAST))
    words.PAIR[1].append(3)
    words.X *= 2
    words.SCALER.scale *= 3
    words.Scaler.means["a"] = len(words.Scaler.means)
    words.NEW = 1
    words.CODE = lambda: 1
    words.LOOKUP.adapt(["a", "b"])
    words.LAYER.adapt(np.arange(3.0))
    author.mean = len(vars(author))


CHANGED = {
    "STATE", "LIMIT", "NAMES", "SEEN", "COUNTS", "LAST", "PAIR", "X", "SCALER", "Scaler.means", "NEW", "CODE",
    "LOOKUP", "LAYER",
}  # fmt: skip


def run(surroundings: AuthorSurroundings, author: object, words: Any) -> set[str]:
    with surroundings.running_data(author) as left:
        fit(words, author)
        found = left()
    return {
        name.removeprefix("some_words.")
        for name in found
        if "some_words" in name or name.startswith("self")
    }


def described(words: Any, author: Any) -> str:
    return str((
        words.STATE, words.LIMIT, words.NAMES, words.SEEN, words.COUNTS, words.LAST, words.PAIR, words.X.tolist(),
        words.SCALER.scale, words.Scaler.means, words.NEW, words.LOOKUP.get_vocabulary(), vars(author),
    ))  # fmt: skip


def test_what_data_leaves_anywhere_is_known_and_put_back_before_it_runs_again(words: Any) -> None:
    surroundings, author = AuthorSurroundings(frozenset()), an_author()
    objects = words.STATE, words.X, words.SCALER
    assert run(surroundings, author, words) == {*CHANGED, "self.mean"}
    first = described(words, author), surroundings.compute_digests(author)
    assert run(surroundings, author, words) == {*CHANGED, "self.mean"}
    assert described(words, author) == first[0]
    assert all(a is b for a, b in zip(objects, (words.STATE, words.X, words.SCALER), strict=True))
    same = {
        name
        for name, value in surroundings.compute_digests(author).items()
        if value == first[1][name]
    }
    assert first[1].keys() - same <= {"some_words.CODE"}  # a function is itself alone

    # of another object, in a process where `data` has run before
    another = AuthorSurroundings(frozenset())
    with another.running_data(type(author)()) as left:
        assert words.STATE == {}
        assert {"some_words.STATE", "some_words.X"} <= left()
    assert words.X.tolist() == np.arange(6.0).tolist()
    assert words.Scaler.means == {}
    assert not hasattr(words, "NEW")


def test_generators_go_on_as_if_data_had_drawn_nothing(words: Any) -> None:
    def draws() -> list[float]:
        return [
            words.RANDOM.random(), float(words.RNG.random()), float(words.OLD.rand()),
            float(words.TF.uniform(())), float(keras.random.uniform((), seed=words.SEED)),
        ]  # fmt: skip

    surroundings, author, found = AuthorSurroundings(frozenset()), an_author(), []
    for _ in range(2):
        with surroundings.running_data(author) as left:
            found.append(draws())
            found.append(draws())
            assert left() == set()
    found += [draws(), draws()]
    assert found[:2] == found[2:4] == found[4:]
    assert found[0] != found[1]


def test_what_is_too_large_to_be_put_back_may_be_replaced_and_not_changed(words: Any) -> None:
    surroundings, author, big = AuthorSurroundings(frozenset()), an_author(), words.BIG
    with surroundings.running_data(author) as left:
        words.BIG = words.BIG + 1
        assert left() == {"some_words.BIG"}
    with surroundings.running_data(author):
        assert words.BIG is big
    with pytest.raises(
        NotPutBack, match=r"changed some_words.BIG in place \(32 MiB\), .* compute on a copy"
    ):
        change_in_place(surroundings, author, words)


def test_what_somebody_else_has_set_meanwhile_stays(words: Any) -> None:
    surroundings, author = AuthorSurroundings(frozenset()), an_author()
    run(surroundings, author, words)
    words.STATE, words.LIMIT = {"mine": 1}, 100
    run(surroundings, author, words)
    assert words.STATE == {"mine": 1, "vocabulary": ["a", "b"]}
    assert words.LIMIT == 101
    with surroundings.running_data(author):
        assert words.STATE == {"mine": 1}
        assert words.LIMIT == 100


def test_a_trainable_in_a_module_is_watched_by_itself_alone(words: Any) -> None:
    words.TRAINABLE = Small()
    with AuthorSurroundings(frozenset()).running_data(an_author()) as left:
        words.TRAINABLE.some = 1
        assert left() == set()


NOTEBOOK = """
import numpy as np
class Trainable:
    def data(self, hp):
        return load()
def load():
    STATE["a"] = 1
    return inner()
inner = lambda: CONSTANT
STATE, CONSTANT, t, frame = {}, 3, None, np.zeros(3)
"""


def test_of_a_notebook_only_what_the_trainable_uses_is_watched() -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(NOTEBOOK, names)
    author = names["Trainable"]()
    with AuthorSurroundings(frozenset()).running_data(author) as left:
        author.data(None)
        names["t"], names["frame"][0] = author, 1
        assert {name for name in left() if name.startswith("__main__")} == {"__main__.STATE"}
    with AuthorSurroundings(frozenset()).running_data(author):
        assert names["STATE"] == {}
        assert names["t"] is author


def change_in_place(surroundings: AuthorSurroundings, author: object, words: Any) -> None:
    with surroundings.running_data(author):
        words.BIG += 1


def test_arrays_too_large_to_be_read_are_seen_to_change(
    monkeypatch: pytest.MonkeyPatch, words: Any
) -> None:
    monkeypatch.setattr(values, "LARGEST_BYTES", 2**20)
    with pytest.raises(NotPutBack, match="BIG"):
        change_in_place(AuthorSurroundings(frozenset()), an_author(), words)


def test_a_module_that_is_imported_by_data_has_left_nothing_by_that(
    tmp_path: Path, monkeypatch: Any
) -> None:
    (tmp_path / "later_words.py").write_text("STATE = {}\nLIMIT = 3\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for expected in (set(), {"later_words.STATE"}):
        with AuthorSurroundings(frozenset()).running_data(an_author()) as left:
            import later_words

            later_words.STATE.update({"a": 1} if expected else {})
            assert left() == expected
    del sys.modules["later_words"]


def test_what_is_installed_and_what_logs_is_no_author_s(words: Any) -> None:
    import logging

    words.LOG = logging.getLogger("words")
    with AuthorSurroundings(frozenset()).running_data(an_author()) as left:
        words.LOG.info("loading")
        np.some_attribute = 1
        assert left() == set()
    del np.some_attribute


def test_each_kind_of_value_is_put_back_as_it_was() -> None:
    for value, change in (
        (Counter("a"), lambda v: v.update("b")),
        (deque([1], 2), lambda v: v.append(2)),
        (types.SimpleNamespace(a=1), lambda v: setattr(v, "b", 2)),
        (random.Random(1), lambda v: v.random()),
        (tf.random.Generator.from_seed(1), lambda v: v.uniform(())),
        (keras.initializers.GlorotNormal(), lambda v: setattr(v, "seed", 3)),
        (keras.optimizers.Adam(), lambda v: v.learning_rate.assign(0.5)),
        (keras.metrics.Mean(), lambda v: v.update_state(3.0)),
        (tf.Variable([1.0, 2.0]), lambda v: v.assign([3.0, 4.0])),
    ):
        kept, before = values.Snapshot(value), values.digest(value)
        change(value)
        assert values.digest(value) != before
        kept.restore()
        assert values.digest(value) == before, type(value)


def test_a_snapshot_shares_methods_and_what_they_are_bound_to() -> None:
    """Copying `np.random.rand` takes a seed from the machine, and the copy would draw other numbers."""

    class Large:
        def __deepcopy__(self, memo: Any) -> Any:
            raise AssertionError("it is not copied")

        def look(self) -> None: ...

    look = Large().look
    table = {"draws": np.random.rand, "looks": [look]}
    with seeding_entropy(0) as entropy:
        kept = values.Snapshot(table)
        table["draws"] = table["looks"].append(1)
        kept.restore()
    assert table == {"draws": np.random.rand, "looks": [look]}
    assert not entropy.seeds


CACHES = """
import functools

@functools.cache
def unlimited(key):
    return [key]

@functools.lru_cache(maxsize=4)
def limited(key):
    return {"key": key}
"""


@pytest.fixture
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "some_caches.py").write_text(CACHES)
    monkeypatch.syspath_prepend(str(tmp_path))
    import some_caches

    yield some_caches
    del sys.modules["some_caches"]


def test_a_resumed_trial_is_without_what_hooks_change_in_cached_results(caches: Any) -> None:
    caches.unlimited("a"), caches.limited("a")
    changes = HookChanges(an_author())
    caches.unlimited("b"), caches.limited("b")  # results that a resumed trial computes again
    assert changes.state()["lost"] == []
    caches.unlimited("a").append(1)
    assert changes.state()["lost"] == ["some_caches.unlimited"]
    caches.limited("b")["more"] = 1  # after it was first seen
    lost = changes.state()
    assert lost["lost"] == ["some_caches.limited", "some_caches.unlimited"]
    assert (
        "some_caches.limited, some_caches.unlimited, changed by hooks or callbacks"
        in changes.restore(lost)
    )
