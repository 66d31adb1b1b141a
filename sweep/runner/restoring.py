"""Restores a trial from its checkpoint in this process, with the trainable as its worker had it.

Also evaluates models on the test data: those that could be the best and the baseline's, once, when the confirmation is
over.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

from sweep import analysis, runner
from sweep.analysis import confirmation, ranking
from sweep.backends import checkpoints
from sweep.backends.checkpoints import Manifest
from sweep.contract import Assignment, Devices, Trainable
from sweep.errors import InputError, StoreError, SweepError, in_short
from sweep.events import EpochReported, Facts, ModelTested, Role, Status, TrialStarted
from sweep.functions import load_trainable, offers_method
from sweep.inspection import Source, inspect, inspect_object
from sweep.runner import checking
from sweep.runner.resuming import ResumableSweep, reopen
from sweep.runner.trials import Terms
from sweep.space.domains import configuration_key, group_by_configuration
from sweep.space.objectives import objective
from sweep.spec import Spec
from sweep.store import sweep_info
from sweep.store.folder import ResultsFolder
from sweep.store.ledger import Ledger, Reported, TrialState
from sweep.store.log import Log
from sweep.store.tables import build_tables, write
from sweep.text import printable, trials_named

Which: TypeAlias = 'int | Literal["best", "last"]'
"""Selects a kept checkpoint: the number of its epoch, the one with the best objective, or the last one."""
SHOWN = 12  # most trials or epochs listed in a message


@dataclass(frozen=True, slots=True)
class KeptCheckpoint:
    """A checkpoint of a trial with what the log says about it; needs no import of the user's code."""

    sweep: ResumableSweep
    started: TrialStarted
    status: Status
    facts: Facts
    checkpoint: Path
    epoch: int
    accumulate: int  # micro-batches per batch, after a whole batch did not fit
    metrics: Mapping[str, float]  # as reported for that epoch
    note: str = ""  # that the best epoch was wanted and was not saved

    @property
    def trial(self) -> int:
        """Number of the trial."""
        return self.started.trial

    @property
    def where(self) -> str:
        """The names of the sweep's folder and of the trial for messages, such as ``mnist, trial 3``."""
        return f"{self.sweep.folder.name}, trial {self.trial}"


@dataclass(frozen=True, slots=True)
class Restored:
    """A trainable that has begun a trial and restored one of its checkpoints."""

    kept: KeptCheckpoint
    trainable: Trainable
    source: Source
    assignment: Assignment
    notes: tuple[str, ...]  # differences from the original training that may affect the model


def winner(folder: ResultsFolder) -> int:
    """Return the number of the best trial with a checkpoint, among the completed ones of the best configuration.

    The best one has the best value of the first objective. Its checkpoint is not verified and may be damaged.

    Raises:
        InputError: if none of them kept a checkpoint, no trial has completed, or there is no single best configuration.
        StoreError: if the log is missing or damaged, or the object store with the checkpoints is not available.
    """
    completed = find_best_configuration(folder)
    for one in completed:
        if checkpoints.list_names(folder.path, one.trial):
            return one.trial
    raise _make_no_checkpoint_error(folder, completed[0].trial)


def find_best_configuration(folder: ResultsFolder) -> list[analysis.Trial]:
    """Return the completed trials of the best configuration, best in the first objective first; at least one.

    Raises:
        InputError: if no trial has completed, or there is no single best configuration, as with several objectives.
        StoreError: if the log is missing or damaged.
    """
    found = ranking.rank([analysis.read_sweep(folder)])
    if not found.best:
        raise folder.make_none_completed_error()
    if len(found.best) > 1:  # with several objectives; named are the first trials of the first ones
        front = ", ".join(str(row.trials[0].trial) for row in found.best[:SHOWN])
        names = " and ".join(name for name, _ in found.objectives)
        what = f"{names} have no single best trial; on the Pareto front are {front}"
        raise InputError.one(folder.name, what, "choose one with --trial N")
    (row,) = found.best
    first = objective(*found.objectives[0])

    completed = (one for one in row.trials if one.status is Status.COMPLETED)
    return sorted(completed, key=lambda trial: first.ranking_loss(trial.metrics))


