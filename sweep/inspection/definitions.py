"""What a class or function is made of that was defined in a notebook or script: texts, imports and values it uses."""

from __future__ import annotations

import ast
import dis
import inspect
import json
import sys
import textwrap
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePath
from typing import Any

_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Definitions:
    """All that travels with a class or function that no module has."""

    text: str  # a module with the imports and definitions that it uses
    values: str  # the plain values that it uses, by name, as JSON
    unseen: tuple[str, ...]  # definitions without a text
    unknown: tuple[str, ...]  # values of which nothing tells whether they are the same another time


def of(given: object) -> Definitions:
    """Follow what a class or function uses, through everything that no module has."""
    found = _Found()
    found.visit(getattr(given, "__name__", type(given).__name__), given)
    return Definitions(
        "\n".join([*found.imports, *found.texts]),
        json.dumps(found.values, sort_keys=True),
        tuple(found.unseen),
        tuple(found.unknown),
    )


def importable(given: object) -> str | None:
    """Return its ``module:Name``, where it is what another process finds there."""
    module, name = getattr(given, "__module__", None), getattr(given, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__" or "." in name:
        return None
    there = getattr(sys.modules.get(module), name, None)
    return f"{module}:{name}" if there is given else None


@dataclass(slots=True)
class _Found:
    imports: dict[str, None] = field(default_factory=dict)
    texts: dict[str, None] = field(default_factory=dict)
    values: dict[str, object] = field(default_factory=dict)
    unseen: dict[str, None] = field(default_factory=dict)
    unknown: dict[str, None] = field(default_factory=dict)
    _seen: set[int] = field(default_factory=set)

    def visit(self, name: str, value: object) -> None:
        """Take in what a name stands for, and all that it uses."""
        if isinstance(value, types.ModuleType):
            self.imports[f"import {value.__name__}"] = None
            return
        if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType):
            if id(value) in self._seen:
                return
            self._seen.add(id(value))
            if target := importable(value):
                module, _, what = target.partition(":")
                if module != "builtins":
                    self.imports[f"from {module} import {what}"] = None
                return
        match value:
            case type():
                self._class(name, value)
            case types.FunctionType():
                self._function(name, value)
            case types.MethodType():
                self.visit(name, value.__func__)
                self.visit(f"{name}.self", value.__self__)
            case partial():
                self.visit(name, value.func)
                self._all(name, {**dict(enumerate(value.args)), **value.keywords})
            case staticmethod() | classmethod():
                self.visit(name, value.__func__)
            case property():
                for part in (value.fget, value.fset, value.fdel):
                    self.visit(name, part)
            case _:
                self._value(name, value)

    def _class(self, name: str, kind: type) -> None:
        self._text(name, kind.__name__, _of_class(kind))
        for base in kind.__bases__:
            self.visit(base.__name__, base)
        own = {key: value for key, value in vars(kind).items() if not key.startswith("__") or inspect.isroutine(value)}
        self._all(name, own)

    def _function(self, name: str, function: types.FunctionType) -> None:
        if "<lambda>" not in function.__qualname__ or name == "<lambda>":
            in_class = "." in function.__qualname__.rpartition("<locals>.")[2]
            if not in_class:  # else it is in the text of its class
                self._text(name, function.__name__, _of_code(function.__code__))
        self._all(name, dict(enumerate(function.__defaults__ or ())) | (function.__kwdefaults__ or {}))
        closed = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        self._all(name, {free: _content(cell) for free, cell in closed})
        names = set(_words(function.__code__))
        for used in dict.fromkeys(_globals(function.__code__)):
            value = function.__globals__.get(used, _ABSENT)
            if value is not _ABSENT:
                self.visit(used, value)
            if isinstance(value, types.ModuleType):
                parts = (f"{value.__name__}.{word}" for word in sorted(names))
                self.imports.update(dict.fromkeys(f"import {part}" for part in parts if part in sys.modules))

    def _all(self, name: str, values: Mapping[Any, object]) -> None:
        for key, value in values.items():
            if value is not _ABSENT:
                self.visit(f"{name}.{key}", value)

    def _value(self, name: str, value: object) -> None:
        try:
            self.values[name] = json.loads(json.dumps(value, default=_plain))
        except (TypeError, ValueError):
            if id(value) in self._seen:
                return
            self._seen.add(id(value))
            self.unknown[f"{name} is a {type(value).__name__}"] = None
            if callable(value):
                self.visit(type(value).__name__, type(value))

    def _text(self, name: str, defined: str, text: str | None) -> None:
        if text is None:
            self.unseen[f"the text of {name if defined == '<lambda>' else defined} cannot be had"] = None
        else:
            self.texts[text] = None


def _of_code(code: types.CodeType) -> str | None:
    try:
        text = textwrap.dedent(inspect.getsource(code))
        ast.parse(text)
    except (OSError, TypeError, SyntaxError):  # typed at a prompt; a part of a line
        return None
    return text


def _of_class(kind: type) -> str | None:
    """Return the text of a class, found by that of one of its methods: Python knows no file of a notebook's classes."""
    for code in _codes(kind):
        try:
            lines, _ = inspect.findsource(code)
            tree = ast.parse("".join(lines))
        except (OSError, TypeError, SyntaxError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.name == kind.__name__:
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                if first <= code.co_firstlineno <= (node.end_lineno or first):
                    return textwrap.dedent("".join(lines[first - 1 : node.end_lineno])) + "\n"
    try:
        return textwrap.dedent(inspect.getsource(kind))
    except (OSError, TypeError):
        return None


def _codes(kind: type) -> Iterator[types.CodeType]:
    for value in vars(kind).values():
        function = getattr(value, "__func__", getattr(value, "fget", value))
        if isinstance(function, types.FunctionType) and function.__qualname__.startswith(f"{kind.__qualname__}."):
            yield function.__code__


def _globals(code: types.CodeType) -> Iterator[str]:
    """Yield the names outside of it that a function looks up, functions inside of it included."""
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield str(step.argval)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _globals(constant)


def _words(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _words(constant)


def _content(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # it is not filled yet
        return _ABSENT


def _plain(value: object) -> object:
    """Return what JSON has no word for, and is a plain value nevertheless."""
    match value:
        case PurePath():
            return str(value)
        case bytes():
            return value.hex()
        case set() | frozenset():
            return sorted(map(repr, value))
    raise TypeError
