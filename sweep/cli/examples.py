"""``init`` and ``examples``: write sweep files to start from.

They are stored in search_spaces/, which lies next to this package both in the repository and when installed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import click

from sweep.cli import options
from sweep.errors import InputError, RefusedError, UnknownNameError
from sweep.text import did_you_mean, printable

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "search_spaces"
# its relative path is wrong in any other folder
SCHEMA_LINE = re.compile(r"^# yaml-language-server:.*\n", re.MULTILINE)
TRAINABLE = re.compile(r"^trainable: ([\w.]+):(\w+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Example:
    """A sweep file that comes with sweep, together with the module of its trainable."""

    file: Path

    @property
    def name(self) -> str:
        return self.file.stem

    @property
    def about(self) -> tuple[str, str]:
        """The file's first two lines without ``# ``: the question that the sweep answers, and its cost."""
        question, cost = self.file.read_text(encoding="utf-8").splitlines()[:2]
        return question.removeprefix("# "), cost.removeprefix("# ")

    @property
    def text(self) -> str:
        """The text of the file, without the line that names its schema."""
        return SCHEMA_LINE.sub("", self.file.read_text(encoding="utf-8"))

    @property
    def beside(self) -> Path | None:
        """The trainable's module if it is in the same folder as the file; None if it is in an installed package."""
        if self.source.parent != self.file.parent:
            return None
        return self.source

    @property
    def source(self) -> Path:
        """The path of the trainable's module: in the folder of the file or, if it is not there, below `ROOT`."""
        ((module_name, _),) = TRAINABLE.findall(self.text)
        module = Path(*module_name.split(".")).with_suffix(".py")
        return next(path for path in (self.file.parent / module, ROOT / module) if path.is_file())

    def copy_as(self, name: str) -> dict[str, str]:
        """Return the contents of copies of the sweep file and its trainable, by file name: ``name.yaml``, ``name.py``.

        In the sweep file, the module of the trainable, the name of the sweep (if the file has one) and mentions of the
        module's file are changed to the new name. The module is not changed. Nothing is written.
        """
        # group 2 is the name of the class or function in the module
        text = TRAINABLE.sub(rf"trainable: {name}:\2", self.text)
        # Without this key, the name of the file is that of the sweep.
        if re.search(r"^name: ", text, re.MULTILINE):
            text = re.sub(r"^name: .*$", f"name: {name}", text, flags=re.MULTILINE)
        return {
            f"{name}.yaml": text.replace(f"{self.source.stem}.py", f"{name}.py"),
            f"{name}.py": self.source.read_text(encoding="utf-8"),
        }


def list_examples() -> dict[str, Example]:
    """Return the sweep files that come with sweep, by name without ``.yaml``, without the starters of `init`.

    Those directly in search_spaces/ come first, then those in its examples/, both in the order of their names.
    """
    files = (*sorted(SHIPPED.glob("*.yaml")), *sorted((SHIPPED / "examples").glob("*.yaml")))
    return {file.stem: Example(file) for file in files}


def find_example(name: str) -> Example:
    """Return the sweep file with this name that comes with sweep. Raises `UnknownNameError` if there is none."""
    known = list_examples()
    if name not in known:
        raise UnknownNameError.one(
            name,
            "no such example",
            did_you_mean(name, known) or "python -m sweep examples lists them",
        )
    return known[name]


