"""Sweep files that are being written on the page: their mistakes with lines, completions, and saving."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from sweep.documents.mistakes import Mistake, describe_problems
from sweep.errors import InputError, RefusedError, UnknownNameError
from sweep.runner import checking, sweep_files
from sweep.spec.work import describe_work
from sweep.store.disk import replacing, storing
from sweep.text import did_you_mean
from sweep.ui.completion import Proposal, propose, propose_in
from sweep.ui.known_trainables import KnownTrainables
from sweep.ui.outline import read_outline
from sweep.ui.places import list_names

FILE = "sweep.yaml"  # name of a draft that has none
FOLDER = "the modules of the folder"  # in which trainables are searched
MOST_FILES = 200  # maximum number of sweep files of a folder that are listed
LARGEST = 1_000_000  # bytes of the largest sweep file that is opened
_PLACE = re.compile(r"^(?P<file>[^:]*):(?P<line>\d+)(?::(?P<column>\d+))?:? ?(?P<path>.*)$")

SPACES = "search_spaces"  # the sub-folder that may also have sweep files
EXAMPLE = "trainables.digits_cnn:DigitsCNN"
MOST_TRIED = 3  # number of the folder's trainables that are tried in the template

TEMPLATE = """\
name: NAME
trainable: TRAINABLE
metric: {name: METRIC, goal: GOAL}
parameters:
  learning_rate: {distribution: log_uniform_values, min: 1e-4, max: 1e-1}
epochs: 10
run_cap: 12
"""


def write_template(trainables: KnownTrainables, file: str) -> str:
    """Return the text of a sweep file to begin with; may take seconds, and writes no file.

    The first 3 trainables in `KnownTrainables.found` are tried in turn: the source of each is read into ``trainables``,
    and the text that names it is checked. The first text without mistakes is returned. If there is none, as before
    `KnownTrainables.search_folder` was called, the text names an example of sweep, and is not checked. ``file`` is the
    path that the text will have: modules are also looked for in its folder.
    """
    found = trainables.found or {}
    for trainable in [*found][:MOST_TRIED]:
        trainables.read(trainable, file)
        known, _ = trainables.find(trainable)
        text = _fill_template(trainable, known.metrics)
        if not check_draft(text, file).mistakes:
            return text
    return _fill_template(EXAMPLE, ())


def _fill_template(trainable: str, metrics: Iterable[str]) -> str:
    """Return the template for ``trainable`` with one of its ``metrics``.

    It is ``val_accuracy`` if that is among them or there are none, else the first by name of those that begin with
    ``val_``, else of all. The goal is to minimize it if its name has "loss", "error", "mae" or "mse" in it. The
    sweep's name stays ``NAME``.
    """
    # False sorts before True: the preferred ones come first
    by_preference = sorted(
        metrics, key=lambda name: (name != "val_accuracy", not name.startswith("val_"), name)
    )
    metric = next(iter(by_preference), "val_accuracy")
    goal = "minimize" if re.search("loss|error|mae|mse", metric) else "maximize"
    values = {"TRAINABLE": trainable, "METRIC": metric, "GOAL": goal}
    # at once, because a name that is filled in may contain another word of these
    return re.sub("|".join(values), lambda found: values[found[0]], TEMPLATE)


@dataclass(frozen=True, kw_only=True)
class DraftMistake:
    """A mistake in a draft; ``line`` is 0 if the mistake has no place in the file."""

    line: int
    column: int
    path: str
    mistake: Mistake


@dataclass(frozen=True, kw_only=True)
class DraftFacts:
    """The mistakes in a draft, and the number of trials that it would train."""

    mistakes: tuple[DraftMistake, ...]
    name: str
    work: str  # how much it may train, in a line; "" if it has mistakes


@dataclass(frozen=True, kw_only=True)
class DraftProposals:
    """Completions, and how many characters they replace before and after the cursor (in UTF-16, as browsers count)."""

    before: int
    after: int
    proposals: tuple[Proposal, ...]
    # a trainable whose source is being read, or `FOLDER`; there may be more proposals then
    unread: str


def complete_draft(
    before: str, after: str, trainables: KnownTrainables, results: Path, *, asked: bool = False
) -> DraftProposals:
    """Return the completions at the cursor, which is between the texts ``before`` and ``after``.

    Uses only what ``trainables`` knows so far and reads no source, so that it returns at once. ``results`` is the
    results folder, whose sweeps are listed only at a value of ``warm_start``. ``asked`` is True if the user has asked
    for completions, which may then also correct the word at the cursor.
    """
    outline = read_outline(before + after, len(before))
    trainable = outline.find_scalar(("trainable",))
    known, needs_reading = trainables.find(trainable)
    unread = trainable if needs_reading else ""
    path = () if outline.place is None else outline.place.path
    if path[:1] == ("warm_start",):  # the folders are only listed where their names are proposed
        known = replace(known, sweeps=list_names(results))
    elif path == ("trainable",):
        unread = FOLDER if trainables.found is None else ""
        known = replace(known, trainables=trainables.found or {})
    found = propose_in(outline, known, asked=asked)
    return DraftProposals(
        # the offsets count characters of both texts together
        before=_count_utf16_units(before[found.start :]),
        after=_count_utf16_units(after[: found.end - len(before)]),
        proposals=found.proposals,
        unread=unread,
    )


def prepare_proposals() -> None:
    """Compute and cache what all completions need, so that the first one does not take longer."""
    propose("", 0)


def _count_utf16_units(text: str) -> int:
    """Return the length of a text as browsers count it, in UTF-16 units: 2 for a character such as an emoji."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def check_draft(text: str, file: str) -> DraftFacts:
    """Check the text of a sweep file as `run` and `plan` do; return its mistakes, or a line on what it would train.

    The trainable is checked as well, whose source is read for this. ``file`` is the path of the file, which need not
    exist: messages name it, and modules are also looked for in its folder. The mistakes are sorted by line and column,
    those without a line last. With a mistake, the name and the line on the work are "".
    """
    try:
        spec = sweep_files.parse_file(text, Path(file), ())
        checking.check_trainable(spec, file, sweep_files.import_folders(Path(file)))
    except InputError as error:
        found = [_place_mistake(mistake, text) for mistake in describe_problems(error.problems)]
        found.sort(key=lambda one: (one.line == 0, one.line, one.column))
        return DraftFacts(mistakes=tuple(found), name="", work="")
    return DraftFacts(mistakes=(), name=spec.name, work=describe_work(spec))


