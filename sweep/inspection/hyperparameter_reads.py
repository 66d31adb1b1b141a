"""Finds the hyperparameters that source code reads, by following ``hp`` through names, attributes and calls.

If it cannot be followed, the result has doubts, because more may be read than is visible. Modules of sweep and its
trainables follow conventions (`hp` and `READS`); in all other modules, the data flow decides.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from sweep.hyperparameters import Hyperparameters
from sweep.text import shortened

READERS = frozenset({"get", "number", "integer", "text", "flag", "choice", "live"}) | {
    "Int", "Float", "Choice", "Boolean", "Fixed", "conditional_scope",
}  # fmt: skip
BELOW = "below"  # the reader of all parameters below a name
NAMES = frozenset({"hp", "params"})  # names of arguments and attributes that hold hyperparameters by convention


def by_convention(tree: ast.Module) -> tuple[set[str], bool]:
    """Return the parameters that a module of sweep reads, and whether it reads others whose names it computes."""
    names = declared_in(tree) or set()
    computed = False
    holders = NAMES | {
        arg.arg
        for arg in ast.walk(tree)
        if isinstance(arg, ast.arg) and arg.annotation and "Hyperparameters" in ast.unparse(arg.annotation)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Attribute() if (dotted := _dotted(node, holders)) is not None:
                names |= {".".join(dotted[:end]) for end in range(1, len(dotted) + 1)}
            case ast.Subscript(value=owner, slice=key) if last_name(owner) in holders:
                computed |= not _is_known(key)
                names |= texts(key)
            case ast.Call(func=ast.Attribute(attr=method, value=owner), args=[key, *_]) if method in READERS:
                if last_name(owner) in holders:
                    computed |= not _is_known(key)
                    names |= texts(key)
                elif last_name(owner) == "live":
                    names |= texts(key)
            case ast.Call(func=ast.Attribute(attr=method, value=owner), args=[key]) if method == BELOW:
                names |= {f"{text}.*" for text in texts(key)} if last_name(owner) in holders else set()
            case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=[right]) if (
                last_name(right) in holders
            ):
                names |= texts(key)
    return names, computed and declared_in(tree) is None


def words_of(trees: Mapping[str, ast.Module]) -> frozenset[str]:
    """Return every attribute, argument, name and string in some modules."""
    words: set[str] = set()
    for tree in trees.values():
        for node in ast.walk(tree):
            match node:
                case ast.Attribute(attr=word) | ast.keyword(arg=str(word)) | ast.arg(arg=word) | ast.Name(id=word):
                    words.add(word)
                case ast.Constant(value=str(text)):
                    words |= {text, *text.split(".")}
    return frozenset(words)


def declared_in(tree: ast.Module) -> set[str] | None:
    """Return the strings in a module's ``READS``; None if it has no such name."""
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="READS")], value=value):
                return {text for one in ast.walk(value) if isinstance(one, ast.Constant) for text in texts(one)}
    return None