def find_checkpoint(
    folder: ResultsFolder, trial: int | None, epoch: Which = "last"
) -> KeptCheckpoint:
    """Return a checkpoint of a trial, or of the best trial if ``trial`` is None, with the metrics of its epoch.

    ``epoch`` is the number of an epoch, ``last`` for the latest checkpoint, or ``best`` for the undamaged one with the
    lowest loss, with a note if the trial had a better epoch. Unknown metrics are {}. All checkpoints of the trial are
    downloaded if they are in an object store.

    Raises:
        InputError: if there is no such trial or checkpoint, if the checkpoint is damaged or cannot be read, if this
            version of sweep refuses the sweep file, or, without ``trial``, if there is no best trial (`winner`).
        StoreError: if the log is missing or damaged, or the checkpoints cannot be downloaded.
    """
    if trial is None:
        trial = winner(folder)
    state, reports = history(folder, trial)
    kept = {}
    for path in checkpoints.fetch_checkpoints(folder.path, trial):
        kept[_parse_epoch_number(path)] = path
    if not kept:
        raise _make_no_checkpoint_error(folder, trial)
    number = _choose_epoch(epoch, kept)
    if number is None:
        what = f"has no checkpoint of epoch {epoch}"
        raise InputError.one(
            f"{folder.name}, trial {trial}", what, f"kept are {_format_numbers(sorted(kept))}"
        )
    try:
        manifest = checkpoints.read_verified_manifest(kept[number])
    except checkpoints.Damaged as error:
        what = f"the checkpoint of epoch {number} is damaged ({error})"
        hint = _suggest_undamaged(kept)
        raise InputError.one(f"{folder.name}, trial {trial}", what, hint) from error
    # the log decides; a checkpoint also knows epochs that the log does not, as after a repair
    all_reports = {report.epoch: report for report in manifest.reports} | reports
    sweep = reopen(folder.path.parent, str(folder.path))
    note = ""
    if epoch == "best":
        note = _describe_better_epoch(number, all_reports, sweep.spec)
    return KeptCheckpoint(
        sweep=sweep,
        started=state.start,
        status=state.status,
        facts=state.facts,
        checkpoint=kept[number],
        epoch=number,
        accumulate=manifest.accumulate,
        metrics=all_reports[number].metrics if number in all_reports else {},
        note=note,
    )


def begin_trial(
    kept: KeptCheckpoint, given: object = None, trainable: Trainable | None = None
) -> Restored:
    """Import the trainable of a trial, begin the trial and restore its checkpoint; return what has been restored.

    The trial is begun only to restore it, not to be trained. The notes of the result say if code, packages, devices or
    data differ from those of the training, and include the note of ``kept``.

    Arguments:
        given: the trainable's class or function itself, if it cannot be imported from a module.
        trainable: a trainable that has begun a trial of the same sweep, to be reused with its compiled programs; it
            leaves that trial. If it is None, one is created.

    Raises:
        InputError: if importing, beginning or restoring fails, whatever the user's code raises.
        StoreError: if sweep.json is missing or damaged.
    """
    sweep, notes = kept.sweep, []
    # the author's optimizers belong to the source
    optimizers = checking.list_own_optimizers(sweep.spec)
    if given is None:
        source = inspect(sweep.spec.trainable, sweep.import_folders, optimizers)
    else:
        source = inspect_object(sweep.spec.trainable, given, sweep.import_folders, optimizers)
    change = _describe_code_change(sweep.folder.read_info().source, source)
    if change:
        notes.append(change)
    try:
        kind = load_trainable(
            sweep.spec.trainable, sweep.import_folders, given, seed=sweep.spec.data_seed
        )
    except Exception as error:  # whatever the user's module raises
        what = f"{sweep.spec.trainable} cannot be imported: {in_short(error)}"
        raise InputError.one(
            kept.where, what, "run it where the sweep was run, with what it needs installed"
        ) from error
    assignment, note = _make_assignment(kept)
    notes += [one for one in (note, kept.note) if one]
    try:
        trainable = trainable or kind()
        trainable.begin(replace(assignment, trains=False))
        done = trainable.restore(kept.checkpoint)
        if done != kept.epoch:
            raise ValueError(f"restored epoch {done}, expected {kept.epoch}")
        data = trainable.facts().data
    except Exception as error:  # any error of the user's code
        what = f"{sweep.spec.trainable} cannot be restored from {kept.checkpoint.name}: {in_short(error)}"
        # changed code, if it has, is the likely cause
        raise InputError.one(kept.where, what, change) from error
    if kept.facts.data not in (None, data):  # fingerprints; None if that of the training is unknown
        notes.append("the data has changed since the trial was trained")
    return Restored(kept, trainable, source, assignment, tuple(notes))


