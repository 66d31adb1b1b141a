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

    place: int  # index of the trial among the known ones of the searcher
    rung: Rung
    loss: float  # infinite if the trial has no usable loss
    violation: float  # 0 if the constraints are met


def _combine_results(results: Sequence[RungResult]) -> RungResults:
    """Return the trials, losses and violations of ``results``, each in the order of ``results``.

    ``results`` should all be of the same rung. A trial is the `place` of its result.
    """
    return RungResults(
        tuple(one.place for one in results),
        np.array([one.loss for one in results]),
        np.array([one.violation for one in results]),
    )


@dataclass(frozen=True, slots=True)
class ModelledGain:
    """The expected gain of further configurations, and the standard deviation of the losses of one configuration."""

    gain: float  # in the unit of the loss, 0 or more
    noise: float  # in the same unit


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
        self._tried: set[str] = set()  # keys of the configurations of all started trials
        self._past: list[TrialState] = []  # trials of earlier sweeps
        self._reset_to_space(space)

    def _reset_to_space(self, space: Space) -> None:
        """Search ``space`` from now on, and forget the known trials, their results, the rungs and the fitted kernels.

        The records of this sweep's trials and those in `_past` stay, so that the caller can add them again.
        Configurations of trials that have started are still not suggested again. The initial design is made anew.
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
        self._indices: dict[int, int] = {}  # index in `_known` by the number of this sweep's trial
        self._features: list[NDArray[np.float64]] = []  # a row for each trial in `_known`
        self._stops: Counter[int] = Counter()  # epochs at which trials stopped or paused
        self._rungs: tuple[Rung, ...] = (END,)
        self.results: list[RungResult] = []
        """All results from which the model learns, in the order in which they came."""
        # fitted on so many of the first results; reset with the rungs
        self._fitted_count = 0
        self._fitted_kernels: list[KernelParameters] = []

    def learn(self, past: Iterable[TrialState]) -> int:
        records = list(past)
        self._past += records
        return self._learn_past(records)

    def change_space(self, space: Space) -> None:
        """Suggest from another space from now on, and learn from all earlier trials that lie in it.

        These are the trials of this sweep (`_is_in_space`), and those of other sweeps that were learned from and fit
        (`Space.adopt`). Later events of a trial that is left out are ignored. The initial design is made anew.
        """
        self._reset_to_space(space)
        self._learn_past(self._past)
        for record in self._ledger.trials.values():
            if self._is_in_space(record.params):
                self._indices[record.number] = len(self._known)
                self._add_trial(record.params, record)
                self._count_stop(record)
        self._choose_rungs()

    def _learn_past(self, past: Iterable[TrialState]) -> int:
        """Add those trials of earlier sweeps that fit the present space (`Space.adopt`), and return their number.

        A completed, infeasible or pruned trial is left out if its last metrics have no finite loss. The epochs at which
        trials were pruned or paused are counted, and the rungs are chosen anew.
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
        if self._is_starting:
            draws = self._generate_design_draws(number)
        else:
            draws = self._generate_model_draws(number)
        # tried if none of `draws` makes a new configuration that meets the constraints
        random_draws = independent_draws(self._space, self._seed, number)
        # with `walk=False`, the search for a feasible configuration does not go on at random
        return first_new(
            self._space,
            chain(draws, random_draws),
            self._tried,
            uniform_numbers(self._seed, number),
            walk=False,
        )

    def observe(self, event: Event) -> None:
        match self._ledger.observe(event):
            case Started(trial):
                self._tried.add(key(trial.params))
                if self._is_in_space(trial.params):
                    self._indices[trial.number] = len(self._known)
                    self._add_trial(trial.params, trial)
            case Reported(trial) if trial.number in self._indices:
                self._add_results(self._indices[trial.number])
            case Interrupted(trial) | Ended(trial) if trial.number in self._indices:
                # A pause or a pruning may add a rung. The rungs come first, because results are those at the rungs.
                if self._count_stop(trial):
                    self._choose_rungs()
                self._add_results(self._indices[trial.number])
            case _:
                pass

    def expected_gain(
        self, count: int, upcoming: Sequence[Params] = (), *, chosen: bool = True
    ) -> ModelledGain | None:
        """Return by how much the next ``count`` configurations are expected to improve on the best trial.

        The gain is in the unit of the loss. The best trial is the one with the lowest predicted loss at the end of the
        training. With ``chosen``, the next
        configurations are the most promising of ``upcoming`` or, if it is empty, of the `PROMISING` best candidates in
        the whole space. Otherwise, the result is the mean over consecutive groups of ``count`` configurations of
        ``upcoming`` or of these candidates; an incomplete last group is left out unless it is the only one. ``count``
        must be at least 1.

        Returns None if there are too few results for a model, if one of its rungs has too few, if fewer than three
        trials have a result at the end of the training, if no parameter has several values, or if there are no
        candidates. Kernels that are fitted for this are kept. The errors for ``upcoming`` are those of
        `Encoding.encode`.
        """
        results_at_end = sum(result.rung == END for result in self.results)
        if self._is_starting or results_at_end < FEWEST:
            return None
        with _LIBRARIES.limit(limits=1, user_api="blas"):
            model = self._build_model()
            # The model leaves out a rung with too few results, and all above it: it does not reach the end.
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
        """True if there are fewer results than `_starts`, or if no parameter has several values.

        Results at all rungs count, also those of several rungs of one trial.
        """
        return len(self.results) < self._starts or not self._encoding.size

    def _generate_design_draws(self, number: int) -> Iterator[Draw]:
        """Yield a draw of the configuration that the initial design has for trial ``number``; nothing if it has none.

        It has none if its configurations for smaller numbers are all that the space has. What trials have really
        started with does not matter.
        """
        params = self._design.suggest(number)
        if params is not None:
            yield lambda parameter: params[parameter.name]

    def _generate_model_draws(self, number: int) -> Iterator[Draw]:
        """Return draws of the configurations that the model finds for trial ``number``, the most promising first.

        The model is built and searched before this returns. Configurations that were tried are not left out.
        """
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
        smaller steps. All rows that were rated are returned, without those that violate a constraint, so that there may
        be none. ``number`` is the number of a trial, which seeds the search together with the searcher's seed. There
        must be at least one result.
        """
        encoding = self._encoding
        rng = np.random.default_rng([self._seed, number])
        count = len(self.results)

        def rate(rows: Rows) -> Array:
            # the more results there are, the less the beliefs count
            return score(encoding.features(rows)) + BETA / count * encoding.log_belief(rows)

        # a quarter of the rows if each must be checked, which takes long
        divisor = 1 if encoding.is_plain else 4
        candidates = CANDIDATES // divisor
        neighbors = NEIGHBORS // divisor
        best_trials = encoding.encode_all(
            [self._known[index].record.params for index in model.ranked[:5]]
        )
        around = encoding.perturb(np.repeat(best_trials, neighbors, axis=0), 0.1, rng)
        rows = encoding.snap_to_valid(np.vstack([rng.random((candidates, encoding.size)), around]))
        values = rate(rows)
        for scale in (0.1, 0.03, 0.01):  # of the steps from the six best rows so far
            centers = rows[np.argsort(-values, kind="stable")[:6]]
            more = encoding.snap_to_valid(
                encoding.perturb(np.repeat(centers, neighbors, axis=0), scale, rng)
            )
            rows, values = np.vstack([rows, more]), np.concatenate([values, rate(more)])
        return rows[np.argsort(-values, kind="stable")]

    def _build_model(self) -> CurveModel:
        """Return a model of all results, in which running trials end as predicted.

        Its kernels are fitted again only if about one in `REFIT_SHARE` results is new since the last fit; otherwise
        those of the last fit are used. There must be at least one result.
        """
        features = np.array(self._features)
        # The number of results is rounded down to a multiple of a fifth of it, so that many suggestions share a fit,
        # and a resumed sweep fits to the same results.
        count = len(self.results)
        count -= count % max(1, count // REFIT_SHARE)
        if self._fitted_count != count:
            earlier = self._group_by_rung(self.results[:count])
            self._fitted_kernels = fit_rungs(earlier, features, self._owners)
            self._fitted_count = count
        return CurveModel(
            self._group_by_rung(self.results),
            self._list_pending(),
            features,
            self._owners,
            self._fitted_kernels,
        )

    def _group_by_rung(self, results: Iterable[RungResult]) -> list[RungResults]:
        """Return results grouped by rung, ascending; rungs without results are left out.

        Within a rung, they keep their order. Each must be of one of the present rungs.
        """
        found: dict[Rung, list[RungResult]] = {}
        for rung in self._rungs:
            found[rung] = []
        for result in results:
            found[result.rung].append(result)
        return [_combine_results(several) for several in found.values() if several]

    def _list_pending(self) -> list[list[int]]:
        """Return for each rung the indices in `_known` of the running trials whose next result is expected there.

        There is a list, maybe an empty one, for each of the present rungs, ascending. Only trials of this sweep that
        lie in the present space are among them.
        """
        pending: dict[Rung, list[int]] = {}
        for rung in self._rungs:
            pending[rung] = []
        for number, index in self._indices.items():
            if self._ledger.trials[number].status is not Status.RUNNING:
                continue
            for rung in self._rungs:
                # the lowest rung at which the trial has no result yet
                if rung not in self._known[index].counted:
                    pending[rung].append(index)
                    break
        return list(pending.values())

    def _add_trial(self, params: Params, record: TrialState) -> None:
        """Append a trial to `_known`, and add the results that it has so far.

        ``params`` is its configuration as a point of the present space.
        """
        self._known.append(_KnownTrial(record))
        self._features.append(self._encoding.features(self._encoding.encode(params)[None])[0])
        self._add_results(len(self._known) - 1)

    def _is_in_space(self, params: Params) -> bool:
        """Return whether a configuration lies in the present space; an older one may be from another space.

        It must have a value of each drawn parameter that is unconditional, and its values of drawn parameters must lie
        in their domains. Constraints, conditions, constants, tied values and unknown names are not checked.
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
        """Return whether a trial was pruned or is paused; if so, count a stop at its last epoch, unless that is 0.

        Each call counts one stop.
        """
        stopped = record.paused or record.status is Status.PRUNED
        if stopped and record.epoch:
            self._stops[record.epoch] += 1
        return stopped

    def _choose_rungs(self) -> None:
        """Use the epochs at which most trials stop or pause, and the end of the training, as rungs.

        An epoch counts if at least `FEWEST_STOPS` trials stopped there. Of epochs within a factor of `RUNG_DISTANCE`,
        only the one with more stops counts; of equal ones, the earliest. At most `MOST_RUNGS` epochs are used, and the
        end in addition. If the rungs change, the results of all trials are collected again, in the order of the trials,
        and the fitted kernels are forgotten. Otherwise nothing is changed.
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
        self._fitted_count = 0
        self._fitted_kernels = []
        for index, known in enumerate(self._known):
            known.counted.clear()
            self._add_results(index)

    def _add_results(self, index: int) -> None:
        """Add a trial's results at the rungs where it has none yet, up to the first rung where `_get_result` is None.

        ``index`` is that of the trial in `_known`. Of the rungs that a trial did not reach before it diverged, ran out
        of memory or failed, only the first can get a result.
        """
        known = self._known[index]
        for rung in self._rungs:
            if rung not in known.counted:
                result = self._get_result(index, rung)
                if result is None:
                    return
                known.counted.add(rung)
                self.results.append(result)
            # a trial that ended without a usable result has none beyond the first rung that it did not reach
            if known.record.status in LOST and rung > known.record.epoch:
                return

    def _get_result(self, index: int, rung: Rung) -> RungResult | None:
        """Return the result at a rung of the trial at ``index`` of `_known`; None if it has none, or none yet.

        At a rung that it has reached, a trial has the result of `_get_last_result_up_to`; one that was trained to its
        end has reached all rungs. A trial that was pruned before the first rung has such a result there as well. A
        trial that diverged, ran out of memory or failed has at other rungs the loss that the objective's ``impute``
        assigns, else an infinite one; a failed one without ``impute`` has no result there.
        """
        record = self._known[index].record
        # A trial that was trained to its end has a result at each rung, also at `END`, which is beyond any epoch.
        is_whole = record.status in WHOLE
        has_reached_rung = record.epoch >= rung
        if is_whole or has_reached_rung:
            return self._get_last_result_up_to(index, rung)
        # Otherwise the model would learn nothing from a trial that was pruned before the first rung.
        if record.status is Status.PRUNED and rung == self._rungs[0]:
            return self._get_last_result_up_to(index, rung)
        if record.status not in LOST:  # it was pruned, or it may still reach the rung
            return None
        if record.status is Status.FAILED and self._objective.impute is None:
            return None  # an error says nothing about the configuration
        imputed = self._objective.impute_loss(record.epochs.values())
        loss = math.inf if imputed is None else imputed
        return RungResult(index, rung, loss, violation=0.0)

    def _get_last_result_up_to(self, index: int, rung: Rung) -> RungResult | None:
        """Return a result at a rung with the last finite loss up to it, of the trial at ``index`` of `_known`.

        Its violation is that of the same epoch. If no epoch up to the rung has a finite loss, returns None if the trial
        is running or interrupted, and a result with an infinite loss and without violation if it has ended.
        """
        record = self._known[index].record
        for epoch in sorted(record.epochs, reverse=True):
            if epoch > rung:
                continue
            metrics = record.epochs[epoch]
            loss = self._objective.loss(metrics)
            if loss is not None:
                return RungResult(index, rung, loss, self._objective.measure_violation(metrics))
        if record.status in UNFINISHED:
            return None
        return RungResult(index, rung, math.inf, violation=0.0)
