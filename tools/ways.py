"""Count the files and functions of `sweep/`, and those that the simplest run and `compare` go through.

`python tools/ways.py` prints the table; `-v` names them. Calls in other threads count, bodies of modules do not.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import inspect
import io
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType

ROOT = Path(__file__).resolve().parent.parent
SERVICE = ROOT / "sweep"
MOST_PARAMETERS = 6

TRAINABLE = "def train(hp, report):\n    report(loss=hp['x'])\n"
SWEEP = """\
name: ways
trainable: ways_trainable:train
method: grid
metric: {name: loss, goal: minimize}
parameters: {x: {values: [1.0, 2.0]}}
epochs: 1
"""


class Calls:
    """The calls of the service's code inside a block, in all threads."""

    def __init__(self) -> None:
        self._codes: set[CodeType] = set()

    @contextlib.contextmanager
    def recorded(self) -> Iterator[None]:
        """Record the calls."""
        threading.setprofile(self._record)
        sys.setprofile(self._record)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    @property
    def codes(self) -> set[CodeType]:
        """The called code of the service, with bodies of classes, lambdas and comprehensions but not of modules."""
        own = f"{SERVICE}/"
        return {
            code
            for code in self._codes
            if code.co_filename.startswith(own) and code.co_name != "<module>"
        }

    @property
    def functions(self) -> set[CodeType]:
        """The called functions that have a name."""
        return {
            code
            for code in self.codes
            if code.co_flags & inspect.CO_OPTIMIZED and code.co_name[0] != "<"
        }

    def _record(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            self._codes.add(frame.f_code)


def command(*arguments: str) -> Calls:
    """Run a command of the program in this process; return its calls."""
    from sweep.cli import main

    calls, words = Calls(), io.StringIO()
    with contextlib.redirect_stdout(words), calls.recorded(), contextlib.suppress(SystemExit):
        main(list(arguments), standalone_mode=False)
    return calls


def modules() -> dict[Path, ast.Module]:
    """Return the syntax trees of all files of the service."""
    return {path: ast.parse(path.read_text()) for path in sorted(SERVICE.rglob("*.py"))}


def long_signatures(trees: dict[Path, ast.Module]) -> list[str]:
    """Return the functions with more than `MOST_PARAMETERS` parameters, not counting ``self`` and ``cls``."""
    found = []
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                given = node.args
                names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
                count = len([name for name in names if name not in ("self", "cls")])
                count += (given.vararg is not None) + (given.kwarg is not None)
                if count > MOST_PARAMETERS:
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name} ({count})")
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="name the files and the functions as well"
    )
    verbose = parser.parse_args().verbose
    sys.path.insert(0, str(ROOT))
    trees = modules()
    lines = sum(len(path.read_text().splitlines()) for path in trees)
    signatures = long_signatures(trees)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "ways_trainable.py").write_text(TRAINABLE)
        (folder / "ways.yaml").write_text(SWEEP)
        results = ("--results", str(folder / "results"))
        run = command("run", str(folder / "ways.yaml"), "--inline", "-q", *results)
        compare = command("compare", "ways", *results)
    figures = [("files / lines of sweep/", f"{len(trees)} / {lines:,}")]
    for label, calls in (("run --inline -q", run), ("compare", compare)):
        figures.append(
            (
                f"files / functions of {label}",
                f"{count_files(calls.functions)} / {len(calls.functions)}",
            )
        )
        figures.append(
            (
                "  with bodies of classes and the like",
                f"{count_files(calls.codes)} / {len(calls.codes)}",
            )
        )
    figures.append((f"functions over {MOST_PARAMETERS} parameters", f"{len(signatures)}"))
    for label, figure in figures:
        print(f"{label:<40} {figure}")
    if verbose:
        print("", *signatures, "", *sorted({code.co_filename for code in run.functions}), sep="\n")


def count_files(codes: set[CodeType]) -> int:
    """Return the number of files that these codes are in."""
    return len({code.co_filename for code in codes})


if __name__ == "__main__":
    main()
