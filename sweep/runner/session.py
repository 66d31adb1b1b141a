"""Runs or resumes one sweep: builds its parts, drives them and closes them.

Each session updates sweep.json at its start and writes ``configurations.parquet`` at its end.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TextIO, TypeAlias

from sweep import analysis, backends, runner
from sweep.analysis import ranking, verdict
from sweep.backends import SHARE_FILE, STOP_FILE, Backend, Job, checkpoints
from sweep.backends.checkpoints import CheckpointKeeper
from sweep.errors import InterruptedByUser, StoppedAtOnce, StoreError, SweepError
from sweep.events import EpochReported, Event, TrialEnded, Value
from sweep.inspection import Source
from sweep.runner import (
    Options,
    Outcome,
    View,
    checking,
    features,
    methods,
    resuming,
    stop_requests,
    without_effect,
)
from sweep.runner.coordinator import Coordinator, Hooks
from sweep.runner.features import MakeFollower
from sweep.runner.resuming import ResumableSweep
from sweep.runner.stop_requests import Ending
from sweep.searchers import Searcher
from sweep.spec import Spec
from sweep.store import log as store_log
from sweep.store import sweep_info, tables
from sweep.store.features import LogCopy
from sweep.store.folder import ResultsFolder
from sweep.store.ledger import Change, Ended, Reported, naming
from sweep.store.log import Log
from sweep.store.reading import TableWriter
from sweep.store.sweep_info import Fields, Submission, SweepInfo
from sweep.text import counted

__all__ = ["Options", "Outcome", "Session", "SweepSource", "View", "resume_sweep", "run_sweep"]

MakeView: TypeAlias = Callable[[ResultsFolder, TextIO], View]
"""Builds the view of a session from its results folder and the terminal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSource:
    """The sweep that a session trains, with the source of its trainable and the folders of its code."""

    spec: Spec
    source: Source  # of the trainable
    import_folders: Sequence[Path]  # searched for its modules
    # the working folder of trials at their start
    working_folder: Path = field(default_factory=Path.cwd)
    given: object = None  # the class or function itself, if it cannot be imported from a module
    first: Spec | None = None  # of a sweep that is resumed: as it was before the changes in its log
    # what is to change when it is resumed
    settings: Mapping[str, Value] = field(default_factory=dict)
    file: Mapping[str, Value] | None = None  # see `ResumableSweep`


def run_sweep(
    training: SweepSource,
    text: str,
    results: Path,
    options: Options,
    view: MakeView,
    origin: Mapping[str, object] | None = None,
) -> Outcome:
    """Create a results folder for a new sweep, train the sweep there as `Session.run` does, and return the outcome.

    If it is refused or interrupted, or the disk fails, before anything is logged, the folder is removed again.

    Arguments:
        text: content of the sweep file.
        results: the folder in which the sweep's folder is created.
        view: makes the view of the session, which shows its events.
        origin: the sweep and trial that this sweep was made from, recorded in sweep.json.

    Raises:
        InputError: before anything is trained, if the sweep cannot be trained as asked or its name is taken.
        StoreError: if the disk is full, or the object store with the results is not available.
        TrainableError: if the first trial shows that the trainable cannot train this sweep.
        InterruptedByUser: if a signal comes before the first trial.
        StoppedAtOnce: in a user's own process, if the session had to end at once.
    """
    spec = training.spec
    folders = training.import_folders
    methods.check_author_methods(spec, folders)
    features.check_receivers(spec)
    _check_inline(spec, options)
    info: Fields = {
        "objectives": [
            {"name": objective.name, "goal": objective.goal} for objective in spec.objectives
        ],
        "seed": spec.seed,
        "spec": spec.to_json_dict(),
        "import_folders": [str(folder) for folder in folders],
        "working_folder": str(training.working_folder),
        "simulated_gpus": options.simulated_gpus,
        "memo": options.memo,
        "source": describe_source(training.source),
        "provenance": sweep_info.provenance(folders[0]),
        "warm_start": methods.record_warm_start(spec.warm_start, results),
    }
    if origin:
        info["origin"] = origin
    submission = Submission.of_this_process()
    if submission is not None:
        info["submitted"] = submission.as_fields()
    before = "interrupted before the first trial" + ("" if options.embedded else "; start it again")
    # the folder's name is known before the folder is made, which a signal may already interrupt
    ending = Ending(ResultsFolder(results / spec.name), embedded=options.embedded)
    with ending.heeded(before):
        with ending.making:
            folder = ResultsFolder.create(results, spec.name, text, info)
        try:
            return Session(training, folder, options, view, ending, before).run()
        except (SweepError, OSError, KeyboardInterrupt, StoppedAtOnce):
            # nothing was trained: free the name
            if not folder.log.exists() or not folder.log.stat().st_size:
                with ending.making:
                    folder.remove()
            raise


