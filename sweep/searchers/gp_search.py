"""Search by Gaussian processes that model learning curves.

A trial counts at each rung that it has reached. A rung is an epoch at which trials of this sweep stop or pause, or the
end of the training. The searcher does not know the rule that stops them; it derives the rungs from the events.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from sweep.events import JUDGED, LOST, UNFINISHED, WHOLE, Event, Params, Status
from sweep.searchers.curve_model import FEWEST, CurveModel, RungResults, fit_rungs
from sweep.searchers.encoding import Encoding, Rows
from sweep.searchers.gaussian_process import Array, KernelParameters
from sweep.searchers.points import (
    Draw,
    first_new,
    independent_draws,
    random_search,
    sobol_search,
    uniform_numbers,
)
from sweep.space import Space
from sweep.space.domains import contains, key
from sweep.space.objectives import Objective
from sweep.store.ledger import Ended, Interrupted, Ledger, Reported, Started, TrialState

FEWEST_STARTS = 4
MOST_RUNGS = 5
FEWEST_STOPS = 2
"""Minimum number of trials that stop or pause at an epoch for it to be a rung."""
RUNG_DISTANCE = 1.5
"""Minimum factor between rungs. Of epochs that are nearer, the one at which more trials stopped counts."""
REFIT_SHARE = 5
"""The kernel's parameters are fitted again whenever about one in so many results is new."""
CANDIDATES = 512
NEIGHBORS = 40  # tried around each of the best candidates
PROMISING = 200  # candidates of which `expected_gain` takes the next configurations
BETA = 5.0
"""Number of results after which the author's beliefs count as much as the model: piBO (Hvarfner et al., ICLR 2022).

They use a tenth of the number of trials. With 10, a wrong belief cost more than a sweep of 25 trials could make good.
"""

_LIBRARIES = ThreadpoolController()
"""Limits BLAS to one thread, which is faster for matrices this small and gives the same bits on any number of cores."""

END = math.inf
"""The rung of trials that were trained to their end, whatever their last epoch."""

Rung: TypeAlias = float
"""An epoch, or `END`."""


@dataclass(frozen=True, slots=True)
class RungResult:
    """The loss of a trial at a rung, and how far it is from meeting the constraints."""

    place: int
    rung: Rung
    loss: float  # infinite if the trial has no usable loss
    violation: float


def _combine_results(results: Sequence[RungResult]) -> RungResults:
    """Return the results of one rung as arrays."""
    return RungResults(
        tuple(one.place for one in results),
        np.array([one.loss for one in results]),
        np.array([one.violation for one in results]),
    )


@dataclass(frozen=True, slots=True)
class ModelledGain:
    """The expected gain of further configurations, and the standard deviation of the losses of one configuration."""

    gain: float
    noise: float


@dataclass(slots=True)
class _KnownTrial:
    """A trial of this sweep or of an earlier one, with the rungs at which it has a result."""

    record: TrialState
    counted: set[Rung] = field(default_factory=set)  # rungs at which it has a result


