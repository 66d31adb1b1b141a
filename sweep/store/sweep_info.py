"""``sweep.json``: what a sweep file was resolved to, what the sweep runs on, and where it comes from.

Only this module knows the keys of the file. They are looked at when they are asked for: a file of an earlier release
may lack some, and a damaged part matters only to those who need it.
"""

from __future__ import annotations

import json
import os
import platform
import re
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias, TypedDict, Unpack

from sweep.contract import cpus, memory_bytes
from sweep.errors import StoreError

Objectives: TypeAlias = tuple[tuple[str, str], ...]
"""(metric, "maximize" or "minimize") of each objective of a sweep; the first one ranks."""

LOWER_IS_BETTER = ("loss", "err", "error", "crossentropy", "perplexity", "mae", "mse", "rmse", "mape")
HIGHER_IS_BETTER = ("accuracy", "acc", "auc", "precision", "recall", "iou", "f1", "r2", "bleu", "reward", "score")
SHARES = ("acc", "accuracy", "error_rate")
"""Words in the names of metrics. The last are shares of the examples."""


def says(metric: str, words: Iterable[str]) -> bool:
    """Return whether the name of a metric has one of these words."""
    return re.search(rf"(?<![a-z])({'|'.join(words)})(?![a-z])", metric.lower()) is not None


def maximizes(metric: str, objectives: Objectives = ()) -> bool | None:
    """Return whether higher values of a metric are better: as the sweep says, else by its name; None: unknown."""
    for name, goal in objectives:
        if name == metric:
            return goal == "maximize"
    lower, higher = says(metric, LOWER_IS_BETTER), says(metric, HIGHER_IS_BETTER)
    return higher if lower != higher else None


VERSIONS = ("tensorflow", "keras", "numpy", "sweep")
"""Packages whose version decides whether two trainings are the same, beside those that the trainable imports."""


class EarlierSweep(TypedDict):
    """A sweep that the search learns from, as far as its log went when it was taken."""

    path: str
    log_bytes: int


class Fields(TypedDict, total=False):
    """The keys of the file."""

    name: str
    objectives: list[dict[str, str]]  # name and goal of each
    seed: int
    spec: Mapping[str, object]  # the resolved sweep file
    file: Mapping[str, object]  # the same as the file last said it, where the sweep has changed since
    import_folders: list[str]  # where the trainable is looked for
    working_folder: str  # in which trials begin
    simulated_gpus: int | None
    memo: bool  # whether trials of earlier sweeps may answer its own
    source: Mapping[str, object]  # the trainable's code: `describe_source`
    provenance: Mapping[str, object]  # versions, commit, hardware: the function `provenance`
    warm_start: list[EarlierSweep]
    origin: Mapping[str, object]  # the sweep and trial that it was made of


FIRST_RUNG_WAS_1 = ("asha", "asha_promotion", "pasha", "freeze_thaw", "median")
"""Rules whose ``min_iter`` was 1 for every method if a file named none."""


def _as_begun(resolved: Mapping[str, object]) -> dict[str, object]:
    """Return a resolved sweep file without keys that are null, with what was the default when the sweep began."""
    found = {key: value for key, value in resolved.items() if value is not None}
    rule = found.get("early_terminate")
    if isinstance(rule, Mapping) and rule.get("type") in FIRST_RUNG_WAS_1 and rule.get("min_iter") is None:
        found["early_terminate"] = {**rule, "min_iter": 1}
    return found


class _Mapping:
    """A mapping within the file, by the keys that lead to it; empty where there is none."""

    def __init__(self, *keys: str) -> None:
        self._keys = keys

    def __get__(self, info: SweepInfo, kind: type) -> Mapping[str, object]:
        found: object = info.content
        for key in self._keys:
            found = found.get(key) if isinstance(found, Mapping) else None
        return found if isinstance(found, Mapping) else {}