def resume_sweep(
    sweep: ResumableSweep, source: Source, options: Options, view: MakeView, given: object = None
) -> Outcome:
    """Continue a sweep from its log, with the changes in ``sweep``, as `Session.run` does, and return the outcome.

    Results of other sweeps are reused only if ``options`` ask for it and the sweep began so. ``given`` is the class or
    function of the trainable itself, if it cannot be imported from a module. Raises the same errors as `run_sweep`,
    `StoreError` if the log is damaged, and `RefusedError` if another process runs the sweep.
    """
    _check_inline(sweep.spec, options)
    features.check_receivers(sweep.spec)
    # as it was asked when the sweep began
    options = replace(options, memo=options.memo and sweep.memo)
    if options.embedded:
        again = ""
    else:
        again = f"; go on with: {sweep.folder.to_resume}"
    before = f"interrupted before it went on{again}"
    ending = Ending(sweep.folder, embedded=options.embedded)
    training = SweepSource(
        spec=sweep.spec,
        source=source,
        import_folders=sweep.import_folders,
        working_folder=sweep.working_folder,
        given=given,
        first=sweep.first,
        settings=sweep.settings,
        file=sweep.file,
    )
    with ending.heeded(before):
        return Session(training, sweep.folder, options, view, ending, before).run()


def _check_inline(spec: Spec, options: Options) -> None:
    """Raise `InputError` if the options ask for training in this process, and trials need several processes."""
    if options.inline:
        checking.check_inline(spec, "inline" if options.embedded else "--inline")


