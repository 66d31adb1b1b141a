"""A folder with a trial's model: checked files, the sweep file that trains it again, and a model card."""

from __future__ import annotations

import math
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sweep.analysis import ranking, trials
from sweep.backends import checkpoints
from sweep.contract import Exported
from sweep.errors import InputError
from sweep.export import card
from sweep.runner import debug_log, restoring
from sweep.runner.restoring import Kept, Restored, Which
from sweep.spec import single
from sweep.store.disk import process
from sweep.store.folder import ResultsFolder

FORMATS = ("keras", "saved_model", "onnx", "checkpoint")
DEFAULT = ("keras", "saved_model")
CARD, SWEEP = "MODEL_CARD.md", "sweep.yaml"
CLOSE = 1e-5  # of metrics, times the value where that is above 1
LONGEST = 80  # characters of the sweep's name in that of the file


@dataclass(frozen=True, slots=True)
class Winner:
    """What was exported, and how it was checked."""

    folder: Path
    sweep: str
    trial: int
    epoch: int
    metrics: Mapping[str, float]  # as logged of that epoch
    exported: Exported
    notes: tuple[str, ...]


def export(
    folder: ResultsFolder,
    target: Path,
    trial: int | None = None,
    epoch: Which = "last",
    formats: Sequence[str] = DEFAULT,
) -> Winner:
    """Write a trial's model, or the best one's, into a new folder, whole or not at all.

    Each format is loaded in a fresh process, which must predict what the trial's model predicts, and that model must
    reach the metrics of the log. Raises `InputError` where it does not, or there is nothing to export.
    """
    check(target, formats)
    kept = restoring.find(folder, restoring.winner(folder) if trial is None else trial, epoch)
    aside = target.parent / f".{target.name}.{process()}"
    try:
        aside.mkdir(parents=True)
    except OSError as error:
        raise InputError.one(str(target), f"cannot be written ({error.strerror})", "name another folder") from error
    try:
        winner = _fill(kept, aside, target, formats)
        aside.rename(target)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    return winner


def check(target: Path, formats: Sequence[str]) -> None:
    """Raise `InputError` for a folder that is there already, or an unknown format; before anything is imported."""
    unknown = [name for name in formats if name not in FORMATS]
    if unknown or not formats:
        what = f"{unknown[0]!r} is no format" if unknown else "no format is named"
        raise InputError.one("--format", what, f"expected some of {', '.join(FORMATS)}, with commas between them")
    if target.exists() or target.is_symlink():
        raise InputError.one(str(target), "exists already", "name a new folder")


def _fill(kept: Kept, aside: Path, target: Path, formats: Sequence[str]) -> Winner:
    log = aside / ".debug.log"
    with debug_log.redirected(log):
        restored = restoring.begin(kept)
        exported = _exported(restored, aside, [name for name in formats if name != "checkpoint"])
    log.unlink()
    notes = [*restored.notes, *exported.notes]
    _check_metrics(kept, exported, notes)
    if "checkpoint" in formats:
        shutil.copytree(kept.checkpoint, aside / "checkpoint", ignore=shutil.ignore_patterns(checkpoints.MANIFEST))
    (aside / SWEEP).write_text(_sweep_file(restored), encoding="utf-8")
    told = trials.read(kept.sweep.folder)
    facts = card.Facts(kept, ranking.rank([told]), exported, restored.source, tuple(notes), "checkpoint" in formats)
    (aside / CARD).write_text(card.text(facts), encoding="utf-8")
    return Winner(target, kept.sweep.folder.name, kept.trial, kept.epoch, kept.metrics, exported, tuple(notes))


def _exported(restored: Restored, aside: Path, formats: Sequence[str]) -> Exported:
    if not formats:
        return Exported(files={})
    write = getattr(restored.trainable, "export", None)
    kept = restored.kept
    if not callable(write):
        kind = kept.sweep.spec.trainable
        what = f"{kind} has no export(folder, formats) of sweep.contract.Exporting, so that nothing knows its model"
        raise InputError.one(kept.where, what, f"its checkpoint can be copied: --format checkpoint ({kept.checkpoint})")
    try:
        found = write(aside, tuple(formats))
    except Exception as error:  # the border to the user's code
        what = str(error) if type(error).__name__ == "NotExportable" else f"{type(error).__name__}: {error}"
        raise InputError.one(kept.where, f"not exported: {what}") from error
    if not isinstance(found, Exported):
        what = f"{kept.sweep.spec.trainable}.export() returned {type(found).__name__}, expected sweep.contract.Exported"
        raise InputError.one(kept.where, what)
    return found


def _check_metrics(kept: Kept, exported: Exported, notes: list[str]) -> None:
    """Hold what the model reaches now against the log; a note where it ran on other devices, else an error."""
    wrong = [
        f"{name} is {value:.9g}, {kept.metrics[name]:.9g} in the log"
        for name, value in exported.metrics.items()
        if name in kept.metrics and not _close(value, kept.metrics[name])
    ]
    if not wrong:
        return
    if any(note.startswith("trained on ") for note in notes):
        notes.append(f"evaluated here {'; '.join(wrong[:3])}")
        return
    why = "; ".join(notes)
    raise InputError.one(kept.where, f"not exported: its model is not what was validated: {'; '.join(wrong[:3])}", why)


def _close(a: float, b: float) -> bool:
    return (math.isnan(a) and math.isnan(b)) or a == b or abs(a - b) <= CLOSE * max(1.0, abs(b))


def _sweep_file(restored: Restored) -> str:
    """The trial as a sweep of one trial: run again it gives the same numbers."""
    kept = restored.kept
    spec, sweep = kept.sweep.spec, kept.sweep
    module = spec.trainable.partition(":")[0]
    again = "the same numbers on the same hardware" if kept.facts.reproducible else "never the same numbers twice"
    comments = [
        f"Trial {kept.trial} of the sweep {spec.name}, as it was trained: {again}.",
        f"Where {module} cannot be imported: PYTHONPATH={_root(restored.source.files.get(module), module)} "
        f"python -m sweep run {SWEEP}",
    ]
    if sweep.simulated_gpus:
        comments.append(f"It was rehearsed with --simulate-gpus {sweep.simulated_gpus}.")
    if kept.accumulate > 1:
        comments.append(f"Its batches did not fit and were cut into {kept.accumulate}; elsewhere they may fit.")
    fold = kept.started.fold
    if fold is not None:
        comments.append(f"It is one of {spec.folds} folds, which are trained together: trial {fold} is this one.")
    name = f"{spec.name[:LONGEST]}-trial-{kept.trial}"
    keys = single.of_trial(spec, kept.started.params, kept.started.seed, name, None if fold is None else spec.folds)
    return single.text(keys, [*comments, *restored.notes])


def _root(file: Path | None, module: str) -> str:
    """The folder from which a module is imported, as a shell takes it."""
    if file is None:
        return "FOLDER"
    depth = module.count(".") + (file.stem == "__init__")
    return shlex.quote(str(file.absolute().parents[depth]))
