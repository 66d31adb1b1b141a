"""Measure how dense the code is: how much of it a reader has to take in at once.

`python tools/density.py` prints a table of `sweep/` and `trainables/`; other paths may be given. Code lines are lines
with a token that is neither a comment nor part of a docstring. Syntax nodes are those of `ast`, without annotations,
docstrings and contexts (`ast.Load` and its like). A comprehension or conditional expression is nested if it lies in
another one, or in a lambda, of the same statement; `-v` lists the statements that have such ones. Names of classes and
functions are those at the top of modules; the table counts the names that more than one module defines, `-v` lists
them.
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
NESTABLE = (*COMPREHENSIONS, ast.IfExp, ast.Lambda)
NOT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


@dataclass
class Density:
    """Counts of some Python files."""

    code_lines: int = 0
    nodes: int = 0
    comprehensions: int = 0
    conditionals: int = 0
    nested: list[str] = field(default_factory=list)  # file and line of each statement
    # files by name
    classes: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    # files by name
    functions: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    @property
    def nodes_per_line(self) -> float:
        return self.nodes / max(self.code_lines, 1)

    def per_1000_lines(self, count: int) -> float:
        """Return a count per 1,000 code lines."""
        return 1000 * count / max(self.code_lines, 1)


def measure(paths: Sequence[Path]) -> Density:
    """Return the counts of files and of all Python files in folders."""
    density = Density()
    for path in paths:
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            _add(density, file)
    return density


def _add(density: Density, file: Path) -> None:
    """Add the counts of a file."""
    source = file.read_text(encoding="utf-8")
    tree = ast.parse(source)
    name = _short(file)
    docstrings = [node for node in ast.walk(tree) if _is_docstring(node)]
    density.code_lines += len(_code_lines(source, docstrings))
    for node in _code_nodes(tree):
        density.nodes += 1
        density.comprehensions += isinstance(node, COMPREHENSIONS)
        density.conditionals += isinstance(node, ast.IfExp)
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and _depth_of_statement(node) > 1:
            density.nested.append(f"{name}:{node.lineno}")
    for statement in tree.body:
        if isinstance(statement, ast.ClassDef):
            density.classes[statement.name].append(name)
        elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            density.functions[statement.name].append(name)


def in_several(files_by_name: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return the names that more than one file defines, with these files."""
    return {
        name: sorted(set(files))
        for name, files in sorted(files_by_name.items())
        if len(set(files)) > 1
    }


def _is_docstring(node: ast.AST) -> bool:
    """Return whether a statement is a docstring, that of an attribute included."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _code_lines(source: str, docstrings: Sequence[ast.AST]) -> set[int]:
    """Return the numbers of the lines that have code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for docstring in docstrings:
        lines.difference_update(range(docstring.lineno, docstring.end_lineno + 1))
    return lines


def _code_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and those below it, without annotations, docstrings and contexts."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if (
                isinstance(child, ast.AST)
                and not isinstance(child, ast.expr_context)
                and not _is_docstring(child)
            ):
                yield from _code_nodes(child)


def _depth_of_statement(statement: ast.stmt) -> int:
    """Return how deep comprehensions, conditional expressions and lambdas of a statement are nested."""
    return max((_depth(child) for child in _expressions_below(statement)), default=0)


def _depth(node: ast.AST) -> int:
    below = max((_depth(child) for child in _expressions_below(node)), default=0)
    return below + isinstance(node, NESTABLE)


def _expressions_below(node: ast.AST) -> list[ast.AST]:
    return [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.stmt)]


def _short(file: Path) -> str:
    return str(file.relative_to(ROOT)) if file.is_relative_to(ROOT) else str(file)


def table(columns: dict[str, Density]) -> str:
    """Return the counts as a table with a column each."""
    rows = [
        ("code lines", lambda density: f"{density.code_lines:,}"),
        ("syntax nodes a code line", lambda density: f"{density.nodes_per_line:.1f}"),
        (
            "comprehensions in 1,000 code lines",
            lambda density: f"{density.per_1000_lines(density.comprehensions):.0f}",
        ),
        (
            "conditional expressions in 1,000",
            lambda density: f"{density.per_1000_lines(density.conditionals):.0f}",
        ),
        ("statements that nest them", lambda density: f"{len(density.nested):,}"),
        ("class names in several modules", lambda density: f"{len(in_several(density.classes)):,}"),
        (
            "function names in several modules",
            lambda density: f"{len(in_several(density.functions)):,}",
        ),
    ]
    first = max(len(label) for label, _ in rows)
    lines = [" " * first + "".join(f"{column:>14}" for column in columns)]
    for label, cell in rows:
        lines.append(
            f"{label:<{first}}" + "".join(f"{cell(density):>14}" for density in columns.values())
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "paths", nargs="*", type=Path, default=[ROOT / "sweep", ROOT / "trainables"]
    )
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="list nested statements and names"
    )
    options = parser.parse_args(arguments)
    for path in options.paths:
        if not path.exists():
            parser.error(f"there is no {path}")
    columns = {path.name: measure([path]) for path in options.paths}
    if len(columns) > 1:
        columns["all"] = measure(options.paths)
    print(table(columns))
    if options.verbose:
        whole = measure(options.paths)
        for place in whole.nested:
            print(place)
        for names in (whole.classes, whole.functions):
            for name, files in in_several(names).items():
                print(f"{name}: {', '.join(files)}")


if __name__ == "__main__":
    main()
