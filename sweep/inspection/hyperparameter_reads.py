"""Finds the hyperparameters that source code reads, by following ``hp`` through names, attributes and calls.

If ``hp`` cannot be followed everywhere, the result contains doubts: code may read more than is visible. Modules of
sweep and its trainables follow conventions (`hp` and `READS`); all other modules are analyzed by their data flow.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from sweep.hyperparameters import Hyperparameters
from sweep.inspection.syntax_nodes import list_nodes
from sweep.text import shortened

# methods of `Hyperparameters` whose first argument is the name of the parameter that they read
READERS = frozenset({"get", "number", "integer", "text", "flag", "choice", "live"}) | {
    "Int", "Float", "Choice", "Boolean", "Fixed", "conditional_scope",
}  # fmt: skip
BELOW = "below"  # the reader of all parameters below a name
METHODS = frozenset(dir(Hyperparameters))  # names that are not parameters when used as attributes
# names of arguments and attributes that hold hyperparameters by convention
NAMES = frozenset({"hp", "params"})


@dataclass(frozen=True, slots=True)
class ModuleReads:
    """What a module of sweep reads of the hyperparameters, and what it defines that takes them."""

    names: frozenset[str]  # or patterns, as in `FoundReads.names`
    is_computed: bool  # whether it also reads names that it computes
    definitions: frozenset[str]  # the names of its classes and functions
    positions: Mapping[str, int]  # the index of the argument ``hp``, by the names of methods


def find_conventional_reads(tree: ast.Module) -> tuple[set[str], bool]:
    """Return the parameters that a module of sweep reads, and whether it also reads parameters by computed names.

    Reads are attributes, keys, calls of readers and ``in`` tests, of anything with a name in `NAMES` or with that of an
    argument annotated as `Hyperparameters`, and the readers of ``live``. Names may be patterns, as in
    `FoundReads.names`. Of ``hp.x.y``, ``x`` and ``x.y`` are included. If the module has a constant ``READS``, which
    declares the computed names, its strings are included, and the second value is False.
    """
    declared = find_declared_reads(tree)
    names = set(declared or ())
    reads_computed = False
    # names of variables and attributes that hold the hyperparameters
    holders = NAMES | {
        arg.arg for arg in list_nodes(tree) if isinstance(arg, ast.arg) and _is_annotated(arg)
    }
    for node in list_nodes(tree):
        match node:
            case ast.Attribute():
                dotted = _list_attribute_names(node, holders)
                # of hp.x.y, x and x.y
                names |= {".".join(dotted[:end]) for end in range(1, len(dotted) + 1)}
            case ast.Subscript(value=owner, slice=key) if get_last_name(owner) in holders:
                reads_computed |= not _is_partly_known(key)
                names |= find_text_patterns(key)
            case ast.Call(func=ast.Attribute(attr=method, value=owner), args=[key, *_]) if (
                method in READERS
            ):
                if get_last_name(owner) in holders:
                    reads_computed |= not _is_partly_known(key)
                    names |= find_text_patterns(key)
                elif get_last_name(owner) == "live":
                    names |= find_text_patterns(key)
            case ast.Call(func=ast.Attribute(attr=method, value=owner), args=[key]) if (
                method == BELOW
            ):
                if get_last_name(owner) in holders:
                    names |= {f"{text}.*" for text in find_text_patterns(key)}
            case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=[right]) if (
                get_last_name(right) in holders
            ):
                names |= find_text_patterns(key)
    return names, reads_computed and declared is None


def collect_words(trees: Mapping[str, ast.Module]) -> frozenset[str]:
    """Return all names, attributes, arguments and strings in modules, and the parts of strings with dots.

    Names that only a definition or an import has are not included.
    """
    words: set[str] = set()
    for tree in trees.values():
        for node in list_nodes(tree):
            match node:
                case (
                    ast.Attribute(attr=word)
                    | ast.keyword(arg=str(word))
                    | ast.arg(arg=word)
                    | ast.Name(id=word)
                ):
                    words.add(word)
                case ast.Constant(value=str(text)):
                    words |= {text, *text.split(".")}
    return frozenset(words)


def find_declared_reads(tree: ast.Module) -> set[str] | None:
    """Return all strings in the value of the constant ``READS`` of a module; None if it assigns no such constant.

    Only a plain assignment at the top level counts, and only the first one.
    """
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="READS")], value=value):
                return {
                    text
                    for one in ast.walk(value)
                    if isinstance(one, ast.Constant)
                    for text in find_text_patterns(one)
                }
    return None


def get_last_name(node: ast.expr) -> str:
    """Return the last name of an expression: ``c`` for ``a.b.c`` and ``a().c``; "" if it is no name or attribute."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def get_first_name(node: ast.expr) -> str:
    """Return the first name of an expression: ``a`` for ``a``, ``a.b.c`` and ``a().b``; "" if it begins otherwise."""
    while isinstance(node, ast.Attribute | ast.Call):
        if isinstance(node, ast.Attribute):
            node = node.value
        else:
            node = node.func
    if not isinstance(node, ast.Name):
        return ""
    return node.id


