"""What an author's `updates` may return."""

from __future__ import annotations

import keras
import pytest

from trainables.recipe.author_updates import Update, parse_turns
from trainables.recipe.refusals import Refused

pytestmark = pytest.mark.keras


def make_layer() -> keras.layers.Layer:
    layer = keras.layers.Dense(1)
    layer.build((None, 1))
    return layer


def test_an_update_with_times_has_several_turns_and_those_in_a_tuple_one() -> None:
    critic = Update("critic", make_layer(), times=2)
    both = (
        Update("a", make_layer(), optimizer=keras.optimizers.SGD()),
        Update("b", make_layer(), keras.optimizers.SGD()),
    )
    assert parse_turns(critic) == ((critic,), (critic,))
    assert parse_turns([critic, both]) == ((critic,), (critic,), both)


@pytest.mark.parametrize(
    ("updates", "message"),
    [
        ([], "expected a list of Update"),
        (None, "expected a list of Update"),
        ([()], "an empty tuple in its list"),
        (["loss"], "returned str in its list, expected Update"),
        ([("loss",)], "returned str in its list, expected Update"),
    ],
)
def test_what_is_no_list_of_updates_is_refused(updates: object, message: str) -> None:
    with pytest.raises(Refused, match=message):
        parse_turns(updates)


def test_times_is_a_whole_number() -> None:
    with pytest.raises(Refused, match=r"times=2\.5, expected a whole number from 1"):
        parse_turns(Update("loss", make_layer(), times=2.5))
