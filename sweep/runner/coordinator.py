"""The state machine of a sweep: what to train next, what to make of what was trained.

Every event is in the log before anything acts on it, so that a replay of the log puts searcher, scheduler
and coordinator back to where they were. It knows no Ray, no TensorFlow and no terminal.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from msgspec import structs

from sweep.backends import Lost, Order, Progress
from sweep.contract import Devices, parts
from sweep.errors import StoreError, TrainableError, in_short
from sweep.events import EpochReported, Event, Facts, SessionEnded, SessionStarted, Status, TrialEnded, TrialStarted
from sweep.runner.gpu_sharing import Sharing
from sweep.runner.limits import Limits, Timeouts
from sweep.runner.memo import Answer, Memo
from sweep.runner.trials import AuxiliaryTrials, OpenTrial, Pauses, Terms, Upcoming
from sweep.schedulers import Scheduler
from sweep.searchers import Searcher
from sweep.searchers.population import Population
from sweep.spec import Spec
from sweep.store.ledger import Change, Ended, Interrupted, Ledger, Reopened, Reported, Session, Started, searched
from sweep.store.log import Log
from sweep.store.sweep_info import VERSION

INTERRUPTED, UNWANTED = "interrupted", "stopped on request"
MAX_LOST_NODES = 20  # under one trial: it may be what brings them down


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """What a coordinator calls of the session around it; by default, nothing."""

    listen: Callable[[Change], None] = lambda change: None  # to each change, once it is logged
    stop: Callable[[], None] = lambda: None  # no more trials start, and the running ones are to end
    look: Callable[[Coordinator], None] = lambda coordinator: None  # often: may ask it to stop
    tick: Callable[[Coordinator], None] = lambda coordinator: None  # now and then: may ask it to stop
    say: Callable[[str], None] = lambda text: None  # a line for the user
    share: Callable[[Mapping[int, float]], None] = lambda wanted: None  # running trials and their new shares of a GPU
    at_once: Callable[[float], int] = lambda gpus: parts(1.0, gpus)  # trials that fit, of so many GPUs each
    to_beat: Callable[[], float | None] = lambda: None  # see `Order`
    kept: Callable[[int, int], str | None] = lambda trial, epoch: None  # the checkpoint of a trial's epoch, for `Facts`
    inherit: Callable[[TrialStarted], str] = lambda started: ""  # a copy its parent's checkpoint; why not
    memo: Memo | None = None  # what earlier sweeps have trained
    clock: Callable[[], float] = time.monotonic


class Coordinator:
    """Drives one sweep for a backend, which calls the methods of `Driver` and obeys their answers."""

    def __init__(
        self,
        spec: Spec,
        devices: Devices,
        searcher: Searcher,
        scheduler: Scheduler,
        log: Log,
        hooks: Hooks | None = None,
    ) -> None:
        self._spec = spec
        self._terms = Terms(spec)
        self._objective, self._target = spec.objectives[0], spec.metrics[0].target
        self._hooks = hooks = hooks or Hooks()
        self._sharing = Sharing(devices, hooks.at_once, auto=spec.resources.gpus == "auto", total=spec.all_trials)
        self._searcher = searcher
        self._scheduler = scheduler
        self._log = log
        self._ledger = Ledger(keep_epochs=False)
        self._auxiliary = AuxiliaryTrials(spec, self._terms, self._ledger)
        self._limits = Limits(spec)
        self._watch = Timeouts(spec.resources, hooks.clock)
        self._open: dict[int, OpenTrial] = {}
        self._out: set[int] = set()  # trials that a worker has, or should have
        self._doomed: list[int] = []  # ended trials of which workers are to be killed
        self._dying: set[int] = set()  # those of them that are tried again, once their workers are gone
        self._again: deque[int] = deque()  # trials of an earlier session, to be gone on with
        self._known_data: set[str] = set()  # fingerprints of data that a worker has met in this session
        self._upcoming = Upcoming(searcher, self._limits.cap)
        self._parent = searcher.parent if isinstance(searcher, Population) else lambda place: None
        self._pauses = Pauses(searcher, scheduler, self._open)
        self._resumed = False
        self._is_open = False  # all of the log has been replayed
        self._all_started = False  # the searcher has no more, or the cap is reached
        self._confirming = False  # the search has ended, and nothing that ends it counts any more
        self.completed = 0
        self.stopping: str | None = None
        self.error: TrainableError | None = None
        self.fault: str | None = None  # why the sweep cannot go on now, though nothing is wrong with it

    @property
    def exhausted(self) -> bool:
        return self._upcoming.exhausted  # whether the searcher had no more trials, before any cap

    @property
    def confirmed(self) -> str:
        """How the fresh seeds of finalists came to an end; empty where they did not."""
        return self._auxiliary.race().over if self._confirming else ""

    @property
    def room(self) -> int | None:
        """How many trials run at once by their shares of GPUs; None where these are fixed."""
        return self._sharing.room if self._sharing.auto else None

    @property
    def left(self) -> int | None:
        """How many trials may still be given out; None where nobody knows."""
        total = self._spec.all_trials
        return None if total is None else max(total - len(self._ledger.trials), 0) + len(self._again)

    @property
    def running(self) -> int:
        """Trials that a worker has, or should have."""
        return len(self._out) + len(self._dying)

    def recall(self, event: Event) -> Change:
        """Learn what happened in an earlier session, before this one starts, and return what it means."""
        self._resumed = True
        return self._learn(event)

    def open(self, events: Iterable[Event] = (), *, retry_failed: bool = False, confirming: bool = False) -> int:
        """Start a session, after `recall` of the log so far or with it; the number of trials tried again.

        One that is ``confirming`` leaves the search as it is.
        """
        self._confirming = confirming
        for event in events:
            self.recall(event)
        self._is_open = True
        self._emit([SessionStarted(time=time.time(), resumed=self._resumed, version=VERSION)])
        self._emit([end for trial in self._open.values() if (end := self._recovered(trial))])
        states = self._ledger.trials.values()
        failed = [one.number for one in states if one.status is Status.FAILED] if retry_failed else []
        again = partial(TrialEnded, status=Status.INTERRUPTED, reason="tried again", time=time.time(), again=True)
        self._emit([again(trial=trial) for trial in failed])
        there = [one for trial, one in self._open.items() if self._auxiliary.has(trial) or not confirming]
        self._again.extend(one.state.number for one in sorted(there, key=lambda one: (one.paused, one.state.number)))
        self._sharing.connect(self._hooks.say, self._hooks.share)
        return len(failed)

    def next(self, worker: str = "") -> Order | None:
        """Return the next trial for a free worker; None when there is none left to start."""
        while not self._is_stopping():
            self._drop()
            trial = self._chosen(worker)
            if trial is None:
                return None
            if not self._inherits(trial):
                continue
            answer = self._recall(trial)
            if answer is not None and answer.data in self._known_data:
                self._answer(trial, answer)
                answer = None
            given = trial.started.trial in self._open and trial.started.trial not in self._again
            if given and not self.stopping:
                self._out.add(trial.started.trial)
                trial.interrupted = False
                known_data = answer.data if answer else None
                devices = self._sharing.devices(trial.started.trial, trial.started.params)
                return self._terms.order(trial, devices, self._hooks.to_beat(), known_data)
        return None

    def _chosen(self, worker: str) -> OpenTrial | None:
        """Return the next trial to be trained: one that is gone on with, a new one, or the last that pauses."""
        ready = self._pauses.ready(self._again)
        if ready is None:
            started = self._start(worker)
            searching = not all(self._auxiliary.has(trial) for trial in (*self._out, *self._dying))
            if started is not None or self._confirming or searching:
                return started
            ready = self._pauses.last()
        if ready is None:
            return self._start(worker) if self._drop(rest=True) else None  # fresh seeds, now that the search is over
        self._again.remove(ready)
        return self._open[ready]

    def _drop(self, *, rest: bool = False) -> bool:
        """End those that pause for good, as far as no worker has them; whether there are any."""
        ends = [end for end in self._pauses.dropped(rest=rest) if end.trial not in self._out]
        for end in ends:
            self._dismiss(self._open[end.trial], end)
        return bool(ends)

    def _leave(self, trial: OpenTrial, facts: Facts) -> bool:
        """Leave a trial that pauses where it has come to; whether it does and that is logged."""
        end = self._pauses.end(trial, facts)
        if end is None or not self._emit([end]):
            return False
        self._again.append(trial.state.number)
        return True

    def _inherits(self, trial: OpenTrial) -> bool:
        """Give a copy the checkpoint of its parent, which has all epochs up to it; whether it can be trained."""
        started = trial.started
        if started.parent is None or started.parent_epoch is None or trial.state.epoch >= started.parent_epoch:
            return True
        why = self._hooks.inherit(started)
        if why:
            self._dismiss(trial, trial.end(Status.FAILED, why, Facts()))
        return not why

    def begun(self, trial: int) -> None:
        """Hear that a worker begins a trial: from now on its time counts."""
        if trial in self._out:
            self._watch.begin(trial)

    def tick(self) -> list[int]:
        """Look at the clock; the trials that have ended so that their workers must be killed."""
        self._hooks.look(self)
        if self._watch.is_due():
            self._hooks.tick(self)
            self._limits.drive(self._watch.session_s, self._watch.under_way_s)
            self._check_limits()
            for trial, reason in self._watch.overdue():
                self._dismiss(self._open[trial], self._open[trial].end(Status.FAILED, reason, Facts()))
        doomed, self._doomed = self._doomed, []
        return doomed

    def take(self, trial: int, progress: Progress) -> bool:
        """Take in what a step brought; whether the trial goes on."""
        self._hooks.look(self)
        there = self._open.get(trial)
        if there is None or trial not in self._out:  # a worker that was given up for lost came back
            return False
        self._watch.hear(trial, len(progress.epochs), progress.together)
        self._limits.drive(self._watch.session_s, self._watch.under_way_s)  # what is reported is no longer under way
        self._upcoming.heard(trial, progress)
        self._sharing.hear(trial, progress)
        there.accumulate, there.outgrown = progress.accumulate or there.accumulate, progress.outgrown
        fresh, lacks = self._terms.fresh(there, progress.epochs, progress.facts)
        end = lacks or progress.end
        end = end and self._terms.spared(end, there.state.retries)
        if progress.fault:
            self._fail(progress.fault)
        if not self._check_first(fresh, end) or not self._hear(there, fresh, end):
            self._out.discard(trial)
            return False
        if trial in self._out and (overdue := there.overdue()):
            self._emit([structs.replace(overdue, facts=progress.facts)])
        elif there.unwanted and trial in self._open:
            self._emit([structs.replace(there.dismissed(UNWANTED), facts=progress.facts)])
        elif end and end.again and trial not in self._out:
            self._wait(trial, spoilt=progress.spoilt is not None)
        elif trial in self._out and fresh and self._pauses.why(there):
            self._leave(there, progress.facts)
        elif trial in self._out and progress.moves:
            self._watch.end(trial)
            self._out.discard(trial)
            self._wait(trial, spoilt=progress.spoilt is not None)
        elif trial in self._out and progress.data_known and (answer := self._recall(there)):
            self._known_data.add(answer.data)
            if self._answer(there, answer) and trial in self._out:  # its worker has begun it without the checkpoint
                self._out.discard(trial)
                self._again.appendleft(trial)
        return trial in self._out

    def lose(self, trial: int, reason: str, lost: Lost = "worker") -> bool:
        """Hear that a trial's worker is gone; return whether another one takes the trial over, as it does a few times.

        A lost node is rarely the trial's fault, and does not count as one of these; one that is taken away never is.
        """
        if trial in self._dying:
            self._dying.discard(trial)
            if trial in self._open:  # somebody may have asked that it be stopped
                self._again.append(trial)
            return False
        there = self._open.get(trial)
        if there is None or trial not in self._out:
            return False
        self._watch.end(trial)
        self._upcoming.lost(trial)
        if there.outgrown and not there.unwanted:  # it needs another process
            there.outgrown, there.moved = False, True
            self._out.discard(trial)
            self._again.appendleft(trial)
            return False
        there.restarts += lost == "worker"
        there.lost_nodes += lost == "node"
        if there.unwanted:
            self._emit([there.dismissed(UNWANTED)])
            return False
        if there.restarts > self._spec.max_restarts or there.lost_nodes > MAX_LOST_NODES:
            times = there.restarts + there.lost_nodes - 1
            end = there.end(Status.FAILED, f"{reason}, after {times} restarts", Facts())
            end = self._terms.spared(end, there.state.retries)
            if self._emit([end]) and end.again:
                self._again.append(trial)
            return end.again
        self._out.discard(trial)
        self._again.appendleft(trial)
        return True

    def stop(self, reason: str) -> None:
        """Start no more trials, and let the running ones end after their present epoch."""
        if not self.stopping:
            self.stopping = reason
            self._hooks.stop()

    def stop_trial(self, trial: int, *, now: bool = False) -> None:
        """End one trial for good, after its present epoch or ``now``."""
        there = self._open.get(trial)
        if there is None:
            return
        there.unwanted = True
        if now or trial not in self._out:
            self._dismiss(there, there.dismissed(UNWANTED))

    def close(self) -> bool:
        """End the session: what has not ended is interrupted. Return whether it came to its end, or to a limit."""
        asked = self.stopping in (INTERRUPTED, UNWANTED)
        late = asked and self._auxiliary.complete()  # nothing was left to stop
        self.stopping = None if late else self.stopping
        there = [trial for trial in self._open if self._auxiliary.has(trial) or not self._confirming]
        finished = late or (not self.stopping and not there and self._all_started)
        reason = "finished" if finished else self.stopping or "the backend gave up"
        ends = [one.end(Status.INTERRUPTED, reason, Facts()) for one in self._open.values() if not one.interrupted]
        self._emit([*ends, SessionEnded(time=time.time(), reason=reason)])
        return finished or not (asked or self.stopping is None)

    def crash(self, error: BaseException) -> None:
        """End the session as a kill would: what is known of the trials may not be what is in the log."""
        with suppress(StoreError):
            reason = f"crashed: {in_short(error)}"
            self._log.append([SessionEnded(time=time.time(), reason=reason)])

    def _is_stopping(self) -> bool:
        self._hooks.look(self)
        return self.stopping is not None

    def _dismiss(self, trial: OpenTrial, end: TrialEnded) -> None:
        """End a trial without waiting for its worker, if one has it."""
        number = trial.started.trial
        end = self._terms.spared(end, trial.state.retries)
        if number in self._out:
            self._doomed.append(number)
            self._upcoming.lost(number)
        if number in self._again:
            self._again.remove(number)
        if self._emit([end]) and end.again:
            self._wait(number, spoilt=True)
        self._out.discard(number)  # also where the log could not be written
        self._watch.end(number)

    def _start(self, worker: str) -> OpenTrial | None:
        """Log a new trial; None when there is none to start."""
        started = self._auxiliary.baseline()
        if started is None and not self._confirming and (chosen := self._upcoming.choose(worker)) is not None:
            started = self._auxiliary.searched(*chosen, self._parent(chosen[0]))
        self._all_started = started is None
        searching = not self._confirming and any(not self._auxiliary.has(trial) for trial in self._open)
        if started is None and self._spec.confirm and not searching:
            self._confirming = True
            started = self._auxiliary.confirmation()
        return self._open[started.trial] if started and self._emit([started]) else None

    def _recall(self, trial: OpenTrial) -> Answer | None:
        return self._hooks.memo.recall(trial.started, trial.epochs, trial.state.epoch) if self._hooks.memo else None

    def _answer(self, trial: OpenTrial, answer: Answer) -> bool:
        """Let an earlier sweep's epochs stand for this trial's, as far as the scheduler lets it come."""
        kept = self._hooks.memo.hand_over(answer, trial.started.trial) if self._hooks.memo else None
        if not (kept or answer.whole):
            return False
        epochs, lacks = self._terms.fresh(trial, answer.epochs, answer.facts)
        if not self._check_first(epochs, lacks) or not self._hear(trial, epochs, lacks):
            return False
        has_ended = trial.started.trial not in self._open
        if has_ended or self._pauses.why(trial):
            return has_ended or self._leave(trial, Facts())
        end = trial.overdue()
        facts = answer.facts
        if answer.whole and (end is None or (end.status is Status.COMPLETED and not end.at_target)):
            end, facts = trial.end(Status.COMPLETED, answer.reason, Facts()), structs.replace(facts, checkpoint=kept)
        return end is None or self._emit([structs.replace(end, facts=facts, memo=answer.source)])

    def _hear(self, trial: OpenTrial, epochs: Sequence[EpochReported], end: TrialEnded | None = None) -> bool:
        """Log epochs as far as the trial may come, and its end if it comes there; whether they are logged."""
        part: list[Event] = []
        for epoch in epochs:
            part.append(epoch)
            ends = self._objective.diverged(epoch) or self._objective.reached(self._target, epoch.metrics)
            if (ends or epoch.epoch in trial.decisions) and epoch is not epochs[-1]:
                if not self._emit(part):
                    return False
                part = []
                if trial.verdict or trial.diverged or trial.reached or self._pauses.why(trial):
                    return True
        return self._emit([*part, end] if end else part)

    def _emit(self, events: Sequence[Event]) -> bool:
        """Log, then act; whether it is logged. Nothing is acted upon that is not."""
        if not events:
            return True
        events = self._watch.stamp(self._judged(events))
        try:
            self._log.append(events)
        except StoreError as error:
            self._fail(str(error))
            return False
        for event in events:
            self._hooks.listen(self._learn(event))
        self._check_limits()
        return True

    def _judged(self, events: Sequence[Event]) -> Sequence[Event]:
        """Return events with the ends of trials as the constraints over their last metrics have them."""
        if not self._spec.constraints:
            return events
        last = {number: trial.state.last for number, trial in self._open.items()}
        found: list[Event] = []
        for event in events:
            if isinstance(event, EpochReported):
                last[event.trial] = event.metrics
            found.append(self._terms.judged(event, last[event.trial]) if isinstance(event, TrialEnded) else event)
        return found

    def _check_limits(self) -> None:
        if not self._confirming and self._limits.reached:
            self.stop(self._limits.reached)

    def _fail(self, fault: str) -> None:
        self.fault = self.fault or fault
        self.stop(fault)

    def _learn(self, event: Event) -> Change:
        """Change all state by one event, whether it is new or replayed, and return what it means."""
        change = self._ledger.observe(event)
        self._auxiliary.observe(change)
        verdict, heard = None, searched(change)
        if heard and (isinstance(change, Session) or not change.trial.reopened):  # else they have had its end
            self._searcher.observe(heard)
            verdict = self._scheduler.observe(heard)
        if heard:
            self._limits.observe(change)
        self._sharing.observe(change)
        match change:
            case Started(state):
                epochs = self._spec.trial_epochs(state.params)
                if state.place is None:
                    self._open[state.number] = OpenTrial(state, epochs, ())
                else:
                    self._upcoming.started(state.place)
                    self._open[state.number] = self._pauses.open(state, epochs)
            case Reported(state, report):
                trial = self._open[state.number]
                trial.verdict, trial.interrupted = verdict, False
                self._pauses.note(trial, paused=False)
                trial.diverged = self._objective.diverged(report)
                trial.reached = self._objective.reached(self._target, report.metrics) if heard else None
                if not self._is_open:
                    self._watch.recall(state.number, report.time_s)
            case Interrupted(state, end):
                self._out.discard(state.number)
                self._open[state.number].interrupted = True
                self._pauses.note(self._open[state.number], paused=end.waits)
                self._watch.end(state.number)
            case Reopened(state):  # no scheduler decides about it any more
                epochs = self._spec.trial_epochs(state.params)
                self._open[state.number] = OpenTrial(state, epochs, (), interrupted=True)
            case Ended(state):
                self._out.discard(state.number)
                self._upcoming.ended(state.number)
                self._watch.end(state.number)
                del self._open[state.number]
                self.completed += state.status is Status.COMPLETED
            case _:
                pass
        return change

    def _check_first(self, epochs: Sequence[EpochReported], end: TrialEnded | None) -> bool:
        """Return whether the sweep may go on: its first trial did not fail for what every other would fail for."""
        if end and end.incompatible and not epochs and not any(one.reported for one in self._ledger.trials.values()):
            self.error = TrainableError(end.reason)
            self.stop(end.reason)
        return self.error is None

    def _wait(self, trial: int, *, spoilt: bool) -> None:
        """Let a trial be tried again, but not before its spoilt worker is gone: `lose` tells."""
        if spoilt:
            self._dying.add(trial)
        else:
            self._again.append(trial)

    def _recovered(self, trial: OpenTrial) -> TrialEnded | None:
        """Return the end that a killed driver could not write any more, with what is known of the trial.

        Or that it pauses, where the sweep was stopped just then: those who learn from it hear of no other interruption.
        """
        end, state = trial.overdue(), trial.state
        facts = structs.replace(state.facts, checkpoint=self._hooks.kept(state.number, state.epoch))
        if end is None and not state.paused:
            return self._pauses.end(trial, facts)
        return structs.replace(end, facts=facts) if end and end.status is Status.COMPLETED else end
