"""Search by CMA-ES with restarts: Hansen (2016), "The CMA Evolution Strategy: A Tutorial", arXiv:1604.00772.

When a generation spans almost nothing, or its values no longer differ, the distribution has converged and would only
repeat itself. A new one then starts at a random point with twice the population (IPOP: Auger and Hansen, CEC 2005).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # about features whose packages are not installed
    import cmaes

from sweep.events import JUDGED, Event, Params, Status, Value
from sweep.searchers.points import Draw, first_new, uniform_draws, uniform_numbers
from sweep.space import Parameter, Space
from sweep.space.domains import contains, key
from sweep.space.draws import from_unit, to_unit
from sweep.space.objectives import Objective
from sweep.store.ledger import Ended, Interrupted, Ledger, Started, TrialState

_WIDTH = 1 / 6  # standard deviation of the first distribution, as a share of each range
_SMALL = 1e-3  # a generation that spans less than this share of each range has converged
_ATTEMPTS = 20  # draws from the distribution; random ones follow, which need not be near points that were tried
# a warm start uses the best tenth of the past trials; fewer are repeated up to this number
_FEWEST_SOURCES = 10

Point = np.ndarray[tuple[int], np.dtype[np.float64]]


class CmaesSearcher:
    """Suggests draws from a normal distribution that is adapted to the better half of each generation.

    Only numbers that every trial has are adapted; choices and conditional parameters are drawn at random. Completed,
    pruned and paused trials count with their last value. Trials that diverged or ran out of memory count as worse than
    all others unless the objective's `impute` says otherwise; failed ones count only if it is set. A generation ends
    with the trials that fill it. Trials of it that end later do not count, so that no worker has to wait.
    """

    foresees = False

    def __init__(self, space: Space, objectives: tuple[Objective, ...], seed: int) -> None:
        self._objective = objectives[0]
        self._seed = seed
        self._ledger = Ledger()
        self._tried: set[str] = set()
        self._earlier: list[TrialState] = []  # trials of other sweeps
        self._reset_to_space(space)

    def _reset_to_space(self, space: Space) -> None:
        """Forget what was learned and the distribution, and search ``space`` from now on.

        The records of trials stay, and can be learned again. Points that were tried are still not suggested again.
        """
        self._space = space
        self._adapted = [parameter for parameter in space.parameters if parameter.adaptable]
        # points and losses of earlier trials, on the best of which the first distribution is centered
        self._past: list[tuple[Point, float]] = []
        # by open trial: number of restarts, generation
        self._generations: dict[int, tuple[int, int]] = {}
        self._solutions: list[tuple[Point, float]] = []  # of the present generation
        self._restarts = 0
        self._optimizer: cmaes.CMA | None = None

    def learn(self, past: Iterable[TrialState]) -> int:
        records = list(past)
        self._earlier += records
        return self._learn_past(records)

    def change_space(self, space: Space) -> None:
        """Start a new distribution in another space, centered on the best of the earlier trials that lie in it.

        If there are none, it is centered on the middle of the space. Earlier trials are those of this sweep that have
        ended or are paused, and those of other sweeps; only ones with a finite loss count. Trials that are running now
        never count for the generations of the new distribution.
        """
        self._reset_to_space(space)
        ended = []
        for record in self._ledger.trials.values():
            if record.paused or record.ended is not None:
                ended.append(record)
        self._learn_past([*self._earlier, *ended])

    def _learn_past(self, past: Iterable[TrialState]) -> int:
        """Add the points and losses of earlier trials to those on which the first distribution is centered.

        Return how many trials lie in the space. Of these, completed, infeasible and pruned ones without a finite loss
        do not count; all others count, but only those with a finite loss are added.
        """
        count = 0
        for record in past:
            params = self._space.adopt(record.params)  # None if they do not fit into the space
            loss = self._get_loss(record)
            has_finite_loss = loss is not None and math.isfinite(loss)
            # completed and pruned trials need a finite loss, as `Searcher.learn` says
            if params is None or (record.status in JUDGED and not has_finite_loss):
                continue
            count += 1
            if loss is not None and has_finite_loss:
                self._past.append((self._encode_point(params), loss))
        return count

    def suggest(self, number: int) -> Params | None:
        if number in self._ledger.trials:  # it has started
            return self._ledger.trials[number].params
        # at first from the distribution, then at random
        draws = chain(self._generate_optimizer_draws(number), uniform_draws(self._seed, number))
        return first_new(
            self._space, draws, self._tried, uniform_numbers(self._seed, number), walk=False
        )

    def observe(self, event: Event) -> None:
        match self._ledger.observe(event):
            case Started(trial):
                self._tried.add(key(trial.params))
                if self._adapted and self._is_in_space(trial.params):
                    self._generations[trial.number] = self._get_generation()
            # a trial that pauses counts then, and not again when it ends, as it is popped here
            case Ended(trial) | Interrupted(trial) if trial.paused or trial.ended is not None:
                generation = self._generations.pop(trial.number, None)
                # a trial of an earlier generation comes too late
                if generation is not None and generation == self._get_generation():
                    self._add_to_generation(trial)
            case _:
                pass

    @property
    def restarts(self) -> int:
        """The number of restarts since the beginning or the last change of the space."""
        return self._restarts

    def _add_to_generation(self, record: TrialState) -> None:
        """Add the result of a trial to the present generation; update the distribution when the generation is full.

        If the distribution has converged then, start a new one with twice the population. Ignore trials that do not
        count, for which `_get_loss` returns None. An infinite loss counts as worse than all finite ones.
        """
        loss = self._get_loss(record)
        optimizer = self._get_distribution()
        if loss is None:
            return
        self._solutions.append((self._encode_point(record.params), loss))
        if len(self._solutions) < optimizer.population_size:
            return
        # CMA-ES needs finite values but only ranks them, so anything above the worst loss stands for infinity
        worst = max((loss for _, loss in self._solutions if math.isfinite(loss)), default=0.0)
        with np.errstate(all="ignore"):
            optimizer.tell([(point, min(loss, worst + 1.0)) for point, loss in self._solutions])
            converged = optimizer.should_stop()
        points = np.array([point for point, _ in self._solutions])
        self._solutions.clear()
        if converged or np.all(np.ptp(points, axis=0) < _SMALL):
            self._restarts += 1
            self._optimizer = self._create_distribution(2 * optimizer.population_size)

    def _generate_optimizer_draws(self, number: int) -> Iterator[Draw]:
        """Yield `_ATTEMPTS` points for trial ``number`` from the distribution; none if no parameter is adapted.

        Each is a function that draws a parameter's value; those that are not adapted are drawn at random.
        """
        if not self._adapted:
            return
        seeds = np.random.SeedSequence([self._seed, number, self._restarts]).generate_state(2)
        optimizer = self._get_distribution()
        # for parameters that are not adapted
        others = np.random.Generator(np.random.Philox(int(seeds[0])))
        # so that the draws depend on this trial, not on those made before
        optimizer.reseed_rng(int(seeds[1]))
        names = [parameter.name for parameter in self._adapted]
        for _ in range(_ATTEMPTS):
            point = optimizer.ask().tolist()  # a number from 0 to 1 for each adapted parameter
            units = dict(zip(names, point, strict=True))

            # the default binds the present numbers, because `units` is another dict in the next turn
            def draw(parameter: Parameter, units: dict[str, float] = units) -> Value:
                return from_unit(parameter.domain, units.get(parameter.name, others.random()))

            yield draw

    def _get_distribution(self) -> cmaes.CMA:
        """Return the present distribution, which is created if there is none yet."""
        if self._optimizer is None:
            self._optimizer = self._create_distribution(None)
        return self._optimizer

    def _get_generation(self) -> tuple[int, int]:
        """Return the number of restarts, and the number of the present distribution's generation."""
        return self._restarts, self._get_distribution().generation

    def _create_distribution(self, population: int | None) -> cmaes.CMA:
        """Return a new distribution; ``population`` is the number of trials in a generation, or None for the default.

        The first distribution in a space is centered on the best of the trials in `_past` or, if there are none, on the
        middle of the space. Those after a restart are centered on a random point, which follows from the seed and the
        number of restarts.
        """
        dimensions = len(self._adapted)
        seed = int(np.random.SeedSequence([self._seed, self._restarts]).generate_state(1)[0])
        mean = np.full(dimensions, 0.5)
        width = _WIDTH
        covariance = None
        if self._restarts:
            mean = np.random.Generator(np.random.Philox(seed)).random(dimensions)
        elif self._past:
            # the library takes the best tenth; few trials are repeated, so that this is at least one
            repeated = self._past * math.ceil(_FEWEST_SOURCES / len(self._past))
            mean, width, covariance = cmaes.get_warm_start_mgd(repeated)
        return cmaes.CMA(
            mean=mean,
            sigma=max(width, 1e-10),
            cov=covariance,
            bounds=np.array([[0.0, 1.0]] * dimensions),
            n_max_resampling=10 * dimensions,
            population_size=population,
            seed=seed,
        )

    def _encode_point(self, params: Params) -> Point:
        return np.array(
            [to_unit(parameter.domain, params[parameter.name]) for parameter in self._adapted]
        )

    def _is_in_space(self, params: Params) -> bool:
        """Return whether each adapted parameter has a value in its domain; others are not looked at."""
        return all(
            one.name in params and contains(one.domain, params[one.name]) for one in self._adapted
        )

    def _get_loss(self, record: TrialState) -> float | None:
        """Return the loss of a trial; infinite if it counts as worse than all others, None if it does not count.

        The trial must have ended or be paused. A completed, pruned or paused one has its last loss, a constraint
        violation included, and counts as worse than all others without a finite loss. Any other has the loss that the
        objective's ``impute`` assigns to it, or else counts as worse than all others. A failed trial does not count if
        ``impute`` is not set.
        """
        if record.status in JUDGED or record.paused:
            return self._objective.ranking_loss(record.last)
        if record.status is Status.FAILED and self._objective.impute is None:
            return None
        imputed = self._objective.impute_loss(record.epochs.values())
        return math.inf if imputed is None else imputed
