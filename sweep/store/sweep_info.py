"""``sweep.json``: the resolved sweep file, the hardware and versions of the sweep, and its origin.

Only this module knows the keys of the file. They are checked when they are used: files of earlier releases may lack
some, and a damaged part only matters to code that needs it.
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
from sweep.events import is_number

Objectives: TypeAlias = tuple[tuple[str, str], ...]
"""(metric, "maximize" or "minimize") of each objective of a sweep; the first one ranks."""

LOWER_IS_BETTER = (
    "loss",
    "err",
    "error",
    "crossentropy",
    "perplexity",
    "mae",
    "mse",
    "rmse",
    "mape",
)
HIGHER_IS_BETTER = (
    "accuracy",
    "acc",
    "auc",
    "precision",
    "recall",
    "iou",
    "f1",
    "r2",
    "bleu",
    "reward",
    "score",
)
SHARES = ("acc", "accuracy", "error_rate")
"""The three tuples are words in names of metrics; metrics with a word of `SHARES` are shares of examples, 0 to 1."""


def says(metric: str, words: Iterable[str]) -> bool:
    """Return whether the name of a metric contains one of ``words``, with no letter from a to z next to it.

    Upper and lower case in the name are alike; ``words`` must be in lower case.
    """
    return re.search(rf"(?<![a-z])({'|'.join(words)})(?![a-z])", metric.lower()) is not None


def maximizes(metric: str, objectives: Objectives = ()) -> bool | None:
    """Return whether higher values of a metric are better, by the objectives or else by words in its name.

    The words are `HIGHER_IS_BETTER` and `LOWER_IS_BETTER`. For a metric that is no objective, returns None if its name
    has none of them, or some of both.
    """
    for name, goal in objectives:
        if name == metric:
            return goal == "maximize"
    lower = says(metric, LOWER_IS_BETTER)
    higher = says(metric, HIGHER_IS_BETTER)
    if lower == higher:
        return None
    return higher


VERSIONS = ("tensorflow", "keras", "numpy", "sweep")
"""Packages whose versions affect training, besides those that the trainable imports."""


class EarlierSweep(TypedDict):
    """A sweep used for a warm start, and the length of its log in bytes at that time."""

    path: str
    log_bytes: int


class SubmissionFields(TypedDict):
    """The fields of a `Submission`."""

    address: str
    user: str


@dataclass(frozen=True, slots=True)
class Submission:
    """The Ray cluster to which a sweep was submitted, and the user whose sweep it is there."""

    address: str  # of the cluster's dashboard
    user: str

    @classmethod
    def of_this_process(cls) -> Submission | None:
        """Return the submission whose job this process is, from its environment; None if it was not submitted.

        The user is ``""`` if the environment does not name one.
        """
        address = os.environ.get(SUBMITTED_TO)
        if not address:
            return None
        return Submission(address, os.environ.get("SWEEP_USER", ""))

    def as_fields(self) -> SubmissionFields:
        """Return the address and the user as `sweep.json` has them."""
        return {"address": self.address, "user": self.user}


SUBMITTED_TO = "SWEEP_SUBMITTED_TO"
"""Environment variable of a submitted job: the address by which it was submitted."""


class Fields(TypedDict, total=False):
    """The keys of ``sweep.json``."""

    name: str
    objectives: list[dict[str, str]]  # name and goal of each
    seed: int
    spec: Mapping[str, object]  # the resolved sweep file as it is now
    # the resolved sweep file before the first change in the log; missing if unchanged
    first_spec: Mapping[str, object]
    # the sweep file as last given, if the sweep's settings have changed since
    file: Mapping[str, object]
    import_folders: list[str]  # searched for the trainable
    working_folder: str  # in which trials begin
    simulated_gpus: int | None
    memo: bool  # whether results of earlier sweeps may be used
    source: Mapping[str, object]  # the trainable's code: `describe_source`
    provenance: Mapping[str, object]  # versions, commit, hardware: the function `provenance`
    warm_start: list[EarlierSweep]
    origin: Mapping[str, object]  # the sweep and trial that it was made from
    submitted: SubmissionFields | None  # where the latest session ran, if it was submitted


FIRST_RUNG_WAS_1 = ("asha", "asha_promotion", "pasha", "freeze_thaw", "median")
"""Stopping rules whose ``min_iter`` was 1 by default in earlier releases, with every search method."""


FIRST_RACE = 1
"""The version of `confirm.race` in sweeps whose ``sweep.json`` has none."""


def _as_begun(resolved: Mapping[str, object]) -> dict[str, object]:
    """Return a resolved sweep file without null top-level keys, as it was understood when the sweep began.

    ``early_terminate.min_iter`` becomes 1 if it is missing or null and the rule is one of `FIRST_RUNG_WAS_1`. If there
    is a ``confirm`` without ``race``, that becomes 1. The defaults of both have changed since.
    """
    found = {}
    for key, value in resolved.items():
        if value is not None:
            found[key] = value
    rule = found.get("early_terminate")
    if (
        isinstance(rule, Mapping)
        and rule.get("type") in FIRST_RUNG_WAS_1
        and rule.get("min_iter") is None
    ):
        found["early_terminate"] = {**rule, "min_iter": 1}
    confirm = found.get("confirm")
    if isinstance(confirm, Mapping):
        found["confirm"] = {"race": FIRST_RACE, **confirm}
    return found


class _Mapping:
    """Descriptor for the mapping at a path of keys in ``sweep.json``; an empty mapping if the path is missing."""

    def __init__(self, *keys: str) -> None:
        self._keys = keys

    def __get__(self, info: SweepInfo, kind: type) -> Mapping[str, object]:
        found: object = info.content
        for key in self._keys:
            if isinstance(found, Mapping):
                found = found.get(key)
            else:
                found = None
        if isinstance(found, Mapping):
            return found
        return {}


@dataclass(frozen=True, slots=True)
class SweepInfo:
    """The content of a sweep.json."""

    path: Path
    content: Mapping[str, object]

    spec = _Mapping("spec")  # the resolved sweep file as it is now
    parameters = _Mapping("spec", "parameters")  # the search space as the sweep file declares it
    confirm = _Mapping("spec", "confirm")
    resources = _Mapping("spec", "resources")
    source = _Mapping("source")  # the trainable's code, from `describe_source`
    # versions, commit and hardware, from the function `provenance`
    provenance = _Mapping("provenance")
    origin = _Mapping("origin")  # the sweep and trial that this one was made from

    def changed(self, **fields: Unpack[Fields]) -> SweepInfo:
        """Return a copy with new values of some top-level keys, each replaced as a whole; the file is not written."""
        return replace(self, content={**self.content, **fields})

    @property
    def name(self) -> str:
        """The sweep's name; that of its folder if the file has none."""
        return str(self.content.get("name", self.path.absolute().parent.name))

    @property
    def objectives(self) -> Objectives:
        """The sweep's objectives; empty if the file has none. Raises `StoreError` if they are damaged."""
        entries = self.content.get("objectives", [])
        try:
            pairs = tuple((str(entry["name"]), str(entry["goal"])) for entry in entries)  # type: ignore[attr-defined]  # errors are caught below
        except (TypeError, KeyError) as error:
            raise StoreError(
                f'{self.path}: objectives: expected a list of {{"name", "goal"}}'
            ) from error
        if wrong := [goal for _, goal in pairs if goal not in ("maximize", "minimize")]:
            raise StoreError(
                f"{self.path}: objectives: goal {wrong[0]!r}, expected maximize or minimize"
            )
        return pairs

    @property
    def file(self) -> Mapping[str, object]:
        """The resolved sweep file as last given, before the changes of `resume --set`, with defaults as it began.

        It is made from `spec` if the settings have not been changed since. See `_as_begun` for the defaults.
        """
        content = self.content.get("file")
        return _as_begun(content if isinstance(content, Mapping) else self.spec)

    @property
    def spec_text(self) -> str:
        """The resolved sweep file as it is now, with defaults as it began, as JSON text; ``{}`` if there is none.

        JSON is YAML, so it is parsed like any sweep file. See `_as_begun` for the defaults.
        """
        return json.dumps(_as_begun(self.spec))

    @property
    def first_spec(self) -> Mapping[str, object]:
        """The resolved sweep file with which the sweep began, before any change in the log."""
        first = self.content.get("first_spec")
        if isinstance(first, Mapping):
            return first
        return self.spec

    @property
    def first_spec_text(self) -> str:
        """The resolved sweep file with which the sweep began, with defaults as of then, as JSON text.

        See `_as_begun` for the defaults.
        """
        return json.dumps(_as_begun(self.first_spec))

    @property
    def trainable(self) -> object:
        """The trainable in the sweep file, such as ``module:Name``; None if the file has none."""
        return self.spec.get("trainable")

    @property
    def epochs(self) -> object:
        """The epochs of a trial in the sweep file; None if the file has none. The value is not checked."""
        return self.spec.get("epochs")

    @property
    def race_version(self) -> object:
        """Version of the rule by which the finalists of the confirmation drop out; 1 if the file has none."""
        return self.confirm.get("race", FIRST_RACE)

    @property
    def repeats(self) -> int:
        """Number of seeds of each configuration; 1 if the file has none or no whole number."""
        return _parse_whole_number(self.spec.get("repeats")) or 1

    @property
    def first_repeats(self) -> int:
        """Number of seeds of each configuration when the sweep began, before any change in the log; 1 by default."""
        return _parse_whole_number(self.first_spec.get("repeats")) or 1

    @property
    def trials_each(self) -> int:
        """Number of trials of each configuration: repeats times folds."""
        return self.repeats * (self.folds or 1)

    @property
    def folds(self) -> int | None:
        """Number of folds of the cross-validation; None if the sweep has none or no whole number."""
        return _parse_whole_number(self.spec.get("folds"))

    @property
    def data_seed(self) -> int:
        """The seed for loading data and importing modules: `training.data_seed` or, without one, the sweep's `seed`.

        It is 0 if the file has neither.
        """
        training = self.spec.get("training")
        seed = None
        if isinstance(training, Mapping):
            seed = _parse_whole_number(training.get("data_seed"))
        if seed is None:
            seed = _parse_whole_number(self.spec.get("seed"))
        return seed or 0

    @property
    def co2_g_per_kwh(self) -> float | None:
        """Grams of CO2 per kWh according to the sweep file; None if it has no such number."""
        grams = self.resources.get("co2_g_per_kwh")
        if is_number(grams):
            return float(grams)
        return None

    @property
    def import_folders(self) -> tuple[Path, ...] | None:
        """Folders searched for the trainable; None if ``sweep.json`` has none."""
        folders = self.content.get("import_folders")
        if not isinstance(folders, list):
            return None
        return tuple(Path(str(folder)) for folder in folders)

    @property
    def working_folder(self) -> Path:
        """The folder in which trials begin; the current folder if ``sweep.json`` names no absolute one that exists."""
        folder = Path(str(self.content.get("working_folder", "")))
        if folder.is_absolute() and folder.is_dir():
            return folder
        return Path.cwd()

    @property
    def simulated_gpus(self) -> int | None:
        """Number of simulated GPUs; None if the sweep uses real ones."""
        return _parse_whole_number(self.content.get("simulated_gpus"))

    @property
    def submission(self) -> Submission | None:
        """The cluster to which the latest session was submitted; None if it was not."""
        match self.content.get("submitted"):
            case {"address": str(address), "user": str(user)}:
                return Submission(address, user)
        return None

    @property
    def memo(self) -> bool:
        """True unless ``sweep.json`` says that trials of the sweep may not use results of earlier sweeps."""
        return self.content.get("memo") is not False

    @property
    def is_mixed(self) -> bool:
        """True if some trials were trained with other code than that with which the sweep began."""
        return bool(self.source.get("changed"))

    @property
    def warm_start(self) -> list[EarlierSweep]:
        """The earlier sweeps of the warm start; [] if there are none. Raises `StoreError` if an entry is damaged."""
        entries = self.content.get("warm_start")
        if not isinstance(entries, list):
            return []
        return [_parse_earlier_sweep(entry) for entry in entries]

    @property
    def identity(self) -> Mapping[str, object] | None:
        """Everything that results depend on besides parameters, seed, epochs and data; None if it was not recorded.

        The keys describe each value in words, such as "the code", whose value is a digest. Sweeps with equal values
        give equal results, unless `doubt` has a reason against it.
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
                # Each of both records may lack a package: what the trainable imports, and `PACKAGES`.
                versions = {}
                for name in {*imported, *VERSIONS}:
                    versions[name] = (imported.get(name), packages.get(name))
                # A trial depends on the metric only where its patience ends it; rules are not part of a trial.
                metric_of_patience = None
                if training.get("patience"):
                    metric_of_patience = (metric, goal)
                return {
                    "the trainable": trainable,
                    "the code": digest,
                    "the version of Python": python,
                    **{f"the version of {name}": versions[name] for name in sorted(versions)},
                    # The fingerprint of the data covers its seed.
                    **{
                        f"training.{name}": value
                        for name, value in training.items()
                        if name != "data_seed"
                    },
                    "the metric of training.patience": metric_of_patience,
                    "resources.gpus": gpus,
                    "resources.workers": resources.get("workers", 1),
                    "the number of simulated GPUs": self.simulated_gpus,
                }
        return None

    @property
    def doubt(self) -> str | None:
        """Why the same `identity`, parameters and seed may give other results; None if no reason is known."""
        match self.content:
            case {"spec": {"training": {"strategy": "parameter_server"}}}:
                return (
                    "a parameter server's workers train asynchronously, and no two trials are alike"
                )
            case {"source": {"changed": True}}:
                return "it went on with other code than it began with"
            case {"source": {"unknown": [str(reason), *_]}}:
                return f"not all of the code is known ({reason})"
        return None


def list_identity_differences(sweeps: Iterable[SweepInfo]) -> list[str]:
    """Return the names of the properties, in words, in which the `identity` of the sweeps is not the same for all.

    The list is empty if they agree or the identity of one is unknown. A property that a sweep lacks, because its
    release did not record it, is not compared with that sweep.
    """
    identities = []
    for sweep in sweeps:
        identity = sweep.identity
        if identity is None:
            return []
        identities.append(identity)
    names = dict.fromkeys(name for identity in identities for name in identity)
    different = []
    for name in names:
        values = set()
        for identity in identities:
            if name in identity:  # a setting of a later release is not in all of them
                values.add(repr(identity[name]))  # a list or mapping cannot be in a set
        if len(values) > 1:
            different.append(name)
    return different


def parse_sweep_info(path: Path, text: bytes) -> SweepInfo:
    """Parse ``text``, the content of the sweep.json at ``path``, which is not read.

    Raises `StoreError` if it is no JSON mapping; its keys are checked when they are used.
    """
    try:
        content = json.loads(text)
    except ValueError as error:
        raise StoreError(f"{path}: damaged ({error})") from error
    if not isinstance(content, dict):
        raise StoreError(f"{path}: damaged (expected a mapping)")
    return SweepInfo(path, content)


def _parse_whole_number(value: object) -> int | None:
    """Return ``value`` if it is an int and not a boolean, else None; a float such as 2.0 is none."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return None