def write_files(contents: Mapping[str, str], folder: Path) -> None:
    """Write files, given as texts by name, into a folder, or none of them if one of them exists.

    A missing folder is created. Raises `RefusedError` if a file exists, and `InputError` if one cannot be written;
    files written before that stay.
    """
    taken = []
    for name in contents:
        if (folder / name).exists():
            taken.append(name)
    if taken:
        raise RefusedError.one(
            ", ".join(taken),
            f"already in {folder.absolute()}",
            "give another name or --to another folder",
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in contents.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        hint = "write to another folder with --to DIR"
        raise InputError.one(str(error.filename or folder), str(error.strerror), hint) from error


folder_option = click.option(
    "--to",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    metavar="DIR",
    help="Folder to write to.",
)


@click.command()
@click.argument("name", required=False)
@click.option(
    "--from",
    "origin",
    metavar="EXAMPLE",
    help="Start from this shipped example, with its model's source.",
)
@click.option(
    "--from-hypermodel",
    "hypermodel",
    metavar="MODULE:NAME",
    help="Start from a model that declares its space, as KerasTuner's do: hp.Int, hp.Choice.",
)
@click.option(
    "--function", is_flag=True, help="Start from a training function instead of a Keras model."
)
@click.option("--torch", is_flag=True, help="Start from a training function for PyTorch.")
@folder_option
@options.as_json
def init(
    name: str | None,
    origin: str | None,
    hypermodel: str | None,
    function: bool,
    torch: bool,
    to: Path,
    as_json: bool,
) -> None:
    """Write a sweep file and a model to start from.

    NAME names both files and the sweep. By default it is that of the example, MODULE_sweep for a hypermodel,
    my_function, my_torch or my_model. No file is replaced.
    """
    if sum((origin is not None, hypermodel is not None, function, torch)) > 1:
        options_given = "--from, --from-hypermodel, --function, --torch"
        raise InputError.one(options_given, "these exclude each other", "give one of them")
    if hypermodel is not None:
        from sweep.cli import hypermodel as hypermodels

        module = hypermodel.partition(":")[0].rpartition(".")[2]  # without its packages
        # By default another name than the module's, because a module of the new name may be written that imports it.
        name = _check_module_name(name or f"{module}_sweep", to)
        written = hypermodels.make_files(hypermodel, name, Path.cwd())
        _write_and_announce(written.files, name, to, written.notes, as_json=as_json)
        return
    if torch:
        starter = "my_torch"
    elif function:
        starter = "my_function"
    else:
        starter = "my_model"
    if origin:
        start = find_example(origin)
    else:
        start = Example(SHIPPED / "starters" / f"{starter}.yaml")
    name = _check_module_name(name or start.name, to)
    _write_and_announce(start.copy_as(name), name, to, as_json=as_json)


def _check_module_name(name: str, to: Path) -> str:
    """Return ``name``. Raises `InputError` if it is no identifier, or if a module of this name can be imported.

    The latter is not checked if there is a file ``name.py`` in the folder ``to``, which `write_files` will refuse to
    replace.
    """
    if not name.isidentifier():
        raise InputError.one(name, "not the name of a Python module", "use letters, digits and _")
    if not (to / f"{name}.py").exists() and find_spec(name) is not None:
        raise InputError.one(
            name, "an installed module has this name", "give another one: python -m sweep init NAME"
        )
    return name


def _write_and_announce(
    contents: Mapping[str, str], name: str, to: Path, notes: Sequence[str] = (), *, as_json: bool
) -> None:
    """Write the files of a sweep into the folder ``to``, and print their names and the commands to type next.

    ``contents`` are the texts by file name, and ``name`` is the name of the sweep file without ``.yaml``. ``notes`` go
    to standard error, or into the document with ``as_json``. Raises the errors of `write_files`.
    """
    write_files(contents, to)
    files = [str(to / file) for file in contents]
    commands = []
    for command in ("plan", "run"):
        commands.append(f"python -m sweep {command} {to / name}.yaml")
    if as_json:
        from sweep.documents.shapes import FilesWritten
        from sweep.render import document

        click.echo(
            document(FilesWritten(files=tuple(files), next=tuple(commands), notes=tuple(notes)))
        )
        return
    click.echo(f"wrote    {', '.join(files)}")
    click.echo(f"next     {commands[0]}\n         {commands[1]}")
    for note in notes:
        click.echo(f"note: {printable(note)}", err=True)


@click.command("examples")
@click.argument("name", required=False)
@folder_option
@options.as_json
def examples_command(name: str | None, to: Path, as_json: bool) -> None:
    """List the shipped sweep files, or copy the one called NAME.

    If the module of its model is in the same folder, it is copied too. No file is replaced.
    """
    if name is None and as_json:
        shown = [_example_as_dict(shipped) for shipped in list_examples().values()]
        click.echo(json.dumps(shown, indent=2))
        return
    if name is None:
        for shipped in list_examples().values():
            question, cost = shipped.about
            click.echo(f"{shipped.name:20} {question}\n{'':20} {cost}")
        click.echo(
            "\ncopy one with python -m sweep examples NAME, and its model too with init --from NAME"
        )
        return
    start = find_example(name)
    contents = {f"{name}.yaml": start.text}
    if start.beside is not None:
        contents[start.beside.name] = start.beside.read_text(encoding="utf-8")
    _write_and_announce(contents, name, to, as_json=as_json)


def _example_as_dict(shipped: Example) -> dict[str, str]:
    """Return an example as its entry in ``examples --json``: its name, question and cost."""
    question, cost = shipped.about
    return {"name": shipped.name, "question": question, "cost": cost}
