"""Population based training: Jaderberg et al. (2017), "Population Based Training of Neural Networks", section 3.

A population trains in generations of some epochs. At the end of each, its worst members are replaced by copies of its
best ones, which go on from their checkpoints with hyperparameters that are moved a little. A member is a trial as long
as its hyperparameters stay the same; a copy is a trial of its own, which has its parent's epochs up to the copy.

All members wait at the end of a generation until all are there, so that which are replaced, by what, depends on the
events alone and not on how fast anybody was: a sweep that is killed goes on the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from sweep.events import EpochReported, Event, Params, Status, TrialEnded, TrialStarted, Value
from sweep.searchers.novelty import first_new, independent_draws, uniform_numbers
from sweep.space import Parameter, Space
from sweep.space.domains import Categorical, Range, choices, key, snap
from sweep.space.draws import from_unit
from sweep.space.early_terminate import PopulationRules
from sweep.space.objectives import Objective
from sweep.store.ledger import TrialState

FACTORS = (0.8, 1.2)
"""By which numbers are moved; of choices in an order, the next one before or after."""
ATTEMPTS = 100  # to find hyperparameters that meet the constraints


@dataclass(frozen=True, slots=True)
class Parent:
    """Where a copy goes on from."""

    trial: int
    epoch: int


@dataclass(slots=True)
class _Member:
    params: Params
    epoch: int = 0
    losses: dict[int, float | None] = field(default_factory=dict)  # at the ends of generations
    status: Status = Status.RUNNING
    leaves: bool = False  # it has just trained to the end of a generation, and is to be left there

    @property
    def is_there(self) -> bool:
        return self.status in (Status.RUNNING, Status.INTERRUPTED)


class Population:
    """Chooses the members of a population and their copies, and says who waits and who is replaced.

    A searcher as others are, and as schedulers that let trials pause (`Pausing`): a function of the events as well.
    """

    foresees = False

    def __init__(
        self, space: Space, objective: Objective, seed: int, rules: PopulationRules, first: Iterable[Params] = ()
    ) -> None:
        self._space, self._objective, self._seed, self._rules = space, objective, seed, rules
        self._first = list(first)
        self._members: dict[int, _Member] = {}
        self._ends = rules.ends()
        self._done = 0  # generations that are over
        self._parents: list[Parent] = []  # of the copies, in the order in which their places fell free
        self._losers: dict[int, str] = {}  # why they are replaced

    def learn(self, past: Iterable[TrialState]) -> int:
        """Nothing to learn."""
        return 0

    # ---- as a searcher

    def suggest(self, number: int) -> Params | None:
        known = self._members.get(number)
        if known is not None:
            return known.params
        if number < self._rules.size:
            if number < len(self._first):
                return self._first[number]
            tried = {key(one.params) for one in self._members.values()}
            draws = independent_draws(self._space, self._seed, number)
            return first_new(self._space, draws, tried, uniform_numbers(self._seed, number))
        place = number - self._rules.size
        if place >= len(self._parents):
            return None
        return self._moved(self._members[self._parents[place].trial].params, number)

    def parent(self, number: int) -> Parent | None:
        """Return where a trial goes on from; None for one that begins anew."""
        place = number - self._rules.size
        return self._parents[place] if 0 <= place < len(self._parents) else None

    @property
    def waits(self) -> bool:
        """Whether there may be further trials, though none is to be started now."""
        return any(member.is_there for member in self._members.values())

    def observe(self, event: Event) -> None:
        match event:
            case TrialStarted():
                self._members[event.trial] = _Member(event.params)
            case EpochReported() if event.trial in self._members:
                member = self._members[event.trial]
                member.epoch, member.status = event.epoch, Status.RUNNING
                member.leaves = event.epoch in self._ends and event.memo is None
                if event.epoch in self._ends:
                    member.losses[event.epoch] = self._objective.standing(event.metrics)
            case TrialEnded() if event.trial in self._members:
                member = self._members[event.trial]
                member.status, member.leaves = event.status, False
            case _:
                return
        self._look()

    # ---- as a population

    def decision_epochs(self, epochs: int) -> tuple[int, ...]:
        """Return the epochs at which members are saved and wait."""
        return self._ends

    def holds(self, trial: int) -> str | None:
        """Return why a member waits: its generation is not over, or copies of those that wait have not started.

        One that comes to the end of a generation is left there even if it is the last: others may be made of what it
        has saved.
        """
        member = self._members.get(trial)
        if member is None:
            return None
        early = self._done < len(self._ends) and member.epoch >= self._ends[self._done]
        copied = member.status is Status.INTERRUPTED and member.epoch in self._ends and self._has_copies
        return f"waits for the others at epoch {member.epoch}" if member.leaves or early or copied else None

    @property
    def _has_copies(self) -> bool:
        """Whether there is a copy that has not started."""
        return len(self._members) < self._rules.size + len(self._parents)

    def last(self) -> int | None:
        """Return None: who waits does so for members that train."""
        return None

    def dropped(self, *, rest: bool) -> Mapping[int, str]:
        """Return the members that are replaced and have not ended yet, and why."""
        return {trial: why for trial, why in self._losers.items() if self._members[trial].is_there}

    def _look(self) -> None:
        """End the generation if all have come to its end."""
        while self._done < len(self._ends):
            end = self._ends[self._done]
            started = len(self._members) >= self._rules.size + len(self._parents)
            there = [one for one, member in self._members.items() if member.is_there and one not in self._losers]
            at_the_end = [one for one in there if self._members[one].epoch >= end]
            if not started or not at_the_end or len(at_the_end) < len(there):
                return
            self._replace(end, at_the_end)
            self._done += 1

    def _replace(self, end: int, there: list[int]) -> None:
        """Find copies for the places of the worst, and of those that failed since the generation before."""
        losses = {one: self._members[one].losses.get(end) for one in there}
        ranked = sorted(there, key=lambda one: (_worst(losses[one]), one))
        whole = [one for one in self._members.values() if one.status in (Status.COMPLETED, Status.INFEASIBLE)]
        lost = self._rules.size - len(there) - len(whole)
        count = min(self._rules.replaced, len(ranked) // 2)
        best, worst = ranked[: max(count, 1)], ranked[len(ranked) - count :] if count else []
        numbers = self._numbers(end)
        for trial in [*([None] * max(lost, 0)), *worst]:
            parent = best[int(numbers() * len(best))]
            self._parents.append(Parent(parent, end))
            if trial is not None:
                self._losers[trial] = f"pbt: trial {parent} takes its place, {self._words(losses, trial, parent)}"

    def _words(self, losses: Mapping[int, float | None], trial: int, parent: int) -> str:
        mine, theirs = losses[trial], losses[parent]
        name = self._objective.name
        if mine is None or theirs is None:
            return f"its {name} is not finite"
        return f"{name} {self._objective.of_loss(theirs):.6g} and {self._objective.of_loss(mine):.6g}"

    def _numbers(self, number: int) -> Callable[[], float]:
        sequence = np.random.SeedSequence([self._seed, number], spawn_key=(1,))
        return np.random.Generator(np.random.Philox(sequence)).random

    def _moved(self, params: Params, number: int) -> Params:
        """Return hyperparameters near those of a parent that meet the constraints; its own where none are found."""
        numbers = uniform_numbers(self._seed, number)

        def draw(parameter: Parameter) -> Value:
            name, domain = parameter.name, parameter.domain
            if name not in params:
                return from_unit(domain, numbers())
            if not self._is_moved(parameter):
                return params[name]
            if numbers() < self._rules.resample:
                return from_unit(domain, numbers())
            return _near(parameter, params[name], numbers() < 0.5)

        for _ in range(ATTEMPTS):
            found = self._space.feasible(draw)
            if found is not None:
                return found
        return params

    def _is_moved(self, parameter: Parameter) -> bool:
        if self._rules.perturb:
            return parameter.name in self._rules.perturb
        return isinstance(parameter.domain, Range)


def _near(parameter: Parameter, value: Value, down: bool) -> Value:
    domain = parameter.domain
    if isinstance(domain, Categorical):
        values = choices(domain) or (value,)
        place = [key(one) for one in values].index(key(value)) + (-1 if down else 1)
        return values[min(max(place, 0), len(values) - 1)]
    if isinstance(domain, Range) and isinstance(value, int | float):
        return snap(domain, value * FACTORS[0 if down else 1])
    return value


def _worst(loss: float | None) -> float:
    return math.inf if loss is None else loss
