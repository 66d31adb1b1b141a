"""Grid, random and Sobol search, and the search for new feasible points that all searchers share.

Grid, random and Sobol search are streams of points: their n-th suggestion is the n-th point, which depends only on the
space and the seed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TypeAlias

import numpy as np

from sweep.events import Event, Params, TrialStarted, Value
from sweep.space import Parameter, Space
from sweep.space.domains import key
from sweep.space.draws import from_unit
from sweep.space.feasible_points import generate_feasible_points
from sweep.store.ledger import TrialState

MAX_ATTEMPTS = 1000
_BLOCK = 64  # rows of a Sobol sequence drawn at once; a power of two keeps it balanced

Draw: TypeAlias = Callable[[Parameter], Value]
"""Returns the value of a parameter. It is called for one parameter of a point after the other."""


def first_new(
    space: Space,
    draws: Iterable[Draw],
    tried: Collection[str],
    uniform: Callable[[], float],
    *,
    walk: bool = True,
) -> Params | None:
    """Return the first feasible point that was not tried, from at most `MAX_ATTEMPTS` draws; None if there is none.

    ``tried`` has the `key` of each earlier point. Each of ``draws`` makes one point; those up to the returned point are
    consumed. If all draws fail, a finite space is searched in grid order. An infinite space without constraints is not
    searched if a draw was feasible, since all such draws repeated earlier points. In all other spaces, a feasible point
    near the first draw is tried, then further ones that are found at random; with ``walk``, the one near the draw is
    moved at random as well. ``uniform`` supplies the random numbers for that. If None is returned, the space counts as
    exhausted. If all points of a finite space were tried, None is returned at once, and no draw is consumed.
    """
    size = space.cardinality  # None for an infinite space
    # many tried points alone do not exhaust the space: some may lie outside, since the space may have changed
    if (
        size is not None
        and len(tried) >= size
        and next(_generate_untried(space, tried), None) is None
    ):
        return None
    any_is_feasible = False
    first_drawn: dict[str, Value] = {}  # values of the first draw, by name
    for draw in islice(draws, MAX_ATTEMPTS):
        # the first draw is recorded: from there, a feasible point is searched if all draws fail
        if first_drawn:
            params = space.complete_if_feasible(draw)
        else:
            params = space.complete_if_feasible(partial(_draw_and_record, draw, first_drawn))
        if params is not None:
            if key(params) not in tried:
                return params
            any_is_feasible = True
    if size is not None:
        return next(_generate_untried(space, tried), None)
    # infinite in name only, such as a coarsely quantized normal distribution
    if any_is_feasible and not space.constraints:
        return None
    found = generate_feasible_points(space, first_drawn, uniform, walk=walk)
    return next((params for params in found if key(params) not in tried), None)


def uniform_numbers(seed: int, number: int) -> Callable[[], float]:
    """Return a function that draws independent numbers from [0, 1), seeded by ``seed`` and ``number``."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, number]))).random


def _draw_and_record(draw: Draw, drawn: dict[str, Value], parameter: Parameter) -> Value:
    """Return the value that ``draw`` draws for a parameter, and store it in ``drawn`` by the parameter's name."""
    value = draw(parameter)
    drawn[parameter.name] = value
    return value


def uniform_draws(seed: int, number: int) -> Iterator[Draw]:
    """Yield draws without end, one for each point, from each parameter's own distribution.

    A draw is a function that returns a new random value of the parameter that it gets. All draws take their random
    numbers from one generator, seeded by ``seed`` and ``number``, in the order in which they are called.
    """
    uniform = uniform_numbers(seed, number)
    while True:
        yield lambda parameter: from_unit(parameter.domain, uniform())


def believed_draws(seed: int, number: int) -> Iterator[Draw]:
    """Yield draws without end, one for each point, of which a random half follow the author's beliefs.

    A draw is a function that returns a new random value of the parameter that it gets. With probability 1/2, it follows
    the author's beliefs about the parameters that have one, otherwise each parameter's own distribution. All random
    numbers come from one generator, seeded by ``seed`` and ``number``.

    This is the mix of PriorBand at its lowest rung (Mallik et al., NeurIPS 2023, section 5): wrong beliefs cost at most
    every other trial.
    """
    uniform = uniform_numbers(seed, number)

    def draw_own(parameter: Parameter) -> Value:
        return from_unit(parameter.domain, uniform())

    while True:
        yield partial(_draw_by_belief, uniform) if uniform() < 0.5 else draw_own


def _draw_by_belief(uniform: Callable[[], float], parameter: Parameter) -> Value:
    """Draw a value by the author's belief about a parameter, or from its own distribution if there is no belief.

    ``uniform`` returns random numbers from [0, 1); one is used.
    """
    belief = parameter.belief
    if belief is None:
        return from_unit(parameter.domain, uniform())
    return belief.draw(parameter.domain, uniform())