def history(folder: ResultsFolder, trial: int) -> tuple[TrialState, dict[int, EpochReported]]:
    """Return the state of a trial according to the log, and the reports of its epochs by epoch.

    If an epoch was reported more than once, its last report is returned. The state has the metrics of the last epoch
    only.

    Raises:
        UnknownNameError: if no trial of this number has started.
        StoreError: if the log is missing or damaged.
    """
    ledger = Ledger(keep_epochs=False)
    reports: dict[int, EpochReported] = {}
    if not folder.log.exists():
        raise StoreError(f"{folder.log}: is missing; without it the trials are unknown")
    for change, _ in ledger.follow(folder.log):
        if isinstance(change, Reported) and change.event.trial == trial:
            reports[change.event.epoch] = change.event
    if trial not in ledger.trials:
        raise folder.make_no_trial_error(trial, ledger.trials)
    return ledger.trials[trial], reports


def _choose_epoch(epoch: Which, kept: Mapping[int, Path]) -> int | None:
    """Return the epoch of the wanted checkpoint among the ``kept`` ones, one or more, which map epochs to paths.

    ``last`` is the largest epoch, and ``best`` the one with the lowest loss of those that are not damaged, the first of
    equal ones, or the largest epoch if all are damaged. Return None if ``epoch`` is a number and there is no checkpoint
    of that epoch.
    """
    if epoch == "last":
        return max(kept)
    if epoch == "best":
        losses = {}  # of the checkpoints that are not damaged
        for number, path in kept.items():
            manifest = _read_manifest(path)
            if manifest is not None:
                losses[number] = manifest.loss
        return min(losses, key=lambda number: (losses[number], number), default=max(kept))
    return epoch if epoch in kept else None


def _describe_better_epoch(epoch: int, reports: Mapping[int, EpochReported], spec: Spec) -> str:
    """Return a note that names the best epoch of a trial, if it is better than ``epoch``; otherwise "".

    Epochs are compared by the first objective; those that violate the constraints are worse than all others.
    ``reports`` maps epochs to the trial's reports; the note is also "" if it lacks ``epoch``.
    """
    first = spec.objectives[0]
    losses = {number: first.ranking_loss(report.metrics) for number, report in reports.items()}
    best = min(losses, key=lambda number: (losses[number], number), default=epoch)
    if epoch not in losses or losses[epoch] <= losses[best]:
        return ""
    scores = []
    for number in (best, epoch):
        score = reports[number].metrics.get(first.name)
        scores.append(f"without {first.name}" if score is None else f"{first.name} {score:.6g}")
    return (
        f"its best epoch was {best} ({scores[0]}), of which no checkpoint was kept; this is epoch {epoch} "
        f"({scores[1]}). With checkpoint.every_s: 0 in the sweep file, each epoch is saved, and the best is kept"
    )


def _suggest_undamaged(kept: Mapping[int, Path]) -> str:
    """Return a hint that names the undamaged ones of the checkpoints ``kept``, paths by epoch; "" if there are none.

    It proposes the one of the latest epoch.
    """
    undamaged = []
    for epoch in sorted(kept):
        if _read_manifest(kept[epoch]) is not None:
            undamaged.append(epoch)
    if not undamaged:
        return ""
    return f"kept as well is epoch {_format_numbers(undamaged)}: --epoch {undamaged[-1]}"


def _read_manifest(path: Path) -> Manifest | None:
    """Return the manifest of a checkpoint; None if the checkpoint is damaged or cannot be read."""
    try:
        return checkpoints.read_verified_manifest(path)
    except checkpoints.Damaged:
        return None


def _parse_epoch_number(path: Path) -> int:
    """Return the epoch in the name of a checkpoint's folder, such as ``epoch-000007``; -1 if it has another name."""
    digits = path.name.removeprefix("epoch-")
    return int(digits) if digits.isdecimal() else -1