def last_name(node: ast.expr) -> str:
    """Return the last name of an expression of names and dots; "" for any other expression."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def first_name(node: ast.expr) -> str:
    """Return the first name of an expression: ``a`` for ``a.b.c`` and for ``a().b``."""
    while isinstance(node, ast.Attribute | ast.Call):
        node = node.value if isinstance(node, ast.Attribute) else node.func
    return node.id if isinstance(node, ast.Name) else ""


def _dotted(node: ast.expr, holders: frozenset[str] | set[str]) -> list[str] | None:
    """Return the attribute names after the holder: aug, kind for ``hp.aug.kind``; None without a holder."""
    if not isinstance(node, ast.Attribute):
        return None
    if last_name(node.value) in holders:
        return [node.attr]
    before = _dotted(node.value, holders)
    return None if before is None else [*before, node.attr]


def texts(node: ast.expr) -> set[str]:
    """Return the string that an expression is, in a set; parts of a composed string that are unknown become ``*``."""
    match node:
        case ast.Constant(value=str(text)):
            return {text}
        case ast.JoinedStr(values=parts):
            known = [part.value if isinstance(part, ast.Constant) else "*" for part in parts]
        case ast.BinOp(left=ast.Constant(value=str(text)), op=ast.Add()):
            known = [text, "*"]
        case _:
            return set()
    pattern = "".join(map(str, known))
    return {pattern} if pattern.strip("*") else set()


def _is_known(key: ast.expr) -> bool:
    return isinstance(key, ast.Constant) or bool(texts(key))


HARMLESS = frozenset({"print", "len", "repr", "str", "bool", "isinstance", "type", "id"})

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@dataclass(frozen=True, slots=True)
class Reading:
    """The reads found in all modules."""

    names: frozenset[str]  # parameters that are read; ``x.*``: all below ``x``; ``x_*``: all that begin so
    doubts: tuple[str, ...]  # places from which hyperparameters cannot be followed
    words: frozenset[str]  # every attribute, argument, name and string in the user's modules
    own: frozenset[str]  # the part of `names` that the user's modules read


def read(theirs: Mapping[str, ast.Module], ours: Mapping[str, ast.Module], trainable: str = "") -> Reading:
    """Analyze a user's modules, and the modules of sweep that they import.

    ``trainable`` is the name of the trainable; the first argument of a function of this name holds the hyperparameters.
    """
    names, doubts = set[str](), dict[str, None]()
    for module, tree in ours.items():
        found, computed = by_convention(tree)
        names |= found
        doubts.update({f"{module} reads names that it computes": None} if computed else {})
    flow = _Flow(theirs, ours, trainable)
    names |= flow.names
    doubts.update(flow.doubts)
    methods = set(dir(Hyperparameters))
    return Reading(frozenset(names) - methods, tuple(doubts), words_of(theirs), frozenset(flow.names) - methods)


def arguments_of(name: str, trees: Mapping[str, ast.Module]) -> set[str]:
    """Return the argument names of ``module:Name``, a class or function, as far as its module defines them."""
    module, _, name = name.partition(":")
    found: set[str] = set()
    for node in trees[module].body if module in trees else ():
        starts: list[ast.stmt] = [node]
        if isinstance(node, ast.ClassDef):
            starts = [one for one in node.body if isinstance(one, Function) and one.name == "__init__"]
        if isinstance(node, ast.ClassDef | Function) and node.name == name:
            found |= {arg.arg for start in starts if isinstance(start, Function) for arg in _arguments(start)}
    return found - {"self"}


class _Flow:
    """Finds all expressions in a user's modules that hold hyperparameters, and the reads made through them.

    The search repeats until no new names or attributes that hold hyperparameters are found.
    """

    def __init__(self, trees: Mapping[str, ast.Module], ours: Mapping[str, ast.Module], trainable: str) -> None:
        self.names: set[str] = set()
        self.doubts: dict[str, None] = {}
        self._parents: dict[ast.AST, ast.AST] = {}
        self._functions: dict[str, list[Function]] = {}
        self._classes: dict[str, list[ast.ClassDef]] = {}
        # pairs of a function or module and a name in it that holds hyperparameters
        self._held: set[tuple[ast.AST, str]] = set()
        self._attributes = set(NAMES)
        self._known = {
            node.name for tree in ours.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef | Function)
        }
        self._imported: dict[str, set[str]] = {}  # by name, the top-level packages that it may come from
        for tree in trees.values():
            self._take_in(tree)
        self._theirs, self._ours = ({name.split(".")[0] for name in modules} for modules in (trees, ours))
        self._begin(ours)
        for function in self._functions.get(trainable, []):
            if isinstance(self._parents[function], ast.Module):
                self._held.update((function, arg.arg) for arg in positional(function)[:1])
        before = -1
        while before != (before := len(self._held) + len(self._attributes)):
            for module, tree in trees.items():
                self._look(module, tree)

    def _take_in(self, tree: ast.Module) -> None:
        for node in ast.walk(tree):
            for child in ast.iter_child_nodes(node):
                self._parents[child] = node
            if isinstance(node, Function):
                self._functions.setdefault(node.name, []).append(node)
            elif isinstance(node, ast.ClassDef):
                self._classes.setdefault(node.name, []).append(node)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                for alias in node.names:
                    source = alias.name if isinstance(node, ast.Import) else (node.level == 0 and node.module) or ""
                    self._imported.setdefault(alias.asname or alias.name.split(".")[0], set()).add(source.split(".")[0])

    def _begin(self, ours: Mapping[str, ast.Module]) -> None:
        """Mark the arguments that hold hyperparameters by their name or annotation, or in an overridden method."""
        places = {
            node.name: place
            for tree in ours.values()
            for owner in ast.walk(tree)
            if isinstance(owner, ast.ClassDef)
            for node in owner.body
            if isinstance(node, Function)
            for place, arg in enumerate(positional(node))
            if arg.arg == "hp"
        }
        for functions in self._functions.values():
            for function in functions:
                overrides = function.name in places and isinstance(self._parents[function], ast.ClassDef)
                for place, arg in enumerate(_arguments(function)):
                    told = "Hyperparameters" in (ast.unparse(arg.annotation) if arg.annotation else "")
                    if (
                        arg.arg in NAMES
                        or told
                        or (overrides and self._derives(function) and place == places[function.name])
                    ):
                        self._held.add((function, arg.arg))

    def _derives(self, method: Function) -> bool:
        """Return whether the class of a method derives from a class of sweep."""
        queue, seen = [self._parents[method]], set[str]()
        while queue:
            owner = queue.pop()
            for base in owner.bases if isinstance(owner, ast.ClassDef) else ():
                name = last_name(base)
                if name in self._known and name not in self._classes:
                    return True
                queue += [] if name in seen else self._classes.get(name, [])
                seen.add(name)
        return False

    def _look(self, module: str, tree: ast.Module) -> None:
        declared = declared_in(tree)
        self.names |= declared or set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and last_name(node.func) in READERS and isinstance(node.func, ast.Attribute):
                self.names |= texts(node.args[0]) if node.args and last_name(node.func.value) == "live" else set()
            if isinstance(node, ast.expr) and self._holds(node) and not self._use(node) and declared is None:
                line = shortened(ast.unparse(self._parents[node]).splitlines()[0], 60)
                self.doubts[f"{module}:{node.lineno}: {line}"] = None

    def _holds(self, node: ast.expr) -> bool:
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                return any((scope, name) in self._held for scope in self._scopes(node))
            case ast.Attribute(value=owner, attr=name, ctx=ast.Load()):
                return name in self._attributes and not self._holds(owner)  # ``hp.params`` is a parameter
            case ast.Call(func=func):
                return last_name(func) == "Hyperparameters"
        return False

    def _scopes(self, node: ast.AST) -> Iterator[ast.AST]:
        while node in self._parents:
            node = self._parents[node]
            if isinstance(node, (*_FUNCTIONS, ast.Module)):
                yield node

    def _use(self, node: ast.expr) -> bool:
        """Record the reads made through an expression; return False if it cannot be followed."""
        parent = self._parents[node]
        match parent:
            case ast.Attribute(attr=name):
                return self._attribute(parent, name)
            case ast.Subscript(value=value, slice=key) if value is node:
                self.names |= texts(key)
                return _is_known(key)
            case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=[right]) if right is node:
                self.names |= texts(key)
                return _is_known(key)
            case ast.Compare(ops=[ast.Is() | ast.IsNot()]) | ast.Expr():
                return True
            case ast.Assign(targets=targets):
                bound = [self._bind(target) for target in targets]
                return all(bound)
            case ast.AnnAssign(target=target) | ast.NamedExpr(target=target):
                return self._bind(target) and not isinstance(parent, ast.NamedExpr)
            case ast.keyword(arg=str(name)) if isinstance(call := self._parents[parent], ast.Call):
                return self._pass(call, name)
            case ast.Call(args=args) if node in args:
                return self._pass(parent, args.index(node))
        return False

    def _attribute(self, node: ast.Attribute, name: str) -> bool:
        call = self._parents[node]
        if name not in (*READERS, BELOW) or not (isinstance(call, ast.Call) and call.func is node):
            path = [name]
            while isinstance(node := self._parents[node], ast.Attribute):  # type: ignore[assignment]  # it may be none
                path.append(node.attr)
            self.names |= {".".join(path[:end]) for end in range(1, len(path) + 1)}
            return name not in dir(Hyperparameters) and name not in dir(dict)
        key = call.args[0] if call.args else None
        if key is None or not _is_known(key):
            return False
        self.names |= {f"{text}.*" for text in texts(key)} if name == BELOW else texts(key)
        return True

    def _bind(self, target: ast.expr) -> bool:
        match target:
            case ast.Name(id=name):
                self._held.add((next(self._scopes(target)), name))
            case ast.Attribute(attr=name):
                self._attributes.add(name)
            case _:
                return False
        return True

    def _pass(self, call: ast.Call, place: int | str) -> bool:
        """Follow an argument into the called function, by its simple name; return False if it cannot be followed."""
        name, origins = last_name(call.func), self._imported.get(first_name(call.func), set())
        if name == "Hyperparameters" or (isinstance(call.func, ast.Name) and name in HARMLESS):
            return True
        if origins - self._ours - self._theirs - {""}:  # another library
            return False
        found = bool(origins & self._ours) or (first_name(call.func) in ("self", "super") and name in self._known)
        of_an_object = isinstance(call.func, ast.Attribute) and not origins
        for function in self._functions.get(name, []):
            is_method = isinstance(self._parents[function], ast.ClassDef)
            if of_an_object and not is_method:
                continue
            found |= self._enter(function, place, is_method and not _is_static(function))
        for owner in self._classes.get(name, []):
            starts = [one for one in owner.body if isinstance(one, Function) and one.name == "__init__"]
            fields = [
                one.target.id
                for one in owner.body
                if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
            ]
            field = place if isinstance(place, str) else (*fields, *[""] * (place + 1))[place]
            if starts:
                found |= self._enter(starts[0], place, bound=True)
            elif field in fields:
                self._attributes.add(field)
                found = True
        return found

    def _enter(self, function: Function, place: int | str, bound: bool) -> bool:
        if isinstance(place, str):
            name = next((arg.arg for arg in _arguments(function) if arg.arg == place), None)
        else:
            names = [arg.arg for arg in positional(function)][1 if bound else 0 :]
            name = names[place] if place < len(names) else None
        if name is None:
            return False
        self._held.add((function, name))
        return True


def positional(function: Function) -> list[ast.arg]:
    """Return the arguments that can be passed by position."""
    return [*function.args.posonlyargs, *function.args.args]


def _arguments(function: Function) -> list[ast.arg]:
    return [*positional(function), *function.args.kwonlyargs]


def _is_static(function: Function) -> bool:
    return any(last_name(decorator) == "staticmethod" for decorator in function.decorator_list)
