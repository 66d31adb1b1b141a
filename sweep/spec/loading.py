"""Sweep files and Python values, read as a sweep or refused with a list of all mistakes."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from sweep.errors import InputError
from sweep.spec import yaml_reader
from sweep.spec.resolution import SpecResolver
from sweep.spec.resolved import Spec
from sweep.spec.sweep_file import TARGET
from sweep.spec.validation import Document
from sweep.spec.yaml_reader import MAX_SIZE_BYTES, decode_text, parse_document


def load_spec(
    path: Path | str, assignments: Sequence[str] = (), environment: Mapping[str, str] = os.environ
) -> Spec:
    """Load a sweep file and return its sweep, after applying the assignments in ``SWEEP_SET`` and then ``assignments``.

    ``assignments`` are written as for ``--set``, and ``environment`` is where ``SWEEP_SET`` is looked up. Raises
    InputError with all mistakes in the file and the assignments, or if the file cannot be read.
    """
    return load_spec_with_text(path, assignments, environment)[0]


def load_spec_with_text(
    path: Path | str, assignments: Sequence[str] = (), environment: Mapping[str, str] = os.environ
) -> tuple[Spec, str]:
    """Return the sweep as `load_spec` does, and the file's text as it was read, without the assignments.

    The file is read only once, because a pipe cannot be read again. Raises InputError as `load_spec` does.
    """
    text = read_text(path)
    return parse_spec(text, str(path), assignments, environment.get(yaml_reader.VARIABLE, "")), text


def read_text(path: Path | str) -> str:
    """Return the text of a sweep file, without a byte order mark.

    Raises InputError if it cannot be read, has more than `MAX_SIZE_BYTES`, or is not UTF-8.
    """
    path = Path(path)
    try:
        with path.open("rb") as stream:
            # one more than allowed, for `decode_text` to notice
            raw = stream.read(MAX_SIZE_BYTES + 1)
    except FileNotFoundError:
        raise InputError.one(str(path), "no such file") from None
    except (OSError, ValueError) as error:  # ValueError: the path contains a null character
        if isinstance(error, OSError):
            reason = error.strerror
        else:
            reason = str(error)
        raise InputError.one(str(path), f"cannot be read: {reason}") from None
    return decode_text(raw, str(path))


def find_trainable(text: str, assignments: Sequence[str], environment: str) -> str:
    """Return the trainable that a sweep file names after the assignments, even if the file has mistakes.

    The arguments are those of `parse_spec`. Assignments with mistakes are skipped. Returns "" if no valid
    ``module:Name`` is named, if the text cannot be read as a YAML mapping, or if quotes in ``environment`` are
    unbalanced.
    """
    try:
        document = parse_document(text, "")
        yaml_reader.apply_assignments(yaml_reader.split_assignments(environment), "", document)
        yaml_reader.apply_assignments(assignments, "", document)
    except InputError:  # `parse_spec` reports it
        return ""
    trainable = document.data.get("trainable")
    if isinstance(trainable, str) and re.fullmatch(TARGET, trainable):
        return trainable
    return ""


def parse_spec(
    text: str, source: str, assignments: Sequence[str] = (), environment: str = ""
) -> Spec:
    """Return the sweep described by the text of a sweep file; ``environment`` is the content of ``SWEEP_SET``.

    ``source`` is the path of the file: it stands in messages, and its stem names a sweep without the key ``name``. The
    assignments in ``environment`` are applied before ``assignments``. Raises InputError with all mistakes.
    """
    return _resolve_document(parse_document(text, source), assignments, environment)


def make_spec(
    given: Mapping[str, object], source: str, assignments: Sequence[str] = (), environment: str = ""
) -> Spec:
    """Return the sweep described by a mapping with the keys of a sweep file. Raises InputError with all mistakes.

    Values may also be paths, tuples, sets, and NumPy scalars and arrays. If ``given`` has values that a sweep file
    cannot contain, only these are reported. The other arguments are those of `parse_spec`.
    """
    document = yaml_reader.make_document(given, source)
    document.check()  # a value that could not be converted is None, and would be found to be missing as well
    return _resolve_document(document, assignments, environment)


def _resolve_document(document: Document, assignments: Sequence[str], environment: str) -> Spec:
    """Apply assignments to the data of a document, and return its sweep. Raises InputError with all mistakes.

    Those in ``environment``, the content of ``SWEEP_SET``, are applied before ``assignments``.
    """
    yaml_reader.apply_assignments(
        yaml_reader.split_assignments(environment), yaml_reader.VARIABLE, document
    )
    yaml_reader.apply_assignments(assignments, "--set", document)
    spec = SpecResolver(document).resolve()
    document.check()
    if spec is None:
        raise AssertionError("a sweep file without mistakes gave no sweep")
    return spec
