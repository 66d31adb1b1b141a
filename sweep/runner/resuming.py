"""Finds an existing sweep and how it was run, and decides what may change when it is resumed.

`resume --set` and `run FILE --or-resume` both compare the resolved sweep file before and after.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeGuard

from sweep.errors import Problem, RefusedError, StoreError, refuse
from sweep.events import Value
from sweep.spec import Spec, parse_spec
from sweep.spec.validation import flow
from sweep.store.folder import ResultsFolder
from sweep.text import shortened

CHANGEABLE = (
    *("run_cap", "budget", "stop_when", "metric.target", "max_failures", "max_restarts", "retries"),
    *("confirm", "description", "notify"),
    *("checkpoint", "resources.max_concurrent", "resources.max_share"),
    *("resources.trial_hours", "resources.epoch_minutes"),
)
"""Keys that change when a sweep ends or how it is run, but not what has been trained."""


@dataclass(frozen=True, slots=True)
class ResumableSweep:
    """An existing sweep that can be resumed."""

    folder: ResultsFolder
    spec: Spec
    import_folders: tuple[Path, ...]
    working_folder: Path
    simulated_gpus: int | None
    memo: bool  # whether results of earlier sweeps are reused, as `run` was asked
    file: Mapping[str, Value] | None = None  # the resolved file as it is now, if the sweep is resumed from it


@dataclass(frozen=True, slots=True)
class Difference:
    """A key whose values differ in two resolved sweep files; None stands for a missing key."""

    keys: tuple[str | int, ...]
    before: Value
    after: Value

    @property
    def path(self) -> str:
        """The key as `--set` accepts it."""
        return re.sub(r"^metrics\.0\.", "metric.", ".".join(map(str, self.keys)))

    @property
    def is_changeable(self) -> bool:
        """True if a sweep that has begun can continue with the change."""
        return any(self.path == known or self.path.startswith(f"{known}.") for known in CHANGEABLE)


def find_differences(before: Value, after: Value, keys: tuple[str | int, ...] = ()) -> Iterator[Difference]:
    """Yield the differences of two resolved sweep files.

    Mappings are compared key by key, and lists of equally many mappings item by item.
    """
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys([*before, *after]):
            yield from find_differences(before.get(key), after.get(key), (*keys, key))
    elif _are_blocks(before) and _are_blocks(after) and len(before) == len(after):
        for at, pair in enumerate(zip(before, after, strict=True)):
            yield from find_differences(*pair, (*keys, at))
    elif json.dumps(before) != json.dumps(after):  # as text, because 1 and 1.0 train differently
        yield Difference(keys, before, after)


def _are_blocks(value: Value) -> TypeGuard[list[Value]]:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def reopen(results: Path, sweep: str, assignments: Sequence[str] = ()) -> ResumableSweep:
    """Return a sweep with changes to `CHANGEABLE` keys.

    Raises:
        UnknownNameError: if there is no such sweep.
        RefusedError: if another key is changed.
        StoreError: if its sweep.json is damaged.
    """
    folder = ResultsFolder.open(results, sweep)
    info = folder.read_info()
    if not info.spec or info.import_folders is None:
        raise StoreError(f"{folder.info}: lacks spec or import_folders, which `run` writes")
    spec = parse_spec(info.spec_text, str(folder.info))
    if assignments:
        before = spec.to_json_dict()
        spec = parse_spec(
            info.spec_text, str(folder.info), [re.sub(r"^metric\.", "metrics.0.", one) for one in assignments]
        )
        refuse(_problems(find_differences(before, spec.to_json_dict()), "--set "), RefusedError)
    there = tuple(path for path in info.import_folders if path.is_dir())
    there = there or (Path.cwd(),)  # another machine's folders: search the current one
    return ResumableSweep(folder, spec, there, info.working_folder, info.simulated_gpus, info.memo)


def reopen_as(results: Path, file: Path, spec: Spec, simulated_gpus: int | None) -> tuple[ResumableSweep, list[str]]:
    """Return the sweep named in a sweep file with the changes of that file, and a line for each change.

    Changes made by ``resume --set`` stay, unless the file's value has changed since the sweep began or was last resumed
    from the file.

    Raises:
        RefusedError: listing all changes that are not possible; otherwise see `reopen`.
    """
    reopened = reopen(results, spec.name)
    known, now = reopened.folder.read_info().file, spec.to_json_dict()
    before = parse_spec(json.dumps(known), str(reopened.folder.info)).to_json_dict()
    before["name"] = now["name"]  # its folder may have been renamed
    if spec.chosen:  # a sweep keeps to what was chosen when it began
        keys = ("method", "early_terminate") if spec.chosen[1] else ("method",)
        now |= {key: before[key] for key in keys}
    if not spec.names_first_rung:
        now["early_terminate"] = _with_earlier_first_rung(now["early_terminate"], before["early_terminate"])
    found = list(find_differences(before, now))
    if simulated_gpus != reopened.simulated_gpus:
        found.append(Difference(("--simulate-gpus",), reopened.simulated_gpus, simulated_gpus))
    refuse(_problems(found, f"{file}: "), RefusedError)
    content = reopened.spec.to_json_dict()
    for one in found:
        first, *rest = one.keys
        content[str(first)] = _replace_value(content.get(str(first)), rest, one.after)
    text = json.dumps(_without_nulls(content))
    lines = [f"{file}: {one.path} is {_shown(one.after)} from now on; it was {_shown(one.before)}" for one in found]
    return replace(reopened, spec=parse_spec(text, str(file)), file=_without_nulls(now)), lines


def _with_earlier_first_rung(rule: Value, before: Value) -> Value:
    """Return a rule that begins at epoch 1 if the sweep's does: this was the default for all methods."""
    if isinstance(rule, dict) and isinstance(before, dict) and before.get("min_iter") == 1 and "min_iter" in rule:
        return {**rule, "min_iter": 1}
    return rule