def _place_mistake(mistake: Mistake, text: str) -> DraftMistake:
    """Return a mistake with its line, column (from 1) and path of keys in the draft, as `Mistake.where` has them.

    If that has no line, the line is that of the top-level key in it, or 0 if the draft does not have this key. The
    column is 1 if it is not known.
    """
    place = _PLACE.match(mistake.where)  # such as "FILE:LINE:COLUMN: KEY"
    if place is None:  # such as "FILE: KEY", for a mistake that is found after the file was parsed
        path = mistake.where.partition(": ")[2] or mistake.where
        return DraftMistake(line=_find_key(path, text), column=1, path=path, mistake=mistake)
    return DraftMistake(
        line=int(place["line"]),
        column=int(place["column"] or 1),
        path=place["path"].rstrip(":"),
        mistake=mistake,
    )


def _find_key(path: str, text: str) -> int:
    """Return the line, from 1, of the top-level key with which a dotted path begins; 0 if the text does not have it."""
    key = f"{path.partition('.')[0]}:"
    return next((at for at, line in enumerate(text.splitlines(), 1) if line.startswith(key)), 0)


def list_files(folder: Path) -> list[str]:
    """Return the names of the sweep files in a folder and in its ``search_spaces``, those changed last first.

    At most 200 names are returned; those of files in the latter begin with ``search_spaces/``. A sweep file is a file
    with a name as `is_name` allows it, of at most 1,000,000 bytes, with a top-level key ``parameters`` or
    ``trainable``. Files that cannot be read are left out.
    """
    found = []
    for path in [*folder.glob("*.y*ml"), *folder.glob(f"{SPACES}/*.y*ml")]:
        file = path.relative_to(folder).as_posix()
        # one that cannot be read, as of another user, does not hide the others
        with suppress(OSError):
            if is_name(file) and path.is_file() and _is_sweep_file(path):
                found.append((path.stat().st_mtime, file))
    return [name for _, name in sorted(found, reverse=True)[:MOST_FILES]]