def _parse_earlier_sweep(entry: object) -> EarlierSweep:
    """Return an entry of a warm start with only its two known keys. Raises `StoreError` if it is damaged."""
    match entry:
        case {"path": str(path), "log_bytes": int(log_bytes)}:
            return {"path": path, "log_bytes": log_bytes}
    raise StoreError(f"sweep.json: warm_start holds {entry!r}, expected a path and log_bytes")


DISTRIBUTION = "sweep-keras"  # on the package index, where "sweep" is another project
VERSION = "0.1.0"

PACKAGES = ("tensorflow", "keras", "ray", "optuna", "pandas", "pyarrow", "numpy")
TIMEOUT_S = 10  # of a program that is asked for facts


def provenance(project_dir: Path) -> dict[str, object]:
    """Return what may explain a different result, such as versions, hardware and commit; None for what is unknown.

    The keys are ``command``, ``python``, ``platform``, ``hostname``, ``cpus``, ``memory_bytes``, ``gpus``, ``packages``
    (versions by name) and ``git``. Unknown ``gpus`` are an empty list. Imports none of the packages and uses no
    accelerator, but runs ``nvidia-smi`` and ``git``. ``project_dir`` is the folder of the code. No error is raised for
    what is unknown.
    """
    return {
        "command": sys.argv,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "hostname": socket.gethostname(),
        "cpus": cpus(),
        "memory_bytes": memory_bytes(),
        "gpus": gpus(),
        "packages": {"sweep": VERSION, **{name: get_package_version(name) for name in PACKAGES}},
        "git": _git(project_dir),
    }