@dataclass(frozen=True, slots=True)
class Session:
    """Trains a sweep in its folder until it is over or must stop, then confirms finalists and tests the best models."""

    training: SweepSource
    folder: ResultsFolder
    options: Options
    view: MakeView
    ending: Ending
    before: str  # message for an interruption before the first trial

    @property
    def spec(self) -> Spec:
        """The sweep with which the session begins."""
        return self.training.spec

    def run(self) -> Outcome:
        """Train the sweep, confirm its finalists and test the best models; return the outcome.

        If a limit ended the search, the confirmation runs in a second session of its own. If it does not begin, the
        notice of the end of the search, which was kept back for it, is sent. Raises the errors of `run_sweep`, and
        `RefusedError` if another process runs the sweep.
        """
        outcome = self._drive()
        if self.options.confirming or self.spec.confirm is None:
            return self._confirm_and_test(outcome)
        # the notice of the search's end was kept back, to be sent with the result of the confirmation
        try:
            return self._confirm_and_test(outcome)
        finally:
            # does nothing unless the confirmation could not begin
            features.tell_withheld_end(self.spec, self.folder)

    def _confirm_and_test(self, outcome: Outcome) -> Outcome:
        """Confirm the finalists if that is left to do, and evaluate the best models on test data; return the outcome.

        ``outcome`` is that of the session of the search. If it is interrupted, or the sweep file has no ``confirm``,
        nothing is confirmed or tested. If a limit has ended the search, the confirmation is left to do and is run in a
        second session. Otherwise, as after `stop_when.gain`, the session of the search has run it. The returned outcome
        is also interrupted if the user has asked to stop before all this was done, or at any time if the sweep is
        embedded.
        """
        cut = False  # something is left for a later command, because this one must stop

        def is_over() -> bool:
            """Return whether the user has asked to stop; keep the answer in ``cut``.

            It is asked before each further step, which then does not begin.
            """
            nonlocal cut
            cut = self.ending.asked
            return cut

        if self.spec.confirm is not None and not outcome.interrupted:
            # a limit has ended the search (`stopped`), and this session was not begun to confirm
            if (
                outcome.stopped
                and not outcome.is_confirmed
                and not self.options.confirming
                and not is_over()
            ):
                # with all changes in its log: no settings are left to log
                present = resuming.open_sweep(self.folder)
                training = replace(
                    self.training, spec=present.spec, first=present.first, settings={}
                )
                # the session of the search has already retried the failed trials
                options = replace(self.options, confirming=True, retry_failed=False)
                confirmed = replace(self, training=training, options=options)._drive()
                outcome = replace(confirmed, stopped=confirmed.stopped or outcome.stopped)
            if not outcome.interrupted and not cut:
                # read again: `repeats`, for example, may have been changed while the sweep ran
                spec = resuming.open_sweep(self.folder).spec
                features.evaluate_tests(self.folder, spec, self.training.given, is_over)
        # a user's own process would otherwise carry on without knowing that it was asked to stop
        told = self.ending.asked and self.options.embedded
        return replace(outcome, interrupted=outcome.interrupted or cut or told)

    def _drive(self) -> Outcome:
        """Lock the folder, start the backend, train and clean up; return the outcome.

        First delete the stop requests, answers and temporary files that an earlier session has left, and record in
        sweep.json whether the code has changed and where the session runs. Meanwhile, standard error of this process
        goes to the folder's debug log.

        Raises `RefusedError` if another process runs the sweep, `InterruptedByUser` if a signal has come by the time
        the backend has started, `StoppedAtOnce` if the session had to end at once (`Ending.leave`), and the error that
        has ended the sweep, if there was one.
        """
        job = self._job()
        folder = self.folder
        ending = self.ending
        with (
            folder.lock(self.spec.checkpoint.sync_s) as copy,
            runner.redirected(folder.debug_log) as terminal,
        ):
            stop_requests.take_requests(folder)  # requests to a process that has ended
            features.forget_answers(folder)
            _delete_temporary_files(folder.path)  # left over by a killed session
            view = self.view(folder, terminal)
            try:
                note_source(folder, self.training, view.say)
                note_submission(folder)
                with ending.of_session(view, job.stop_file), ExitStack() as connection:
                    backend = self._open_backend(job, view, connection)
                    ending.check(self.before)
                    return self._build_and_train(job, view, backend, copy)
            except Exception as error:
                # the session had to end at once, and the error is a consequence of that
                if ending.lost:
                    raise StoppedAtOnce(ending.lost) from error
                raise
            finally:
                view.close()
                _delete_temporary_files(folder.path, job)

    def _open_backend(self, job: Job, view: View, connection: ExitStack) -> Backend:
        """Start the backend that trains the trials and return it; ``connection`` closes it.

        Raises InputError if Ray does not start or no suitable cluster is found, and InterruptedByUser if the process
        gets the signal SIGTERM meanwhile.
        """
        try:
            # `leave` ends the session at once if the backend is lost
            return connection.enter_context(
                features.open_backend(
                    self.options, job, self.spec, self.training.source, view, self.ending.leave
                )
            )
        except SystemExit as error:  # raised by Ray's handler of SIGTERM
            raise InterruptedByUser(self.before) from error

    def _job(self) -> Job:
        """Return the `Job`, the settings that all trials of this session have in common, with a new session id."""
        spec = self.spec
        # of the folder in which the workers of a machine share data
        shared_name = backends.shared_data_name(self.folder.path)
        if self.options.reuse:
            together = spec.together
        else:
            together = 1  # without reuse, each trial has a process of its own
        return Job(
            sweep=spec.name,
            trainable=spec.trainable,
            import_folders=tuple(self.training.import_folders),
            results_folder=self.folder.path.resolve(),
            objective=spec.objectives[0],
            workers=spec.resources.workers,
            servers=spec.resources.servers,
            together=together,
            session=uuid.uuid4().hex[:12],
            checkpoint_every_s=spec.checkpoint.every_s,
            checkpoint_keep=spec.checkpoint.keep,
            shared=None if self.options.inline else shared_name,
            profile=self.options.profile,
            target=spec.metrics[0].target,
            # parameters whose reads the source does not show, and those read only with some values of others
            unsure=checking.list_unseen_reads(spec, self.training.source),
            sometimes=without_effect.list_sometimes_read(spec, self.training.source),
            varying=tuple(spec.space.varying),
            constant=spec.space.constant,
            choosing=spec.space.choosing,
            settings=without_effect.list_changed_settings(spec),
            price=spec.resources.price,
            store=None if self.folder.store is None else self.folder.store.url,
            stand_in=None if self.folder.store is None else f"{shared_name}-results",
            given=self.training.given,
            working_folder=self.training.working_folder,
            code=self.training.source.module_digests(),
            digest=self.training.source.digest(),
            data_seed=spec.data_seed,
        )

    def _build_and_train(
        self, job: Job, view: View, backend: Backend, copy: LogCopy | None
    ) -> Outcome:
        """Build the coordinator, replay the log in it, train all trials, write the tables, and return the outcome.

        This session writes nothing into the log before `_train` is called. The tables are written even if training
        raises an exception. Raises `InterruptedByUser` if a signal has come before `_train`, `StoreError` if the log is
        damaged, and the error that has ended the sweep, if there was one.
        """
        spec = self.spec
        # the log, which is replayed below, has the changes since
        first = self.training.first or spec
        # trials in this process may change the working folder
        folder = ResultsFolder(self.folder.path.absolute())
        info = folder.read_info()
        searcher = methods.searcher(first, job.import_folders, first.trials_each)
        methods.learn_warm_start(searcher, info.warm_start, view.say, first, folder.path.parent)
        scheduler = methods.scheduler(first, job.import_folders)
        listener = _ChangeListener(spec, folder, view)
        with Log(folder.log, copy=copy, durable=spec.checkpoint.durable) as log:
            hooks = self._make_hooks(job, folder, info, view, backend, listener)
            devices = spec.resources.devices(self.options.simulated_gpus)
            coordinator = Coordinator(first, devices, searcher, scheduler, log, hooks)
            # an event is replayed when the view takes it
            view.replay(self._replay(coordinator, listener))
            listener.keeper.begin()
            followers = ExitStack()
            try:
                followers.callback(_write_configurations, folder)  # last of all, after the tables
                for follower in self._list_followers():
                    followers.enter_context(follower(folder))
                # Ends here if a signal has come; after this line, the log records this session.
                self.ending.check(self.before)
                ended = self._train(coordinator, backend, folder, view)
            finally:
                # why the tables could not be written, as on a full disk; None if they were
                full = _close_followers(followers)
                if not coordinator.fault:  # after a fault, another driver may own the checkpoints
                    listener.keeper.close()
        return self._conclude(coordinator, view, listener, full=full, ended=ended)

    def _make_hooks(
        self,
        job: Job,
        folder: ResultsFolder,
        info: SweepInfo,
        view: View,
        backend: Backend,
        listener: _ChangeListener,
    ) -> Hooks:
        """Return the callbacks by which the coordinator reaches the backend, the view, the checkpoints and signals.

        The earlier results of other sweeps are looked for now; ``view`` shows what was found.
        """
        # before the changes in the log, if the sweep is resumed
        first = self.training.first or self.spec
        return Hooks(
            listen=listener.listen,
            stop=self.ending.tell_workers,
            look=self.ending.look,
            tick=self.ending.obey,
            say=view.say,
            share=partial(backends.write_shares, job),
            changed=partial(self._take_over, folder, backend),
            at_once=backend.at_once,
            to_beat=listener.keeper.to_beat,
            kept=partial(checkpoints.find_epoch_checkpoint, folder.path),
            inherit=partial(features.inherit, folder, self.spec.objectives[0]),
            make_searcher=partial(_make_searcher, first, job, info),
            memo=features.find_earlier_results(self.spec, self.options, folder, info, view.say),
        )

    def _train(
        self, coordinator: Coordinator, backend: Backend, folder: ResultsFolder, view: View
    ) -> bool:
        """Start the session, train all trials and end the session; return what `Coordinator.close` returns.

        Nothing is trained if the coordinator is to stop already when it has started the session. If training raises an
        exception, it is raised here too; it is logged as a crash before, unless the session had to end at once.
        """
        self._open(coordinator, folder, view)
        try:
            if not coordinator.stopping:
                backend.train(coordinator)
        except BaseException as crash:
            # if the session had to end at once, nothing is logged, as after a kill; Ray wraps errors of its callbacks,
            # so the type of the exception does not tell
            if not self.ending.lost:
                coordinator.crash(crash)
            raise
        return coordinator.close()

    def _open(self, coordinator: Coordinator, folder: ResultsFolder, view: View) -> None:
        """Start the session in the coordinator, and carry out the requests that persons have made before.

        For a resumed sweep, also write its changes into sweep.json. With ``retry_failed`` in the options, failed trials
        are tried again, and the user is told how many.
        """
        options = self.options
        again = coordinator.open(
            retry_failed=options.retry_failed,
            confirming=options.confirming,
            settings=self.training.settings,
        )
        if self.training.first is not None:  # it is resumed, and may have been changed
            note_spec(folder, coordinator.spec, self.training.file)
        if options.retry_failed:
            view.say(
                f"{counted(again, 'failed trial')} {'is' if again == 1 else 'are'} tried again"
            )
        features.carry_out_requests(folder, coordinator.steer)

    def _take_over(self, folder: ResultsFolder, backend: Backend, spec: Spec) -> None:
        """Write a changed sweep into sweep.json, and apply its limit on concurrent trials to the backend."""
        resuming.write_present_spec(folder, spec)
        backend.limit(self.options.limit_concurrent(spec))

    def _list_followers(self) -> list[MakeFollower]:
        """Return functions that make the readers of the log.

        These are the writer of the tables, the sender of notices if the sweep file has ``notify``, and those in the
        options.
        """
        notifiers = features.list_notifiers(self.spec, confirming=self.options.confirming)
        return [TableWriter, *notifiers, *self.options.followers]

    def _replay(self, coordinator: Coordinator, listener: _ChangeListener) -> Iterator[Event]:
        """Yield the logged events of earlier sessions, each after replaying it in the coordinator and ``listener``.

        Raises `StoreError`, naming the log, if it is damaged.
        """
        with naming(self.folder.log):
            for event in store_log.read(self.folder.log):
                listener.recall(coordinator.recall(event))
                yield event

    def _conclude(
        self,
        coordinator: Coordinator,
        view: View,
        listener: _ChangeListener,
        *,
        full: str | None,
        ended: bool,
    ) -> Outcome:
        """Tell the user about reused results, an exhausted space and the confirmation, and return the outcome.

        ``full`` is why the tables could not be written, None if they were. ``ended`` is what `Coordinator.close` has
        returned: False if a user has stopped the sweep with trials left, or the backend gave up. The outcome is
        interrupted if the coordinator has met a fault such as a full disk, if the tables could not be written, or if
        the user asked to stop and ``ended`` is False. Raises the error that has ended the sweep, if there was one.
        """
        spec = coordinator.spec
        if coordinator.error:
            raise coordinator.error
        listener.reuses.print_counts(view.say)
        # a grid, a population or a finite space runs out of configurations by itself, which needs no explanation
        ends_by_itself = (
            spec.search_method.enumerates or spec.population or spec.space.cardinality is not None
        )
        if coordinator.exhausted and not ends_by_itself:
            view.say(
                "no other configuration was found that meets the constraints: the space is exhausted"
            )
        if spec.confirm and coordinator.confirmed:
            view.say(f"confirm: {coordinator.confirmed}")
        fault = coordinator.fault or full
        interrupted = fault is not None or (self.ending.asked and not ended)
        stopped = coordinator.stopping or coordinator.enough
        confirmed = bool(coordinator.confirmed)
        return Outcome(self.folder, coordinator.completed, stopped, interrupted, fault, confirmed)