def _make_no_checkpoint_error(folder: ResultsFolder, trial: int) -> InputError:
    """Return an error that says that a trial has no checkpoint and lists the trials that have one, at most `SHOWN`.

    Raises `StoreAway` if the checkpoints are in an object store that is not available.
    """
    others = sorted(checkpoints.list_trials(folder.path))
    if others:
        have = f"those that did: {_format_numbers(others)}"
    else:
        have = "no trial of this sweep has one"
    why = "the best completed trials keep theirs (checkpoint.trials)"
    return InputError.one(f"{folder.name}, trial {trial}", "kept no checkpoint", f"{have}; {why}")


def _format_numbers(numbers: Sequence[int]) -> str:
    """Return the first `SHOWN` numbers as text, and how many follow, such as "1, 2, 3 and 4 more"; "" for none."""
    shown = ", ".join(map(str, numbers[:SHOWN]))
    if len(numbers) > SHOWN:
        return f"{shown} and {len(numbers) - SHOWN} more"
    return shown


def _describe_code_change(before: Mapping[str, object], source: Source) -> str:
    """Return in words how the code, or else the versions of its packages, have changed since the training.

    At most three packages are named. Only those whose versions were recorded are compared. ``before`` is the source
    that sweep.json recorded, with the keys of `session.describe_source`. Return "" if nothing has changed, or if
    nothing was recorded.
    """
    match before:
        case {"sha256": str(digest), "packages": dict(packages)}:
            if digest != source.digest():
                return "the code has changed since the trial was trained"
            other_versions = []
            for name, was in packages.items():
                if source.packages.get(name) != was:
                    other_versions.append(f"{name} {was}, now {source.packages.get(name)}")
            if not other_versions:
                return ""
            return f"trained with {'; '.join(other_versions[:3])}"
    return ""  # nothing was recorded


def _make_assignment(kept: KeptCheckpoint) -> tuple[Assignment, str]:
    """Return the assignment of the trial as its worker had it, and a note for the user or "".

    If this machine has too few GPUs, the assignment uses the CPU with the precision of the training, if that was
    recorded, and the note says that the trial is restored on the CPU. Simulated GPUs need none.
    """
    sweep = kept.sweep
    devices = sweep.spec.resources.devices(sweep.simulated_gpus)
    training = dict(sweep.spec.training)
    note = ""
    if devices.real_gpus and len(sweep_info.gpus()) < devices.gpus:
        note = f"trained on {kept.facts.devices or f'{devices.gpus:g} GPUs'}, restored on this machine's CPU"
        devices = Devices(devices.cpus)
        if kept.facts.precision:
            training["precision"] = kept.facts.precision  # what `auto` meant there
    terms = Terms(replace(sweep.spec, training=training))
    return terms.assignment(kept.started, devices, kept.accumulate), note


def list_due_tests(ledger: Ledger, spec: Spec) -> list[int]:
    """Return the numbers of the confirmation's completed trials whose models are to be evaluated on the test data.

    They are those of the finalists that have not dropped out and of the baseline, without trials that are tested
    already, in the order in which they started. Return [] before the confirmation is over.
    """
    found = confirmation.find_race(ledger, spec)
    if not found.over:
        return []
    chosen = set()  # keys of configurations
    for racer in found.racers:
        if racer.key in found.left or racer.is_baseline:
            chosen.add(racer.key)
    due = []
    for one in ledger.trials.values():
        if (
            one.role is Role.CONFIRM
            and one.status is Status.COMPLETED
            and configuration_key(one.params) in chosen
            and not one.tested
        ):
            due.append(one.number)
    return due


