"""Reads sweep files. Imports little, so that `run` can say within a moment what it is about to do."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from sweep import spec as specs
from sweep.errors import InputError, Problem
from sweep.spec import Spec, yaml_reader


def load_file(path: Path, changes: Sequence[str]) -> tuple[Spec, str]:
    """Read a sweep file and apply changes such as ``epochs=3``; return the sweep and the file's unchanged text.

    The changes in the variable ``SWEEP_SET`` are applied before ``changes``. Raises InputError if the file cannot be
    read, or with all mistakes in the file and the changes. Only if there are mistakes, the trainable is looked for as
    well, and problems with finding it are added to them.
    """
    text = specs.read_text(path)
    return parse_file(text, path, changes), text


def parse_file(text: str, path: Path, changes: Sequence[str]) -> Spec:
    """Parse the text of a sweep file, apply the changes in the variable ``SWEEP_SET`` and then ``changes``.

    Return the sweep. ``path`` is used in messages and to find the trainable; the file is not read. Raises InputError
    with all mistakes in the text and the changes and, if there are any, problems with finding the trainable as well.
    """
    environment = os.environ.get(yaml_reader.VARIABLE, "")
    try:
        return specs.parse_spec(text, str(path), changes, environment)
    except InputError as error:
        trainable = specs.find_trainable(text, changes, environment)
        raise InputError([*error.problems, *_find_trainable_mistakes(trainable, path)]) from None


def import_folders(path: Path) -> tuple[Path, ...]:
    """Return the folders in which a trainable is searched: the current one and, if different, the sweep file's."""
    folders = [Path.cwd(), path.resolve().parent]
    return tuple(dict.fromkeys(folders))


def _find_trainable_mistakes(trainable: str, path: Path) -> tuple[Problem, ...]:
    """Return the problems that prevent the trainable from being found; () if it is found, or ``trainable`` is "".

    It is searched in `import_folders`, and nothing is imported. The problems begin with the path of the sweep file.
    """
    from sweep.inspection import inspect

    if not trainable:
        return ()
    try:
        inspect(trainable, import_folders(path), ())
    except InputError as error:
        return tuple(Problem(f"{path}: {p.where}", p.what, p.hint) for p in error.problems)
    return ()