def _list_attribute_names(node: ast.expr, holders: frozenset[str] | set[str]) -> list[str]:
    """Return the names of the attributes that an expression reads from a variable or attribute named in ``holders``.

    For ``hp.aug.kind`` they are ["aug", "kind"]; for a method such as ``hp.number``, and for any other expression, [].
    """
    if not isinstance(node, ast.Attribute):
        return []
    if get_last_name(node.value) in holders:
        if node.attr in METHODS:
            return []
        return [node.attr]
    before = _list_attribute_names(node.value, holders)
    return [*before, node.attr] if before else []


def find_text_patterns(node: ast.expr) -> set[str]:
    """Return a set with the one string that an expression gives, with ``*`` for unknown parts.

    The set is empty if no part is known. Known parts are those of literal strings and f-strings, and a literal to the
    left of ``+``.
    """
    match node:
        case ast.Constant(value=str(text)):
            return {text}
        case ast.JoinedStr(values=parts):
            pattern = ""
            for part in parts:
                if isinstance(part, ast.Constant):
                    pattern += str(part.value)
                else:
                    pattern += "*"
        case ast.BinOp(left=ast.Constant(value=str(text)), op=ast.Add()):
            pattern = f"{text}*"
        case _:
            return set()
    return {pattern} if pattern.strip("*") else set()


def _is_partly_known(key: ast.expr) -> bool:
    """Return whether a key's text is at least partly known; a constant that is no string counts as known."""
    return isinstance(key, ast.Constant) or bool(find_text_patterns(key))


HARMLESS = frozenset({"print", "len", "repr", "str", "bool", "isinstance", "type", "id"})

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@dataclass(frozen=True, slots=True)
class FoundReads:
    """The hyperparameters that are read in all modules."""

    # parameters that are read; ``x.*``: all below ``x``; ``x_*``: all that begin so
    names: frozenset[str]
    doubts: tuple[str, ...]  # places from which hyperparameters cannot be followed
    words: frozenset[str]  # every attribute, argument, name and string in the user's modules
    own: frozenset[str]  # the part of `names` that the user's modules read


def analyze_reads(
    theirs: Mapping[str, ast.Module], ours: Mapping[str, ModuleReads], trainable: str = ""
) -> FoundReads:
    """Return the reads in the user's modules (``theirs``) and in the modules of sweep that they import (``ours``).

    ``theirs`` are syntax trees by the name of the module, ``ours`` what was found in a module before, by its name.
    ``trainable`` is the name of the trainable without its module: the first argument of a function with this name at
    the top level of a module holds the hyperparameters.
    """
    names: set[str] = set()
    doubts: dict[str, None] = {}
    for module, reads in ours.items():
        names |= reads.names
        if reads.is_computed:
            doubts[f"{module} reads names that it computes"] = None
    flow = _Flow(theirs, ours, trainable)
    names |= flow.names
    doubts.update(flow.doubts)
    return FoundReads(frozenset(names), tuple(doubts), collect_words(theirs), frozenset(flow.names))


