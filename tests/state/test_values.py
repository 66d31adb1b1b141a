"""Digests of values, by which changes are found."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sweep.state import values
from sweep.state.values import Snapshot, digest


class Node:
    def __init__(self, inner: object) -> None:
        self.inner = inner


def _function(inner: object) -> Callable[[], object]:
    def get(value: object = inner) -> object:
        return value

    return get


NESTED: dict[str, Callable[[Any], object]] = {
    "objects": Node,
    "namespaces": lambda inner: types.SimpleNamespace(inner=inner),
    "functions": _function,
    "lists": lambda inner: [inner],
    "mappings": lambda inner: {"inner": inner},
}


@pytest.mark.parametrize("depth", [1, 4, 5, 20, 100])
@pytest.mark.parametrize("kind", NESTED)
def test_a_value_that_stays_as_it_is_has_one_digest_however_deep_it_is(
    kind: str, depth: int
) -> None:
    value: object = [0]
    for _ in range(depth):
        value = NESTED[kind](value)
    assert digest(value) == digest(value)


@pytest.mark.parametrize("kind", NESTED)
def test_a_change_is_seen_ten_levels_below(kind: str) -> None:
    innermost = [0]
    value: object = innermost
    for _ in range(10):
        value = NESTED[kind](value)
    before = digest(value)
    innermost.append(1)
    assert digest(value) != before


@pytest.mark.parametrize("kind", NESTED)
@pytest.mark.parametrize("part", [1, lambda: 1], ids=["numbers", "what cannot be pickled"])
def test_so_does_one_of_more_parts_than_are_compared(kind: str, part: object) -> None:
    value = NESTED[kind]({number: [part] for number in range(30_000)})
    assert digest(value) == digest(value)
    several = NESTED[kind]([NESTED[kind](dict.fromkeys(range(9_000), part)) for _ in range(5)])
    assert digest(several) == digest(several)


def test_another_value_in_a_closure_is_seen_even_if_it_is_too_large_to_be_compared() -> None:
    kept = {number: [lambda: 1] for number in range(30_000)}

    def get() -> object:
        return kept

    before = digest(get)
    assert digest(get) == before
    kept = {number: [lambda: 2] for number in range(30_000)}
    assert digest(get) != before


@pytest.mark.parametrize("decorate", [functools.cache, functools.lru_cache(maxsize=4)])
def test_the_results_of_a_cache_are_listed(decorate: Any) -> None:
    cached = decorate(lambda key: [key])
    first, second = cached("a"), cached("b")
    listed = values.list_cached_results(cached)
    assert {id(first), id(second)} <= {id(one) for one in listed}
    assert cached.__wrapped__ not in listed


def test_a_result_of_a_limited_cache_may_be_a_dictionary() -> None:
    cached = functools.lru_cache(maxsize=4)(lambda key: {"key": key})
    result = cached("a")
    assert any(one is result for one in values.list_cached_results(cached))


class Slotted:
    __slots__ = ("__hidden", "shown")

    def __init__(self) -> None:
        self.__hidden, self.shown = 1, 2

    def change(self) -> None:
        self.__hidden += 1


def test_a_slot_with_a_private_name_is_an_attribute() -> None:
    value = Slotted()
    before = digest(value)
    assert values.get_attributes(value) == {"_Slotted__hidden": 1, "shown": 2}
    value.change()
    assert digest(value) != before


def test_an_array_of_arrays_is_restored() -> None:
    inner = [np.zeros(2), np.zeros(3)]
    ragged = np.empty(2, object)
    ragged[:] = inner
    snapshot = Snapshot(ragged)
    ragged[0][0] = 1.0
    ragged[1] = np.ones(4)
    snapshot.restore()
    assert ragged[0] is inner[0]
    assert ragged[1] is inner[1]
    assert not inner[0].any()


def test_an_array_of_another_size_keeps_the_memory_that_views_use() -> None:
    array = np.arange(4.0)
    before = digest(array)
    snapshot = Snapshot(array)
    array.resize(10**6, refcheck=False)
    view = array[-3:]
    snapshot.restore()
    assert array.shape == (10**6,)
    assert view.base is array
    assert digest(array) != before  # so that the change is reported


@pytest.mark.parametrize("change", ["shape", "sign", "number"])
def test_an_array_is_restored_to_the_bit(change: str) -> None:
    array = np.array([0.0, -1.0, np.nan, 2.0])
    before = digest(array)
    snapshot = Snapshot(array)
    match change:
        case "shape":
            array.shape = (2, 2)
            array[0, 0] = 5.0
        case "sign":
            array[0] = -0.0
        case _:
            array[3] = 3.0
    assert digest(array) != before
    snapshot.restore()
    assert digest(array) == before
