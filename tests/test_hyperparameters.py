from __future__ import annotations

import itertools
import pickle
import re
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.hyperparameters import (
    Hyperparameters,
    ReadMark,
    Reads,
    RecordedParams,
    from_json,
    to_json,
)

HP = {"rate": 0.1, "units": 8, "kind": "relu", "on": True, "aug.kind": "flip", "aug.deep.p": 0.5}


def test_reading() -> None:
    hp = Hyperparameters(HP)
    assert (hp.rate, hp["units"], hp.get("kind", ""), hp.get("none", 3)) == (0.1, 8, "relu", 3)
    assert (hp.aug.kind, hp["aug.kind"], hp.aug["kind"], hp.aug.deep.p) == (
        "flip",
        "flip",
        "flip",
        0.5,
    )
    assert hp.below("aug") == ("kind", "deep.p")
    assert (hp.number("units"), hp.integer("units"), hp.text("kind"), hp.integer("missing", 4)) == (
        8.0,
        8,
        "relu",
        4,
    )
    assert (hp.flag("on"), hp.flag("off", default=False)) == (True, False)
    assert (
        hp.choice("kind", ("relu", "tanh"))
        == hp.choice("other", ("relu", "tanh"), "relu")
        == "relu"
    )
    assert "rate" in hp
    assert "missing" not in hp


def test_what_is_in_a_group() -> None:
    hp = Hyperparameters(HP)
    assert "kind" in hp.aug
    assert "size" not in hp.aug
    assert "deep.p" in hp.aug
    assert "p" in hp.aug.deep
    assert list(hp.aug) == ["kind", "deep.p"]
    reads: Reads = {}
    with hp.recording(reads):
        assert "kind" in hp.aug
    assert hp.matches_reads(reads)
    assert not Hyperparameters({"aug.deep.p": 0.5}).matches_reads(reads)


@pytest.mark.parametrize(
    "read", [lambda hp: "aug" in hp, lambda hp: hp.get("aug"), lambda hp: hp.aug]
)
def test_a_group_is_no_parameter_of_the_same_name(read) -> None:
    hp, reads = Hyperparameters({"aug.kind": "flip"}), {}
    with hp.recording(reads):
        read(hp)
    assert ("aug" in hp, hp.get("aug"), list(hp)) == (False, None, ["aug.kind"])
    assert hp.matches_reads(from_json(to_json(reads)))
    assert Hyperparameters({"aug.kind": "crop"}).matches_reads(reads)
    assert not Hyperparameters({"aug": 3}).matches_reads(reads)  # there, the answer is another


@pytest.mark.parametrize(
    ("read", "error", "message"),
    [
        (lambda hp: hp.rat, AttributeError, "no parameter 'rat'; it has: rate"),
        (lambda hp: hp["rat"], KeyError, "no parameter 'rat'"),
        (lambda hp: hp.aug.size, AttributeError, "no parameter 'aug.size'"),
        (lambda hp: hp.number("kind"), TypeError, "is 'relu', expected a number"),
        (lambda hp: hp.number("on"), TypeError, "is True, expected a number"),
        (lambda hp: hp.integer("rate"), TypeError, "expected a whole number"),
        (lambda hp: hp.integer("kind"), TypeError, "is 'relu', expected a whole number"),
        (lambda hp: hp.text("rate"), TypeError, "expected a text"),
        (lambda hp: hp.flag("kind"), TypeError, "is 'relu', expected true or false"),
        (
            lambda hp: hp.choice("kind", ("tanh", "gelu")),
            ValueError,
            "is 'relu', expected one of tanh, gelu",
        ),
    ],
)
def test_mistakes(read, error, message) -> None:
    with pytest.raises(error, match=message):
        read(Hyperparameters(HP))