def _make_searcher(spec: Spec, job: Job, info: SweepInfo) -> Searcher:
    """Return a new searcher of a sweep that has learned the warm start; each configuration is for one trial.

    Repeats with other seeds or folds are left to the caller. ``info`` is the sweep's sweep.json, which names the
    earlier sweeps of the warm start; their logs are read again. Nothing is told the user. Raises `InputError` if the
    searcher cannot be built, such as one of the user's own that cannot be imported, and `StoreError` if the log of an
    earlier sweep is gone or damaged.
    """
    searcher = methods.searcher(spec, job.import_folders)
    results = info.path.parent.parent
    methods.learn_warm_start(searcher, info.warm_start, lambda notice: None, spec, results)
    return searcher


class _ChangeListener:
    """Acts on what the coordinator has logged: keeps checkpoints, updates the view, and warns the user."""

    def __init__(self, spec: Spec, folder: ResultsFolder, view: View) -> None:
        self._folder = folder
        self._view = view
        self.keeper = CheckpointKeeper(folder.path, spec)
        self.reuses = _ReuseCounts()
        self._data = _DataComparison(spec.name)

    def recall(self, change: Change) -> None:
        """Remember what a replayed change of an earlier session says of checkpoints and of the trials' data.

        Nothing is deleted, and the user is told nothing.
        """
        self.keeper.recall(change)
        self._data.compare(change)

    def listen(self, change: Change) -> None:
        """Update checkpoints, view and counts with a change that was logged just now, and warn about different data.

        The end of a trial may delete checkpoints, its own or others. If a trial ended that was trained with other code,
        also record that in sweep.json.
        """
        self.keeper.on(change)
        self._view.on(change.event)
        self.reuses.count(change)
        warning = self._data.compare(change)
        if warning:
            self._view.say(warning)
        if isinstance(change, Ended) and change.event.facts.other_code:
            note_other_code(self._folder)


