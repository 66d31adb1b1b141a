"""Reads the configurations that a person adds to a sweep: from a command line, or from a file."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from sweep.errors import InputError, Problem, refuse
from sweep.events import NULL_PARAMS, Value
from sweep.space import Space
from sweep.space.domains import Domain, Tied, contains, list_choices
from sweep.spec import read_text
from sweep.spec.validation import describe_value
from sweep.spec.yaml_reader import read_value

PREFIX = "param."
"""Prefix of the columns with parameters, in tables that also have other columns."""


def read_assignments(assignments: Sequence[str], where: str = "add") -> dict[str, Value]:
    """Return the configuration that assignments such as ``lr=3e-3`` describe, with each value read as YAML.

    An empty value, as in ``lr=``, is null; without assignments, the configuration is empty. ``where`` begins each
    message. Raises `InputError` with all mistakes, such as a name that is given twice; whether the parameters exist is
    not checked.
    """
    configuration: dict[str, Value] = {}
    problems: list[Problem] = []
    for text in assignments:
        name, separator, value = text.partition("=")
        if not separator or not name:
            problems.append(Problem(where, f"{text!r}, expected NAME=VALUE", "such as lr=3e-3"))
        elif name in configuration:
            problems.append(Problem(where, f"{name} is given twice"))
        else:
            try:
                configuration[name] = read_value(value, f"{where} {text}")
            except InputError as error:
                problems += error.problems
    refuse(problems)  # raises if there are any
    return configuration


def read_file(path: Path, space: Space) -> list[dict[str, Value]]:
    """Read configurations from a file: a list of mappings in YAML or JSON, or CSV with a line of names.

    A file whose name ends in ``.csv`` is CSV, which does not tell texts from numbers: each cell is read as a value that
    its parameter may have in ``space``, otherwise as YAML, and empty cells are left out. If any column begins with
    ``param.``, as in `trials.parquet`, only these columns are read, without the prefix, and the parameters that are
    listed in the column ``null_params`` are null. A single mapping is one configuration. Whether the parameters exist
    is not checked. Raises `InputError`, also for a missing or an empty file.
    """
    text = read_text(path)
    if path.suffix.lower() == ".csv":
        return _read_csv(text, str(path), space)
    content = read_value(text, str(path))
    if isinstance(content, dict):
        content = [content]
    if not isinstance(content, list) or not content:
        raise InputError.one(
            str(path), f"{describe_value(content)}, expected a list of configurations"
        )
    configurations: list[dict[str, Value]] = []
    problems = []
    for index, one in enumerate(content):
        if isinstance(one, dict):
            configurations.append(one)
        else:
            what = f"{describe_value(one)}, expected a mapping of parameters"
            problems.append(Problem(f"{path}: [{index}]", what))
    refuse(problems)  # raises if there are any
    return configurations


def _read_csv(text: str, source: str, space: Space) -> list[dict[str, Value]]:
    """Return the configurations in a CSV text, one from each line below the names.

    ``source`` is the name of the file in messages, and ``space`` is as for `read_file`. Raises `InputError` if there is
    no such line, or for the first mistake in one.
    """
    # Spreadsheets begin their files with a byte order mark, which would become a part of the first name.
    lines = io.StringIO(text.removeprefix("\ufeff"), newline=None)  # all line ends become \n
    # strict: otherwise a quotation that is not closed would be accepted
    reader = csv.DictReader(lines, strict=True)
    domains = {parameter.name: parameter.domain for parameter in space.parameters}
    configurations = []
    try:
        for row in reader:
            configurations.append(_read_row(row, f"{source}, line {reader.line_num}", domains))
    except csv.Error as error:
        raise InputError.one(
            source, f"is no valid CSV after line {reader.line_num}: {error}"
        ) from error
    if not configurations:
        raise InputError.one(
            source, "no line below the names, expected a line for each configuration"
        )
    return configurations


def _read_row(
    row: Mapping[str | None, str | list[str] | None], where: str, domains: Mapping[str, Domain]
) -> dict[str, Value]:
    """Return the configuration in a row of CSV: its cells that are not empty, each read by `_read_cell`.

    ``row`` has the cells by the names of their columns. If any column begins with ``param.``, only these columns are
    read, without the prefix, and the parameters that the column `NULL_PARAMS` lists are null. ``where`` names the row
    in messages, and ``domains`` has the domains of the parameters. Raises `InputError` if the row has more cells than
    there are names, or for the first cell that is no valid value.
    """
    if None in row:  # the key under which `DictReader` puts the cells without a name
        raise InputError.one(where, "has more cells than there are names")
    cells = {}
    for name, cell in row.items():
        # a line with too few cells has None in place of the missing ones
        if isinstance(cell, str) and cell != "":
            cells[str(name)] = cell
    null_names: Value = None  # a list of names, as it is read from its cell
    # by the names, not by the cells that are filled, so that all rows of a table are read alike
    has_prefixes = any(str(name).startswith(PREFIX) for name in row)
    if has_prefixes:
        # in a parameter's own column, null is an empty cell, as where the parameter does not apply
        if NULL_PARAMS in cells:
            null_names = read_value(cells[NULL_PARAMS], f"{where}, {NULL_PARAMS}")
        cells = {
            name.removeprefix(PREFIX): cell
            for name, cell in cells.items()
            if name.startswith(PREFIX)
        }
    configuration = {}
    for name, cell in cells.items():
        configuration[name] = _read_cell(cell, domains.get(name), f"{where}, {name}")
    if isinstance(null_names, list):
        configuration |= {str(name): None for name in null_names}
    return configuration


def _read_cell(cell: str, domain: Domain | None, where: str) -> Value:
    """Return the value of a cell that is not empty: the one of the parameter's ``domain`` that it stands for.

    Without a domain, for a tied one, or if the domain has no such value, the cell is read as YAML.

    Where all choices are texts, such as ``"1e3"`` or ``"yes"``, the cell itself is looked for first, otherwise the cell
    read as YAML. An apostrophe that `export csv` has put before what a spreadsheet would take for a formula is removed
    if the domain has the value without it. ``where`` is the place in messages. Raises `InputError` if the cell is no
    value of the domain, and not YAML either.
    """
    if domain is None or isinstance(domain, Tied):
        return read_value(cell, where)
    texts = [cell]
    if cell.startswith("'"):  # perhaps by `export csv`
        texts.append(cell[1:])
    parsed: list[Value] = []
    for text in texts:
        with suppress(InputError):
            parsed.append(read_value(text, where))
    choices = list_choices(domain)
    if choices and all(isinstance(choice, str) or choice is None for choice in choices):
        candidates = [*texts, *parsed]
    else:
        candidates = [*parsed, *texts]
    for value in candidates:
        if contains(domain, value):
            return value
    return read_value(cell, where)