def evaluate_tests(
    folder: ResultsFolder,
    spec: Spec,
    given: object = None,
    is_over: Callable[[], bool] = lambda: False,
) -> int:
    """Evaluate the models of `list_due_tests` on the test data, log the results and return how many were tested.

    ``given`` is the trainable itself if no module contains it. If a model was tested, the tables are written again. A
    model that cannot be restored is reported in the terminal and left out, and so is a configuration of which not all
    models have a checkpoint. Testing stops at the first model for which `test` raises an exception or returns None, or
    once ``is_over`` returns True; what is left is due in another session. The lock of the sweep is held meanwhile, and
    standard error of this process goes to the folder's debug log. Return 0, without the lock, if no model is due,
    ``is_over`` returns True at once, or the trainable certainly has no `test`.

    Raises:
        RefusedError: if another process holds the lock of the sweep.
        StoreError: if the log cannot be read or written, or the checkpoints are in a store that is not available.
    """
    trials = _read_due_tests(folder, spec)
    trainable: Trainable | None = None  # reused from one model to the next
    count = 0
    if not trials or is_over() or not _offers_test(folder, spec, given):
        return 0
    with (
        folder.lock(spec.checkpoint.sync_s) as copy,
        runner.redirected(folder.debug_log) as terminal,
        Log(folder.log, copy=copy, durable=spec.checkpoint.durable) as log,
    ):

        def say(text: str) -> None:
            terminal.write(f"note: {printable(text)}\n")

        for trial in _list_with_all_seeds(folder, trials, say):
            if is_over():
                break
            try:
                restored = begin_trial(find_checkpoint(folder, trial), given, trainable)
                trainable = restored.trainable
                metrics = _run_test(trainable)
            except InputError as error:
                say(f"trial {trial} is not tested: {error}")
                continue
            except SweepError:
                raise
            # any error of the user's code, which the next models would meet as well
            except Exception as error:
                say(f"no test: {in_short(error)}")
                break
            if metrics is None:  # there is no test data, for any model
                break
            log.append([ModelTested(trial=trial, metrics=metrics, time=time.time())])
            count += 1
        if count:
            write(folder, build_tables(folder))
    return count


def _read_due_tests(folder: ResultsFolder, spec: Spec) -> list[TrialState]:
    """Return the trials whose models are due to be tested (`list_due_tests`), as read from the log of a sweep."""
    ledger = Ledger(keep_epochs=False)
    for _ in ledger.follow(folder.log):
        pass
    return [ledger.trials[number] for number in list_due_tests(ledger, spec)]


def _list_with_all_seeds(
    folder: ResultsFolder, due: Sequence[TrialState], say: Callable[[str], None]
) -> list[int]:
    """Return the numbers of the trials in ``due``, without those of a configuration that lacks a checkpoint.

    A configuration lacks one if not all of its trials in ``due`` have a checkpoint. Those that kept theirs are the best
    ones, and their mean on the test data would flatter the configuration. ``say`` is called with a line for each
    configuration that is left out. The order is that of ``due``. Raises `StoreAway` if the checkpoints are in an object
    store that is not available.
    """
    left_out: set[int] = set()
    for seeds in group_by_configuration([one.start for one in due]).values():
        numbers = [one.trial for one in seeds]
        lost = [trial for trial in numbers if not checkpoints.list_names(folder.path, trial)]
        if lost:
            left_out |= set(numbers)
            say(
                f"not tested: {trials_named(numbers)} of a finalist, of which {len(lost)} kept no checkpoint "
                "(checkpoint.trials and checkpoint.space_gb limit how many do)"
            )
    return [one.number for one in due if one.number not in left_out]


def _offers_test(folder: ResultsFolder, spec: Spec, given: object) -> bool:
    """Return whether the trainable may have a `test` method; True if its import fails, which restoring then reports.

    It is imported from the folders that sweep.json names, unless it is ``given``. True also if only an instance of it
    could tell.
    """
    try:
        folders = folder.read_info().import_folders or ()
        return offers_method("test", spec.trainable, folders, given, seed=spec.data_seed)
    except Exception:  # any error of the user's code
        return True


def _run_test(trainable: object) -> dict[str, float] | None:
    """Call the trainable's `test` method; return its metrics, or None if it has no such method or no test data.

    Raises ValueError if no metric is a finite number, as for an empty mapping, and whatever the method raises. Some of
    several metrics may be NaN or infinite.
    """
    method = getattr(trainable, "test", None)
    found = method() if callable(method) else None
    if found is None:
        return None
    metrics = {}
    for name, value in found.items():
        metrics[str(name)] = float(value)
    if not any(map(math.isfinite, metrics.values())):
        raise ValueError(f"test() returned {metrics}, expected numbers by name")
    return metrics
