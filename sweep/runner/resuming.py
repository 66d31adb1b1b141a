"""Finds an existing sweep and how it was run, and decides what may change when it is resumed.

`resume --set` and `run FILE --or-resume` both change the sweep as `change` does, by the rules of `sweep.spec.changes`.
The change is logged when the session begins.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sweep.analysis.outline import Outline
from sweep.errors import InputError, Problem, RefusedError, StoreError, refuse
from sweep.events import Value
from sweep.spec import Spec, changes, parse_spec
from sweep.spec.changes import Difference, find_differences
from sweep.store import log
from sweep.store.folder import ResultsFolder
from sweep.store.sweep_info import VERSION, SweepInfo


@dataclass(frozen=True, slots=True)
class ResumableSweep:
    """An existing sweep that can be resumed."""

    folder: ResultsFolder
    spec: Spec  # as it is to be from now on
    present: Spec  # as it is
    first: Spec  # as it was before the changes in its log
    import_folders: tuple[Path, ...]
    working_folder: Path
    simulated_gpus: int | None
    memo: bool  # whether results of earlier sweeps are reused, as `run` was asked
    # the resolved file as it is now, if the sweep is resumed from it
    file: Mapping[str, Value] | None = None

    @property
    def settings(self) -> Mapping[str, Value]:
        """The changed settings that are to be logged when the sweep is resumed; empty if there are none.

        They are the new values by top-level key of the sweep file, with None for a key that is removed.
        """
        return changes.make_settings(self.present, self.spec)


@dataclass(frozen=True, slots=True)
class StoredSweep:
    """An existing sweep that is to be shown, also if this version of sweep refuses its sweep file."""

    folder: ResultsFolder
    resumable: ResumableSweep | None  # None if the sweep file is refused
    problems: tuple[Problem, ...] = ()  # why it is refused

    @property
    def outline(self) -> Outline:
        """What views need of the sweep file; if that is refused, the name, the first metric and its goal alone.

        The metric and its goal are "" if sweep.json has no objectives. Raises `StoreError` if the file is refused and
        sweep.json is missing or damaged.
        """
        if self.resumable is not None:
            return Outline.of(self.resumable.spec)
        metric, goal = next(iter(self.folder.read_info().objectives), ("", ""))
        return Outline(name=self.folder.name, metric=metric, goal=goal)


def open_stored_sweep(results: Path, sweep: str) -> StoredSweep:
    """Return an existing sweep to be shown, also if this version of sweep refuses its sweep file.

    ``sweep`` is its name in the folder ``results``, its path, or its URL in an object store. If the sweep file is
    refused, the result has the reasons, and no `ResumableSweep`. Raises `UnknownNameError` if there is no such sweep,
    `InputError` for an invalid URL, and `StoreError` if its sweep.json or its log is damaged or its object store is not
    available.
    """
    folder = ResultsFolder.open(results, sweep)
    try:
        return StoredSweep(folder, open_sweep(folder))
    except InputError as error:  # this version refuses the sweep file
        return StoredSweep(folder, None, error.problems)


def reopen(results: Path, sweep: str, assignments: Sequence[str] = ()) -> ResumableSweep:
    """Return a sweep to be resumed with the changes in its log and then those of ``assignments``.

    The latter are written like ``run_cap=20``, and may change the keys in `changes.CHANGEABLE`. ``sweep`` is its name
    in the folder ``results``, its path, or its URL in an object store. Nothing is written, except that the local copy
    of a sweep in an object store is updated.

    Raises:
        UnknownNameError: if there is no such sweep.
        InputError: if ``assignments`` have mistakes, or if this version of sweep refuses the stored sweep file.
        RefusedError: if another key is changed, or if the sweep cannot adopt the new value of one of these keys.
        StoreError: if its sweep.json or its log is damaged, or its object store is not available.
    """
    reopened = open_sweep(ResultsFolder.open(results, sweep))
    if not assignments:
        return reopened
    spec = changes.with_assignments(reopened.spec, assignments, str(reopened.folder.info))
    changes.check_change(reopened.spec, spec, "--set ")
    return replace(reopened, spec=spec)


def open_sweep(folder: ResultsFolder) -> ResumableSweep:
    """Return the sweep in a folder with the changes in its log, to be resumed without further changes.

    Import folders that are missing here are left out; if all are, the current folder takes their place. A missing log
    counts as one without changes. Raises `StoreError` if its sweep.json is missing, damaged or incomplete, or a change
    in its log is damaged, and `InputError` if this version of sweep refuses its sweep file.
    """
    info = folder.read_info()
    if not info.spec or info.import_folders is None:
        raise StoreError(f"{folder.info}: lacks spec or import_folders, which `run` writes")
    settings = []
    for change in log.read_changes(folder.log):
        settings.append(change.settings)
    try:
        first = parse_spec(info.first_spec_text, str(folder.info))
        spec = changes.apply_all(first, settings, str(folder.log))
    except InputError as error:
        raise InputError([*error.problems, _describe_refused_file(info)]) from error
    there = tuple(path for path in info.import_folders if path.is_dir())
    there = there or (Path.cwd(),)  # another machine's folders: search the current one
    return ResumableSweep(
        folder, spec, spec, first, there, info.working_folder, info.simulated_gpus, info.memo
    )


def _describe_refused_file(info: SweepInfo) -> Problem:
    """Return a problem that names the version of sweep that wrote a file which this version refuses.

    It also names the commands that still read the sweep. It is added to the mistakes that were found in the file.
    """
    packages = info.provenance.get("packages")
    version = packages.get("sweep") if isinstance(packages, Mapping) else None
    if version == VERSION:  # a checkout of this version, or a person has changed the file
        author = "by other code"
    elif version is None:
        author = "by another version of sweep"
    else:
        author = f"by sweep {version}"
    what = (
        f"was written {author}; this one, {VERSION}, refuses the file and cannot resume the sweep"
    )
    return Problem(str(info.path), what, "status, compare, best, report and export still read it")


def write_present_spec(folder: ResultsFolder, spec: Spec) -> None:
    """Write ``spec``, whose changes are in the log already, into sweep.json if a different spec is there.

    The spec before the first change is kept there too. Raises `StoreError` if sweep.json cannot be read or written, and
    `InputError` if this version of sweep refuses the spec that is there.
    """
    info = folder.read_info()
    changed = change_info(info, spec)
    if changed.content != info.content:
        folder.write_info(changed)


def change_info(info: SweepInfo, spec: Spec) -> SweepInfo:
    """Return the content of sweep.json with ``spec`` as the present spec; the spec before the first change is kept.

    Return ``info`` itself if ``spec`` equals its present spec. Nothing is written. Raises `InputError` if this version
    of sweep refuses the present spec in ``info``.
    """
    now = spec.to_json_dict()
    if parse_spec(info.spec_text, str(info.path)).to_json_dict() == now:
        return info
    return info.changed(spec=now, first_spec=info.first_spec, file=info.file)


def reopen_as(
    results: Path, file: Path, spec: Spec, simulated_gpus: int | None
) -> tuple[ResumableSweep, list[str]]:
    """Return the sweep that a sweep file names, to be resumed with the changes in the file, and a line for each change.

    ``spec`` is the sweep in ``file``, and is looked for by its name in the folder ``results``. ``simulated_gpus`` is
    the number of GPUs that the user asks to simulate, None for real ones. A key that was changed in another way, as by
    `change`, keeps its value unless its value in the file has changed since the sweep began or was last resumed from
    the file. A method and a rule that auto chose when the sweep began stay as they are. Nothing is written.

    Raises:
        UnknownNameError: if there is no such sweep.
        RefusedError: listing all keys that differ but can never change, and ``simulated_gpus`` if that differs; if
            there are none, listing all other changes that this sweep cannot adopt.
        InputError: if the changes of the file do not fit the values that were changed in another way, or if this
            version of sweep refuses the stored sweep file.
        StoreError: if its sweep.json or its log is damaged, or its object store is not available.
    """
    reopened = reopen(results, spec.name)
    last_file = reopened.folder.read_info().file  # as it was when the sweep was last run from it
    before = parse_spec(json.dumps(last_file), str(reopened.folder.info)).to_json_dict()
    now = spec.to_json_dict()
    before["name"] = now["name"]  # its folder may have been renamed
    _keep_choices(now, before, spec)
    found = list(find_differences(before, now))
    content = _apply_differences(found, now, reopened.spec.to_json_dict())
    refuse(_list_problems(found, reopened, simulated_gpus, file), RefusedError)
    # None: a key that the file does not have
    wanted = parse_spec(json.dumps(_without_nulls(content)), str(file))
    changes.check_change(reopened.spec, wanted, f"{file}: ")
    lines = [f"{file}: {one.describe()}" for one in found]
    return replace(reopened, spec=wanted, file=_without_nulls(now)), lines


def _keep_choices(now: dict[str, Value], before: Mapping[str, Value], spec: Spec) -> None:
    """Put into ``now``, a resolved sweep file, what sweep itself chose when the sweep began, as ``before`` has it.

    That is the method if the file leaves it to auto, the rule if it leaves that too, and the rule's ``min_iter`` if it
    does not name one. ``spec`` is the sweep of ``now``, and says what the file leaves to sweep.
    """
    if spec.chosen:  # two lines: on the method that auto chose, and on the rule, which is "" if the file names one
        now["method"] = before["method"]
        _, line_on_rule = spec.chosen
        if line_on_rule:
            now["early_terminate"] = before["early_terminate"]
    if not spec.names_first_rung:  # the default may have been another one when the sweep began
        now["early_terminate"] = _with_earlier_first_rung(
            now["early_terminate"], before["early_terminate"]
        )


def _apply_differences(
    found: Sequence[Difference], now: dict[str, Value], present: dict[str, Value]
) -> dict[str, Value]:
    """Return ``present``, a resolved sweep file, with the differences in ``found`` applied; all else in it is kept.

    ``now`` is the resolved file in which the differences were found.
    """
    content = present
    for one in found:
        path, value = _find_replacement(one, now)
        if value is None and not _has_key(now, path):
            content = _remove_key(content, path)
            continue
        first, *rest = path
        replaced = _replace_value(content.get(str(first)), rest, value)
        content = {**content, str(first): replaced}
    return content


def _list_problems(
    found: Sequence[Difference], sweep: ResumableSweep, simulated_gpus: int | None, file: Path
) -> list[Problem]:
    """Return a problem for each key of the file that differs but cannot change, and for another ``--simulate-gpus``.

    ``found`` are the keys in which the file differs from that of the sweep; ``file`` is its path, for messages.
    ``simulated_gpus`` is what the user asks for now, None for real GPUs.
    """
    differences = list(found)
    if simulated_gpus != sweep.simulated_gpus:
        differences.append(Difference(("--simulate-gpus",), sweep.simulated_gpus, simulated_gpus))
    return list(changes.list_fixed_keys(differences, f"{file}: "))


def _find_replacement(
    one: Difference, now: Mapping[str, Value]
) -> tuple[tuple[str | int, ...], Value]:
    """Return the path of keys in a sweep file to replace in order to apply a difference, and the new value.

    For a difference within a parameter or in ``early_terminate``, that is the whole block, from ``now``, the content of
    the file as it is to be. The value None stands for a key that is removed.
    """
    # whole blocks: a rule or a domain of another kind has other keys, so that single ones would not fit together
    if one.keys[0] == "early_terminate":
        return ("early_terminate",), now["early_terminate"]
    if one.keys[0] != "parameters":
        return one.keys, one.after
    parameters = now["parameters"]
    if isinstance(parameters, dict):
        block = parameters.get(str(one.keys[1]))
    else:
        block = None
    return one.keys[:2], block


def _with_earlier_first_rung(rule: Value, before: Value) -> Value:
    """Return a copy of a rule with ``min_iter`` 1, a former default, if the sweep's rule ``before`` has that value.

    Otherwise, or if ``rule`` has no key ``min_iter``, return ``rule`` itself.
    """
    if (
        isinstance(rule, dict)
        and isinstance(before, dict)
        and before.get("min_iter") == 1
        and "min_iter" in rule
    ):
        return {**rule, "min_iter": 1}
    return rule


def _without_nulls(content: Mapping[str, Value]) -> dict[str, Value]:
    """Return a shallow copy of a mapping without the keys whose value is None; nested mappings keep such keys."""
    return {key: value for key, value in content.items() if value is not None}


def _replace_value(content: Value, keys: Sequence[str | int], value: Value) -> Value:
    """Return a copy of nested dicts and lists in which the value at a path of keys is replaced.

    Only the dicts and lists on the path are copied, and ``content`` is not changed. Mappings that are missing on the
    path are created, even in place of another value. A list index that is missing changes nothing. With an empty path,
    ``value`` itself is returned.
    """
    if not keys:
        return value
    first, *rest = keys
    if isinstance(content, list):
        items = []
        for index, item in enumerate(content):
            items.append(_replace_value(item, rest, value) if index == first else item)
        return items
    if isinstance(content, dict):
        mapping = content
    else:
        mapping = {}
    return {**mapping, str(first): _replace_value(mapping.get(str(first)), rest, value)}


def _has_key(content: Value, keys: Sequence[str | int]) -> bool:
    """Return whether nested dicts and lists have a value at the path ``keys``, which may be None."""
    for key in keys:
        if isinstance(content, dict) and str(key) in content:
            content = content[str(key)]
        elif isinstance(content, list) and isinstance(key, int) and key < len(content):
            content = content[key]
        else:
            return False
    return True


def _remove_key(content: Mapping[str, Value], keys: Sequence[str | int]) -> dict[str, Value]:
    """Return a copy of nested dicts and lists without the key at the path ``keys``; an equal copy if it is missing.

    Only the dicts and lists on the path are copied, and ``content`` is not changed. The path must end with a key of a
    dict, so an item of a list cannot be removed.
    """
    first, *rest = keys
    if not rest:
        return {name: value for name, value in content.items() if name != first}
    block = content.get(str(first))
    if isinstance(block, dict):
        return {**content, str(first): _remove_key(block, rest)}
    if isinstance(block, list):
        # the items are dicts; the next part of the path is the index of the one that has the key
        wanted, *item_keys = rest
        items: list[Value] = []
        for index, item in enumerate(block):
            if index == wanted and isinstance(item, dict):
                items.append(_remove_key(item, item_keys))
            else:
                items.append(item)
        return {**content, str(first): items}
    return dict(content)


def reopen_to_confirm(
    results: Path,
    sweep: str,
    seeds: int | None = None,
    finalists: int | None = None,
    budget: str | None = None,
) -> ResumableSweep:
    """Return a sweep to be resumed with these settings of ``confirm``; those that are None stay as they are.

    A sweep without ``confirm`` gets one, with the defaults for the settings that are None. ``seeds`` is the number of
    fresh seeds, ``finalists`` the number of configurations, and ``budget`` is a share of the search's epochs such as
    ``20%``, or ``none`` for no limit. The errors are those of `reopen`, and nothing is written.
    """
    has_confirm = reopen(results, sweep).spec.confirm is not None
    given = {
        "seeds": seeds,
        "finalists": finalists,
        "budget": "null" if budget == "none" else budget,
    }
    assignments = []
    if not has_confirm:
        assignments.append("confirm={}")  # creates the block, with its defaults
    for key, value in given.items():
        if value is not None:
            assignments.append(f"confirm.{key}={value}")
    return reopen(results, sweep, assignments)
