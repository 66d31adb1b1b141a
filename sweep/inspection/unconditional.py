"""Finds what certainly happens in every trial according to the source: methods, reads without a default, imports.

Only statements outside of branches and ``try`` count, and none after a branch that may leave the function.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sweep.hyperparameters import Hyperparameters
from sweep.inspection.dependencies import resolve_relative_import
from sweep.inspection.hyperparameter_reads import Function, list_positional

MethodOrder: TypeAlias = list[tuple[str, ast.ClassDef | None]]
"""Classes with their modules, in the order in which Python looks for a method; None for a class that is not known."""

_PLAIN = frozenset({"object", "Protocol", "Generic", "ABC"})  # bases without relevant methods


def list_lacking_methods(
    trainable: str, names: tuple[str, ...], trees: Mapping[str, ast.Module]
) -> tuple[str, ...]:
    """Return those of the methods ``names`` that ``module:Name`` certainly lacks; all if it is a plain function.

    Names that the body of a class or of a base assigns count as methods. Returns () if the definition or a base class
    is not in ``trees``, or if a decorator or other code may add methods.
    """
    module, _, name = trainable.partition(":")
    methods: set[str] = set()
    are_all_known = _collect_methods(module, name, trees, methods, set())
    if not are_all_known:
        return ()
    return tuple(one for one in names if one not in methods)


def shows_all_methods(trainable: str, trees: Mapping[str, ast.Module]) -> bool:
    """Return whether ``module:Name`` certainly has no other methods than those that ``trees`` show.

    True for a plain function, which has none. False if the definition or a base class is not in ``trees``, or if a
    decorator or other code may add methods.
    """
    module, _, name = trainable.partition(":")
    return _collect_methods(module, name, trees, set(), set())


def is_function(trainable: str, trees: Mapping[str, ast.Module]) -> bool:
    """Return whether ``module:Name`` is certainly defined as a function, async or decorated ones included."""
    return isinstance(find_definition(trainable, trees), Function)


def find_definition(
    trainable: str, trees: Mapping[str, ast.Module]
) -> Function | ast.ClassDef | None:
    """Return the definition of the function or class ``module:Name``, following imports.

    Returns None if the name is something else, if ``trees`` lacks it, or if it is uncertain which definition applies.
    """
    module, _, name = trainable.partition(":")
    node = _resolve_name(module, name, trees, set())[1]
    if isinstance(node, Function | ast.ClassDef):
        return node
    return None


def find_method(
    trainable: str, name: str, trees: Mapping[str, ast.Module]
) -> tuple[str, ast.stmt | None]:
    """Return the module and the definition of a method of ``module:Name``, its own or inherited.

    The definition is the statement in the body of the class that binds the name, which may also be an assignment, or an
    ``if`` or ``try`` around it. It is None if there is no such method, if a class that comes earlier in the search is
    unknown, or if several statements of the class bind the name; in the first two cases, the module is "".
    """
    module, _, owner = trainable.partition(":")
    for owner_module, owner_class in _list_method_order(module, owner, trees):
        if owner_class is None:  # unknown, and it may have the method
            return "", None
        definitions = []
        for statement in owner_class.body:
            if name in list_bound_names(statement):
                definitions.append(statement)
        if len(definitions) == 1:
            return owner_module, definitions[0]
        if definitions:
            return owner_module, None
    return "", None


def _list_method_order(
    module: str,
    name: str,
    trees: Mapping[str, ast.Module],
    derived: tuple[ast.ClassDef, ...] = (),
) -> MethodOrder:
    """Return a class and its bases with their modules, in the order in which Python looks for a method.

    The class is None where a base is not in ``trees``, is no class, or is one of ``derived``, the classes that led to
    it. It is also None from where several bases are merged, one of which is or has such a class: that class may derive
    from any of the others, which then come after it. Bases in `_PLAIN` are left out.
    """
    module, node = _resolve_name(module, name, trees, set())
    if not isinstance(node, ast.ClassDef) or node in derived:
        return [(module, None)]
    orders = []  # one for each base
    for base in node.bases:
        base_module, base_name = _find_base_class(module, base, trees)
        if base_name not in _PLAIN:
            orders.append(_list_method_order(base_module, base_name, trees, (*derived, node)))
    has_unknown_class = any(one is None for order in orders for _, one in order)
    if len(orders) > 1 and has_unknown_class:
        return [(module, node), ("", None)]
    orders.append([order[0] for order in orders])  # the bases themselves, in their order
    return [(module, node), *_merge_orders(orders)]


def _merge_orders(orders: Sequence[MethodOrder]) -> MethodOrder:
    """Merge the method orders of the bases of a class, of which the last is that of the bases themselves.

    The first class that no order has behind another one comes next: Python's C3 linearization (Barrett et al., OOPSLA
    1996). Where there is none, Python refuses the class, and the result ends with an unknown class. The given orders
    are not changed.
    """
    merged: MethodOrder = []
    remaining = [list(order) for order in orders if order]
    while remaining:
        heads = [order[0] for order in remaining]
        # classes that another one must precede
        behind = [one for order in remaining for one in order[1:]]
        following = next((head for head in heads if head not in behind), None)
        if following is None:  # the orders contradict each other
            return [*merged, ("", None)]
        merged.append(following)
        for order in remaining:
            if order[0] == following:
                del order[0]
        remaining = [order for order in remaining if order]
    return merged


def derives_from(trainable: str, base: str, trees: Mapping[str, ast.Module]) -> bool:
    """Return whether ``module:Name`` is the class ``base`` (``module:Name``) or is certainly derived from it.

    ``base`` must be named by the module that defines it, which must be in ``trees``.
    """
    queue = [trainable]
    seen: set[tuple[str, str]] = set()
    while queue:
        module, _, name = queue.pop().partition(":")
        module, node = _resolve_name(module, name, trees, seen)
        if not isinstance(node, ast.ClassDef):
            continue
        if f"{module}:{node.name}" == base:
            return True
        for one in node.bases:
            queue.append(":".join(_find_base_class(module, one, trees)))
    return False


def resolve_name(
    module: str, name: str, trees: Mapping[str, ast.Module]
) -> tuple[str, ast.stmt | None]:
    """Return the module that defines a name, following imports, and the statement that defines it.

    Only imports from modules in ``trees`` are followed. If the last module reached is not in ``trees``, or binds the
    name nowhere or more than once, the statement is None.
    """
    return _resolve_name(module, name, trees, set())


def list_methods(module: str, name: str, trees: Mapping[str, ast.Module]) -> set[str]:
    """Return the names of the methods and attributes in the body of a class and in those of its bases in ``trees``.

    Those within ``if`` or other code are left out. Returns an empty set if ``trees`` lacks the class.
    """
    methods: set[str] = set()
    _collect_methods(module, name, trees, methods, set())
    return methods


def _find_base_class(
    module: str, base: ast.expr, trees: Mapping[str, ast.Module]
) -> tuple[str, str]:
    """Return the module and the name of a base class, as the derived class in ``module`` refers to it.

    Of ``a.B``, the import of ``a`` is resolved; a plain name is taken to be in ``module``, imported or not.
    """
    owner, _, name = ast.unparse(base).rpartition(".")
    if not owner:
        return module, name
    for alias, full_name in _list_imported_modules(trees[module]):
        if alias == owner:
            return full_name, name
    return owner, name


def _collect_methods(
    module: str,
    name: str,
    trees: Mapping[str, ast.Module],
    names: set[str],
    seen: set[tuple[str, str]],
) -> bool:
    """Add the methods and attributes of a class and its bases to ``names``; return False if there may be more.

    There may be more if a class is not in ``trees``, or if a decorator, a metaclass or code such as ``if`` may add
    them. For an undecorated function, nothing is added, and the result is True. ``seen`` has the modules and names that
    were visited already, and grows; the result is False if one of them is met again, even by way of another base.
    """
    module, node = _resolve_name(module, name, trees, seen)
    if isinstance(node, Function):
        return not node.decorator_list  # a decorator may turn it into anything
    if not isinstance(node, ast.ClassDef):
        return False
    # a decorator or a metaclass may add methods
    are_all_known = not node.decorator_list and not node.keywords
    for statement in node.body:
        match statement:
            case ast.FunctionDef(name=method) | ast.AsyncFunctionDef(name=method):
                names.add(method)
            case ast.Assign(targets=targets):
                names.update(target.id for target in targets if isinstance(target, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=method)):
                names.add(method)
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                pass
            case _:  # any other code in the body may define methods, such as ``if``
                are_all_known = False
    for base in node.bases:
        base_module, base_name = _find_base_class(module, base, trees)
        if base_name not in _PLAIN:
            are_all_known &= _collect_methods(base_module, base_name, trees, names, seen)
    return are_all_known


def _resolve_name(
    module: str, name: str, trees: Mapping[str, ast.Module], seen: set[tuple[str, str]]
) -> tuple[str, ast.stmt | None]:
    """Return the module that defines a name, following imports, and the defining statement, as `resolve_name` does.

    ``seen`` contains the modules and names that were followed already, which end a circle: the statement is then None.
    Those followed now are added.
    """
    while (module, name) not in seen and module in trees:
        seen.add((module, name))
        definitions = []
        for statement in trees[module].body:
            if name in list_bound_names(statement):
                definitions.append(statement)
        if len(definitions) != 1:
            return module, None
        node = definitions[0]
        if not isinstance(node, ast.ImportFrom):
            return module, node
        original = next(alias.name for alias in node.names if (alias.asname or alias.name) == name)
        # A top-level module can have a relative import only if it is a package.
        is_package = "." not in module or any(other.startswith(f"{module}.") for other in trees)
        module = resolve_relative_import(module, node, is_package=is_package)
        name = original
    return module, None


def list_bound_names(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement in a module or class assigns, defines or imports.

    For ``if`` and ``try``, these are the names of all statements within, at any depth, even of those in functions and
    classes there; a name may come several times. Loops, ``with`` and unpacked tuples yield nothing.
    """
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield name
        case ast.ImportFrom(names=aliases) | ast.Import(names=aliases):
            yield from (alias.asname or alias.name.split(".")[0] for alias in aliases)
        case ast.Assign(targets=targets):
            yield from (target.id for target in targets if isinstance(target, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name
        case ast.If() | ast.Try():  # in any of the branches
            for part in ast.walk(node):
                if part is not node and isinstance(part, ast.stmt):
                    yield from list_bound_names(part)


def _list_imported_modules(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the local name and the full name of each absolute import at the top level of a module.

    For ``import a.b``, both are ``a.b``; for ``from a import b``, they are ``b`` and ``a.b``. Imports within ``if`` and
    ``try`` are left out.
    """
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from ((alias.asname or alias.name, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (
                (alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names
            )


# methods of a KerasTrainable that every trial calls, with the hyperparameters only
METHODS = (
    "data",
    "model",
)

# attributes of the hyperparameters, or of a dict of them, that are no parameters
_NO_NAMES = frozenset(dir(Hyperparameters)) | frozenset(dir(dict))
# methods that read without a default if a name is their only argument
_READERS = frozenset({"number", "integer", "text", "flag"})
# statements that leave a function or loop
_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)
# definitions, whose bodies run later or never
_LATER = (ast.Lambda, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_TRIES = (ast.Try, ast.TryStar)
_BRANCHES = (ast.If, *_TRIES, ast.For, ast.AsyncFor, ast.While, ast.Match)


@dataclass(frozen=True, slots=True)
class NameUse:
    """A name, and the module and line that use it."""

    name: str
    module: str
    line: int


def list_certain_reads(
    trainable: str, trees: Mapping[str, ast.Module], *, is_function: bool
) -> Iterator[NameUse]:
    """Yield the parameters that every trial certainly reads without a default, once for each read.

    Only the function's body counts, or the bodies of the class's methods `data` and `model`; none counts that has a
    decorator or ``yield``, or that assigns to the argument with the hyperparameters. Reads in branches are left out,
    and so are those after a branch that may leave the function.
    """
    module, _, name = trainable.partition(":")
    if is_function:
        module, function = _resolve_name(module, name, trees, set())
        yield from _find_reads(module, function, 0)
        return
    for method in METHODS:
        module, function = find_method(trainable, method, trees)
        yield from _find_reads(module, function, 1)  # the first argument is ``self``


def list_certain_imports(module: str, trees: Mapping[str, ast.Module]) -> Iterator[NameUse]:
    """Yield the modules that importing a module certainly imports, directly or through other modules in ``trees``.

    Relative imports are left out, and so are imports within functions, ``if`` and ``try``. ``from a import b`` yields
    ``a``. A module comes once for each statement that imports it, with the place of the statement.
    """
    queue = [module]
    seen = {module}
    while queue:
        module = queue.pop()
        if module not in trees:
            continue
        for node in trees[module].body:
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            for name in names:
                yield NameUse(name, module, node.lineno)
                if name not in seen:
                    seen.add(name)
                    queue.append(name)


def find_environment_value(module: str, name: str, trees: Mapping[str, ast.Module]) -> str | None:
    """Return the text that a module assigns to an environment variable at its top level; None if it assigns none.

    The first such statement counts, except in ``if``, ``try`` and other blocks. Raises ValueError if its value is not a
    literal string, or if it may set the variable with ``setdefault`` or ``update``. Returns None if ``trees`` lacks the
    module.
    """
    if module not in trees:
        return None
    for node in trees[module].body:
        match node:
            case ast.Assign(
                targets=[ast.Subscript(value=owner, slice=ast.Constant(value=key))], value=value
            ):
                # ``environ`` or ``os.environ``
                if key == name and ast.unparse(owner).endswith("environ"):
                    if isinstance(value, ast.Constant) and isinstance(value.value, str):
                        return value.value
                    raise ValueError(name)
            case ast.Expr(
                value=ast.Call(func=ast.Attribute(value=owner, attr="setdefault" | "update"))
            ):
                if name in ast.unparse(node) and ast.unparse(owner).endswith("environ"):
                    raise ValueError(name)
    return None


def _find_reads(module: str, function: ast.stmt | None, position: int) -> Iterator[NameUse]:
    """Yield the parameters that a function certainly reads from its argument at the index ``position``.

    ``module`` is the function's, for the results. Nothing is yielded if ``function`` is no function, lacks the
    argument, has a decorator or ``yield``, or assigns to the argument.
    """
    if not isinstance(function, Function) or function.decorator_list or _is_generator(function):
        return
    arguments = list_positional(function)
    if position >= len(arguments):
        return
    hp = arguments[position].arg
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and node.id == hp and not isinstance(node.ctx, ast.Load):
            return  # it is reassigned or deleted, so that it may hold something else
    for node in _walk_executed(function.body):
        name = _get_name_read(node, hp)
        if name is not None:
            yield NameUse(name, module, node.lineno)  # type: ignore[attr-defined]  # any expression has a line number


def _get_name_read(node: ast.AST, hp: str) -> str | None:
    """Return the parameter that an expression reads from ``hp`` without a default; None if it reads none."""
    match node:
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id=owner), attr=reader),
            args=[ast.Constant(value=str(name))],
        ):
            if owner == hp and reader in _READERS and not node.keywords:
                return name
        case ast.Attribute(value=ast.Name(id=owner), attr=name, ctx=ast.Load()):
            if owner == hp and name not in _NO_NAMES and not name.startswith("_"):
                return name
        case ast.Subscript(
            value=ast.Name(id=owner), slice=ast.Constant(value=str(name)), ctx=ast.Load()
        ):
            if owner == hp:
                return name
    return None


def _walk_executed(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """Yield the nodes of those statements of ``body`` that are certainly executed, in order.

    Parts of a statement that may not be evaluated, such as the second operand of ``and``, are left out. Of ``if`` and
    loops, only the condition or what they go through is included. All that follows a ``try``, or a statement with
    ``return``, ``raise``, ``continue`` or ``break`` in it, is left out.
    """
    for statement in body:
        if isinstance(statement, _LATER):  # its body is not executed here
            continue
        if isinstance(statement, _BRANCHES):
            for test in _list_tested_expressions(statement):
                yield from _walk_evaluated(test)
        elif isinstance(statement, ast.With | ast.AsyncWith):
            for item in statement.items:
                yield from _walk_evaluated(item.context_expr)
            if not _suppresses_errors(statement):
                yield from _walk_executed(statement.body)
        else:
            yield from _walk_evaluated(statement)
        # After a statement that may leave the function or the loop, nothing is certain; in ``try``, an error may be
        # handled.
        if isinstance(statement, _TRIES) or any(
            isinstance(one, _LEAVES) for one in ast.walk(statement)
        ):
            return


def _suppresses_errors(statement: ast.With | ast.AsyncWith) -> bool:
    """Return whether a ``with`` enters a call of ``suppress``, so that an error in its body is no failure."""
    for item in statement.items:
        match item.context_expr:
            case ast.Call(func=ast.Name(id="suppress") | ast.Attribute(attr="suppress")):
                return True
    return False


def _list_tested_expressions(statement: ast.stmt) -> list[ast.expr]:
    """Return the expression of ``if``, ``while``, ``for`` or ``match`` that is always evaluated, in a list.

    Returns [] for other statements, such as ``try``.
    """
    match statement:
        case ast.If(test=test) | ast.While(test=test):
            return [test]
        case ast.For(iter=test) | ast.AsyncFor(iter=test):
            return [test]
        case ast.Match(subject=test):
            return [test]
    return []


def _walk_evaluated(node: ast.AST) -> Iterator[ast.AST]:
    """Yield an expression or a simple statement, and those nodes in it that are evaluated in any case.

    Nothing is yielded for functions, classes and comprehensions.
    """
    if isinstance(node, (*_LATER, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
        return
    yield node
    match node:
        case ast.IfExp(test=test) | ast.Assert(test=test):  # the message only if the test fails
            yield from _walk_evaluated(test)
        case ast.BoolOp(values=[first, *_]):
            yield from _walk_evaluated(first)
        case ast.Compare(left=left, comparators=[first, *_]):  # in ``a < b < c``, c only if a < b
            yield from _walk_evaluated(left)
            yield from _walk_evaluated(first)
        case _:
            for child in ast.iter_child_nodes(node):
                yield from _walk_evaluated(child)


def _is_generator(function: Function) -> bool:
    """Return whether a function, or one within it, has a ``yield``."""
    return any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(function))
