"""Groups of trials that one session trains together, each of which looks like a trial by itself.

A trial begins, saves and restores as it does alone: the session's one program gets its state and gives it back. Only
training differs: a `Stack` holds the states of all trials side by side and trains their epochs at once. When a trial
ends, its place in the stack stays empty, until a smaller stack is worth the time of tracing it.
"""

from __future__ import annotations

import math
import time
import timeit
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from sweep.contract import Apart, Assignment, EpochReported, Facts, Report, Stopped, Trainable
from sweep.errors import describe_without_type
from trainables.data.chunks import ArraySplit, Chunk, count_updates
from trainables.fused.stack import Stack, StackedBatches
from trainables.loop.graph_program import GraphProgram
from trainables.loop.program import Evaluated, Trained, flatten_metrics
from trainables.loop.steps import CompiledStep
from trainables.loop.trial import ReadyTrial, Spent
from trainables.loop.update import Graph
from trainables.numbers import seeds
from trainables.recipe.refusals import Refused
from trainables.replicas import global_losses, random_layers
from trainables.state.program_variables import Arrays


def find_fusing_hindrance(trial: ReadyTrial) -> str:
    """Return why a trial cannot be trained together with others, as a phrase for messages; empty if it may be.

    Only the first reason is returned. Whether the trial fits to a certain other one is not asked, see `can_fuse`.
    """
    program = trial.program
    training = trial.assignment.training
    if not isinstance(program, GraphProgram):
        return "Model.fit or a parameter server trains them"
    if trial.placement.replicas.number > 1:
        return "each has several replicas"
    reasons = {
        "hooks or callbacks hear of their epochs": bool(trial.hooks or trial.callbacks),
        "they have phases": trial.span.last is not None,
        "training.run_eagerly is set": training.get("run_eagerly") is True,
        "updates go through XLA (training.jit_compile)": bool(program.xla.wanted),
        "weights are averaged over epochs (swa_from)": program.by_epoch is not None,
        "the first one is profiled": trial.assignment.profile is not None,
    }
    for why, applies in reasons.items():
        if applies:
            return why
    return _find_graph_hindrance(program.graph)


def _find_graph_hindrance(graph: Graph) -> str:
    """Return why a graph cannot train several trials at once, as a phrase for messages; empty if nothing is known.

    Only the first reason is returned.
    """
    if not isinstance(graph.step, CompiledStep):
        return "train_step() is one's own"
    reasons = {
        "batches are cut (micro_batches)": not graph.whole,
        "gradients are scaled (mixed_float16)": graph.loss_scale is not None,
        "weights are averaged (ema_momentum)": graph.average is not None,
        "updates are sharpness-aware (sam_rho)": graph.recipe.sharpness,
        "a hook hears of each update": graph.watch is not None,
    }
    for why, applies in reasons.items():
        if applies:
            return why
    return ""


def _graph_program(trial: ReadyTrial) -> GraphProgram:
    """Return a trial's program; raises Refused if `Model.fit` or a parameter server trains it."""
    if not isinstance(trial.program, GraphProgram):
        raise Refused(find_fusing_hindrance(trial))
    return trial.program


def can_fuse(trial: ReadyTrial, other: ReadyTrial) -> bool:
    """Return whether two trials can be trained together.

    They can if they have the same program, data, batch size, batches per epoch and validation data. If the data do not
    stay on the device, they must have the same seed as well. Whether ``trial`` can be trained together with any other
    is not asked, see `find_fusing_hindrance`.
    """
    return (
        trial.program is other.program
        and trial.walk.data is other.walk.data
        and (trial.walk.batch_size, trial.walk.per_epoch)
        == (other.walk.batch_size, other.walk.per_epoch)
        and trial.held_out == other.held_out
        and (trial.assignment.seed == other.assignment.seed or stays_on_device(trial))
    )


def stays_on_device(trial: ReadyTrial) -> bool:
    """Return whether the training examples stay on the device, so that each trial can visit them in its own order."""
    return isinstance(trial.walk.data, ArraySplit) and trial.walk.data.stays