@pytest.mark.parametrize(
    ("value", "choices"),
    [
        (True, [True, False]),
        (False, [True, False]),
        (16, [8, 16]),
        (0.5, (0.25, 0.5)),
        (8, [8.0, 16.0]),
        (None, [None, "layer", "batch"]),
        ("layer", [None, "layer", "batch"]),
        (1, ["1", 1, True]),
        (True, ["1", 1, True]),
        ("1", ["1", 1, True]),
        ([3, 3], [(3, 3), (5, 5)]),
        ([], [[], [64]]),
        ({"a": 1}, [{"a": 1}, {"a": 2}]),
        (16, np.array([8, 16])),
        (0.5, [np.float32(0.5)]),
    ],
)
def test_a_choice_is_returned_as_it_is_whatever_its_type(value, choices) -> None:
    found = Hyperparameters({"it": value}).choice("it", choices)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("value", "choices", "message"),
    [
        (True, [0, 1], "parameter 'it' is True, expected one of 0, 1"),
        (1, [True, False], "parameter 'it' is 1, expected one of True, False"),
        ("8", [8, 16], "parameter 'it' is '8', expected one of 8, 16"),
        (8, ["8", None], "parameter 'it' is 8, expected one of '8', None"),
        (None, ["layer", "batch"], "parameter 'it' is None, expected one of layer, batch"),
        ([3, 1], [(3, 3), 3], "parameter 'it' is [3, 1], expected one of (3, 3), 3"),
        (4, np.array([8, 16]), "parameter 'it' is 4, expected one of 8, 16"),
    ],
)
def test_a_value_that_is_no_choice_is_refused(value, choices, message) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Hyperparameters({"it": value}).choice("it", choices)


def test_an_absent_choice_is_its_default() -> None:
    hp = Hyperparameters({})
    assert hp.choice("norm", [None, "layer"], None) is None
    assert hp.choice("norm", [None, "layer"], "layer") == "layer"
    assert hp.choice("half", [True, False], default=False) is False
    with pytest.raises(KeyError, match="no parameter 'half'"):
        hp.choice("half", [True, False])
    with pytest.raises(ValueError, match="is 4, expected one of 8, 16"):
        hp.choice("units", [8, 16], 4)


def test_a_record_holds_what_was_read_and_how() -> None:
    reads: Reads = {}
    hp = Hyperparameters(HP)
    with hp.recording(reads):
        hp.get("none", 1)
        assert "units" in hp
        assert hp.rate
        hp.below("aug")
    assert hp.kind
    assert reads == {
        "none": ReadMark.ABSENT,
        "units": ReadMark.PRESENT,
        "rate": 0.1,
        "aug": ("aug.kind", "aug.deep.p"),
    }


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (HP, True),
        # not read, or only whether it is there
        (
            {**HP, "kind": "tanh", "units": 9, "aug.kind": "crop"},
            True,
        ),
        ({**HP, "none": 1}, False),
        ({**HP, "rate": 0.2}, False),
        ({**HP, "aug.more": 1}, False),
        ({name: value for name, value in HP.items() if name != "units"}, False),
    ],
)
def test_agreement(other, same) -> None:
    hp, reads = Hyperparameters(HP), {}
    with hp.recording(reads):
        assert (hp.get("none", 1), "units" in hp, hp.rate, len(hp.below("aug"))) == (
            1,
            True,
            0.1,
            2,
        )
    assert Hyperparameters(other).matches_reads(reads) is same


@pytest.mark.parametrize(
    ("read", "others"),
    [
        (lambda hp: hp.to_dict(), [{"a": 1}]),
        (lambda hp: list(hp), [{"a": 1}]),
        (lambda hp: hasattr(hp, "aug"), [{"a": 1, "aug.kind": "flip"}]),
        (lambda hp: hp.get("aug"), [{"a": 1, "aug": 3}]),
        (
            lambda hp: hasattr(hp.aug if hasattr(hp, "aug") else hp, "deep"),
            [{"aug.deep.p": 1}, {"aug.kind": 2}],
        ),
    ],
)
def test_trials_of_which_one_has_more_parameters_do_not_agree(read, others) -> None:
    for mine, other in itertools.permutations([{"a": 1, "b": 2}, *others], 2):
        hp, reads = Hyperparameters(mine), {}
        with hp.recording(reads):
            read(hp)
        assert hp.matches_reads(from_json(to_json(reads)))
        assert not Hyperparameters(other).matches_reads(reads)


@given(st.sampled_from([1, 1.0, True, "1", None]), st.sampled_from([1, 1.0, True, "1", None]))
def test_values_of_other_types_do_not_agree(one, other) -> None:
    hp, reads = Hyperparameters({"x": one}), {}
    with hp.recording(reads):
        hp.get("x", 0)
    assert Hyperparameters({"x": other}).matches_reads(reads) is (
        type(one) is type(other) and one == other
    )