def get_package_version(package: str) -> str | None:
    """Return the installed version of a package; None if it is not installed."""
    from importlib import metadata  # only some commands need it

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def gpus() -> list[dict[str, str]]:
    """Return each GPU that CUDA shows to this process, in CUDA's order, according to ``nvidia-smi``.

    The keys of each are ``name``, ``memory`` and ``driver``, all with texts, such as ``81559 MiB``. The list is empty
    if that program is missing or fails.
    """
    fields = ("index", "uuid", "name", "memory.total", "driver_version")
    setting = os.environ.get("CUDA_VISIBLE_DEVICES")
    # This lists all GPUs of the machine, whatever the variable says.
    answer = _run_command("nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader")
    uuids = {}  # by index
    descriptions = {}
    for line in (answer or "").splitlines():
        cells = line.split(", ")
        if len(cells) == len(fields):  # not a message, such as one that there are no devices
            number, uuid, name, memory, driver = cells
            uuids[int(number)] = uuid
            descriptions[int(number)] = {"name": name, "memory": memory, "driver": driver}
    listing = None
    if "MIG-" in (setting or ""):  # a part of a GPU is named, and only this list tells of which one
        listing = _run_command("nvidia-smi", "-L")
    shown = visible(uuids, parse_mig_devices(listing or ""), setting)
    return [descriptions[index] for index in shown]