def get_stream_key(trial: ReadyTrial, state: Arrays) -> tuple[Any, ...]:
    """Return a key that is equal for trials of one stream: they see the same batches and draw the same random numbers.

    It has the seed, the epoch, and the values of the seed generators in ``state``, the trial's variables by path.
    """
    program = trial.program
    generators = random_layers.list_generators(program.networks)
    generator_ids = set()  # of the variables that hold the states of generators
    for generator in generators:
        generator_ids.add(id(generator.state.value))
    generator_values = []
    for path in program.state:
        if id(program.state[path].raw) in generator_ids:
            generator_values.append(state[path][0].tobytes())  # of the first replica
    return trial.assignment.seed, trial.epoch, *generator_values


COMPARED, TOLERANCE = 6, 1e-4
"""Number of updates after which the losses of training together and alone are compared, and the allowed difference."""
MEASURED, REPEATED = 24, 3
"""Number of updates that are timed to measure speed, and how often they are timed; the least time counts."""


class SuspendableSession(Trainable, Protocol):
    """The methods of a session that a group needs: to train one trial at a time, and to switch between trials."""

    @property
    def depends_on(self) -> object:
        """The files that results depend on besides code and data, as the author's class names them; None: no such."""

    @property
    def trial(self) -> ReadyTrial:
        """The present trial."""

    def capture_trial(self) -> Any:
        """Return the present trial with what `resume_trial` needs, so that another trial can begin.

        The program's state is not included.
        """

    def resume_trial(self, suspended: Any) -> None:
        """Make a suspended trial the present one again, without changing the state of the program."""

    def fits(self, assignment: Assignment, other: ReadyTrial) -> bool:
        """Return whether a trial that has not begun would use the program and the data of ``other``."""


@dataclass(eq=False)
class Member:
    """One trial of a group, as a `sweep.contract.Trainable` for its worker."""

    group: FusedGroup
    suspended: Any = field(default=None, repr=False)  # the suspended trial
    trial: ReadyTrial = field(init=False, repr=False)
    # values of its variables while it is in no stack
    state: Arrays = field(default_factory=dict, repr=False)
    # its live numbers, by the ids of their variables
    numbers: Mapping[int, float] = field(default_factory=dict, repr=False)

    @property
    def depends_on(self) -> object:
        """The files that results depend on besides code and data, as the author's class names them; None: no such."""
        return self.group.depends_on

    def begin(self, assignment: Assignment) -> None:
        """Begin a trial in the group, in place of this member's former one; it becomes the session's present trial.

        Raises Apart if it cannot be trained together with the others, and what `TrialSession.begin` raises. The member
        is then not in the group.
        """
        self.group.begin(self, assignment)

    def train(self, report: Report) -> None:
        """Train this trial without the other trials of its group, as its session does.

        ``report`` is called after each epoch. Returns after the last epoch, or when ``report`` returns False. Raises
        what else ended the trial, such as Diverged or Stopped; unless it is Stopped, the member then leaves the group.
        """
        for error in self.group.train({self: report}).values():
            raise error

    def save(self, folder: Path) -> Callable[[], None] | None:
        """Make this member's trial the session's present one, and let the session copy its state for a checkpoint.

        Return the session's result: a function that writes the copy into ``folder``, or None if nothing is left to
        write.
        """
        return self.group.switch_to(self).save(folder)

    def restore(self, folder: Path) -> int:
        """Continue from a checkpoint, whether it was made in a group or alone; return its epoch.

        The trial becomes the session's present one. The member leaves its place in the stack, but not the group.
        """
        epoch = self.group.switch_to(self).restore(folder)
        self.group.suspend(self)
        return epoch

    def facts(self) -> Facts:
        """Return where and how this member's trial runs, and make it the session's present one, without its state."""
        return self.group.switch_to(self, state=False).facts()