@dataclass(frozen=True, slots=True)
class SweepInfo:
    """The content of a sweep.json."""

    path: Path
    content: Mapping[str, object]

    spec = _Mapping("spec")  # the resolved sweep file
    parameters = _Mapping("spec", "parameters")  # the search space as that declares it
    confirm = _Mapping("spec", "confirm")
    resources = _Mapping("spec", "resources")
    source = _Mapping("source")  # the trainable's code as `describe_source` gave it
    provenance = _Mapping("provenance")  # versions, commit and hardware as the function `provenance` gave them
    origin = _Mapping("origin")  # the sweep and trial that this one was made of

    def changed(self, **fields: Unpack[Fields]) -> SweepInfo:
        """Return a copy with other values of some keys."""
        return replace(self, content={**self.content, **fields})

    @property
    def name(self) -> str:
        """The sweep's name; that of its folder where the file has none."""
        return str(self.content.get("name", self.path.absolute().parent.name))

    @property
    def objectives(self) -> Objectives:
        """Raises `StoreError` where they are damaged."""
        entries = self.content.get("objectives", [])
        try:
            pairs = tuple((str(entry["name"]), str(entry["goal"])) for entry in entries)  # type: ignore[attr-defined]  # caught below
        except (TypeError, KeyError) as error:
            raise StoreError(f'{self.path}: objectives: expected a list of {{"name", "goal"}}') from error
        if wrong := [goal for _, goal in pairs if goal not in ("maximize", "minimize")]:
            raise StoreError(f"{self.path}: objectives: goal {wrong[0]!r}, expected maximize or minimize")
        return pairs

    @property
    def file(self) -> Mapping[str, object]:
        """The resolved sweep file without the changes of `resume --set`, but for keys that are null."""
        content = self.content.get("file")
        return _as_begun(content if isinstance(content, Mapping) else self.spec)

    @property
    def spec_text(self) -> str:
        """The resolved sweep file as text. JSON is YAML: it is parsed by the rules of any sweep file."""
        return json.dumps(_as_begun(self.spec))

    @property
    def trainable(self) -> object:
        return self.spec.get("trainable")

    @property
    def epochs(self) -> object:
        return self.spec.get("epochs")

    @property
    def repeats(self) -> int:
        """Seeds of each configuration."""
        return _whole(self.spec.get("repeats")) or 1

    @property
    def trials_each(self) -> int:
        """Trials of each configuration: its repeats, each with all folds."""
        return self.repeats * (self.folds or 1)

    @property
    def folds(self) -> int | None:
        """Folds of a cross-validation; None without one."""
        return _whole(self.spec.get("folds"))

    @property
    def co2_g_per_kwh(self) -> float | None:
        grams = self.resources.get("co2_g_per_kwh")
        return grams if isinstance(grams, float) else None

    @property
    def import_folders(self) -> tuple[Path, ...] | None:
        """Where the trainable is looked for; None where the file does not say."""
        folders = self.content.get("import_folders")
        return tuple(Path(str(folder)) for folder in folders) if isinstance(folders, list) else None

    @property
    def working_folder(self) -> Path:
        """The folder in which trials begin; the current one where the file does not say, or it is not there."""
        folder = Path(str(self.content.get("working_folder", "")))
        return folder if folder.is_absolute() and folder.is_dir() else Path.cwd()

    @property
    def simulated_gpus(self) -> int | None:
        return _whole(self.content.get("simulated_gpus"))

    @property
    def memo(self) -> bool:
        """Whether trials of earlier sweeps may answer its own."""
        return self.content.get("memo") is not False

    @property
    def is_mixed(self) -> bool:
        """Whether the sweep went on with other code than it began with."""
        return bool(self.source.get("changed"))

    @property
    def warm_start(self) -> list[EarlierSweep]:
        """Raises `StoreError` where an entry is damaged."""
        entries = self.content.get("warm_start")
        return [_earlier(entry) for entry in entries] if isinstance(entries, list) else []

    @property
    def identity(self) -> Mapping[str, object] | None:
        """All that a training depends on but parameters, seed, epochs and data; None where it is not written down.

        By what it is, in words.
        """
        match self.content:
            case {
                "source": {"trainable": trainable, "sha256": digest, "packages": dict(imported)},
                "spec": {
                    "training": dict(training),
                    "resources": {"gpus": gpus, **resources},
                    "metrics": [{"name": metric, "goal": goal}, *_],
                },
                "provenance": {"packages": dict(packages), "python": python},
            }:
                versions = {name: (imported.get(name), packages.get(name)) for name in {*imported, *VERSIONS}}
                return {
                    "the trainable": trainable,
                    "the code": digest,
                    "the version of Python": python,
                    **{f"the version of {name}": versions[name] for name in sorted(versions)},
                    # The seed of the data is told by the data.
                    **{f"training.{name}": value for name, value in training.items() if name != "data_seed"},
                    "the metric of training.patience": (metric, goal) if training.get("patience") else None,
                    "resources.gpus": gpus,
                    "resources.workers": resources.get("workers", 1),
                    "the number of simulated GPUs": self.simulated_gpus,
                }
        return None

    @property
    def doubt(self) -> str | None:
        """Why its numbers do not follow from `identity`, parameters and seeds; None where they do."""
        match self.content:
            case {"spec": {"training": {"strategy": "parameter_server"}}}:
                return "a parameter server's workers train asynchronously, and no two trials are alike"
            case {"source": {"changed": True}}:
                return "it went on with other code than it began with"
            case {"source": {"unknown": [str(reason), *_]}}:
                return f"not all of the code is known ({reason})"
        return None