class _ReuseCounts:
    """Counts the trials that use results of other sweeps."""

    def __init__(self) -> None:
        # the other sweep of each open trial that continues from one
        self._continued: dict[int, str] = {}
        # by that sweep and by how its result was used
        self._counts: Counter[tuple[str, str]] = Counter()

    def count(self, change: Change) -> None:
        """Count the trial of a change if it has ended and another sweep's result answered it or was continued.

        A reported epoch that is from another sweep is remembered until the trial ends. Copies in a population do not
        count.
        """
        match change:
            # ``memo`` is "sweep/trial": the trial of another sweep that has trained the epoch
            case Reported(trial, EpochReported(memo=str(source))) if trial.start.parent is None:
                self._continued[trial.number] = source.rpartition("/")[0]
            # the end has ``memo`` too if the trial was not trained at all
            case Ended(trial, end) if trial.number in self._continued:
                if end.memo:
                    use = "answered from {}, not trained again"
                else:
                    use = "continued from {}"
                self._counts[self._continued.pop(trial.number), use] += 1
            case _:
                pass

    def print_counts(self, say: Callable[[str], None]) -> None:
        """Call ``say`` with a line for each sweep, and each way of use, on how many trials use its results."""
        for (sweep, use), count in self._counts.items():
            say(f"{counted(count, 'trial')} {use.format(sweep)}")


