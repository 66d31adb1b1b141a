"""The attributes that an author's code sets on the trainable: compared by value, removed and restored.

`model`, `loss` and `augment` can see what `data` sets there and in modules, so it belongs to what a program was
compiled from. If `data` sets anything, its result cannot be shared with workers that have not run it.

Attributes that hooks and callbacks set on layers are only compared.
"""

from __future__ import annotations

import dis
import functools
import inspect
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sweep.state import values
from sweep.state.recorded_values import Digests, find_changed_names
from trainables import keras_private

__all__ = [
    "attributes_replaced",
    "digest_attributes",
    "digest_layer_attributes",
    "find_changed_names",
    "get_author_attributes",
    "replace_all",
]


def get_author_attributes(author: object, own: frozenset[str]) -> dict[str, object]:
    """Return the attributes of a trainable by name, except those named in ``own``, which sweep itself sets."""
    attributes = {}
    for name, value in vars(author).items():
        if name not in own:
            attributes[name] = value
    return attributes


def replace_all(author: object, own: frozenset[str], attributes: Mapping[str, object]) -> None:
    """Replace the author's attributes of a trainable by ``attributes``.

    Attributes whose names are in ``own``, which sweep itself sets, stay.
    """
    for name in get_author_attributes(author, own):
        delattr(author, name)
    vars(author).update(attributes)


@contextmanager
def attributes_replaced(
    author: object, own: frozenset[str], attributes: Mapping[str, object]
) -> Iterator[None]:
    """Replace the author's attributes of a trainable inside the block, and restore the previous ones afterwards."""
    before = get_author_attributes(author, own)
    replace_all(author, own, attributes)
    try:
        yield
    finally:
        replace_all(author, own, before)


def digest_attributes(author: object, own: frozenset[str]) -> Digests:
    """Return digests of a trainable's attributes by name, except those named in ``own``.

    Variables, layers and objects of libraries are digested by identity, not by value.
    """
    digests = {}
    for name, value in vars(author).items():
        if name not in own:
            digests[name] = _IdentityDigester().digest(value)
    return digests


class _IdentityDigester(values.Digester):
    """A digester that ignores the contents of variables, layers and library objects."""

    def _digest_parts(self, value: Any, identity: object) -> object:
        if values.is_variable(value) or values.is_library_object(value) or values.is_layer(value):
            return values.IdentityDigest(value)
        return super()._digest_parts(value, identity)


def digest_layer_attributes(networks: Sequence[Any]) -> Digests:
    """Return digests of the attributes that were set on layers from outside, by ``layer.name``.

    ``networks`` are the model, whose own attributes are called ``model.name``, and further networks. Left out is what
    Keras or a layer sets by itself: ``history``, names that begin with an underscore, and those that a method of the
    layer other than its `__init__` sets, such as ``stop_training``. Only plain values and containers of them are
    compared by value, all else by identity.
    """
    digests: dict[str, tuple[object, ...]] = {}
    for network in networks:
        for layer in keras_private.flatten_layers(network):
            owner = "model" if layer is networks[0] else layer.name
            set_by_itself = _list_names_set_by_methods(layer.__class__) | {"history"}
            for name, value in vars(layer).items():
                if not name.startswith("_") and name not in set_by_itself:
                    full = f"{owner}.{name}"
                    # layers of several networks may have the same name
                    digests[full] = (*digests.get(full, ()), _PlainDigester().digest(value))
    return dict(digests)


@functools.lru_cache(maxsize=1024)
def _list_names_set_by_methods(kind: type) -> frozenset[str]:
    """Return the names of the attributes that methods of a class and its bases set, except those named `__init__`."""
    names = set[str]()
    for base in kind.__bases__:
        names |= _list_names_set_by_methods(base)
    for method_name, method in vars(kind).items():
        function = inspect.unwrap(method) if callable(method) else method
        if isinstance(function, types.FunctionType) and method_name != "__init__":
            for instruction in dis.get_instructions(function):
                if instruction.opname == "STORE_ATTR":
                    names.add(str(instruction.argval))
    return frozenset(names)


class _PlainDigester(values.Digester):
    """A digester that digests plain values and containers by value, and all other objects by identity."""

    def _digest_parts(self, value: Any, identity: object) -> object:
        if isinstance(value, Mapping | list | tuple | set | frozenset):
            return super()._digest_parts(value, identity)
        return values.IdentityDigest(value)
