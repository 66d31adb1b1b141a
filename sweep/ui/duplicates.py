"""Copies the file of a sweep for a new sweep, including the changes that people have made since it began."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from sweep.errors import InputError, StoreError
from sweep.events import Params, Value
from sweep.runner import resuming, sweep_files
from sweep.space.domains import configuration_key
from sweep.spec import Spec
from sweep.spec.configurations import read_start_with
from sweep.spec.resolved import format_sweep_file, write_keys
from sweep.spec.validation import Document, flow
from sweep.store import log
from sweep.store.disk import storing
from sweep.store.folder import ResultsFolder

_NAME = re.compile(r"^name:.*$", re.MULTILINE)
START = "start_with"


def duplicate_file(folder: ResultsFolder, name: str) -> str:
    """Return the text of a sweep's file under another name, with the present values of changed keys.

    Configurations that people have added are in ``start_with``, or in comments if they are outside the present space.
    If a changed key cannot be replaced in the text, as in one line of flow style, the whole file is written anew,
    without its comments. If the file or the changes cannot be understood, only the name is changed. Nothing is written
    to disk. Raises StoreError if the sweep's spec.yaml is missing or cannot be read.
    """
    with storing(folder.spec):
        # the file as it was when the sweep began
        text = folder.spec.read_text(encoding="utf-8", errors="replace")
    try:
        before = sweep_files.parse_file(text, folder.spec, ())
        present = resuming.open_sweep(folder).spec
    # written by another version of sweep: only its text can be used
    except (
        InputError,
        StoreError,
    ):
        return rename(text, name)
    keys = _find_changed_keys(folder, before, present)
    added, outside = _split_added(folder, present)
    values = write_keys(present, keys)
    if added:
        values[START] = [*(dict(start) for start in present.start_with), *added]
        keys = [*(key for key in keys if key != START), START]  # it may have been changed as well
    comments = [
        f"added to {folder.name}, and not in its present space: {flow(dict(params))}"
        for params in outside
    ]
    changed = _replace_keys(rename(text, name), keys, values, folder.name)
    changed = _add_comments(changed, comments)
    wanted = present.to_json_dict()
    if added:
        wanted[START] = values[START]
    # Lines are replaced by rules that do not know all of YAML, so the result is read again and compared.
    if _has_values(changed, folder, {"name": name} | {key: wanted.get(key) for key in keys}):
        return changed
    # the last resort: all keys as they are now, and none of the text
    everything = write_keys(present, present.to_json_dict())
    return format_sweep_file(
        {**everything, **values, "name": name}, [f"as {folder.name} is now", *comments]
    )


def rename(text: str, name: str) -> str:
    """Return the text of a sweep file with another ``name``, which is added after the first comments if it has none.

    Only a line that begins with ``name:`` counts as its name, and only the first one is replaced, as a whole.
    """
    line = f"name: {flow(name)}"
    if _NAME.search(text):
        return _NAME.sub(lambda _: line, text, count=1)
    return _after_comments(text, line)


def _after_comments(text: str, line: str) -> str:
    """Return a text with a line inserted after the lines at its beginning that begin with ``#``."""
    lines = text.splitlines()
    # The first comment stays the first line: it is the sweep's question (`shelf.read_question`).
    at = next((number for number, one in enumerate(lines) if not one.startswith("#")), len(lines))
    return "\n".join([*lines[:at], line, *lines[at:]]) + "\n"


def _add_comments(text: str, comments: Sequence[str]) -> str:
    """Return a text with comment lines added at its end, unchanged if there are none.

    ``comments`` are without the ``#``.
    """
    if comments and not text.endswith("\n"):
        text += "\n"
    return text + "".join(f"# {comment}\n" for comment in comments)


