"""Reuses trials that another sweep has trained: same parameters, seed, epochs, code, data and versions.

Only completed trials are reused. A trial that was pruned or stopped at its sweep's target lacks epochs, and one that
failed, diverged or ran out of memory might not on other hardware. A completed trial with fewer epochs is continued if
a longer trial would begin with the same epochs and its last checkpoint still exists.
"""

from __future__ import annotations

import shutil
from array import array
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from msgspec import structs

from sweep.backends import checkpoints, inputs
from sweep.errors import StoreError
from sweep.events import WHOLE, EpochReported, Params, TrialEnded, TrialStarted, trial_epochs
from sweep.runner.features import Answer
from sweep.space.domains import key
from sweep.space.objectives import Objective
from sweep.store import log as store_log
from sweep.store.disk import link
from sweep.store.folder import ResultsFolder
from sweep.store.ledger import Ended, Ledger, Reported, Started
from sweep.store.sweep_info import SweepInfo

_Key: TypeAlias = tuple[str, bool, int, tuple[int, object] | None]


@dataclass(slots=True)
class _TrialLocation:
    """Where the events of a completed trial are in the log of another sweep, as byte offsets."""

    log: Path
    sweep: str
    trial: int
    length: int = 0  # epochs that it was meant to train
    # byte offset of each epoch in the log
    epochs: array[int] = field(default_factory=lambda: array("q"))
    end: int = 0
    end_time: float = 0.0  # in seconds since 1970
    data: str | None = None  # fingerprint of its data; None if it is unknown

    def read_end(self) -> TrialEnded:
        """Read the event that ended the trial from its log, and return it.

        Raises `StoreError` if the log has changed or cannot be read.
        """
        (end,) = store_log.read_at(self.log, [self.end])
        if not isinstance(end, TrialEnded):
            raise StoreError(f"{self.log}: changed while it was read")
        return end

    def checkpoint(self, end: TrialEnded) -> Path | None:
        """Return the path of the trial's last checkpoint, if it still exists here or in the object store; else None.

        ``end`` is the event that ended the trial. Raises `StoreError` if the object store is unavailable.
        """
        if not end.facts.checkpoint:
            return None
        kept = self.log.parent / end.facts.checkpoint
        is_there = kept.name in checkpoints.list_names(self.log.parent, self.trial)
        return kept if is_there else None


def inherit(folder: ResultsFolder, objective: Objective, started: TrialStarted) -> str:
    """Give a trial that begins as a copy the checkpoint and the epochs of its parent; return why that failed, or "".

    The epochs are put into the checkpoint, not into the log, up to that after which the copy continues. Does nothing
    and returns "" if the trial already has a checkpoint, as after a driver was killed: its parent may have continued
    since. Raises StoreError if the log cannot be read.

    Arguments:
        folder: that of the sweep, whose log has the parent's epochs.
        objective: the sweep's first objective, by which the copied checkpoint is ranked.
        started: the start of the copy, with its ``parent`` and ``parent_epoch``.
    """
    # ``or 0`` is for the type checker: a copy has both
    parent, epoch = started.parent or 0, started.parent_epoch or 0
    epochs = []
    for event in store_log.read(folder.log):
        if isinstance(event, EpochReported) and event.trial == parent and event.epoch <= epoch:
            source_of_epoch = event.memo or f"{folder.name}/{parent}"
            # ``driven_s`` is the time in the session that trained the epoch
            epochs.append(
                structs.replace(event, trial=started.trial, memo=source_of_epoch, driven_s=None)
            )
    try:
        if checkpoints.list_names(folder.path, started.trial):
            return ""
        known = checkpoints.find_epoch_checkpoint(folder.path, parent, epoch)
        if known is None:
            raise StoreError("it is not there; a function trainable has one where it saves")
        sources = {one.name: one for one in checkpoints.fetch_checkpoints(folder.path, parent)}
        source = sources.get(Path(known).name)
        if source is None:
            raise StoreError("it has been deleted in the meantime")
        _take_over_checkpoint(folder, objective, source, epochs, started.trial, is_last=True)
        checkpoints.upload(folder.path, started.trial)
    except (OSError, StoreError, checkpoints.Damaged) as error:
        return f"the checkpoint of trial {parent} after epoch {epoch} cannot be copied: {error}"
    return ""