@dataclass
class _StackPlaces:
    """Which member of a group has which place of a stack, and which stream each place reads."""

    stack: Stack
    members: list[Member | None]  # None for an empty place
    streams: list[int]  # number of the stream, by place

    def of(self, member: Member) -> int | None:
        """Return the place of a member, or None if it has none."""
        return next((place for place, there in enumerate(self.members) if there is member), None)

    @property
    def first_places(self) -> list[int]:
        """For each stream, the first place of the stack whose member belongs to it.

        The members of a stream have the same batches and random numbers. If all of them have left, it is the first
        place that has a member, of another stream. At least one place must have a member.
        """
        taken = []
        for place, member in enumerate(self.members):
            if member is not None:
                taken.append(place)
        firsts = []
        for stream in range(self.stack.streams):
            firsts.append(
                next((place for place in taken if self.streams[place] == stream), taken[0])
            )
        return firsts

    def trial(self, place: int) -> ReadyTrial:
        """Return the trial at a place; raises LookupError if the place is empty."""
        member = self.members[place]
        if member is None:
            raise LookupError(f"place {place} is empty")
        return member.trial

    def make_batches(
        self, chunks: Sequence[Chunk], count: int, size: int, numbers: Sequence[int]
    ) -> StackedBatches:
        """Return ``count`` batches of ``size`` examples for all places, made from one chunk for each stream.

        The last batch may have fewer examples. ``numbers`` has the number of each stream's first batch, counted since
        its trials began. Raises Refused unless all chunks share their tensors, as chunks of data that stay on the
        device do.
        """
        tensors = chunks[0].tensors
        first_places = self.first_places
        if any(chunk.tensors is not tensors for chunk in chunks):
            raise Refused(
                "trials of several seeds read examples that do not stay on the device in orders of their own"
            )
        orders = np.stack([chunk.order for chunk in chunks]).astype(np.int64)
        stream_seeds = []
        for place in first_places:
            stream_seeds.append(seeds.truncate_seed(self.trial(place).assignment.seed))
        return StackedBatches(
            tensors=tensors,
            orders=tf.constant(orders),
            count=tf.constant(count),
            size=tf.constant(size),
            seeds=tf.constant(stream_seeds),
            numbers=tf.constant(numbers),
            first=tf.constant(first_places),
            of=tf.constant(self.streams),
        )