def differing(sweeps: Iterable[SweepInfo]) -> list[str]:
    """Return in what the identities of sweeps differ, in words; nothing where one of them is not known."""
    known = [one.identity for one in sweeps]
    there = [one for one in known if one is not None]
    if len(there) < len(known):
        return []
    names = dict.fromkeys(name for one in there for name in one)
    # A setting that one of them lacks came with a later release.
    return [name for name in names if len({repr(one[name]) for one in there if name in one}) > 1]


def parse(path: Path, text: bytes) -> SweepInfo:
    """Return the content of a sweep.json. Raises `StoreError` where it is damaged."""
    try:
        content = json.loads(text)
    except ValueError as error:
        raise StoreError(f"{path}: damaged ({error})") from error
    if not isinstance(content, dict):
        raise StoreError(f"{path}: damaged (expected a mapping)")
    return SweepInfo(path, content)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _earlier(entry: object) -> EarlierSweep:
    match entry:
        case {"path": str(path), "log_bytes": int(log_bytes)}:
            return {"path": path, "log_bytes": log_bytes}
    raise StoreError(f"sweep.json: warm_start holds {entry!r}, expected a path and log_bytes")


DISTRIBUTION = "sweep-keras"  # on the package index, where sweep is another project's
VERSION = "0.1.0"

PACKAGES = ("tensorflow", "keras", "ray", "optuna", "pandas", "pyarrow", "numpy")
TIMEOUT_S = 10


def provenance(project_dir: Path) -> dict[str, object]:
    """Everything that could explain a different result, JSON-able; null for what cannot be found out.

    Imports none of the packages and touches no accelerator. ``project_dir`` is the folder of the code.
    """
    return {
        "command": sys.argv,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "hostname": socket.gethostname(),
        "cpus": cpus(),
        "memory_bytes": memory_bytes(),
        "gpus": gpus(),
        "packages": {"sweep": VERSION, **{name: version_of(name) for name in PACKAGES}},
        "git": _git(project_dir),
    }


def version_of(package: str) -> str | None:
    """Return the installed version of a package; None where it is not installed."""
    from importlib import metadata  # not for every command

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def gpus() -> list[dict[str, str]]:
    """Name, memory and driver of each GPU that CUDA shows this process; none without a driver."""
    fields, setting = (
        ("index", "uuid", "name", "memory.total", "driver_version"),
        os.environ.get("CUDA_VISIBLE_DEVICES"),
    )
    answer = _run("nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader") or ""
    rows = {int(cells[0]): cells[1:] for line in answer.splitlines() if len(cells := line.split(", ")) == len(fields)}
    listed = _run("nvidia-smi", "-L") if "MIG-" in (setting or "") else None
    shown = visible({index: uuid for index, (uuid, *_) in rows.items()}, parse_mig_devices(listed or ""), setting)
    return [dict(zip(("name", "memory", "driver"), rows[index][1:], strict=True)) for index in shown]


def visible(gpus: Mapping[int, str], mig_devices: Mapping[str, int], setting: str | None) -> list[int]:
    """Return the GPUs that CUDA shows under this CUDA_VISIBLE_DEVICES (None: not set), in its order.

    ``gpus`` are UUIDs by index. The list ends at the first entry that names nothing (CUDA C++ programming guide,
    environment variables).
    """
    if setting is None:
        return list(gpus)

    shown: list[int] = []
    for entry in map(str.strip, setting.split(",")):
        if entry.startswith("MIG-"):
            index = mig_devices.get(entry)
        elif entry.startswith("GPU-"):
            index = next((index for index, uuid in gpus.items() if uuid.startswith(entry)), None)
        else:
            index = int(entry) if entry.isdecimal() else None
        if index is None or index not in gpus:
            break
        shown.append(index)
    return shown


def parse_mig_devices(listing: str) -> dict[str, int]:
    """Return the MIG instances in the listing of ``nvidia-smi -L``, with the GPU that each is a part of."""
    devices, current = {}, 0
    for line in listing.splitlines():
        if gpu := re.match(r"GPU (\d+):", line):
            current = int(gpu[1])
        elif instance := re.search(r"UUID: (MIG-[^)]+)\)", line):
            devices[instance[1]] = current
    return devices


def _git(folder: Path) -> dict[str, object] | None:
    """Commit, branch and whether the code differs from it: a tracked file, or a Python file not tracked."""
    git = ("git", "--no-optional-locks", "-C", str(folder))
    commit = _run(*git, "rev-parse", "HEAD")
    if commit is None:
        return None
    changed = _run(*git, "status", "--porcelain", "--untracked-files=no")
    added = _run(*git, "ls-files", "--others", "--exclude-standard", "--", "*.py")
    return {
        "commit": commit,
        "branch": _run(*git, "rev-parse", "--abbrev-ref", "HEAD"),
        "dirty": None if changed is None or added is None else bool(changed or added),
    }


def _run(*command: str) -> str | None:
    """Return the output of a program; None where it is missing, fails or hangs."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True, errors="replace")
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
