"""Which methods a trainable has, its own and those of its bases, as far as their syntax trees tell."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

_PLAIN = frozenset({"object", "Protocol", "Generic", "ABC"})  # bases without methods that matter


def lacks(trainable: str, names: tuple[str, ...], trees: Mapping[str, ast.Module]) -> tuple[str, ...]:
    """Those of the methods that ``module:Name`` has for sure not; all of them where it is a function."""
    module, _, name = trainable.partition(":")
    found: set[str] = set()
    sure = _collect(module, name, trees, found, set())
    return tuple(one for one in names if one not in found) if sure else ()


def is_function(trainable: str, trees: Mapping[str, ast.Module]) -> bool:
    """Whether ``module:Name`` is a function for sure."""
    module, _, name = trainable.partition(":")
    return isinstance(_resolved(module, name, trees, set())[1], ast.FunctionDef | ast.AsyncFunctionDef)


def definition(module: str, name: str, trees: Mapping[str, ast.Module]) -> tuple[str, ast.stmt | None]:
    """The module in which a name is defined, through imports, and its definition; None where that cannot be told."""
    return _resolved(module, name, trees, set())


def method(trainable: str, name: str, trees: Mapping[str, ast.Module]) -> tuple[str, ast.stmt | None]:
    """The module and the definition of a method of ``module:Name``, its own or inherited; None as of `definition`."""
    queue, seen = [trainable], set[tuple[str, str]]()
    while queue:
        module, _, owner = queue.pop(0).partition(":")
        module, node = _resolved(module, owner, trees, seen)
        if not isinstance(node, ast.ClassDef):
            break
        found = [one for one in node.body if name in _bound(one)]
        if found:
            return module, found[0] if len(found) == 1 else None
        queue[:0] = [":".join(_named(module, one, trees)) for one in node.bases]
    return "", None


def derives(trainable: str, base: str, trees: Mapping[str, ast.Module]) -> bool:
    """Whether ``module:Name`` is ``base`` or for sure a class that derives from it."""
    queue, seen = [trainable], set[tuple[str, str]]()
    while queue:
        module, _, name = queue.pop().partition(":")
        module, node = _resolved(module, name, trees, seen)
        if isinstance(node, ast.ClassDef):
            if f"{module}:{node.name}" == base:
                return True
            queue += [":".join(_named(module, one, trees)) for one in node.bases]
    return False


def _named(module: str, base: ast.expr, trees: Mapping[str, ast.Module]) -> tuple[str, str]:
    """The module and the name of a base class, as the module of its subclass names it."""
    owner, _, name = ast.unparse(base).rpartition(".")
    if owner:
        owner = next((full for alias, full in _modules(trees[module]) if alias == owner), owner)
    return owner or module, name


def _collect(
    module: str, name: str, trees: Mapping[str, ast.Module], found: set[str], seen: set[tuple[str, str]]
) -> bool:
    """Add the methods of a class and its bases; False where there may be more."""
    module, node = _resolved(module, name, trees, seen)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return not node.decorator_list  # which may make anything of it
    if not isinstance(node, ast.ClassDef):
        return False
    sure = not node.decorator_list and not node.keywords
    for one in node.body:
        match one:
            case ast.FunctionDef(name=method) | ast.AsyncFunctionDef(name=method):
                found.add(method)
            case ast.Assign(targets=targets):
                found.update(target.id for target in targets if isinstance(target, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=method)):
                found.add(method)
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                pass
            case _:
                sure = False
    for base in node.bases:
        owner, its = _named(module, base, trees)
        if its in _PLAIN:
            continue
        sure &= _collect(owner, its, trees, found, seen)
    return sure


def _resolved(
    module: str, name: str, trees: Mapping[str, ast.Module], seen: set[tuple[str, str]]
) -> tuple[str, ast.stmt | None]:
    """Where a name is defined, through imports, and its definition; None where that cannot be told."""
    while (module, name) not in seen and module in trees:
        seen.add((module, name))
        body = trees[module].body
        definitions = [one for one in body if name in _bound(one)]
        if len(definitions) != 1:
            return module, None
        (node,) = definitions
        if not isinstance(node, ast.ImportFrom):
            return module, node
        original = next(alias.name for alias in node.names if (alias.asname or alias.name) == name)
        module, name = _absolute(module, node, trees), original
    return module, None


def _bound(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield name
        case ast.ImportFrom(names=aliases) | ast.Import(names=aliases):
            yield from (alias.asname or alias.name for alias in aliases)
        case ast.Assign(targets=targets):
            yield from (target.id for target in targets if isinstance(target, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name
        case ast.If() | ast.Try():  # whichever branch it is
            yield from (
                name for one in ast.walk(node) if one is not node and isinstance(one, ast.stmt) for name in _bound(one)
            )


def _modules(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The modules that a module imports, by the names that it has for them."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from ((alias.asname or alias.name, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)


def _absolute(module: str, node: ast.ImportFrom, trees: Mapping[str, ast.Module]) -> str:
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    is_package = any(other.startswith(f"{module}.") for other in trees)
    parts = parts[: len(parts) - node.level + is_package]
    return ".".join([*parts, *([node.module] if node.module else [])])