def _is_sweep_file(path: Path) -> bool:
    """Return whether a file has a line that begins with the key ``parameters`` or ``trainable``.

    Returns False above 1,000,000 bytes. Raises OSError if the file cannot be read.
    """
    if path.stat().st_size > LARGEST:
        return False
    text = path.read_text(encoding="utf-8", errors="replace")
    return re.search(r"^(parameters|trainable)\s*:", text, re.MULTILINE) is not None


def read_file(folder: Path, file: str) -> str:
    """Return the text of a sweep file in a folder; bytes that are not UTF-8 are replaced.

    Raises `InputError` if ``file`` is no name by `is_name`, is a link to another folder, or has more than 1,000,000
    bytes, `UnknownNameError` if there is no such file, and `StoreError` if it cannot be read. What the text says is not
    checked.
    """
    path = _find_file(folder, file)
    if not path.is_file():
        raise UnknownNameError.one(
            file, f"no such file in {folder}", did_you_mean(file, list_files(folder))
        )
    if path.stat().st_size > LARGEST:
        raise InputError.one(
            file, f"has {path.stat().st_size:,} bytes, expected at most {LARGEST:,}"
        )
    with storing(path):
        return path.read_text(encoding="utf-8", errors="replace")


def is_name(file: str) -> bool:
    """Return whether ``file`` can be the path of a sweep file: a plain name, or one after ``search_spaces/``.

    A plain name ends in .yaml or .yml, does not begin with a dash, a dot or a blank, has no slash, backslash or control
    character, and has at most 151 characters before its ending. Whether the file exists does not matter.
    """
    plain = file.removeprefix(f"{SPACES}/")
    return re.fullmatch(r"[^/\\.\-\s][^/\\\x00-\x1f]{0,150}\.ya?ml", plain) is not None


def _find_file(folder: Path, file: str) -> Path:
    """Return the path of the sweep file ``file`` in a folder; the file may not exist.

    Raises `InputError` for a name that is not one by `is_name`, and for a link to another folder, also to one below
    ``folder``.
    """
    if not is_name(file):
        raise InputError.one("file", f"is {file!r}, expected a plain name that ends in .yaml")
    path = folder / file
    # A name is plain, so only a link can lead out of the folder.
    if path.resolve().parent != (folder.resolve() / file).parent:
        raise InputError.one(file, "is a link to another folder", "copy the file into this one")
    return path


def save_draft(folder: Path, file: str, text: str, *, replace: bool = False) -> Path:
    """Write a draft into a folder and return its path; create the file's folder, such as ``search_spaces``, if missing.

    Raises `RefusedError` if a file with this name has another text, unless ``replace`` is set. Raises `InputError` if
    ``file`` is no name by `is_name` or is a link to another folder, and `StoreError` if it cannot be read or written.
    The text is not checked. The file is replaced as a whole, never seen half written.
    """
    path = _find_file(folder, file)
    if not replace and has_other_text(folder, file, text):
        raise RefusedError.one(file, "exists with another text", "give the new one another name")
    with storing(path):
        path.parent.mkdir(exist_ok=True)
    with replacing(path) as aside:
        aside.write_bytes(text.encode())
    return path


def has_other_text(folder: Path, file: str, text: str) -> bool:
    """Return whether the file ``file`` exists in a folder and differs from ``text`` in any byte.

    Raises `InputError` if ``file`` is no name by `is_name` or is a link to another folder, and `StoreError` if the file
    cannot be read.
    """
    path = _find_file(folder, file)
    with storing(path):
        return path.exists() and path.read_bytes() != text.encode()
