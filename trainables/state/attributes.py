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
from typing import Any, NamedTuple

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
    """Return the attributes of a trainable by name, except those named in ``own``, which sweep itself sets.

    Only attributes of the object itself count, not those of its class.
    """
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
    """Return digests of attributes of layers, by ``layer.name``, except those that the layers set by themselves.

    ``networks`` are the model, whose own attributes are called ``model.name``, and further networks. These attributes
    are left out: ``history``, names that begin with an underscore, and names that any method of the layers other than
    `__init__` sets, such as ``stop_training``. Plain values are compared by type and value, and all others by identity.
    Lists, dictionaries and sets are also compared by length, unless a method of any layer reads an attribute of this
    name, as it may change them.
    """
    layers: list[tuple[Any, str]] = []
    for network in networks:
        for layer in keras_private.flatten_layers(network):
            owner = "model" if layer is networks[0] else layer.name
            layers.append((layer, owner))
    kinds = {layer.__class__ for layer, _ in layers}
    stored = set[str]().union(*(_list_attribute_names(kind).stored for kind in kinds))
    loaded = set[str]().union(*(_list_attribute_names(kind).loaded for kind in kinds))
    digests: dict[str, tuple[object, ...]] = {}
    for layer, owner in layers:
        for name, value in vars(layer).items():
            if name.startswith("_") or name == "history" or name in stored:
                continue
            full = f"{owner}.{name}"
            digest = _digest_attribute(value, may_change=name in loaded)
            # layers of several networks may have the same name
            digests[full] = (*digests.get(full, ()), digest)
    return dict(digests)


def _digest_attribute(value: object, *, may_change: bool) -> object:
    """Return a digest of an attribute of a layer: of its value if it is plain, or else of its identity.

    Plain are None and exactly the types bool, int, float and str. The digest of a list, dictionary or set has its
    length, too, unless ``may_change`` says that the layer itself may change it.
    """
    if type(value) in (type(None), bool, int, str):
        return type(value), value
    if type(value) is float:
        return repr(value)  # NaN differs from itself
    if isinstance(value, list | dict | set) and not may_change:
        return id(value), len(value)
    return id(value)


class _AttributeNames(NamedTuple):
    """The names of attributes that methods of a class and its bases use, except those named `__init__`."""

    stored: frozenset[str]
    loaded: frozenset[str]


@functools.lru_cache(maxsize=1024)
def _list_attribute_names(kind: type) -> _AttributeNames:
    """Return the names of the attributes, of any object, that methods of a class and its bases set and read.

    Methods named `__init__` do not count. The result is cached by class.
    """
    stored, loaded = set[str](), set[str]()
    for base in kind.__bases__:
        of_base = _list_attribute_names(base)
        stored |= of_base.stored
        loaded |= of_base.loaded
    for code in _list_code(kind):
        for instruction in dis.get_instructions(code):
            if instruction.opname == "STORE_ATTR":
                stored.add(str(instruction.argval))
            elif instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                loaded.add(str(instruction.argval))
    return _AttributeNames(frozenset(stored), frozenset(loaded))


def _list_code(kind: type) -> list[types.CodeType]:
    """Return the code of a class's own methods and properties, and of functions within them; not of `__init__`.

    Inherited methods are left out, and methods that are not written in Python. A decorated method counts as what it
    wraps.
    """
    functions: list[Any] = []
    for name, member in vars(kind).items():
        if isinstance(member, property):
            functions += [member.fget, member.fset]
        elif name != "__init__":
            functions.append(getattr(member, "__func__", member))  # of a class or static method
    found = []
    for function in functions:
        code = getattr(inspect.unwrap(function), "__code__", None)
        if isinstance(code, types.CodeType):
            found.append(code)
    for code in found:  # the list grows during the loop
        found += [part for part in code.co_consts if isinstance(part, types.CodeType)]
    return found