def _without_nulls(content: Mapping[str, Value]) -> dict[str, Value]:
    return {key: value for key, value in content.items() if value is not None}


def _replace_value(content: Value, keys: Sequence[str | int], value: Value) -> Value:
    """Return a copy of plain data with another value at a path."""
    if not keys:
        return value
    first, *rest = keys
    if isinstance(content, list):
        items = []
        for index, item in enumerate(content):
            items.append(_replace_value(item, rest, value) if index == first else item)
        return items
    mapping = content if isinstance(content, dict) else {}
    return {**mapping, str(first): _replace_value(mapping.get(str(first)), rest, value)}


def _problems(found: Iterator[Difference] | Sequence[Difference], where: str) -> Iterator[Problem]:
    """Yield a problem for each change that is not possible; the last one has the hint."""
    wrong = [one for one in found if not one.is_changeable]
    for at, one in enumerate(wrong, start=1):
        what = f"is {_shown(one.after)}, but the sweep began with {_shown(one.before)}"
        hint = (
            f"a sweep that has begun can change {', '.join(CHANGEABLE)} alone: run it under another --name, and trials "
            "that stay the same are answered from this one"
        )
        yield Problem(f"{where}{one.path}", what, hint if at == len(wrong) else "")


def _shown(value: Value) -> str:
    return "not set" if value is None else shortened(flow(value), 100)


def reopen_to_confirm(
    results: Path, sweep: str, seeds: int | None = None, finalists: int | None = None, budget: str | None = None
) -> ResumableSweep:
    """Return a sweep with these settings of ``confirm``; others come from its file or the defaults.

    ``budget`` is a share of the search's epochs such as ``20%``, or ``none`` for no limit. Raises like `reopen`.
    """
    known = reopen(results, sweep).spec.confirm
    given = {"seeds": seeds, "finalists": finalists, "budget": "null" if budget == "none" else budget}
    changes = [f"confirm.{key}={value}" for key, value in given.items() if value is not None]
    return reopen(results, sweep, [*([] if known else ["confirm={}"]), *changes])