def _find_changed_keys(folder: ResultsFolder, before: Spec, present: Spec) -> list[str]:
    """Return the top-level keys whose values in ``present`` differ from those in ``before``, the file as it began.

    A key that only one of them has counts as different, unless its value is null. The name is left out, and so are
    ``method`` and ``early_terminate`` if ``auto`` chose the method, unless people have changed them, as the log says.
    """
    was = before.to_json_dict()
    now = present.to_json_dict()
    changed_by_people = {key for event in log.read_changes(folder.log) for key in event.settings}
    kept = {"name"}
    if before.chosen:  # the method, and perhaps the rule, were chosen by `auto`
        kept |= {"method", "early_terminate"} - changed_by_people
    keys = []
    for key in dict.fromkeys([*was, *now]):
        if key not in kept and was.get(key) != now.get(key):
            keys.append(key)
    return keys


def _split_added(folder: ResultsFolder, present: Spec) -> tuple[list[Value], list[Params]]:
    """Return the configurations that people have added: those that fit into the present space, and those that do not.

    They are read from the log. The first list leaves out configurations that ``start_with`` already has. Each
    configuration occurs once, in the order in which it was first added.
    """
    found: dict[str, Params] = {}
    for event in log.read_additions(folder.log):
        for params in event.configurations:
            found[configuration_key(params)] = params
    starts = {configuration_key(start) for start in present.start_with}
    added: list[Value] = []
    outside = []
    for key, params in found.items():
        # collects the mistakes, such as a value that a later change has excluded
        document = Document("")
        read_start_with([params], present.space, (), document)
        if document.found:
            outside.append(params)
        elif key not in starts:
            added.append(dict(params))
    return added, outside


def _replace_keys(text: str, keys: Sequence[str], values: Mapping[str, Value], name: str) -> str:
    """Return a text in which the top-level ``keys`` have the values of ``values``, each under a comment.

    A key without a value there is removed. A key that the text does not have is added at its end. ``name`` is the sweep
    that the comment names. The key ``metrics`` may be written as ``metric``, in the text and in ``values``.
    """
    for key in keys:
        # A single metric may be written under the key `metric`, before the change or after it.
        names = ("metric", "metrics") if key == "metrics" else (key,)
        block = ""  # what takes the place of the key
        for written in names:
            if written in values:
                block = f"# changed in {name}\n{format_sweep_file({written: values[written]}, [])}"
        text = _replace_block(text, names, block)
    return text


def _replace_block(text: str, names: Sequence[str], block: str) -> str:
    """Return a text in which ``block`` replaces the first top-level key that is one of ``names``, with its value.

    If there is none, ``block`` is added at the end. A ``block`` of ``""`` removes the key. ``block`` ends with a line
    feed; the text gets one at its end if it has none.
    """
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):  # the block may come after it
        lines[-1] += "\n"
    for at, line in enumerate(lines):
        if any(re.match(rf"{re.escape(name)}\s*:", line) for name in names):
            end = _find_end(lines, at)
            return "".join([*lines[:at], block, *lines[end:]])
    return "".join([*lines, block])


def _find_end(lines: Sequence[str], start: int) -> int:
    """Return the index of the line after the block of a top-level key, whose line has the index ``start``.

    The block has the indented lines and list items that follow, up to the next key or the end of the lines. Blank lines
    and comments after the last of them do not belong to it. The lines have their line feeds.
    """
    end = start + 1
    for at in range(start + 1, len(lines)):
        line = lines[at]
        # the next key; the items of a list may begin in the first column
        if line[0] not in " \t-#\r\n":
            break
        # A blank line or a comment only belongs to the block if another line of it follows.
        if line[0] in " \t-" and line.strip():
            end = at + 1
    return end


def _has_values(text: str, folder: ResultsFolder, wanted: Mapping[str, Value]) -> bool:
    """Return whether a text is a valid sweep file that has the values ``wanted``; it may have others too.

    ``wanted`` has values by key in the form of `Spec.to_json_dict`, with None for a key that the text must not have.
    ``folder`` gives the path for messages and to find the trainable.
    """
    try:
        found = sweep_files.parse_file(text, folder.spec, ()).to_json_dict()
    except InputError:
        return False
    return all(found.get(key) == value for key, value in wanted.items())