class FusedGroup:
    """Trials of a session that are trained together, as a `sweep.contract.Group`."""

    def __init__(self, session: SuspendableSession) -> None:
        self._session = session
        self._begun: list[Member] = []  # the members of the group
        self._places: _StackPlaces | None = None  # the present stack; None: no member is in a stack
        self._trained_s = 0.0  # time for which trials were trained together

    @property
    def depends_on(self) -> object:
        """The files that results depend on besides code and data, as the author's class names them; None: no such."""
        return self._session.depends_on

    def member(self) -> Trainable:
        """Return a trainable for one more trial, which joins the group when it begins."""
        return Member(self)

    def begin(self, member: Member, assignment: Assignment) -> None:
        """Begin a member's trial in the session and store it in the member, whose previous trial is discarded.

        Raises Apart if it cannot be trained together with the group's other trials, and what the session's `begin`
        raises. The member is then not in the group.
        """
        self.leave(member)
        first = self._begun[0] if self._begun else None
        # Tested before the trial begins, which would end the session's present one. A program that is not kept cannot
        # be used by another trial.
        if first is not None and not (
            first.trial.program.kept and self._session.fits(assignment, first.trial)
        ):
            raise Apart("another structure, or other data or another order of them")
        self._session.begin(assignment)
        self.suspend(member)
        # What only a trial that has begun tells, such as its batches.
        if first is not None and not can_fuse(member.trial, first.trial):
            raise Apart("another batch size, or another way through the data")
        self._begun.append(member)

    def suspend(self, member: Member) -> None:
        """Store the session's present trial, with copies of its program's variables and live numbers, in this member.

        The member leaves its place in the stack. The trial stays the session's present one.
        """
        self._remove_from_stack(member)
        program = self._session.trial.program
        member.suspended = self._session.capture_trial()
        member.trial = self._session.trial
        member.state = program.state.copy_all()
        member.numbers = {}
        if program.kept:
            member.numbers = {id(v): float(v.numpy()) for v in program.live.variables}

    @property
    def is_open(self) -> bool:
        """Whether further trials may begin while others are training; False for a group without members.

        New trials read other batches than running ones, so the examples must stay on the device, and each epoch must
        begin with a pass, or batches would be of other sizes. New trials also need a stack of several streams, whose
        trials have batches and random numbers of their own. If there is none, one must be traced, which is only allowed
        if the trials have trained together for longer than the longest trace of a stack has taken.
        """
        if not self._begun:
            return False
        for member in self._begun:
            walk = member.trial.walk
            begins_with_a_pass = walk.per_epoch % walk.per_pass == 0
            if not stays_on_device(member.trial) or not begins_with_a_pass:
                return False
        stacks = getattr(self._begun[0].trial.program, "stacks", ())
        if any(stack.streams > 1 for stack in stacks):
            return True
        longest_trace_s = max((stack.trace_s for stack in stacks), default=math.inf)
        return self._trained_s > longest_trace_s

    def leave(self, member: Trainable) -> None:
        """Remove a member from the group and discard its state; its place in the stack becomes empty.

        Nothing happens if it is no member of a group, or has left.
        """
        if isinstance(member, Member):
            self._remove_from_stack(member)
            member.state = {}
            self._begun = [other for other in self._begun if other is not member]

    def switch_to(self, member: Member, *, state: bool = True) -> SuspendableSession:
        """Make the trial of a member, which has begun, the session's present one, and return the session.

        With ``state``, the trial's values are also assigned to the variables of its program. The member keeps its place
        in the stack.
        """
        self._session.resume_trial(member.suspended)
        if state:
            member.trial.program.state.assign(self._state(member))
        return self._session

    def train(self, reports: Mapping[Trainable, Report]) -> Mapping[Trainable, Exception]:
        """Train the members in ``reports`` together, epoch by epoch, and call each one's report after each epoch.

        A report gets the results of the epoch and returns whether to go on. Stops after an epoch in which a report
        returns False or a trial ends, and returns an exception for each trial that has ended: `Stopped` if it is
        finished, and otherwise its error. Members that ended with an error leave the group. Raises Apart, before any
        training, if the trials cannot be trained together, or are faster one after the other.

        Members whose next epoch begins elsewhere in a pass than that of the first, which ``steps_per_epoch`` may cause,
        are not trained, and get Apart.

        A single member is trained as if there were no group, until ``report`` returns False or the trial ends. If it
        has trained its last epoch, no exception is returned for it.
        """
        members = [member for member in reports if isinstance(member, Member)]
        raised = self._remove_misplaced(members)
        if len(members) == 1:
            self._train_alone(members[0], reports[members[0]], raised)
            return raised
        self.check_gain(members)
        goes_on = True
        while goes_on:
            with ExitStack() as stack:
                for member in members:
                    stack.enter_context(member.trial.gauges.ending())
                for member, conclude in zip(members, self._train_epoch(members), strict=True):
                    try:
                        goes_on &= reports[member](conclude())
                        if member.trial.finished:
                            raise Stopped(member.trial.stopped)  # stored like an error, see below
                    except Exception as error:  # ends this trial alone
                        raised[member] = error
            goes_on &= not raised
        for member in members:
            error_of_member = raised.get(member)
            # a finished trial may still be saved
            if error_of_member is not None and not isinstance(error_of_member, Stopped):
                self.leave(member)
        return raised

    # ---- members and their places

    def _remove_from_stack(self, member: Member) -> None:
        """Make a member's place in the stack empty, if it has one; without any members left, the stack is released."""
        if self._places is None or (place := self._places.of(member)) is None:
            return
        self._places.members[place] = None
        if not any(self._places.members):
            self._places = None

    def _remove_misplaced(self, members: list[Member]) -> dict[Trainable, Exception]:
        """Remove the members whose next epoch begins elsewhere in a pass over the data than that of the first member.

        They leave the group and the list ``members``; return Apart for each. Epochs differ like this if they are not
        whole passes (``steps_per_epoch``): in one of them a pass may end, with a smaller batch.
        """
        raised = dict[Trainable, Exception]()
        offsets = [one.trial.walk.offset_in_pass(one.trial.epoch + 1) for one in members]
        for member, offset in zip([*members], offsets, strict=True):
            if offset != offsets[0]:
                raised[member] = Apart("its next epoch begins elsewhere in a pass over the data")
                members.remove(member)
                self.leave(member)
        return raised

    def _state(self, member: Member) -> Arrays:
        """Return the values of a member's variables: those in the stack if it has a place there, else those stored."""
        if self._places is None:
            return member.state
        place = self._places.of(member)
        if place is None:
            return member.state
        return self._places.stack.arrays(place)

    def _place_members(self, members: Sequence[Member]) -> _StackPlaces:
        """Put the states of ``members`` into one stack, if they are not there yet, and return the members' places.

        The present stack is kept if it has exactly these members, unless a smaller one would save more time than its
        trace takes. Otherwise the states are copied to another stack, which may be a new one that is not traced yet,
        and all members of the present stack leave it; each keeps its state. Raises Refused if `Model.fit` or a
        parameter server trains the first member.
        """
        places = self._places
        if places is not None:
            members_there = []
            for member in places.members:
                if member is not None:
                    members_there.append(member)
            if {*members_there} == {*members} and not _is_smaller_worthwhile(places.stack, members):
                return places
            for member, state in zip(places.members, places.stack.states(), strict=True):
                if member is not None:  # also members that do not train now
                    member.state = state
        program = _graph_program(members[0].trial)
        keys = []
        for member in members:
            keys.append(get_stream_key(member.trial, member.state))
        number_of_stream = {}
        for number, key in enumerate(dict.fromkeys(keys)):
            number_of_stream[key] = number
        stack = _find_stack(program, members, several=len(number_of_stream) > 1)
        empty = stack.trials - len(members)
        # Empty places are computed as well: with the first member's values, which are sure to be valid.
        stack.put(
            [member.state for member in members] + [members[0].state] * empty,
            [member.numbers for member in members] + [members[0].numbers] * empty,
        )
        streams = [number_of_stream[key] for key in keys] + [0] * empty
        self._places = _StackPlaces(stack, [*members, *[None] * empty], streams)
        return self._places

    # ---- training

    def _train_alone(
        self, member: Member, report: Report, raised: dict[Trainable, Exception]
    ) -> None:
        """Train one member as its session trains a trial without a group, with ``report`` called after each epoch.

        An exception is stored in ``raised`` and not raised, and the member leaves the group, which discards its state.
        After `Stopped` or the last epoch its state is stored in the member, which may still be saved.
        """
        session = self.switch_to(member)
        try:
            session.train(report)
        except Stopped as error:
            raised[member] = error
            self.suspend(member)
        except Exception as error:  # as when several are trained
            raised[member] = error
            self.leave(member)
        else:
            self.suspend(member)

    def check_gain(self, members: Sequence[Member]) -> None:
        """Raise Apart if ``members`` cannot be trained together, or are faster one after the other.

        Traces a stack for them and, once per program, trains a few updates to compare losses and, if ``training.fuse``
        is auto, speed. The trials' states stay the same. Any error of the author's code or of TensorFlow meanwhile also
        becomes Apart.
        """
        trial = members[0].trial
        one_at_a_time = "trials of this structure are trained one at a time"
        try:
            why = find_fusing_hindrance(trial)
            if why:
                raise Refused(why)
            program = _graph_program(trial)
            with trial.placement.replicas.scope():
                self._trace(members)
                if program.gain is None:  # not measured yet
                    program.gain = self._measure_speedup(members)
        # of TensorFlow or the author's code, in a trace; nothing was trained
        except Exception as error:
            self._places = None
            raise Apart(f"{one_at_a_time}: {describe_without_type(error)}") from error
        gain = program.gain or 1.0  # how many times as fast the trials are together
        if gain < 1:
            raise Apart(
                f"{one_at_a_time}, which is {1 / gain:.2f} times as fast as {len(members)} together"
            )

    def _trace(self, members: Sequence[Member]) -> None:
        """Put ``members`` into one stack, and trace it if it is not traced yet.

        To trace it, the first chunks of the next epoch and of the validation data are read. Raises Refused if the
        members have different batches or random numbers and the examples do not stay on the device, and what
        `Stack.trace` raises.
        """
        places = self._place_members(members)
        trial = members[0].trial
        stack = places.stack
        if stack.streams > 1 and not stays_on_device(trial):
            raise Refused(
                "they read examples that do not stay on the device, each in an order of its own"
            )
        # Traced already: reading a stream again may fail, and discards what was read ahead.
        if stack.trace_s:
            return

        # Zero batches, of size 1: they are traced, and nothing is computed.
        def make_empty_batches(chunk: Chunk) -> StackedBatches:
            return places.make_batches([chunk] * stack.streams, 0, 1, [0] * stack.streams)

        held_out = trial.held_out
        if held_out is None:
            validation = None
        else:
            validation = make_empty_batches(next(iter(held_out.chunks())))
        train = make_empty_batches(next(trial.walk.read_epoch_again(trial.epoch + 1)))
        stack.trace(train, validation)

    def _measure_speedup(self, members: Sequence[Member]) -> float:
        """Train the first member's batches alone and in the stack, and return how many times as fast all are together.

        Speed is only measured if ``training.fuse`` is auto; otherwise 1 is returned. The members' states stay the same,
        but they leave the stack, and the first one's trial becomes the session's present one.
        Raises Refused if the losses differ. This happens with code that keeps a variable's tensor and reads it after an
        assignment: alone it gets the new value, and in a stack the old one.
        """
        places = self._place_members(members)
        stack = places.stack
        first = members[0]
        first_place = places.members.index(first)
        trial = first.trial
        program = _graph_program(trial)
        chunk = next(trial.walk.read_epoch_again(trial.epoch + 1))
        size = trial.walk.batch_size
        seed = trial.assignment.seed
        available = count_updates(len(chunk.order), size)
        # One rate for all updates. The first one may be 0, in a warmup; with an optimizer's own schedule, all but the
        # last are NaN.
        rate = np.nanmax(trial.rates())

        # Both train `count` updates of the first member's trial, and return sums over their batches by name.
        def alone(count: int) -> dict[str, float]:
            return program.try_updates(
                chunk, np.full(count, rate, np.float32), batch_size=size, seed=seed
            )

        def together(count: int) -> dict[str, float]:
            given = places.make_batches([chunk] * stack.streams, count, size, [0] * stack.streams)
            rates = np.full((count, stack.trials), rate, np.float32)
            sums, _ = stack.train(given, rates, stack.zeros(training=True))
            return {name: float(value[first_place]) for name, value in sums.items()}

        self.switch_to(first)  # gives the program the values from which `alone` starts
        count = min(COMPARED, available)
        expected = alone(count)
        found = together(count)
        for name, value in expected.items():
            broken = not (math.isfinite(value) or math.isfinite(found[name]))  # both alike
            bound = TOLERANCE * max(abs(value), 1.0)
            if not broken and not abs(value - found[name]) <= bound:
                raise Refused(
                    f"they are not what they are alone ({name} of {count} batches {value:g}, {found[name]:g})"
                )
        gain = 1.0
        if trial.assignment.training.get("fuse") == "auto":
            count = min(MEASURED, available)
            alone_s = _time_fastest(lambda: alone(count))
            together_s = _time_fastest(lambda: together(count))
            gain = len(members) * alone_s / together_s
        self._places = None  # the stack has trained; the members have kept their states from before
        return gain

    def _train_epoch(self, members: Sequence[Member]) -> list[Callable[[], EpochReported]]:
        """Train and validate the next epoch of all members at once.

        Return for each member, in order, a function that counts the epoch and returns its report, or raises Diverged.
        Each must be called once. The members are put into a stack before, which is traced if it is new.
        """
        with members[0].trial.placement.replicas.scope():
            places = self._place_members(members)
            # a new, smaller stack; the time of its trace is not the epoch's
            if not places.stack.trace_s:
                self._trace(members)
            began = time.perf_counter()
            rates = {member: member.trial.rates() for member in members}
            for member in members:
                member.trial.gauges.begin()
            trained = self._train_stack(places, rates)
            train_s = time.perf_counter() - began
            evaluated = self._evaluate_stack(places)
        time_s = time.perf_counter() - began
        places.stack.epoch_s = min(places.stack.epoch_s or time_s, time_s)
        self._trained_s += time_s
        spent = Spent(train_s / len(members), time_s / len(members), len(members))
        for member in members:
            member.trial.together = max(member.trial.together, len(members))
        conclusions = []
        for member in members:
            place = places.members.index(member)
            conclusions.append(
                _make_conclusion(
                    member.trial, rates[member], trained[place], evaluated[place], spent
                )
            )
        return conclusions

    def _train_stack(
        self, places: _StackPlaces, rates: Mapping[Member, np.ndarray[Any, Any]]
    ) -> list[Trained]:
        """Train one epoch of all trials in a stack; return a result for each place, including empty ones.

        ``rates`` has the learning rate of each update by member. Stops early once the trials at all places, including
        those computed at empty ones, have diverged.
        """
        stack = places.stack
        trials = []  # one of each stream: the others of a stream have the same batches
        for place in places.first_places:
            trials.append(places.trial(place))
        size = trials[0].walk.batch_size
        rates_by_place = np.zeros((trials[0].walk.per_epoch, stack.trials), np.float32)
        for place, member in enumerate(places.members):
            if member is not None:
                rates_by_place[:, place] = rates[member]
        done = 0  # updates of this epoch
        seen = 0  # examples of this epoch
        waited = 0.0  # seconds for chunks
        sums = stack.zeros(training=True)
        finite = np.ones(stack.trials, bool)
        first_updates = []  # number of the epoch's first update, by stream
        for trial in trials:
            first_updates.append(trial.walk.first_update(trial.epoch + 1))
        # In each round, one chunk for each stream.
        chunks_of_streams = zip(
            *(trial.walk.epoch(trial.epoch + 1) for trial in trials), strict=True
        )
        asked = time.perf_counter()
        for chunks in chunks_of_streams:
            waited += time.perf_counter() - asked
            count = count_updates(len(chunks[0].order), size)
            numbers = [first + done for first in first_updates]
            given = places.make_batches(chunks, count, size, numbers)
            sums, finite_now = stack.train(given, rates_by_place[done : done + count], sums)
            finite &= finite_now.numpy()
            done = done + count
            seen = seen + len(chunks[0].order)
            if not finite.any():
                break
            asked = time.perf_counter()
        found = stack.reported(sums, seen, training=True)
        # An epoch's time is divided among the trials, and so is the time spent waiting.
        wait_s = waited / len(rates)
        results = []
        for place in range(stack.trials):
            metrics = flatten_metrics(found[place])
            results.append(Trained(metrics, bool(finite[place]), wait_s, seen))
        return results

    def _evaluate_stack(self, places: _StackPlaces) -> list[Evaluated | None]:
        """Evaluate all trials in a stack; return a result for each place, all of them None without validation data."""
        stack = places.stack
        trials = []  # one of each stream: the others of a stream draw the same random numbers
        for place in places.first_places:
            trials.append(places.trial(place))
        held_out = trials[0].held_out
        if held_out is None:
            return [None] * stack.trials
        sums = stack.zeros(training=False)
        size = held_out.part_size
        seen = 0  # examples
        numbers = []  # number of the next batch, by stream
        for trial in trials:
            numbers.append(held_out.first_batch(trial.epoch + 1))
        for chunk in held_out.chunks():
            count = count_updates(len(chunk.order), size)
            given = places.make_batches([chunk] * stack.streams, count, size, numbers)
            sums = stack.evaluate(given, sums)
            numbers = [number + count for number in numbers]
            seen = seen + len(chunk.order)
        # Names of the sums of examples' losses and of their squares, from which the deviation follows; empty if it is
        # not asked for. They are no losses to report.
        spread_names = stack.graph.step.spread
        totals = {}
        for name, total in sums.items():
            totals[name] = total.numpy()
        spreads = []  # by place
        for place in range(stack.trials):
            spreads.append([float(totals[name][place]) / seen for name in spread_names])
        totals = {name: total for name, total in totals.items() if name not in spread_names}
        found = stack.reported(totals, seen, training=False)
        evaluated: list[Evaluated | None] = []
        for values, spread in zip(found, spreads, strict=True):
            if spread:
                deviation = global_losses.compute_deviation(*spread)
                evaluated.append(Evaluated(flatten_metrics(values), deviation))
            else:
                evaluated.append(Evaluated(flatten_metrics(values)))
        return evaluated