def _take_over_checkpoint(
    folder: ResultsFolder,
    objective: Objective,
    path: Path,
    epochs: Sequence[EpochReported],
    trial: int,
    *,
    is_last: bool,
) -> None:
    """Copy the checkpoint at ``path`` of another trial to a trial of this sweep, with ``epochs`` as its reports.

    The reports have the number of this trial already and begin with epoch 1; the copy gets those up to its own epoch.
    With ``is_last``, it must be the checkpoint of the last of ``epochs``, otherwise of an earlier one. Raises `Damaged`
    if it is not, or if the last checkpoint is damaged. An earlier checkpoint that is damaged is skipped. Raises OSError
    or StoreError if the files cannot be copied.
    """
    try:
        manifest = checkpoints.read_verified_manifest(path)
    except checkpoints.Damaged:
        if is_last:
            raise
        return
    # the last one is of the last epoch, and no other one is
    if (manifest.epoch == len(epochs)) is not is_last:
        raise checkpoints.Damaged(f"it is of epoch {manifest.epoch}")
    taken = tuple(epochs[: manifest.epoch])
    known = replace(manifest, loss=objective.ranking_loss(taken[-1].metrics), reports=taken)
    complete = checkpoints.begin_checkpoint(
        checkpoints.get_trial_folder(folder.path, trial),
        known,
        partial(_copy_checkpoint_files, path),
        keep=1,  # beside the best one
    )
    complete()


