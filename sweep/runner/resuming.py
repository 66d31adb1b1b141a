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
        """The changed settings that are to be logged when the sweep is resumed; empty if there are none."""
        return changes.make_settings(self.present, self.spec)


@dataclass(frozen=True, slots=True)
class StoredSweep:
    """An existing sweep that is to be shown, also if this version of sweep refuses its sweep file."""

    folder: ResultsFolder
    resumable: ResumableSweep | None  # None if the sweep file is refused
    problems: tuple[Problem, ...] = ()  # why it is refused

    @property
    def outline(self) -> Outline:
        """What views need of the sweep file; if that is refused, the name, the metric and its goal alone.

        Raises `StoreError` if sweep.json cannot be read.
        """
        if self.resumable is not None:
            return Outline.of(self.resumable.spec)
        metric, goal = next(iter(self.folder.read_info().objectives), ("", ""))
        return Outline(name=self.folder.name, metric=metric, goal=goal)


def open_stored_sweep(results: Path, sweep: str) -> StoredSweep:
    """Return an existing sweep to be shown, also if this version of sweep refuses its sweep file.

    ``sweep`` is its name in the folder ``results``, its path, or its URL in an object store. Raises `UnknownNameError`
    if there is no such sweep, and `StoreError` if its sweep.json or its log is damaged.
    """
    folder = ResultsFolder.open(results, sweep)
    try:
        return StoredSweep(folder, open_sweep(folder))
    except InputError as error:
        return StoredSweep(folder, None, error.problems)


def reopen(results: Path, sweep: str, assignments: Sequence[str] = ()) -> ResumableSweep:
    """Return a sweep to be resumed with changes such as ``run_cap=20`` to `changes.CHANGEABLE` keys.

    ``sweep`` is its name in the folder ``results``, its path, or its URL in an object store. Nothing is written.

    Raises:
        UnknownNameError: if there is no such sweep.
        InputError: if ``assignments`` have mistakes, or if this version of sweep refuses the stored sweep file.
        RefusedError: if another key is changed, or if the sweep cannot adopt the new value of one of these keys.
        StoreError: if its sweep.json or its log is damaged.
    """
    reopened = open_sweep(ResultsFolder.open(results, sweep))
    if not assignments:
        return reopened
    spec = changes.with_assignments(reopened.spec, assignments, str(reopened.folder.info))
    changes.check_change(reopened.spec, spec, "--set ")
    return replace(reopened, spec=spec)


def open_sweep(folder: ResultsFolder) -> ResumableSweep:
    """Return the sweep in a folder with the changes in its log, to be resumed without further changes.

    Import folders that are missing here are left out; if all are, the current folder is searched. Raises `StoreError`
    if its sweep.json or its log is damaged, and `InputError` if this version of sweep refuses its sweep file.
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
    """Write ``spec``, whose changes are in the log already, into sweep.json if a different spec is there."""
    info = folder.read_info()
    changed = change_info(info, spec)
    if changed.content != info.content:
        folder.write_info(changed)


def change_info(info: SweepInfo, spec: Spec) -> SweepInfo:
    """Return the content of sweep.json with ``spec`` as the present spec; the spec before the first change is kept.

    Return ``info`` itself if ``spec`` equals its present spec. Nothing is written.
    """
    now = spec.to_json_dict()
    if parse_spec(info.spec_text, str(info.path)).to_json_dict() == now:
        return info
    return info.changed(spec=now, first_spec=info.first_spec, file=info.file)


def reopen_as(
    results: Path, file: Path, spec: Spec, simulated_gpus: int | None
) -> tuple[ResumableSweep, list[str]]:
    """Return the sweep that a sweep file names, to be resumed with the changes in the file, and a line for each change.

    ``spec`` is the sweep in ``file``. A key that was changed in another way, as by `change`, keeps its value unless its
    value in the file has changed since the sweep began or was last resumed from the file. A method and a rule that auto
    chose when the sweep began stay as they are. Nothing is written.

    Raises:
        UnknownNameError: if there is no such sweep.
        RefusedError: listing all keys that differ but can never change, with ``simulated_gpus``; if there are none,
            listing all other changes that this sweep cannot adopt.
        InputError: if the changes of the file do not fit the values that were changed in another way.
        StoreError: if its sweep.json or its log is damaged.
    """
    reopened = reopen(results, spec.name)
    known = reopened.folder.read_info().file
    now = spec.to_json_dict()
    before = parse_spec(json.dumps(known), str(reopened.folder.info)).to_json_dict()
    before["name"] = now["name"]  # its folder may have been renamed
    if spec.chosen:  # a sweep keeps to what was chosen when it began
        keys = ("method", "early_terminate") if spec.chosen[1] else ("method",)
        now |= {key: before[key] for key in keys}
    if not spec.names_first_rung:  # the default may have been another one when the sweep began
        now["early_terminate"] = _with_earlier_first_rung(
            now["early_terminate"], before["early_terminate"]
        )
    found = list(find_differences(before, now))
    # keeps what was changed otherwise; only the differences are put into it
    content = reopened.spec.to_json_dict()
    for one in found:
        keys_to_replace, value = _find_replacement(one, now)
        if value is None and not _has_key(now, keys_to_replace):
            content = _remove_key(content, keys_to_replace)
            continue
        first, *rest = keys_to_replace
        content[str(first)] = _replace_value(content.get(str(first)), rest, value)
    refuse(_list_problems(found, reopened, simulated_gpus, file), RefusedError)
    # None: a key that the file does not have
    wanted = parse_spec(json.dumps(_without_nulls(content)), str(file))
    changes.check_change(reopened.spec, wanted, f"{file}: ")
    lines = [f"{file}: {one.describe()}" for one in found]
    return replace(reopened, spec=wanted, file=_without_nulls(now)), lines


def _list_problems(
    found: Sequence[Difference], sweep: ResumableSweep, simulated_gpus: int | None, file: Path
) -> list[Problem]:
    """Return a problem for each key of the file that differs but cannot change, and for ``--simulate-gpus``.

    ``found`` are the keys in which the file differs from that of the sweep; ``file`` is its path, for messages.
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
    path are created, even in place of another value. A list index that is missing changes nothing.
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

    Only the dicts and lists on the path are copied, and ``content`` is not changed.
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
    """Return a sweep to be confirmed; settings that are None come from its file or the defaults.

    ``budget`` is a share of the search's epochs such as ``20%``, or ``none`` for no limit. Raises like `reopen`;
    nothing is written.
    """
    known = reopen(results, sweep).spec.confirm
    given = {
        "seeds": seeds,
        "finalists": finalists,
        "budget": "null" if budget == "none" else budget,
    }
    changes_of_confirm = []
    for key, value in given.items():
        if value is not None:
            changes_of_confirm.append(f"confirm.{key}={value}")
    # a block that is missing is created first, with its defaults; the keys are then set in it
    return reopen(results, sweep, [*([] if known else ["confirm={}"]), *changes_of_confirm])
