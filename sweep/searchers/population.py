"""Population based training: Jaderberg et al. (2017), "Population Based Training of Neural Networks", section 3.

A population trains in generations of several epochs. After each, its worst members are replaced by copies of its best
ones, which continue from their checkpoints with perturbed hyperparameters. A member is a trial as long as its
hyperparameters stay the same; a copy is a new trial, which has its parent's epochs up to the copy.

Members wait at the end of a generation until all have reached it. So the events alone decide which members are replaced
and by what, not the speed of the workers, and a sweep that was killed continues in the same way.

With `method: pb2`, a model of all generations so far chooses the hyperparameters of copies
(`sweep.searchers.population_bandit`). The rest is the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from sweep.events import UNFINISHED, WHOLE, Event, Params, Status, Value
from sweep.searchers import population_bandit as bandit
from sweep.searchers.points import Draw, first_new, independent_draws, uniform_numbers
from sweep.space import Parameter, Space
from sweep.space.domains import Categorical, Range, get_quantum, key, list_choices, snap
from sweep.space.draws import from_unit
from sweep.space.early_terminate import PopulationRules
from sweep.space.objectives import INFEASIBLE, Objective
from sweep.store.ledger import Ledger, Reported, SessionChange, Steered, TrialState

FACTORS = (0.8, 1.2)
"""Factors by which numbers are perturbed. A choice is replaced by the one before or after it."""
ATTEMPTS = 100  # to find hyperparameters that meet the constraints


@dataclass(frozen=True, slots=True)
class Parent:
    """The trial from which a copy continues, and the epoch at which it was copied."""

    trial: int
    epoch: int


class Population:
    """Chooses the members of a population and their copies, and decides which members wait and which are replaced.

    It is a searcher, and pauses members by the protocol of schedulers that pause trials (`Pausing`). Its answers depend
    only on the observed events.
    """

    foresees = False

    def __init__(
        self,
        space: Space,
        objective: Objective,
        seed: int,
        rules: PopulationRules,
        first: Iterable[Params] = (),
    ) -> None:
        self._space = space
        self._objective = objective
        self._seed = seed
        self._rules = rules
        self._first = list(first)
        self._ledger = Ledger()
        self._members = self._ledger.trials  # by their numbers in the search
        # members that have just reached the end of a generation, and must pause there
        self._must_pause: set[int] = set()
        self._generation_ends = (
            rules.list_generation_ends()
        )  # epochs, without the last of the training
        self._generations_over = 0  # number of generations whose worst members were replaced
        self._parents: list[Parent] = []  # of the copies that are due or have started, by number
        self._why_replaced: dict[int, str] = {}  # replaced members, and why
        self._copies: dict[
            int, Params
        ] = {}  # hyperparameters of copies, so that each is chosen once
        perturbed = filter(self._is_perturbed, space.parameters)
        self._guide = _Guide(space, perturbed, seed) if rules.method == "pb2" else None

    def learn(self, past: Iterable[TrialState]) -> int:
        """Ignore the trials and return 0."""
        return 0

    # ---- as a searcher

    def suggest(self, number: int) -> Params | None:
        started = self._members.get(number)
        if started is not None:
            return started.params
        if number < self._rules.size:  # it starts from scratch
            return self._choose_start(number)
        parent = self.parent(number)
        if parent is None:  # no copy is due
            return None
        if number not in self._copies:
            self._copies[number] = self._perturb(parent, number)
        return self._copies[number]

    def _choose_start(self, number: int) -> Params | None:
        """Return the hyperparameters of member ``number``, which starts from scratch; None if the space has no point.

        The first members get the configurations that the population was given as ``first``. The others differ from the
        members that have started; if the space has no other point, the points of these are used again, in turn.
        """
        if number < len(self._first):
            return self._first[number]
        tried = {key(one.params): one.params for one in self._members.values()}
        draws = independent_draws(self._space, self._seed, number)
        found = first_new(self._space, draws, tried, uniform_numbers(self._seed, number))
        if found is None and tried:
            return list(tried.values())[number % len(tried)]
        return found

    def parent(self, number: int) -> Parent | None:
        """Return the parent of trial ``number`` if it is a copy.

        Returns None for a trial that starts from scratch, and for a number for which no copy is due yet.
        """
        place = number - self._rules.size
        if 0 <= place < len(self._parents):
            return self._parents[place]
        return None

    @property
    def waits(self) -> bool:
        """True if a member that has started has not ended, so that further trials may be suggested later."""
        return any(_is_unfinished(member) for member in self._members.values())

    def observe(self, event: Event) -> None:
        change = self._ledger.observe(event)
        if isinstance(change, SessionChange | Steered):  # it is not about a trial
            return
        trial = change.trial
        # an epoch that was taken from an earlier sweep has no worker here that must pause and save it
        trained = isinstance(change, Reported) and change.event.memo is None
        if trained and trial.epoch in self._generation_ends:
            self._must_pause.add(trial.number)
        else:
            self._must_pause.discard(trial.number)
        self._end_generations()

    # ---- as a population

    def decision_epochs(self, epochs: int) -> tuple[int, ...]:
        """Return the epochs at which generations end, where members are saved and wait, ascending.

        The last epoch of the training is not among them. ``epochs`` is part of the protocol and has no effect.
        """
        return self._generation_ends

    def holds(self, trial: int) -> str | None:
        """Return why member ``trial`` must wait; None if it may continue, or if it has not started.

        A member at the end of its generation waits until all members that have neither ended nor been replaced have
        reached that end. While it is interrupted there, it also waits until all copies that are due have started. Even
        the last member to reach the end of a generation pauses there, because copies may continue from its checkpoint.
        """
        member = self._members.get(trial)
        if member is None:
            return None
        waits = f"waits for the others at epoch {member.epoch}"
        if trial in self._must_pause:
            return waits
        # it has trained the generation that is not over yet for all others
        if self._generations_over < len(self._generation_ends):
            present_end = self._generation_ends[self._generations_over]
            if member.epoch >= present_end:
                return waits
        # copies that are due may start from its checkpoint, which it would replace if it trained on
        is_interrupted_at_end = (
            member.status is Status.INTERRUPTED and member.epoch in self._generation_ends
        )
        if is_interrupted_at_end and self._has_copies:
            return waits
        return None

    @property
    def _has_copies(self) -> bool:
        """True if copies are due that have not started yet."""
        return len(self._members) < self._rules.size + len(self._parents)

    def last(self) -> int | None:
        """Return None, because members only wait for others that train."""
        return None

    def dropped(self, *, rest: bool) -> Mapping[int, str]:
        """Return why members were replaced, by trial, for all replaced members that have not ended yet.

        The caller should end them. ``rest`` is part of the protocol and has no effect.
        """
        dropped = {}
        for trial, why in self._why_replaced.items():
            if _is_unfinished(self._members[trial]):
                dropped[trial] = why
        return dropped

    def _end_generations(self) -> None:
        """Replace the worst members at the end of each generation that all members have completed.

        Members that have ended or were replaced are not waited for, but if no other is left, nothing happens. Nothing
        happens either while copies that are due have not started. With pb2, the model gets the results of the
        generation first.
        """
        while self._generations_over < len(self._generation_ends):
            end = self._generation_ends[self._generations_over]
            awaited = []
            at_the_end = []  # of those that are awaited
            for one, member in self._members.items():
                if _is_unfinished(member) and one not in self._why_replaced:
                    awaited.append(one)
                    if member.epoch >= end:
                        at_the_end.append(one)
            if self._has_copies or len(at_the_end) < len(awaited):
                return
            if not at_the_end:  # all have ended, and there is nothing to copy
                return
            if self._guide is not None:
                self._guide.add_generation(self._collect_results(end))
            self._replace_members(end, at_the_end)
            self._generations_over += 1

    def _collect_results(self, end: int) -> dict[int, bandit.MemberResult]:
        """Return the results of the generation that ends at epoch ``end``, by trial.

        It has the members that trained the whole generation themselves, and those that began it and diverged or ran out
        of memory in it. A loss is None if the member has none at that epoch, or if it violates the constraints there.
        All losses before the first generation are None.
        """
        start = end - self._rules.interval
        found = {}
        for number, member in sorted(self._members.items()):
            parent = self.parent(number)
            began_it = parent is None or parent.epoch <= start
            # also at `start`, because the epoch in which a member diverges is usually not reported
            exploded = (
                member.status in (Status.DIVERGED, Status.OOM) and start <= member.epoch < end
            )
            if began_it and (member.epoch >= end or exploded):
                before = _exclude_infeasible(self._get_loss(member, start))
                after = _exclude_infeasible(self._get_loss(member, end))
                found[number] = bandit.MemberResult(member.params, before, after)
        return found

    def _get_loss(self, member: TrialState, epoch: int) -> float | None:
        metrics = member.epochs.get(epoch)
        if metrics is None:
            return None
        return self._objective.constrained_loss(metrics)

    def _replace_members(self, end: int, there: list[int]) -> None:
        """Choose a parent for each copy, and record the parents, the replaced members and the reasons.

        Copies replace the worst of ``there``, which are the members that have reached epoch ``end``, by their losses at
        it. There are `PopulationRules.replaced` of these, but at most half of ``there``. Further copies take the places
        of all members that ended without completing and have no copy yet. The parent of each copy is drawn from as many
        of the best as were replaced, at least one. ``there`` must not be empty.
        """
        losses = {}
        for one in there:
            losses[one] = self._get_loss(self._members[one], end)
        ranked = sorted(there, key=lambda one: (_loss_or_infinity(losses[one]), one))
        whole = [one for one in self._members.values() if one.status in WHOLE]
        # the number of places of members that ended without completing; copies fill them without replacing anybody
        lost = self._rules.size - len(there) - len(whole)
        # at most half, so that none is both best and worst
        count = min(self._rules.replaced, len(ranked) // 2)
        best = ranked[: max(count, 1)]
        if count:
            worst = ranked[len(ranked) - count :]
        else:
            worst = []
        draw_number = self._make_generator(end)  # from [0, 1)
        # None stands for a lost place
        for trial in [*([None] * max(lost, 0)), *worst]:
            parent = best[int(draw_number() * len(best))]
            self._parents.append(Parent(parent, end))
            if trial is not None:
                by = self._rules.method
                words = self._describe_losses(losses, trial, parent)
                self._why_replaced[trial] = f"{by}: trial {parent} takes its place, {words}"

    def _describe_losses(self, losses: Mapping[int, float | None], trial: int, parent: int) -> str:
        mine, theirs = losses[trial], losses[parent]
        name = self._objective.name
        if mine is None or theirs is None:
            return f"its {name} is not finite"
        return f"{name} {self._objective.from_loss(theirs):.6g} and {self._objective.from_loss(mine):.6g}"

    def _make_generator(self, number: int) -> Callable[[], float]:
        sequence = np.random.SeedSequence([self._seed, number], spawn_key=(1,))
        return np.random.Generator(np.random.Philox(sequence)).random

    def _perturb(self, parent: Parent, number: int) -> Params:
        """Return perturbed hyperparameters of a parent for trial ``number`` that meet the constraints.

        Those that `_is_perturbed` selects are drawn anew, with the probability that the rules have as ``resample``, or
        else moved (`_perturb_value`); the others stay. Those that the parent lacks are drawn. With pb2, the model
        chooses numbers if it can. Returns the parent's own if none are found that meet the constraints in `ATTEMPTS`
        attempts. The result depends only on the seed, ``number`` and the earlier events.
        """
        params = self._members[parent.trial].params
        numbers = uniform_numbers(self._seed, number)  # returns a random number from [0, 1)

        def draw(parameter: Parameter) -> Value:
            name = parameter.name
            domain = parameter.domain
            if name not in params:  # it applies only under the perturbed values of other parameters
                return from_unit(domain, numbers())
            if not self._is_perturbed(parameter):
                return params[name]
            if numbers() < self._rules.resample:
                return from_unit(domain, numbers())
            return _perturb_value(parameter, params[name], down=numbers() < 0.5)

        if self._guide is not None:
            generation = self._generation_ends.index(parent.epoch)  # the one that has just ended
            found = self._guide.choose(
                number, (generation, parent.trial), self._list_earlier_copies(number), draw
            )
            if found is not None:
                return found
        for _ in range(ATTEMPTS):
            found = self._space.complete_if_feasible(draw)
            if found is not None:
                return found
        return params

    def _list_earlier_copies(self, number: int) -> list[tuple[int, Params]]:
        """Return the copies of the same generation with smaller numbers, as pairs of parent and hyperparameters.

        ``number`` is that of a copy that is due or has started. Hyperparameters of earlier copies that are not chosen
        yet are chosen by this.
        """
        first_copy = self._rules.size
        parents = self._parents
        epoch = parents[number - first_copy].epoch
        same_generation = []
        for one in range(first_copy, number):
            if parents[one - first_copy].epoch == epoch:
                same_generation.append(one)
        earlier = []
        for one in same_generation:
            # `suggest` never returns None for a copy whose parent is known
            earlier.append((parents[one - first_copy].trial, self.suggest(one) or {}))
        return earlier

    def _is_perturbed(self, parameter: Parameter) -> bool:
        """Return whether the rules name a parameter to be perturbed; if they name none, whether it is a number."""
        if self._rules.perturb:
            return parameter.name in self._rules.perturb
        return isinstance(parameter.domain, Range)


class _Guide:
    """Chooses the hyperparameters of copies by a model of the past generations, for `method: pb2`.

    A choice depends only on the generations before the copy, so it is the same whenever it is requested.
    """

    def __init__(self, space: Space, perturbed: Iterable[Parameter], seed: int) -> None:
        self._space, self._seed = space, seed
        # the parameters in the model: numbers that are perturbed
        self._axes = [one for one in perturbed if isinstance(one.domain, Range)]
        # results of each generation that is over, by trial
        self._trained: list[dict[int, bandit.MemberResult]] = []
        self._model: bandit.Posterior | None = None  # the last one that was fitted
        self._last_in_model = (
            -1
        )  # index of the last generation from which it learned; -1: none was fitted

    def add_generation(self, generation: dict[int, bandit.MemberResult]) -> None:
        """Add the results of the next generation that is over; ``generation`` has them by trial."""
        self._trained.append(generation)

    def choose(
        self, number: int, parent: tuple[int, int], before: list[tuple[int, Params]], draw: Draw
    ) -> Params | None:
        """Return the hyperparameters of copy ``number``; ``draw`` chooses those that are not in the model.

        ``parent`` is the index of the generation that has just ended and the number of the trial that is copied.
        ``before`` has the earlier copies of the same generation, from which this one differs, as pairs of parent and
        hyperparameters. Returns None if no number is perturbed, if the model has too few results, or if no new point
        was found that meets the constraints. Raises KeyError if a copied trial has no result of this generation.
        """
        generation, trial = parent
        model = self._fit_model(generation)
        if model is None:
            return None
        if before:
            # the earlier copies are assumed to end as predicted, so that this one is not chosen near them
            rows = []
            for one, params in before:
                rows.append(
                    bandit.make_row(*self._compute_start(generation, one), params, self._axes)
                )
            model = model.condition_on_means(np.array(rows))
        taken = {key(params) for _, params in before}
        # values outside of the model, drawn once, so that all candidates share them
        others: dict[str, Value] = {}

        # returns the point with the coordinates `units` of the numbers in the model; None if it is not allowed
        def make(units: Mapping[str, float]) -> Params | None:
            def value(one: Parameter) -> Value:
                if one.name in units:
                    return from_unit(one.domain, units[one.name])
                if one.name not in others:
                    others[one.name] = draw(one)
                return others[one.name]

            made = self._space.complete_if_feasible(value)
            if made is None or key(made) in taken:
                return None
            return made

        start = bandit.make_row(
            *self._compute_start(generation, trial),
            self._trained[generation][trial].params,
            self._axes,
        )
        # the 1 gives other random numbers than those of ``draw``, which are seeded by the first two
        return bandit.choose_point(model, self._axes, start, make, (self._seed, number, 1))

    def _fit_model(self, generation: int) -> bandit.Posterior | None:
        """Return a model of all generations up to and including index ``generation``, and keep it for the next call.

        Returns None if they have fewer than two results, or if no number is perturbed. If the last call was for the
        same generation, its result is returned again.
        """
        if self._last_in_model != generation:
            past = []
            for one in self._trained[: generation + 1]:
                past.append(list(one.values()))
            points, values = bandit.make_training_data(past, self._axes)
            if self._axes and len(values) >= bandit.ENOUGH:
                self._model = bandit.Posterior(bandit.fit_kernel(points, values), points, values)
            else:
                self._model = None
            self._last_in_model = generation
        return self._model

    def _compute_start(self, generation: int, trial: int) -> tuple[int, float]:
        """Return the index of the next generation, and the standing with which a copy of ``trial`` starts it.

        The standing is as in `compute_standing`, among the members of ``generation``. Raises KeyError if the trial has
        no result there.
        """
        trained = self._trained[generation]
        return generation + 1, bandit.compute_standing(trained[trial].after, list(trained.values()))


def _perturb_value(parameter: Parameter, value: Value, *, down: bool) -> Value:
    """Return a neighbor of a parameter's value: a number times one of `FACTORS`, or the choice beside it.

    With ``down``, a number moves towards 0 and a choice to the one before it, otherwise away from 0 and to the one
    after it. A number moves by at least one step of its domain, also 0: below 0 with ``down``, else above it. The value
    stays if there is no neighbor on that side.
    """
    domain = parameter.domain
    if isinstance(domain, Categorical):
        values = list_choices(domain) or (value,)
        neighbor = [key(one) for one in values].index(key(value)) + (-1 if down else 1)
        # the first and the last choice have a neighbor on one side only, and may stay as they are
        return values[min(max(neighbor, 0), len(values) - 1)]
    if isinstance(domain, Range) and isinstance(value, int | float):
        moved = snap(domain, value * FACTORS[0 if down else 1])
        step = get_quantum(domain)
        # the factor moves the whole numbers 1 and 2 by less than half a step, and 0 not at all
        if moved == value and step is not None:
            # downwards is towards 0, from a negative number therefore up
            if down == (value >= 0):
                moved = snap(domain, value - step)
            else:
                moved = snap(domain, value + step)
        return moved
    return value  # for the type checker: what is drawn is a choice or a number


def _is_unfinished(member: TrialState) -> bool:
    return member.status in UNFINISHED


def _exclude_infeasible(loss: float | None) -> float | None:
    """Return ``loss``, or None if it encodes a violated constraint, so that its differences mean nothing."""
    if loss is None or loss >= INFEASIBLE:
        return None
    return loss


def _loss_or_infinity(loss: float | None) -> float:
    return math.inf if loss is None else loss
