"""Where the author's code may keep values."""

from __future__ import annotations

import functools
import types
import unittest.mock
from typing import Any

from sweep.state.namespaces import Namespace, list_used_names


def test_classes_that_are_attributes_of_each_other_are_listed_once() -> None:
    module = types.ModuleType("mine")
    exec(
        "class A:\n    class Inner: ...\nclass B: ...\nA.twin = B\nB.twin = A\nA.kind = A\nC = A",
        vars(module),
    )
    assert [found.name for found in Namespace("mine", module).list_classes()] == [
        "mine.A",
        "mine.A.Inner",
        "mine.B",
    ]


CELL = """
import functools

def keep(function):
    @functools.wraps(function)
    def call(*args):
        return function(*args)
    return call

def helper():
    return BY_HELPER

@keep
def decorated():
    return BY_DECORATED

@functools.lru_cache
def cached():
    return BY_CACHED

class Model:
    @property
    def rate(self):
        return BY_PROPERTY
    @functools.cached_property
    def size(self):
        return BY_CACHED_PROPERTY
    @classmethod
    def make(cls):
        return BY_CLASS_METHOD
    @staticmethod
    def other():
        return BY_STATIC_METHOD
    def train(self):
        helper(), decorated(), cached()

def unrelated():
    return BY_UNRELATED
"""


def test_names_of_a_notebook_are_followed_through_whatever_wraps_a_function() -> None:
    scope: dict[str, Any] = {"__name__": "__main__"}
    exec(CELL, scope)
    used = list_used_names(scope["Model"], scope)
    assert {name for name in used if name.startswith("BY_")} == {
        *("BY_HELPER", "BY_DECORATED", "BY_CACHED", "BY_PROPERTY"),
        *("BY_CACHED_PROPERTY", "BY_CLASS_METHOD", "BY_STATIC_METHOD"),
    }
    partial = functools.partial(scope["cached"])
    assert "BY_CACHED" in list_used_names(partial, scope)


def test_names_that_defaults_and_arguments_of_partials_use_are_followed() -> None:
    scope: dict[str, Any] = {"__name__": "__main__", "functools": functools}
    exec(
        "def loss(): return BY_DEFAULT\n"
        "def score(): return BY_KEYWORD_DEFAULT\n"
        "def log(): return BY_ARGUMENT\n"
        "def stop(): return BY_KEYWORD\n"
        "def fit(log, loss=loss, *, stop, score=score): ...\n"
        "partial = functools.partial(fit, log, stop=stop)\n"
        "def train(): partial()\n",
        scope,
    )
    assert {name for name in list_used_names(scope["train"], scope) if name.startswith("BY_")} == {
        *("BY_DEFAULT", "BY_KEYWORD_DEFAULT", "BY_ARGUMENT", "BY_KEYWORD"),
    }


def test_names_that_the_methods_of_an_object_use_are_followed() -> None:
    scope: dict[str, Any] = {"__name__": "__main__"}
    exec(
        "seen = []\nkept = []\n"
        "class Log:\n    def __init__(self, then):\n        self.then = then\n"
        "    def add(self):\n        seen.append(1)\n        self.then()\n"
        "def keep():\n    kept.append(1)\n"
        "log = Log(keep)\n"
        "def train(hp):\n    log.add()\n"
        "class Trainer:\n    def train(self, hp):\n        self.step()\n"
        "    def step(self):\n        seen.append(1)\n",
        scope,
    )
    assert {"log", "seen", "kept"} <= list_used_names(scope["train"], scope)
    assert "seen" in list_used_names(scope["Trainer"]().train, scope)


def test_objects_that_have_any_attribute_are_asked_for_none() -> None:
    """`unittest.mock.call` answers each with a new object, so that following them would never end."""
    scope: dict[str, Any] = {"__name__": "__main__", "call": unittest.mock.call}
    exec("def train():\n    return call", scope)
    assert list_used_names(scope["train"], scope) == {"call"}


def test_names_that_a_base_class_uses_are_followed() -> None:
    scope: dict[str, Any] = {"__name__": "__main__"}
    exec(
        "history = []\nclass Base:\n    def data(self):\n        history.append(1)\n"
        "class Child(Base):\n    pass\n",
        scope,
    )
    assert "history" in list_used_names(scope["Child"], scope)