class Memo:
    """Finds the results of equal trials in other sweeps with the same code, data and versions."""

    def __init__(
        self,
        folder: ResultsFolder,
        others: Iterable[ResultsFolder],
        info: SweepInfo,
        objective: Objective,
        notice: Callable[[str], None],
    ) -> None:
        """Index the trials of ``others`` that can be reused; ``folder`` is that of this sweep and must be absolute.

        Sweeps with other code, settings or versions (`SweepInfo.identity`) are left out. ``notice`` prints a line for
        the user if a sweep is left out for another reason, such as a damaged log; it is also used later. The logs of
        the other sweeps are read now.

        Arguments:
            info: content of this sweep's sweep.json.
            objective: first objective of this sweep.
        """
        self._objective = objective
        self._folder = folder
        self._folds = info.folds
        self._notice = notice
        self._working_folder = info.working_folder
        self._import_folders = info.import_folders or ()
        self._data_seed = info.data_seed
        # trials that differ only in their number of epochs
        self._entries: dict[_Key, list[_TrialLocation]] = {}
        self._unusable: set[Path] = set()  # checkpoints that could not be copied
        self._told: set[tuple[str, str]] = set()  # (sweep, reason) of the notices so far
        for other in others:
            try:
                about = other.read_info()
                if info.identity is None or about.identity != info.identity:
                    continue  # with other code, settings or versions
                if about.spec.get("minutes") is not None:
                    text = "their minutes ended them, and how far these lead depends on the machine"
                    self._notify_once(
                        other.name, "minutes", f"no results of {other.name} are reused: {text}"
                    )
                    continue
                # ``doubt``: why the same trial may give another result; that about this sweep is told only if there are
                # results of the same code that could be used
                if doubt := info.doubt:
                    self._notify_once(
                        "", doubt, f"no results of earlier sweeps are reused: {doubt}"
                    )
                    continue
                if doubt := about.doubt:
                    self._notify_once(
                        other.name, doubt, f"no results of {other.name} are reused: {doubt}"
                    )
                    continue
                self._index(other, about, comparable=about.objectives[:1] == info.objectives[:1])
            except StoreError as error:
                notice(f"no results of {other.path} are reused: {error}")

    def recall(
        self, started: TrialStarted, epochs: int, done: int = 0, known_data: Collection[str] = ()
    ) -> Answer | None:
        """Return a result to reuse for a trial; None if there is none.

        It is that of an equal trial or, without one, that of the longest shorter trial that can be continued; of
        equally long trials, the latest. Only results on known data are returned. If there is none, but results exist
        that cannot be used, the user is told why, once for each reason. If no data are known yet and `list_data` is not
        empty, the user is not told, because these results may still be used.

        Arguments:
            started: the start of the trial.
            epochs: number of epochs that the trial is to train.
            done: number of epochs that the trial already has; a shorter result must have more.
            known_data: fingerprints of the data that workers have loaded; empty if none has yet.
        """
        doubts: list[tuple[_TrialLocation, str]] = []
        # reasons not to continue, of the longest shorter trial first
        hindrances: list[tuple[_TrialLocation, str]] = []
        has_other_data = False  # whether there are results on data that are not known
        for entry in self._list_entries(started, epochs, done):
            if entry.data is not None and entry.data not in known_data:
                has_other_data = True
                continue
            try:
                end = entry.read_end()
                if doubt := self._explain_difference(entry, end, started.trial):
                    doubts.append((entry, doubt))
                elif hindrance := self._find_hindrance(entry, end, started.params, epochs):
                    hindrances.append((entry, hindrance))
                else:
                    whole = entry.length == epochs
                    return self._make_answer(started.trial, entry, end, whole=whole)
            except StoreError as error:  # the sweep has been deleted since
                self._notify_once(
                    entry.sweep, str(error), f"no more results of {entry.sweep} are reused: {error}"
                )
        if known_data or not has_other_data:
            self._explain_missing_result(doubts, hindrances[:1], epochs)
        return None

    def list_data(self, started: TrialStarted, epochs: int, done: int = 0) -> tuple[str, ...]:
        """Return the fingerprints of the data of all earlier results that `recall` may return; () if there are none.

        The data of the results that `recall` prefers come first, each only once. Results on unknown data are left out.
        The arguments are those of `recall`.
        """
        # a dict keeps the order
        fingerprints: dict[str, None] = {}
        for entry in self._list_entries(started, epochs, done):
            if entry.data is not None:
                fingerprints[entry.data] = None
        return tuple(fingerprints)

    def _list_entries(self, started: TrialStarted, epochs: int, done: int) -> list[_TrialLocation]:
        """Return the earlier trials whose results `recall` considers for a trial, in the order of preference.

        First are trials of the same length, whose results may be reused, then shorter ones, which may be continued, the
        longest first. Longer ones follow, which only explain why nothing is reused. Of equally long trials, the latest
        is first. The arguments are those of `recall`.
        """
        entries = []
        for entry in self._entries.get(_make_memo_key(started, self._folds), []):
            # a trial that has begun gains only by a shorter result with more epochs than it has
            if entry.length == epochs or not done or done < entry.length < epochs:
                entries.append(entry)
        return sorted(
            entries,
            key=lambda entry: (
                entry.length != epochs,
                entry.length > epochs,
                -entry.length,
                -entry.end_time,
            ),
        )

    def _explain_missing_result(
        self,
        doubts: Iterable[tuple[_TrialLocation, str]],
        hindrances: Iterable[tuple[_TrialLocation, str]],
        epochs: int,
    ) -> None:
        """Tell the user why earlier trials are not reused, ``doubts``, or not continued, ``hindrances``.

        Each item is an earlier trial and the reason; the user is told each reason once for each sweep. ``epochs`` is
        the number of epochs of the new trial.
        """
        for entry, doubt in doubts:
            self._notify_once(
                entry.sweep, doubt, f"trials of {entry.sweep} are not reused: {doubt}"
            )
        for entry, hindrance in hindrances:
            but = f"trials of {entry.sweep} that differ only in their number of epochs ({entry.length})"
            self._notify_once(
                entry.sweep,
                hindrance,
                f"{but} cannot be continued to {epochs} and are trained again: {hindrance}",
            )

    def hand_over(self, answer: Answer, trial: int) -> str | None:
        """Copy the last and best checkpoints of a result to trial number ``trial``; return the path of the last one.

        The path is relative to the sweep's folder. Return None if the result has no checkpoint, or if a checkpoint
        cannot be copied. In the second case, the user gets a notice, and no other trial is continued from the last
        checkpoint. If the results are in an object store, the checkpoints are fetched from it, and the copies uploaded.
        A copy that the log does not record, because the driver died in between, does no harm: a checkpoint contains all
        epochs up to it.
        """
        source = answer.checkpoint
        if source is None:
            return None
        try:
            # the path of a checkpoint is FOLDER/checkpoints/TRIAL/epoch-N
            results_folder, earlier_trial = source.parent.parent.parent, int(source.parent.name)
            kept = checkpoints.fetch_checkpoints(results_folder, earlier_trial)
            oldest_first = sorted(
                {*kept, source}, key=lambda path: checkpoints.order_by_epoch(path.name)
            )
            for path in oldest_first:
                _take_over_checkpoint(
                    self._folder,
                    self._objective,
                    path,
                    answer.epochs,
                    trial,
                    is_last=path == source,
                )
            checkpoints.upload(self._folder.path, trial)
            return checkpoints.find_epoch_checkpoint(self._folder.path, trial, len(answer.epochs))
        except (OSError, StoreError, checkpoints.Damaged) as error:
            self._unusable.add(source)
            if answer.whole:
                what = "has no checkpoint"
            else:
                what = "is trained from its beginning"
            self._notice(f"trial {trial} {what}: {source} cannot be copied ({error})")
            return None

    def _explain_difference(self, entry: _TrialLocation, end: TrialEnded, trial: int) -> str | None:
        """Return why trial number ``trial`` might give another result than an earlier trial; None if nothing is known.

        ``end`` is the end of the earlier trial. The text is a clause about several trials ("their ... is ..."), to be
        put into a message.
        """
        facts = end.facts
        if facts.data is None:
            says = "set Facts(data=...) in a trainable, or train.data = ... for a function train"
            return f"their training data is unknown; {says}"
        if not facts.reproducible:
            why = facts.numerics.get("differs", "")
            return "their results are not reproducible" + (f": {why}" if why else "")
        # the number in the log is also that of the training if the result was itself taken from an earlier sweep
        if facts.by_number and entry.trial != trial:
            return "their function has read report.trial, and they have other numbers there"
        if facts.other_code:
            return f"their code ({', '.join(facts.other_code)}) was changed while the sweep ran"
        return inputs.find_hindrance(
            facts.inputs, self._working_folder, self._import_folders, self._data_seed
        )

    def _find_hindrance(
        self, entry: _TrialLocation, end: TrialEnded, params: Params, epochs: int
    ) -> str | None:
        """Return why a result with another number of epochs cannot be continued to ``epochs``; None if it can be used.

        ``end`` is the end of the earlier trial. A result of as many epochs can always be used.
        """
        if entry.length == epochs:
            return None
        if entry.length > epochs:
            return (
                "they went on after that epoch, and a schedule may depend on the number of epochs"
            )
        if len(entry.epochs) < entry.length:  # completed all the same, as by `training.patience`
            return "they ended early"
        if not end.facts.extends:
            schedule = params.get("lr_schedule")
            return "what they did may depend on the number of epochs" + (
                f" (lr_schedule is {schedule})" if schedule else ""
            )
        # None: it was deleted; or it could not be copied
        if entry.checkpoint(end) in {None, *self._unusable}:
            return "their checkpoints were deleted; a sweep keeps only those of its best trials (checkpoint.trials)"
        return None

    def _make_answer(
        self, trial: int, entry: _TrialLocation, end: TrialEnded, *, whole: bool
    ) -> Answer:
        """Read a trial's epochs from its log; return them as the result of trial number ``trial`` of this sweep.

        ``end`` is the end of the earlier trial. ``whole`` says whether its epochs are all that trial ``trial`` is to
        train. Raises `StoreError` if the log cannot be read.
        """
        # the trial that was trained, if this one has its result from another
        source = end.memo or f"{entry.sweep}/{entry.trial}"
        epochs = []
        for epoch in store_log.read_at(entry.log, entry.epochs):
            if isinstance(epoch, EpochReported):
                epochs.append(
                    structs.replace(epoch, trial=trial, memo=epoch.memo or source, driven_s=None)
                )
        # this sweep has spent no time on it, and `hand_over` has yet to copy the checkpoint
        facts = structs.replace(
            end.facts, started=None, lived_s=None, train_s=0.0, overhead_s={}, checkpoint=None
        )
        return Answer(source, tuple(epochs), facts, entry.checkpoint(end), whole)

    def _notify_once(self, sweep: str, reason: str, text: str) -> None:
        """Tell the user ``text``, that results of a sweep are not used, once for each sweep and reason."""
        if (sweep, reason) not in self._told:
            self._told.add((sweep, reason))
            self._notice(text)

    def _index(self, folder: ResultsFolder, info: SweepInfo, *, comparable: bool) -> None:
        """Add the completed and infeasible trials of a sweep to the index, by `_make_memo_key`.

        Trials that ended at the target, copies in a population, trials of which the log lacks epochs, and trials that
        lack the objective of this sweep are left out, and all trials of a sweep whose sweep.json has no number of
        epochs. ``comparable`` says whether that sweep has the same first objective as this one. If not, trials with the
        learning-rate schedule ``plateau``, which depend on the objective, are left out as well. Raises `StoreError` if
        the log is damaged.
        """
        entries: dict[int, _TrialLocation] = {}  # of the trials that have started and not ended
        ledger = Ledger(keep_epochs=False)
        start = 0
        for change, end in ledger.follow(folder.log):
            start, begun = end, start  # an event begins where the one before it ends
            match change:
                # a copy began with other parameters
                case Started(trial) if trial.start.parent is None:
                    entries[trial.number] = _TrialLocation(folder.log, folder.name, trial.number)
                case Reported(trial) if trial.number in entries:
                    entries[trial.number].epochs.append(begun)
                case Ended(trial, last) if (
                    trial.status in WHOLE and trial.number in entries and not last.at_target
                ):
                    entry = entries.pop(trial.number)
                    # whether the objective has determined its learning rates
                    uses_objective = trial.params.get("lr_schedule") == "plateau"
                    # false if a repair of the log dropped some epochs
                    whole = trial.reported == trial.epoch
                    # false if the trial has another metric: what a function returns is reported under the name that its
                    # sweep gives the objective; an infeasible trial may have reported nothing
                    fits = not trial.reported or self._objective.name in trial.last
                    if (
                        whole
                        and fits
                        and isinstance(info.epochs, int)
                        and (comparable or not uses_objective)
                    ):
                        entry.end = begun
                        entry.end_time = last.time
                        entry.data = last.facts.data
                        entry.length = trial_epochs(trial.params, info.epochs)
                        self._entries.setdefault(
                            _make_memo_key(trial.start, info.folds), []
                        ).append(entry)
                case _:
                    pass


def _make_memo_key(started: TrialStarted, folds: object) -> _Key:
    """Return a key that is equal for trials with equal parameters except ``epochs``, equal seeds and equal folds.

    A trial with the parameter ``epochs`` and one without it have different keys, whatever its value. Folds are equal
    only if the number of folds, ``folds``, is the same too; without folds, that number does not matter.
    """
    rest = {}
    for name, value in started.params.items():
        if name != "epochs":
            rest[name] = value
    if started.fold is None:
        fold = None
    else:
        fold = (started.fold, folds)
    return key(rest), "epochs" in started.params, started.seed, fold


def _copy_checkpoint_files(source: Path, target: Path) -> None:
    """Put the files of a folder, except its manifest, into another one: as hard links or, if impossible, as copies.

    ``target`` may exist. Links are as safe as copies because checkpoint files are never modified, and deleting one
    leaves the other. Raises OSError if a file cannot be copied.
    """
    ignore = shutil.ignore_patterns(checkpoints.MANIFEST)
    shutil.copytree(source, target, ignore=ignore, copy_function=link, dirs_exist_ok=True)