class _DataComparison:
    """Notices if trials have loaded different data."""

    def __init__(self, sweep: str) -> None:
        self._sweep = sweep
        self._seen: dict[int, verdict.TrialData] = {}  # by trial
        self._warning = ""

    def compare(self, change: Change) -> str:
        """Return a warning at the first change that shows that trials have loaded different data; otherwise "".

        Only ends and interruptions of trials show what data they have loaded. After the warning, no other follows.
        """
        event = change.event
        has_warned = self._warning != ""
        if has_warned or not isinstance(event, TrialEnded) or event.facts.data is None:
            return ""
        before = self._seen.get(event.trial)
        now = verdict.TrialData(self._sweep, event.trial, event.facts.data, event.facts.data_reads)
        self._seen[event.trial] = now
        # else the trial was interrupted and resumed with the same data, and nothing is new
        if before != now:
            self._warning = verdict.warn_about_different_data(self._seen.values())
        return self._warning


def _close_followers(followers: ExitStack) -> str | None:
    """Close the readers of the log; return the message if one of them raises `StoreError`, else None.

    That happens if the tables cannot be written. They are derived from the log, so nothing is lost.
    """
    try:
        followers.close()
    except StoreError as error:
        return str(error)
    return None


def _delete_temporary_files(folder: Path, job: Job | None = None) -> None:
    """Delete the temporary files in a sweep's folder, and the shared data of ``job`` or, if None, of all sessions.

    The files are those that stop workers and that tell them their share of a GPU. Also finish deletions of checkpoints
    that were begun.
    """
    for kind in (STOP_FILE, SHARE_FILE):
        for path in folder.glob(f"{kind}*"):
            path.unlink(missing_ok=True)
    if job is None:
        shared_names = [backends.shared_data_prefix(folder)]
    else:
        shared_names = [name for name in (job.shared, job.stand_in) if name]
    for name in shared_names:
        backends.remove_shared_data(name)
    checkpoints.finish_deletions(folder)


