from __future__ import annotations

import threading
from typing import Any

import keras
import numpy as np
import pytest

from sweep.state.namespaces import Namespace
from sweep.state.recorded_values import compute_digests, find_changed_names
from sweep.state.values import digest
from trainables.state import modules
from trainables.state.attributes import digest_layer_attributes

pytestmark = pytest.mark.keras

SETTINGS: dict[str, Any] = {"mean": 0.0}
RATE = 1.0


class Helper:
    def __init__(self) -> None:
        self.values = np.zeros(3)


class Author:
    limit = 3

    def __init__(self) -> None:
        self.helper = Helper()
        self.live = object()


def left(author: Author, change: Any) -> set[str]:
    before = compute_digests(
        [Namespace("self", author, frozenset({"live"})), *modules.find_namespaces(author)]
    )
    change(author)
    return find_changed_names(
        before,
        compute_digests(
            [Namespace("self", author, frozenset({"live"})), *modules.find_namespaces(author)]
        ),
    )


def test_the_same_values_leave_nothing() -> None:
    def again(author: Any) -> None:
        author.helper = Helper()
        author.live = object()

    assert left(Author(), again) == set()


def in_place(author: Any) -> None:
    author.helper.values[1] = 2.0


def in_a_module(author: Any) -> None:
    SETTINGS["mean"] += 1.0


def rebound(author: Any) -> None:
    global RATE
    RATE += 1.0


def on_the_class(author: Any) -> None:
    type(author).limit += 1


def a_new_one(author: Any) -> None:
    author.classes = 3


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (in_place, "self.helper"),
        (in_a_module, f"{__name__}.SETTINGS"),
        (rebound, f"{__name__}.RATE"),
        (on_the_class, "Author.limit"),
        (a_new_one, "self.classes"),
    ],
)
def test_every_place_is_seen(change: Any, name: str) -> None:
    assert left(Author(), change) == {name}


def test_values_that_cannot_be_compared_equal_themselves_alone() -> None:
    one, other = threading.Lock(), threading.Lock()
    assert digest(one) == digest(one)
    assert digest(one) != digest(other)
    circle: list[Any] = []
    circle.append(circle)
    assert digest(circle) == digest(circle)


class Encoder(keras.layers.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.maps: list[int] = []
        self.names_by_row = {"a": 1}
        self.rate = float("nan")

    @property
    def scale(self) -> float:
        return self.hidden_scale

    @scale.setter
    def scale(self, value: float) -> None:
        self.hidden_scale = value

    def call(self, x: Any) -> Any:
        def note() -> None:
            self.last = len(self.maps)

        self.maps.append(1)
        note()
        return x


class Whole(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = Encoder()

    def call(self, x: Any) -> Any:
        self.encoder.mask = object()
        return self.encoder(x)


def test_what_layers_set_by_themselves_is_no_change_from_outside() -> None:
    model = Whole()
    before = digest_layer_attributes([model])
    model(np.zeros((1, 2)))
    model.encoder.scale = 2.0
    model.stop_training = True
    assert digest_layer_attributes([model]) == before
    for change in (
        lambda: setattr(model, "best", 1.0),
        lambda: setattr(model, "best", 2.0),
        lambda: setattr(model.encoder, "rate", 0.5),
        lambda: setattr(model.encoder, "maps", []),
        lambda: model.encoder.names_by_row.update({"b": 2}),
    ):
        before = digest_layer_attributes([model])
        change()
        changed = digest_layer_attributes([model])
        assert changed != before