def list_argument_names(name: str, trees: Mapping[str, ast.Module]) -> set[str]:
    """Return the names of the arguments of the class or function ``module:Name``, without ``self``.

    Those of a class are the arguments of its own ``__init__``, not of an inherited one. ``*args`` and ``**kwargs`` are
    left out. Returns an empty set if ``trees`` lacks the module, or if its top level does not define the name.
    """
    module, _, name = name.partition(":")
    arguments: set[str] = set()
    if module not in trees:
        return arguments
    for node in trees[module].body:
        if not isinstance(node, ast.ClassDef | Function) or node.name != name:
            continue
        if isinstance(node, ast.ClassDef):
            functions = _list_constructors(node)
        else:
            functions = [node]
        for function in functions:
            arguments.update(arg.arg for arg in _list_arguments(function))
    return arguments - {"self"}


def _list_constructors(owner: ast.ClassDef) -> list[Function]:
    """Return the ``__init__`` methods in the body of a class."""
    constructors = []
    for node in owner.body:
        if isinstance(node, Function) and node.name == "__init__":
            constructors.append(node)
    return constructors


class _Flow:
    """Follows hyperparameters through a user's modules, and collects the reads.

    It repeats until no more names or attributes that hold hyperparameters are found.
    """

    def __init__(
        self, trees: Mapping[str, ast.Module], ours: Mapping[str, ModuleReads], trainable: str
    ) -> None:
        self.names: set[str] = set()
        self.doubts: dict[str, None] = {}
        self._parents: dict[ast.AST, ast.AST] = {}  # the parent of each node in all modules
        self._functions: dict[str, list[Function]] = {}  # by name
        self._classes: dict[str, list[ast.ClassDef]] = {}  # by name
        # pairs of a function or module and a variable in it that holds hyperparameters
        self._holding_variables: set[tuple[ast.AST, str]] = set()
        self._holding_attributes = set(NAMES)  # names of attributes that hold hyperparameters
        # names of classes and functions of sweep
        self._names_of_sweep: set[str] = set()
        for reads in ours.values():
            self._names_of_sweep |= reads.definitions
        # by imported name, the top-level packages that it may come from; "" for a relative import
        self._origins: dict[str, set[str]] = {}
        for tree in trees.values():
            self._index_module(tree)
        self._packages_of_user = {name.split(".")[0] for name in trees}
        self._packages_of_sweep = {name.split(".")[0] for name in ours}
        self._mark_arguments(ours)
        for function in self._functions.get(trainable, []):
            if isinstance(self._parents[function], ast.Module):
                self._holding_variables.update(
                    (function, arg.arg) for arg in list_positional(function)[:1]
                )
        # Each pass may find further variables and attributes that hold them, whose uses the next pass records.
        found_before = -1
        found = len(self._holding_variables) + len(self._holding_attributes)
        while found != found_before:
            for module, tree in trees.items():
                self._record_reads(module, tree)
            found_before = found
            found = len(self._holding_variables) + len(self._holding_attributes)

    def _index_module(self, tree: ast.Module) -> None:
        """Record the parent of each node of a module, and its functions, classes and imports, wherever they stand.

        They are added to those of the modules recorded before.
        """
        for node in [tree, *list_nodes(tree)]:
            for child in ast.iter_child_nodes(node):
                self._parents[child] = node
            if isinstance(node, Function):
                self._functions.setdefault(node.name, []).append(node)
            elif isinstance(node, ast.ClassDef):
                self._classes.setdefault(node.name, []).append(node)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                for alias in node.names:
                    if isinstance(node, ast.Import):
                        source = alias.name
                    elif node.level == 0 and node.module:
                        source = node.module
                    else:  # a relative import
                        source = ""
                    name = alias.asname or alias.name.split(".")[0]
                    self._origins.setdefault(name, set()).add(source.split(".")[0])

    def _mark_arguments(self, ours: Mapping[str, ModuleReads]) -> None:
        """Note which arguments of functions hold hyperparameters.

        An argument holds them if its name or annotation says so. In a class that derives from one of sweep's, an
        argument also holds them if it is at the index of ``hp`` in the method of ``ours`` with the same name.
        """
        positions: dict[str, int] = {}  # of ``hp``, by the name of the method
        for reads in ours.values():
            positions.update(reads.positions)
        for functions in self._functions.values():
            for function in functions:
                position_of_hp = None
                if function.name in positions and self._derives_from_sweep(function):
                    position_of_hp = positions[function.name]
                for position, arg in enumerate(_list_arguments(function)):
                    if arg.arg in NAMES or _is_annotated(arg) or position == position_of_hp:
                        self._holding_variables.add((function, arg.arg))

    def _derives_from_sweep(self, method: Function) -> bool:
        """Return whether the class of a method derives from a class of sweep, directly or through the user's classes.

        Classes are matched by name alone; a class of the user's hides one of sweep's that has the same name. Returns
        False for a function that is in no class.
        """
        queue = [self._parents[method]]
        seen: set[str] = set()
        while queue:
            owner = queue.pop()
            if not isinstance(owner, ast.ClassDef):
                continue
            for base in owner.bases:
                name = get_last_name(base)
                # a user's class of the same name counts first
                if name in self._names_of_sweep and name not in self._classes:
                    return True
                if name not in seen:
                    queue += self._classes.get(name, [])
                seen.add(name)
        return False

    def _record_reads(self, module: str, tree: ast.Module) -> None:
        """Record the reads in one module, and a doubt for each use of hyperparameters that cannot be followed.

        Variables, attributes and parameters that receive the hyperparameters are noted for the next pass. If the module
        declares ``READS``, the names in it are recorded as read, and no doubts are recorded.
        """
        declared = find_declared_reads(tree)
        self.names |= declared or set()
        for node in list_nodes(tree):
            match node:
                case ast.Call(func=ast.Attribute(attr=reader, value=owner), args=[key, *_]):
                    if reader in READERS and get_last_name(owner) == "live":
                        self.names |= find_text_patterns(key)
            if not isinstance(node, ast.expr) or not self._holds_hyperparameters(node):
                continue
            is_followed = self._record_use(node)
            if (
                not is_followed and declared is None
            ):  # otherwise ``READS`` has what cannot be followed
                # the first line of the code around the use
                line = shortened(ast.unparse(self._parents[node]).splitlines()[0], 60)
                self.doubts[f"{module}:{node.lineno}: {line}"] = None

    def _holds_hyperparameters(self, node: ast.expr) -> bool:
        """Return whether the value of an expression is the hyperparameters, as far as was found by now.

        That is so for a variable that was found to hold them, for an attribute with such a name of anything but the
        hyperparameters themselves, and for a call of ``Hyperparameters``. A place that is assigned to does not count.
        """
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                return any(
                    (scope, name) in self._holding_variables
                    for scope in self._list_enclosing_scopes(node)
                )
            case ast.Attribute(value=owner, attr=name, ctx=ast.Load()):
                # ``hp.params`` is a parameter
                return name in self._holding_attributes and not self._holds_hyperparameters(owner)
            case ast.Call(func=func):
                return get_last_name(func) == "Hyperparameters"
        return False

    def _list_enclosing_scopes(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the functions and lambdas around a node, innermost first, and then its module."""
        while node in self._parents:
            node = self._parents[node]
            if isinstance(node, (*_FUNCTIONS, ast.Module)):
                yield node

    def _record_use(self, node: ast.expr) -> bool:
        """Record what is read from ``node``, an expression whose value is the hyperparameters.

        If the expression is assigned or passed to a call, the variable, attribute or parameter that receives it is
        noted as holding them. Returns False if the use cannot be followed, so that more may be read.
        """
        parent = self._parents[node]  # the expression or statement that uses ``node``
        followed = False
        match parent:
            case ast.Attribute(attr=name):
                followed = self._record_attribute(parent, name)
            case ast.Subscript(value=value, slice=key) if value is node:
                followed = self._record_key(key)
            case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=[right]) if (
                right is node
            ):
                followed = self._record_key(key)
            case ast.Compare(ops=[ast.Is() | ast.IsNot()]) | ast.Expr():
                # nothing is read by ``hp is None``, or by a statement that is only ``hp``
                followed = True
            case ast.Assign(targets=targets):
                # a list, so that all are noted even if one cannot be
                are_noted = [self._mark_target(target) for target in targets]
                followed = all(are_noted)
            case ast.AnnAssign(target=target):
                followed = self._mark_target(target)
            case ast.NamedExpr(target=target):
                # its value goes on to the surrounding expression, which is not followed
                self._mark_target(target)
            case ast.keyword(arg=str(name)) if isinstance(call := self._parents[parent], ast.Call):
                followed = self._follow_argument(call, name)
            case ast.Call(args=args) if node in args:
                followed = self._follow_argument(parent, args.index(node))
        return followed

    def _record_key(self, key: ast.expr) -> bool:
        """Record a read by a key; return False if no part of the key is known."""
        self.names |= find_text_patterns(key)
        return _is_partly_known(key)

    def _record_attribute(self, node: ast.Attribute, name: str) -> bool:
        """Record a read by an attribute or a method; return False if it cannot be followed.

        ``node`` is the attribute with the name ``name`` of the hyperparameters. For ``hp.x.y``, both ``x`` and ``x.y``
        are recorded. It cannot be followed if the method reads a key of which no part is known, is no reader, such as
        ``items``, or is passed on without a call.
        """
        call = self._parents[node]
        # No call of a reader: ``hp.aug.kind``, or a method that is passed on, such as ``hp.get``.
        if name not in (*READERS, BELOW) or not (isinstance(call, ast.Call) and call.func is node):
            if name in METHODS:
                return False
            path = [name]
            outer = call
            while isinstance(outer, ast.Attribute):
                path.append(outer.attr)
                outer = self._parents[outer]
            # of hp.x.y, x and x.y
            self.names |= {".".join(path[:end]) for end in range(1, len(path) + 1)}
            # the hyperparameters may be a plain dict, and ``items`` reads them all
            return name not in dir(dict)
        key = call.args[0] if call.args else None
        if key is None or not _is_partly_known(key):
            return False
        if name == BELOW:
            self.names |= {f"{text}.*" for text in find_text_patterns(key)}
        else:
            self.names |= find_text_patterns(key)
        return True

    def _mark_target(self, target: ast.expr) -> bool:
        """Note that the target of an assignment holds hyperparameters; return False if it is no name or attribute.

        A name is noted for the function or module that it is in, an attribute for all objects.
        """
        match target:
            case ast.Name(id=name):
                self._holding_variables.add((next(self._list_enclosing_scopes(target)), name))
            case ast.Attribute(attr=name):
                self._holding_attributes.add(name)
            case _:
                return False
        return True

    def _follow_argument(self, call: ast.Call, position: int | str) -> bool:
        """Note that the parameter which receives the hyperparameters in a call holds them; return False if none does.

        ``position`` is the index or the keyword of the argument. All functions and classes of the user's modules that
        have the called name count as called. Returns True if at least one of them has such a parameter, or if the call
        is to sweep's own code or to a harmless function such as `print`, where nothing needs to be noted. Notes
        nothing and returns False if the name is imported from another library.
        """
        name = get_last_name(call.func)
        # the top-level packages that the called name may come from; "": a relative import
        origins = self._origins.get(get_first_name(call.func), set())
        if name == "Hyperparameters" or (isinstance(call.func, ast.Name) and name in HARMLESS):
            return True
        if origins - self._packages_of_sweep - self._packages_of_user - {""}:  # another library
            return False
        followed = bool(origins & self._packages_of_sweep) or (
            get_first_name(call.func) in ("self", "super") and name in self._names_of_sweep
        )
        # called on an object, not as ``module.function``, so that only methods are meant
        of_an_object = isinstance(call.func, ast.Attribute) and not origins
        for function in self._functions.get(name, []):
            is_method = isinstance(self._parents[function], ast.ClassDef)
            if of_an_object and not is_method:
                continue
            followed |= self._follow_into_function(
                function, position, is_method and not _is_static(function)
            )
        for owner in self._classes.get(name, []):
            followed |= self._follow_into_class(owner, position)
        return followed

    def _follow_into_class(self, owner: ast.ClassDef, position: int | str) -> bool:
        """Note that the parameter of a class at ``position`` holds hyperparameters; return False if there is none.

        ``position`` is a name, or an index without ``self``. The parameters are those of the class's own ``__init__``.
        A class without it is taken for a dataclass, whose fields are noted as attributes.
        """
        constructors = _list_constructors(owner)
        if constructors:
            return self._follow_into_function(constructors[0], position, bound=True)
        # Without a constructor, the class is taken for a dataclass, whose fields are its arguments in this order.
        fields = _list_annotated_fields(owner)
        if isinstance(position, int):
            if position < len(fields):
                position = fields[position]
            else:  # no field, which the check below finds
                position = ""
        if position not in fields:
            return False
        self._holding_attributes.add(position)
        return True

    def _follow_into_function(self, function: Function, position: int | str, bound: bool) -> bool:
        """Note that a function's parameter at ``position`` holds hyperparameters; return False if there is none.

        ``position`` is a name, or an index. With ``bound``, the index does not count the first parameter, such as
        ``self``.
        """
        if isinstance(position, str):
            name = next((arg.arg for arg in _list_arguments(function) if arg.arg == position), None)
        else:
            names = [arg.arg for arg in list_positional(function)][1 if bound else 0 :]
            if position < len(names):
                name = names[position]
            else:
                name = None
        if name is None:
            return False
        self._holding_variables.add((function, name))
        return True


def find_reads_of_module(tree: ast.Module) -> ModuleReads:
    """Return what `analyze_reads` needs to know about a module of sweep."""
    names, is_computed = find_conventional_reads(tree)
    definitions: set[str] = set()
    positions: dict[str, int] = {}
    for node in list_nodes(tree):
        if isinstance(node, ast.ClassDef | Function):
            definitions.add(node.name)
        if isinstance(node, ast.ClassDef):
            positions.update(_find_hp_positions(node))
    return ModuleReads(frozenset(names), is_computed, frozenset(definitions), positions)


def _find_hp_positions(owner: ast.ClassDef) -> dict[str, int]:
    """Return the index of the argument ``hp``, counting ``self``, by the name of each method of a class that has it."""
    positions: dict[str, int] = {}
    for method in owner.body:
        if not isinstance(method, Function):
            continue
        for position, arg in enumerate(list_positional(method)):
            if arg.arg == "hp":
                positions[method.name] = position
    return positions


def _is_annotated(arg: ast.arg) -> bool:
    """Return whether the annotation of an argument contains ``Hyperparameters``; False without an annotation."""
    return arg.annotation is not None and "Hyperparameters" in ast.unparse(arg.annotation)


def _list_annotated_fields(owner: ast.ClassDef) -> list[str]:
    """Return the names of the annotated attributes in the body of a class, in their order."""
    names = []
    for node in owner.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.append(node.target.id)
    return names


def list_positional(function: Function) -> list[ast.arg]:
    """Return the arguments of a function that can be passed by position, ``self`` included, without ``*args``."""
    return [*function.args.posonlyargs, *function.args.args]


def _list_arguments(function: Function) -> list[ast.arg]:
    """Return all arguments of a function, without ``*args`` and ``**kwargs``."""
    return [*list_positional(function), *function.args.kwonlyargs]


def _is_static(function: Function) -> bool:
    return any(get_last_name(decorator) == "staticmethod" for decorator in function.decorator_list)