def test_reads_as_text_and_back_agree_with_the_same_trials() -> None:
    params = {"units": [8, 4], "rate": 1.0, "on": True, "aug.kind": "x", "aug.size": 1}
    hp, reads = Hyperparameters(params), {}
    with hp.recording(reads):
        assert "rate" in hp
        assert "momentum" not in hp
        assert hp.get("decay", 0.5) == 0.5
        assert hp.below("aug") == ("kind", "size")
        assert (hp.units, hp.on) == ([8, 4], True)
    assert from_json(to_json(reads)) == reads
    assert to_json(dict(reversed(reads.items()))) == to_json(reads)
    read = from_json(to_json(reads))
    assert hp.matches_reads(read)
    for other in ({"on": 1}, {"units": [8, 5]}, {"decay": 0.5}, {"momentum": 1}, {"aug.more": 1}):
        assert not Hyperparameters({**params, **other}).matches_reads(read)
    assert Hyperparameters({**params, "rate": 2.0}).matches_reads(read)


@pytest.mark.parametrize(
    ("use", "seen"),
    [
        (lambda given: given["a"], {"a"}),
        (lambda given: given.get("z", 1), {"z"}),
        (lambda given: "a" in given, {"a"}),
        (dict, {"a", "b", "n.x"}),
        (lambda given: dict(**given), {"a", "b", "n.x"}),
        (lambda given: list(given.values()), {"a", "b", "n.x"}),
        (lambda given: given | {"c": 3}, {"a", "b", "n.x"}),
        (lambda given: {"c": 3} | given, {"a", "b", "n.x"}),
        (lambda given: given.copy(), {"a", "b", "n.x"}),
        (lambda given: given == {"a": 1}, {"a", "b", "n.x"}),
        (lambda given: Hyperparameters(given), set()),
        (lambda given: Hyperparameters(given).a, {"a"}),
        (lambda given: Hyperparameters(given).n.x, {"n.x"}),
        (lambda given: Hyperparameters(given).get("z", 1), {"z"}),
        (lambda given: Hyperparameters(given).below("n"), {"n.x"}),
        (lambda given: Hyperparameters(given).matches_reads({"a": 1}), {"a"}),
        (pickle.dumps, set()),
    ],
)
def test_watched_parameters_tell_what_was_read(
    use: Callable[[RecordedParams], object], seen: set[str]
) -> None:
    given = RecordedParams({"a": 1, "b": 2, "n.x": 3}, set())
    use(given)
    assert given.seen == seen


def test_some_may_be_changed_for_a_while() -> None:
    watched = RecordedParams({"a": 1, "b": 2, "c.d": 3}, seen := set())
    hp = Hyperparameters(watched)
    assert hp.with_changes({}) is hp
    other = hp.with_changes({"a": 5, "b": None, "e": 7})
    reads: Reads = {}
    with other.recording(reads):
        assert (other.a, "b" in other, other.get("b", 9), other.c.d) == (5, False, 9, 3)
    assert reads["a"] == 5
    assert seen == {"c.d"}  # what was changed was not read
    assert other.unused_changes == ("e",)
    assert other.with_changes({"a": None}).unused_changes == ("a", "b", "e")
    assert hp.a == 1


def test_the_length_of_a_trial_is_read_as_a_parameter_is() -> None:
    hp, reads = Hyperparameters({"units": 8}), {}
    hp.set_lengths(epochs=3, updates=12)
    with hp.recording(reads):
        assert (hp.epochs, hp["updates"], hp.integer("epochs")) == (3, 12, 3)
    assert reads == {"epochs": 3, "updates": 12}
    assert hp.to_dict() == {"units": 8}
    other = Hyperparameters({"units": 8})
    assert not other.matches_reads(reads)
    other.set_lengths(epochs=3, updates=12)
    assert other.matches_reads(reads)
    assert hp.with_changes({"units": 4}).epochs == 3
    own = Hyperparameters({"epochs": 5})
    own.set_lengths(epochs=3)
    assert own.epochs == 5
    with pytest.raises(KeyError, match=r"hp.updates is not known here: it follows from the data"):
        own["updates"]