def independent_draws(space: Space, seed: int, number: int) -> Iterator[Draw]:
    """Return an endless iterator over random draws, those of `believed_draws` if the space has any beliefs.

    Otherwise they are those of `uniform_draws`. Both are seeded by ``seed`` and ``number``.
    """
    if space.has_beliefs:
        return believed_draws(seed, number)
    return uniform_draws(seed, number)


def _generate_untried(space: Space, tried: Collection[str]) -> Iterator[Params]:
    """Return an iterator over the points of a finite space, in grid order, whose `key` is not in ``tried``."""
    return (params for params in space.points() if key(params) not in tried)


Point: TypeAlias = Callable[[int, Collection[str]], Params | None]
"""Returns the point with a number, which must differ from all points with the given keys; None if there is no more."""

MakePoint: TypeAlias = Callable[[Space, int], Point]
"""Returns the `Point` of a space; the number says how many points are not wanted, since as many trials have started."""


class PointStream:
    """A searcher that suggests ``first``, then the points that ``point`` returns.

    Points are numbered. A trial gets the point with its own number, unless a person has added configurations or changed
    the space. Then all points of trials that have not started are assigned again: the added ones first, all others in
    their order.
    """

    def __init__(self, point: Point, first: Iterable[Params] = ()) -> None:
        self._point_of_stream = point  # returns the stream's point with a number
        self._assigned: dict[int, Params] = dict(
            enumerate(first)
        )  # the point of each trial that has one
        self._first = set(map(key, self._assigned.values()))  # keys of the starting points
        self._not_again = set(self._first)  # keys of all points that the stream must not return
        self._added: set[str] = set()  # keys of configurations that a person has added
        self._started: set[int] = set()  # trials
        self._next_number = len(self._assigned)  # of the stream's next point
        self._first_free = len(self._assigned)  # all trials before this one have a point

    foresees = True

    def learn(self, past: Iterable[TrialState]) -> int:
        """Ignore the trials and return 0."""
        return 0

    def suggest(self, number: int) -> Params | None:
        # the stream's points go to the trials without a point in turn, until this one has a point
        while number not in self._assigned:
            point = self._make_next_point()
            if point is None:
                return None
            self._assigned[self._find_free_trial()] = point
        return self._assigned[number]

    def observe(self, event: Event) -> None:
        """Record that a trial has started, with its actual parameters; ignore all other events.

        Before that, points of the stream are assigned to all trials up to this one that have none, as far as there are
        any; the errors are those of the stream.
        """
        if isinstance(event, TrialStarted):
            self.suggest(event.trial)
            self._started.add(event.trial)
            self._assigned[event.trial] = event.params

    def enqueue(self, configurations: Sequence[Params]) -> None:
        """Suggest ``configurations`` next, and leave out later points that are equal to one of them.

        They come after configurations that were enqueued earlier and have not started, and before all other points, so
        that all trials that have not started may get other points. Duplicates among ``configurations`` are suggested
        once. Configurations that have started, or wait since an earlier call, are not recognized and are suggested
        again.
        """
        added = {key(one): one for one in configurations}
        waiting = self._reclaim_unstarted()
        ahead = [one for one in waiting if key(one) in self._added]
        others = []
        for one in waiting:
            if key(one) not in self._added and key(one) not in added:
                others.append(one)
        self._added |= added.keys()
        self._assign_to_free_trials([*ahead, *added.values(), *others])

    def _make_next_point(self) -> Params | None:
        """Take points from the stream up to one that no person has enqueued; return it, or None if none is left.

        Points that a person has enqueued are dropped, as they are suggested apart from the stream.
        """
        while True:
            point = self._point_of_stream(self._next_number, self._not_again)
            if point is None:
                return None
            self._next_number += 1
            self._not_again.add(key(point))
            if key(point) not in self._added:
                return point

    def _find_free_trial(self) -> int:
        """Return the smallest number of a trial to which no point is assigned."""
        while self._first_free in self._assigned:
            self._first_free += 1
        return self._first_free

    def _reclaim_unstarted(self) -> list[Params]:
        """Unassign the points of all trials that have not started; return these points in the order of the trials."""
        waiting = []
        for trial in sorted(self._assigned):
            if trial not in self._started:
                waiting.append(trial)
        self._first_free = 0
        return [self._assigned.pop(trial) for trial in waiting]

    def _assign_to_free_trials(self, points: Iterable[Params]) -> None:
        """Assign points, in their order, one each to the trials with the smallest numbers that have none."""
        for point in points:
            self._assigned[self._find_free_trial()] = point