def visible(
    gpus: Mapping[int, str], mig_devices: Mapping[str, int], setting: str | None
) -> list[int]:
    """Return the indices of the GPUs that CUDA shows if CUDA_VISIBLE_DEVICES is ``setting``, in the order given there.

    ``gpus`` has the UUID of each GPU by index, ``mig_devices`` the index of the GPU of each MIG instance. If
    ``setting`` is None, the variable is not set and all GPUs are shown. An entry is an index, the UUID of a MIG
    instance, or the beginning of a GPU's UUID. The list ends before the first invalid entry, as in the CUDA C++
    programming guide, so it is empty if ``setting`` is. Entries that are repeated are returned as often.
    """
    if setting is None:
        return list(gpus)

    shown: list[int] = []
    for entry in map(str.strip, setting.split(",")):
        if entry.startswith("MIG-"):
            index = mig_devices.get(entry)
        elif entry.startswith("GPU-"):  # the beginning of a UUID is enough for CUDA
            index = next((index for index, uuid in gpus.items() if uuid.startswith(entry)), None)
        elif entry.isdecimal():
            index = int(entry)
        else:
            index = None
        if index is None or index not in gpus:
            break
        shown.append(index)
    return shown


def parse_mig_devices(listing: str) -> dict[str, int]:
    """Return the index of its GPU by the UUID of each MIG instance in the output of ``nvidia-smi -L``; {} if none."""
    gpu_of_instance = {}
    gpu_index = 0
    for line in listing.splitlines():
        if gpu := re.match(r"GPU (\d+):", line):
            gpu_index = int(gpu[1])  # the lines of its instances follow
        elif instance := re.search(r"UUID: (MIG-[^)]+)\)", line):
            gpu_of_instance[instance[1]] = gpu_index
    return gpu_of_instance


def _git(folder: Path) -> dict[str, object] | None:
    """Return ``commit`` and ``branch`` of a folder's repository, and as ``dirty`` whether files differ from the commit.

    Only tracked files and new Python files count. An unknown value is None. None is returned if the folder is not in a
    repository, the repository has no commit, or git is missing.
    """
    # Without locks, a command that the user runs at the same time is not refused.
    git = ("git", "--no-optional-locks", "-C", str(folder))
    commit = _run_command(*git, "rev-parse", "HEAD")
    if commit is None:
        return None
    changed = _run_command(*git, "status", "--porcelain", "--untracked-files=no")
    added = _run_command(*git, "ls-files", "--others", "--exclude-standard", "--", "*.py")
    dirty = None
    if changed is not None and added is not None:
        dirty = bool(changed or added)
    branch = _run_command(*git, "rev-parse", "--abbrev-ref", "HEAD")
    return {"commit": commit, "branch": branch, "dirty": dirty}


def _run_command(*command: str) -> str | None:
    """Return the stripped output of a program; None if it is missing, fails or takes more than 10 s."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True, errors="replace"
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