class GaussianProcessSearcher:
    """Suggests the configuration with the greatest expected improvement under `CurveModel`.

    As long as trials stop early, a configuration whose result at the first rung is still unknown is preferred to a near
    copy of a trial (`CurveModel.log_acquisition`).

    The first suggestions are points of a Sobol sequence or, if the author has beliefs, random draws by these. Pruned,
    paused and running trials count with their result at each rung. Trials that diverged or ran out of memory count as
    the worst at the first rung that they did not reach, unless the objective's ``impute`` says otherwise; failed ones
    count only by ``impute``. Running trials are assumed to end as predicted, so that workers that ask at the same time
    get different suggestions.
    """

    foresees = False

    def __init__(
        self, space: Space, objectives: tuple[Objective, ...], seed: int, *, starts: int = 0
    ) -> None:
        self._objective = objectives[0]
        self._seed = seed
        self._fewest_starts = starts
        self._ledger = Ledger()
        self._tried: set[str] = set()
        self._past: list[TrialState] = []  # trials of earlier sweeps
        self._reset_to_space(space)

    def _reset_to_space(self, space: Space) -> None:
        """Forget all results, and search ``space`` from now on.

        The records of trials stay, and can be learned again. Points that were tried are still not suggested again.
        """
        self._space = space
        self._encoding = Encoding(space)
        self._owners = self._encoding.owners
        self._starts = max(FEWEST_STARTS, self._encoding.size + 1, self._fewest_starts)
        if space.has_beliefs:
            self._design = random_search(space, self._seed)
        else:
            self._design = sobol_search(space, self._seed)
        self._known: list[_KnownTrial] = []  # trials of earlier sweeps come first
        self._places: dict[int, int] = {}  # index in `_known` by trial
        self._features: list[NDArray[np.float64]] = []
        self._stops: Counter[int] = Counter()  # epochs at which trials stopped or paused
        self._rungs: tuple[Rung, ...] = (END,)
        self.results: list[RungResult] = []
        """All results from which the model learns, in the order in which they came."""
        # fitted on this many results; reset with the rungs
        self._fit: tuple[int, list[KernelParameters]] = (0, [])

    def learn(self, past: Iterable[TrialState]) -> int:
        records = list(past)
        self._past += records
        return self._learn_past(records)

    def change_space(self, space: Space) -> None:
        """Suggest from another space from now on, and learn from all earlier trials that lie in it.

        These are the trials of this sweep, and those of other sweeps that were learned from.
        """
        self._reset_to_space(space)
        self._learn_past(self._past)
        for record in self._ledger.trials.values():
            if self._is_in_space(record.params):
                self._places[record.number] = len(self._known)
                self._add_trial(record.params, record)
                self._count_stop(record)
        self._choose_rungs()

    def _learn_past(self, past: Iterable[TrialState]) -> int:
        """Add those trials of earlier sweeps that fit the present space, and return their number.

        A trial that has ended with metrics (`JUDGED`) is left out if it has no finite loss.
        """
        before = len(self._known)
        for record in past:
            params = self._space.adopt(record.params)
            if params is None or (
                record.status in JUDGED and self._objective.loss(record.last) is None
            ):
                continue
            self._add_trial(params, record)
            self._count_stop(record)
        self._choose_rungs()
        return len(self._known) - before

    def suggest(self, number: int) -> Params | None:
        if number in self._ledger.trials:
            return self._ledger.trials[number].params
        rest = independent_draws(self._space, self._seed, number)
        if self._is_starting:
            draws = self._generate_design_draws(number)
        else:
            draws = self._generate_model_draws(number)
        return first_new(
            self._space,
            chain(draws, rest),
            self._tried,
            uniform_numbers(self._seed, number),
            walk=False,
        )

    def observe(self, event: Event) -> None:
        match self._ledger.observe(event):
            case Started(trial):
                self._tried.add(key(trial.params))
                if self._is_in_space(trial.params):
                    self._places[trial.number] = len(self._known)
                    self._add_trial(trial.params, trial)
            case Reported(trial) if trial.number in self._places:
                self._add_results(self._places[trial.number])
            case Interrupted(trial) | Ended(trial) if trial.number in self._places:
                # the rungs first, because the trial's results are those at the rungs
                if self._count_stop(trial):
                    self._choose_rungs()
                self._add_results(self._places[trial.number])
            case _:
                pass

    def expected_gain(
        self, count: int, upcoming: Sequence[Params] = (), *, chosen: bool = True
    ) -> ModelledGain | None:
        """Return by how much the next ``count`` configurations are expected to improve on the best trial.

        With ``chosen``, the next ones are the most promising of ``upcoming`` or, if it is empty, of the whole space.
        Otherwise, the result is the mean over consecutive groups of ``count`` configurations of ``upcoming``, or of the
        most promising ones of the whole space. ``count`` must be at least 1.

        Returns None if there are too few results for a model, if one of its rungs has too few, if fewer than three
        trials have a result at the end of the training, or if there are no configurations to choose from.
        """
        whole = sum(result.rung == END for result in self.results)
        if self._is_starting or whole < FEWEST:
            return None
        with _LIBRARIES.limit(limits=1, user_api="blas"):
            model = self._build_model()
            # too few results between the first rung and the end
            if model.rungs < len(self._group_by_rung(self.results)):
                return None
            if upcoming:
                rows = self._encoding.encode_all(list(upcoming))
            else:
                number = len(self._ledger.trials)
                rows = self._search_candidates(number, model, model.log_gains)[:PROMISING]
            if not len(rows):
                return None
            features = self._encoding.features(rows)
            if chosen:
                gain = model.expected_gain(features, count)
            else:
                gain = model.expected_gain_of_groups(features, count)
            return ModelledGain(gain, model.noise)

    @property
    def _is_starting(self) -> bool:
        """True if there are fewer results than a model needs to start, or if no parameter has several values."""
        return len(self.results) < self._starts or not self._encoding.size

    def _generate_design_draws(self, number: int) -> Iterator[Draw]:
        """Yield the point of the initial design for trial ``number``; nothing if the design has no such point."""
        params = self._design.suggest(number)
        if params is not None:
            yield lambda parameter: params[parameter.name]

    def _generate_model_draws(self, number: int) -> Iterator[Draw]:
        """Return draws of the configurations that the model finds for trial ``number``, the most promising first."""
        with _LIBRARIES.limit(limits=1, user_api="blas"):
            model = self._build_model()
            rows = self._search_candidates(number, model, model.log_acquisition)
        return map(self._encoding.decode, rows)

    def _search_candidates(
        self, number: int, model: CurveModel, score: Callable[[Array], Array]
    ) -> Rows:
        """Return rows of configurations, sorted by their ``score`` and by the author's beliefs, the best first.

        ``score`` is a method of ``model`` that returns a logarithm for each row of features. The search starts with
        random rows and neighbors of the best trials, and continues around the best of these rows with smaller and
        smaller steps. ``number`` is the number of a trial, which seeds the search.
        """
        encoding = self._encoding
        rng = np.random.default_rng([self._seed, number])
        count = len(self.results)

        def rate(rows: Rows) -> Array:
            return score(encoding.features(rows)) + BETA / count * encoding.log_belief(rows)

        # fewer rows if each must be checked, which takes long
        share = 1 if encoding.is_plain else 4
        candidates = CANDIDATES // share
        neighbors = NEIGHBORS // share
        best_trials = encoding.encode_all(
            [self._known[place].record.params for place in model.ranked[:5]]
        )
        around = encoding.perturb(np.repeat(best_trials, neighbors, axis=0), 0.1, rng)
        rows = encoding.snap_to_valid(np.vstack([rng.random((candidates, encoding.size)), around]))
        values = rate(rows)
        for scale in (0.1, 0.03, 0.01):
            centers = rows[np.argsort(-values, kind="stable")[:6]]
            more = encoding.snap_to_valid(
                encoding.perturb(np.repeat(centers, neighbors, axis=0), scale, rng)
            )
            rows, values = np.vstack([rows, more]), np.concatenate([values, rate(more)])
        return rows[np.argsort(-values, kind="stable")]

    def _build_model(self) -> CurveModel:
        """Return a model of all results; its kernels are fitted again only if enough results are new."""
        features = np.array(self._features)
        # rounded down, so that many suggestions share a fit, and a resumed sweep fits to the same results
        count = len(self.results)
        count -= count % max(1, count // REFIT_SHARE)
        if self._fit[0] != count:
            earlier = self._group_by_rung(self.results[:count])
            self._fit = count, fit_rungs(earlier, features, self._owners)
        results = self._group_by_rung(self.results)
        return CurveModel(results, self._list_pending(), features, self._owners, self._fit[1])

    def _group_by_rung(self, results: Iterable[RungResult]) -> list[RungResults]:
        """Return results grouped by rung, ascending; rungs without results are left out."""
        found: dict[Rung, list[RungResult]] = {}
        for rung in self._rungs:
            found[rung] = []
        for result in results:
            found[result.rung].append(result)
        return [_combine_results(several) for several in found.values() if several]

    def _list_pending(self) -> list[list[int]]:
        """Return for each rung the indices in `_known` of the running trials whose next result is expected there.

        There is a list, maybe an empty one, for each of the present rungs, ascending.
        """
        pending: dict[Rung, list[int]] = {}
        for rung in self._rungs:
            pending[rung] = []
        for number, place in self._places.items():
            if self._ledger.trials[number].status is Status.RUNNING:
                following = next(
                    (rung for rung in self._rungs if rung not in self._known[place].counted), None
                )
                if following is not None:
                    pending[following].append(place)
        return list(pending.values())

    def _add_trial(self, params: Params, record: TrialState) -> None:
        """Add a trial with the configuration ``params`` in the present space, and the results that it has so far."""
        self._known.append(_KnownTrial(record))
        self._features.append(self._encoding.features(self._encoding.encode(params)[None])[0])
        self._add_results(len(self._known) - 1)

    def _is_in_space(self, params: Params) -> bool:
        """Return whether a configuration lies in the present space; an older one may be from another space.

        Constraints, constants and tied values are not checked.
        """
        for parameter in self._space.parameters:
            if not parameter.drawn:
                continue
            if parameter.name not in params:
                if parameter.when is None:
                    return False
            elif not contains(parameter.domain, params[parameter.name]):
                return False
        return True

    def _count_stop(self, record: TrialState) -> bool:
        """Return whether a trial was pruned or is paused; if so, count a stop at its last epoch, unless that is 0."""
        stopped = record.paused or record.status is Status.PRUNED
        if stopped and record.epoch:
            self._stops[record.epoch] += 1
        return stopped

    def _choose_rungs(self) -> None:
        """Use the epochs at which most trials stop or pause, and the end of the training, as rungs.

        An epoch counts if at least `FEWEST_STOPS` trials stopped there. Of epochs within a factor of `RUNG_DISTANCE`,
        only the one with more stops counts. At most `MOST_RUNGS` epochs are used. If the rungs change, the results of
        all trials are collected again.
        """
        chosen: list[int] = []
        # those with the most stops first; of equal ones, the earliest
        for epoch, count in sorted(self._stops.items(), key=lambda one: (-one[1], one[0])):
            is_apart = all(
                max(epoch, other) >= RUNG_DISTANCE * min(epoch, other) for other in chosen
            )
            if count >= FEWEST_STOPS and is_apart:
                chosen.append(epoch)
        rungs = (*sorted(chosen[:MOST_RUNGS]), END)
        if rungs == self._rungs:
            return
        self._rungs = rungs
        self.results.clear()
        self._fit = (0, [])
        for place, known in enumerate(self._known):
            known.counted.clear()
            self._add_results(place)

    def _add_results(self, place: int) -> None:
        """Add a trial's results at all rungs that it has reached and where it has none yet.

        ``place`` is the index of the trial in `_known`. A trial that diverged, ran out of memory or failed also gets a
        result at the first rung that it did not reach, if `_get_result` returns one.
        """
        known = self._known[place]
        for rung in self._rungs:
            if rung not in known.counted:
                result = self._get_result(place, rung)
                if result is None:
                    return
                known.counted.add(rung)
                self.results.append(result)
            if known.record.status in LOST and rung > known.record.epoch:
                return

    def _get_result(self, place: int, rung: Rung) -> RungResult | None:
        """Return the result at a rung of the trial at index ``place`` of `_known`; None if it has none, or none yet.

        A trial that was pruned before the first rung counts there with its last loss. A trial that diverged, ran out of
        memory or failed counts at rungs that it did not reach as its objective's ``impute`` says, else with an infinite
        loss; a failed one without ``impute`` has no result there.
        """
        record = self._known[place].record
        # A trial that was trained to its end has a result at each rung, also at `END`, which is beyond any epoch.
        is_whole = record.status in WHOLE
        has_reached_rung = record.epoch >= rung
        if is_whole or has_reached_rung:
            return self._get_last_result_up_to(place, rung)
        # Otherwise the model would learn nothing from a trial that was pruned before the first rung.
        if record.status is Status.PRUNED and rung == self._rungs[0]:
            return self._get_last_result_up_to(place, rung)
        if record.status not in LOST:  # it was pruned, or it may still reach the rung
            return None
        if record.status is Status.FAILED and self._objective.impute is None:
            return None  # an error says nothing about the configuration
        imputed = self._objective.impute_loss(record.epochs.values())
        loss = math.inf if imputed is None else imputed
        return RungResult(place, rung, loss, violation=0.0)

    def _get_last_result_up_to(self, place: int, rung: Rung) -> RungResult | None:
        """Return a result at a rung with the last finite loss up to it, of the trial at index ``place`` of `_known`.

        Without a finite loss, return None if the trial may continue, and a result with an infinite loss if it has
        ended.
        """
        record = self._known[place].record
        for epoch in sorted(record.epochs, reverse=True):
            if epoch > rung:
                continue
            metrics = record.epochs[epoch]
            loss = self._objective.loss(metrics)
            if loss is not None:
                return RungResult(place, rung, loss, self._objective.measure_violation(metrics))
        if record.status in UNFINISHED:
            return None
        return RungResult(place, rung, math.inf, violation=0.0)
