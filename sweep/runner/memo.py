"""Trials that another sweep has trained already: same parameters, seed, epochs, code, data and versions.

Only completed trials answer. One that was pruned has not all its epochs, and one that failed, diverged or
did not fit might do so no more on other hardware.
"""

from __future__ import annotations

import os
from array import array
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from sweep.errors import StoreError
from sweep.events import EpochReported, Facts, Params, Status, TrialEnded, TrialStarted
from sweep.space.domains import key
from sweep.store import log as store_log
from sweep.store.folder import ResultsFolder, folders

VERSIONS = ("tensorflow", "keras", "numpy", "sweep")
"""Packages whose version decides whether two trainings are the same."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What an earlier trial reported."""

    source: str  # "<sweep>/<trial>", the one that was trained
    epochs: tuple[EpochReported, ...]
    facts: Facts

    @property
    def data(self) -> str | None:
        """The fingerprint of the data that it was trained on."""
        return self.facts.data

    @property
    def reason(self) -> str:
        sweep, _, trial = self.source.rpartition("/")
        return f"from {sweep}, trial {trial}"


Recall: TypeAlias = Callable[[TrialStarted, int], Answer | None]
"""Looks a started trial of so many epochs up."""


@dataclass(slots=True)
class _Entry:
    path: Path
    sweep: str
    trial: int
    epochs: array[int] = field(default_factory=lambda: array("q"))  # where in the log each begins
    end: int = 0


class Memo:
    """The completed trials of other sweeps that were trained as those of this sweep are."""

    def __init__(self, folder: ResultsFolder, info: Mapping[str, object], notice: Callable[[str], None]) -> None:
        self._folder = folder.path.absolute()
        self._notice = notice
        self._entries: dict[tuple[str, int, int], _Entry] = {}
        self._lengths: dict[tuple[str, int], tuple[str, int]] = {}  # trials that differ in their epochs alone
        self.told: Counter[str] = Counter()
        identity = _identity(info)
        for other in folders(folder.path.absolute().parent):
            if identity is None or other.path.absolute() == folder.path.absolute() or not other.log.exists():
                continue
            try:
                about = other.read_info()
                if _identity(about) == identity:
                    self._index(other, about)
            except StoreError as error:
                notice(f"{other.path} answers no trials: {error}")

    def recall(self, started: TrialStarted, epochs: int) -> Answer | None:
        """The epochs of a trial like this one, if one was trained."""
        params = key(started.params)
        entry = self._entries.get((params, started.seed, epochs))
        if entry is None:
            self._explain(params, started.seed, epochs)
            return None
        reports = store_log.read_at(entry.path, entry.epochs)
        (end,) = store_log.read_at(entry.path, [entry.end])
        if not isinstance(end, TrialEnded):
            return None
        kept = entry.path.parent / (end.facts.checkpoint or "")
        checkpoint = os.path.relpath(kept, self._folder) if end.facts.checkpoint and kept.is_dir() else None
        facts = replace(end.facts, started=None, train_s=0.0, overhead_s={}, checkpoint=checkpoint)
        source = end.memo or f"{entry.sweep}/{entry.trial}"
        return Answer(source, tuple(e for e in reports if isinstance(e, EpochReported)), facts)

    def _explain(self, params: str, seed: int, epochs: int) -> None:
        other = self._lengths.get((params, seed))
        if other is not None and not self.told[other[0]]:
            self.told[other[0]] += 1
            sweep, length = other
            why = "they have no checkpoint any more" if length < epochs else "they went on after that epoch"
            self._notice(
                f"trials of {sweep} that differ in nothing but their {length} epochs are trained anew for {epochs}: "
                f"{why}, and a schedule may depend on the number of epochs"
            )

    def _index(self, folder: ResultsFolder, info: Mapping[str, object]) -> None:
        started: dict[int, tuple[Params, int]] = {}
        entries: dict[int, _Entry] = {}
        start = 0
        for event, end in store_log.read_with_ends(folder.log):
            start, begun = end, start
            match event:
                case TrialStarted():
                    started[event.trial] = event.params, event.seed
                    entries[event.trial] = _Entry(folder.log, folder.name, event.trial)
                case EpochReported() if event.trial in entries:
                    if event.epoch == len(entries[event.trial].epochs) + 1:
                        entries[event.trial].epochs.append(begun)
                case TrialEnded() if event.trial in entries and event.status is not Status.INTERRUPTED:
                    entry = entries.pop(event.trial)
                    entry.end = begun
                    params, seed = started.pop(event.trial)
                    epochs = params.get("epochs", _epochs(info))
                    if event.status is Status.COMPLETED and isinstance(epochs, int):
                        self._entries.setdefault((key(params), seed, epochs), entry)
                        self._lengths.setdefault((key(params), seed), (folder.name, epochs))


def changed(before: Mapping[str, object], now: Mapping[str, object]) -> bool:
    """Whether the code or a version that decides about numbers differs between two descriptions of a sweep."""
    return _identity(before) != _identity(now)


def _epochs(info: Mapping[str, object]) -> object:
    spec = info["spec"]
    return spec.get("epochs") if isinstance(spec, Mapping) else None


def _identity(info: Mapping[str, object]) -> tuple[object, ...] | None:
    """All but parameters, seed and epochs that a training depends on; None where it is not known, or has changed."""
    match info:
        case {
            "source": {"trainable": trainable, "sha256": digest, **rest},
            "spec": {"training": dict(training), "resources": {"gpus": gpus}, "metrics": [{"name": objective}, *_]},
            "provenance": {"packages": dict(packages)},
        } if not rest.get("changed"):
            versions = tuple(packages.get(name) for name in VERSIONS)
            judged_by = objective if training.get("patience") else None
            return trainable, digest, versions, training, judged_by, gpus, info.get("simulated_gpus")
    return None