class SpacePoints(PointStream):
    """A stream of the points of a space that may change; ``make_point`` returns the points of a space."""

    def __init__(self, space: Space, make_point: MakePoint, first: Iterable[Params] = ()) -> None:
        super().__init__(make_point(space, 0), first)
        self._make_point = make_point

    def change_space(self, space: Space) -> None:
        """Suggest the points of another space from now on.

        Enqueued configurations and starting points that have not started are kept if they lie in it (`Space.has`), and
        come first; the others are forgotten. Then come the points of the new space from the number after the last
        started trial on, without those that trials have started with.
        """
        # Take back the points of all trials that have not started. Those that a person asked for are kept; the others
        # come from the stream of the old space.
        asked_for = self._added | self._first
        kept = []
        for point in self._reclaim_unstarted():
            if key(point) in asked_for and space.has(point):
                kept.append(point)
            else:
                # The stream leaves out points in `_added`, as they are suggested apart from it. This one no longer is,
                # so the stream may suggest it, should the space have it again. It leaves out none for `_first`.
                self._added.discard(key(point))
        # The new stream begins with the point of the trial after the last started one; earlier ones are not wanted.
        self._next_number = max(self._started, default=-1) + 1
        self._point_of_stream = self._make_point(space, self._next_number)
        # its points must not repeat those of started trials, nor those that are kept
        self._not_again = {key(self._assigned[trial]) for trial in self._started}
        self._not_again.update(map(key, kept))
        self._assign_to_free_trials(kept)


def grid_search(space: Space, seed: int, first: Iterable[Params] = ()) -> SpacePoints:
    """Return a searcher that suggests ``first``, then all other combinations of the grid in its order (`Space.grid`).

    Combinations that violate a constraint are left out, after the last one nothing is suggested, and ``seed`` has no
    effect. After a change of the space, the searcher suggests the combinations that no trial has yet. Its `suggest`
    raises ValueError if a parameter without ``grid_count`` is continuous or has more than `MAX_CHOICES` values.
    """

    # The numbers are not needed: the grid is passed through once, from its start, and what was tried is left out.
    def make_point(space: Space, number: int) -> Point:
        points = space.grid()  # an iterator, from which each call of `find_next` goes on

        def find_next(number: int, tried: Collection[str]) -> Params | None:
            return next((point for point in points if key(point) not in tried), None)

        return find_next

    return SpacePoints(space, make_point, first)


def random_search(space: Space, seed: int, first: Iterable[Params] = ()) -> SpacePoints:
    """Return a searcher that suggests ``first``, then independent draws from each parameter's distribution.

    If the author has beliefs, half of the draws follow them. Each point has a random generator of its own, seeded by
    the seed and the number of the point. Infeasible points and repetitions of earlier ones are skipped (`first_new`),
    and nothing is suggested once a finite space is exhausted.
    """

    # `first_number` is not needed: each point depends on its own number only
    def make_point(space: Space, first_number: int) -> Point:
        return lambda number, tried: first_new(
            space, independent_draws(space, seed, number), tried, uniform_numbers(seed, number)
        )

    return SpacePoints(space, make_point, first)


def sobol_search(space: Space, seed: int, first: Iterable[Params] = ()) -> SpacePoints:
    """Return a searcher that suggests ``first``, then a scrambled Sobol sequence, more even than random draws.

    Owen (1998), "Scrambling Sobol' and Niederreiter-Xing points"; the sequence is SciPy's, scrambled by the seed. Each
    drawn parameter has its own dimension, even in points that do not use it. Infeasible points and repetitions of
    earlier ones are skipped (`first_new`), and nothing is suggested once a finite space is exhausted. After a change of
    the space, as many points of its sequence are passed over as there are trials up to the last started one.
    """

    def make_point(space: Space, first_number: int) -> Point:
        draws = _sobol_draws(space, seed, skipped=first_number)
        return lambda number, tried: first_new(space, draws, tried, uniform_numbers(seed, number))

    return SpacePoints(space, make_point, first)


def _sobol_draws(space: Space, seed: int, skipped: int = 0) -> Iterator[Draw]:
    """Yield the points of an endless Sobol sequence after the first ``skipped`` ones, as draws.

    A draw is a function that returns the value that the point has for the parameter that it gets, one of the drawn
    parameters of ``space``. The sequence is scrambled by ``seed``.
    """
    drawn = []
    for parameter in space.parameters:
        if parameter.drawn:
            drawn.append(parameter.name)
    from scipy.stats import qmc  # importing it takes half a second

    # SciPy needs at least one dimension, also if no parameter is drawn
    sequence = qmc.Sobol(max(len(drawn), 1), scramble=True, rng=seed)
    if skipped:
        sequence.fast_forward(skipped)
    while True:
        for row in sequence.random(_BLOCK).tolist():
            # not strict: without a drawn parameter, the row still has a number
            yield partial(_sobol_draw, dict(zip(drawn, row, strict=False)))


def _sobol_draw(units: Mapping[str, float], parameter: Parameter) -> Value:
    """Return the value of a parameter at a point; ``units`` has its coordinates from [0, 1) by parameter name."""
    return from_unit(parameter.domain, units[parameter.name])