def describe_source(source: Source) -> dict[str, object]:
    """Return the description of a trainable's code that sweep.json keeps.

    Its keys are ``trainable``, ``modules`` (their names, sorted), ``sha256`` (of their content), ``packages`` (versions
    by name) and ``unknown`` (reasons why more code may be involved).
    """
    return {
        "trainable": source.trainable,
        "modules": sorted(source.files),
        "sha256": source.digest(),
        "packages": dict(source.packages),
        "unknown": list(source.unknown),
    }


def note_source(folder: ResultsFolder, training: SweepSource, say: Callable[[str], None]) -> None:
    """Record in sweep.json, and tell the user, that the code or versions of packages have changed since a sweep began.

    The description of the present code replaces the earlier one, also if only that differs. Nothing is told if code and
    versions are the same, or if sweep.json records such a change already. The trials of a changed sweep are not reused
    by other sweeps. Raises `StoreError` if sweep.json cannot be read or written.
    """
    info = folder.read_info()
    now = info.changed(source=describe_source(training.source))
    # otherwise the sweep is new, and `run_sweep` has just recorded its provenance
    if folder.log.exists():
        now = now.changed(provenance=sweep_info.provenance(training.import_folders[0]))
    # ``is_mixed``: an earlier session has found such a change; the identity is all that results depend on
    if info.is_mixed or info.identity != now.identity:
        # its trials must not answer trials of other sweeps
        now = now.changed(source={**now.source, "changed": True})
        if not info.is_mixed:
            say(
                "the code or a version of its packages has changed since the sweep began; what follows is new"
            )
    if now.source != info.source:
        # the provenance stays that of the beginning
        folder.write_info(info.changed(source=now.source))


def note_submission(folder: ResultsFolder) -> None:
    """Record in sweep.json where this session runs: on the cluster to which it was submitted, or not on one.

    That is taken from the environment of this process. The file is written only if this differs from the session
    before. Raises `StoreError` if it cannot be read or written.
    """
    info = folder.read_info()
    submission = Submission.of_this_process()
    if info.submission != submission:
        folder.write_info(
            info.changed(submitted=None if submission is None else submission.as_fields())
        )


def note_spec(folder: ResultsFolder, spec: Spec, file: Mapping[str, Value] | None) -> None:
    """Write the present spec of a resumed sweep, whose changes are in the log, into sweep.json if it differs.

    ``file`` is the resolved sweep file from which the sweep is resumed, if any; it is recorded as well. The spec before
    the first change is kept. Raises `StoreError` if sweep.json cannot be read or written.
    """
    info = folder.read_info()
    now = resuming.change_info(info, spec)
    if file is not None and file != info.file:
        now = now.changed(file=file)
    if now.content != info.content:
        folder.write_info(now)


def note_other_code(folder: ResultsFolder) -> None:
    """Record in sweep.json that some trials were trained with other code, so that other sweeps do not reuse any.

    Do nothing if that is recorded already. Raises `StoreError` if sweep.json cannot be read or written.
    """
    info = folder.read_info()
    if not info.is_mixed:
        folder.write_info(info.changed(source={**info.source, "changed": True}))


def _write_configurations(folder: ResultsFolder) -> None:
    """Write ``configurations.parquet``, the table of configurations with their present ranks.

    Raises `StoreError` if the log cannot be read or the table cannot be written.
    """
    tables.write_configurations(
        folder, ranking.make_columns(ranking.rank([analysis.read_sweep(folder)]))
    )