def _make_conclusion(
    trial: ReadyTrial,
    rates: np.ndarray[Any, Any],
    trained: Trained,
    evaluated: Evaluated | None,
    spent: Spent,
) -> Callable[[], EpochReported]:
    """Return a function that counts a trial's epoch and returns its report, or raises Diverged.

    ``rates`` are the learning rates of the epoch's updates, ``trained`` and ``evaluated`` its results, and ``spent``
    the trial's share of the time. ``evaluated`` is ignored if a number of the training was not finite.
    """

    def conclude() -> EpochReported:
        return trial.conclude(rates, trained, evaluated if trained.finite else None, spent)

    return conclude


def _find_stack(program: GraphProgram, members: Sequence[Member], *, several: bool) -> Stack:
    """Return a stack with at least as many places as members: the smallest suitable one, or a new one.

    With ``several``, the members are in several streams: not all have the same batches and random numbers. A stack with
    one stream is not suitable then. Nor is a stack if a smaller one would save more time than its trace takes. A new
    stack is added to ``program.stacks``, not traced yet; it has one stream for each trial with ``several``, and
    otherwise one. It may have more places than there are members.
    """
    large_enough = []
    for one in program.stacks:
        if one.trials >= len(members) and not _is_smaller_worthwhile(one, members):
            large_enough.append(one)
    suitable: list[Stack] = []
    for one in large_enough:
        if one.streams > 1 or not several:
            suitable.append(one)
    if suitable:
        return min(suitable, key=lambda one: (one.trials, one.streams))
    # others may join the group and fill it again
    trials = max([len(members), *(one.trials for one in large_enough)])
    stack = Stack(program.graph, program.state, program.live, trials, trials if several else 1)
    program.stacks.append(stack)
    return stack


def _is_smaller_worthwhile(stack: Stack, members: Sequence[Member]) -> bool:
    """Return whether a stack without empty places would save more time than tracing it takes.

    The saved time is the empty places' share of the time for the epochs that remain to the member with the most.
    Tracing a smaller stack is assumed to take as long as tracing ``stack`` has taken. False if no place is empty, or
    the stack has not trained an epoch yet.
    """
    epochs_left = []
    for member in members:
        epochs_left.append(member.trial.assignment.epochs - member.trial.epoch)
    empty_share = 1 - len(members) / stack.trials
    wasted_s = empty_share * max(epochs_left) * stack.epoch_s
    return wasted_s > stack.trace_s


def _time_fastest(call: Callable[[], Any]) -> float:
    """Call a function several times; return the seconds of the fastest call."""
    return min(timeit.repeat(call, number=1, repeat=REPEATED))
