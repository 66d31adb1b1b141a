"""Search by Optuna's samplers tpe and nsga2, with every relevant setting passed instead of left to a default.

The searcher keeps one study, in which it updates the trials that have changed before each suggestion. The study
depends only on the observed events, so a resumed sweep builds the same one again. Trials that a sampler creates are
removed at once, so that a suggestion changes nothing and leaves no running trial behind.

Parameters that Optuna cannot draw (other distributions, weights, quanta on a log scale) are numbers from 0 to 1 in the
study, which `from_unit` turns into values. So no domain is changed or dropped.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import Any, Literal, TypeAlias

import numpy as np
import optuna
from optuna import samplers
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, Trial, TrialState

from sweep.events import JUDGED, Event, Params, Status, TrialStarted, Value
from sweep.searchers import optuna_storage
from sweep.searchers.optuna_storage import SearcherStorage, silence_optuna
from sweep.searchers.points import Draw, first_new, independent_draws, uniform_numbers
from sweep.space import Parameter, Space
from sweep.space.domains import (
    Categorical,
    Domain,
    IntUniform,
    LogUniform,
    Uniform,
    contains,
    key,
    list_choices,
    snap,
)
from sweep.space.draws import from_unit, to_unit
from sweep.space.objectives import Objective
from sweep.store.ledger import Ended, Interrupted, Ledger, Reported, Started
from sweep.store.ledger import TrialState as Record  # Optuna has a TrialState of its own

UNIT = FloatDistribution(0.0, 1.0)


def make_distribution(domain: Domain) -> BaseDistribution:
    """Return Optuna's distribution for a domain, or `UNIT` if Optuna has no equivalent.

    Optuna has none for choices with probabilities, for quanta on a log scale, and for normal, log-normal and beta
    distributions. Constant and tied domains get `UNIT` as well. The choices of a categorical distribution are the keys
    of the values, which are JSON. Bounds are moved inwards to multiples of the quantum.
    """
    match domain:
        case Categorical(probabilities=None):
            return CategoricalDistribution([key(value) for value in list_choices(domain) or ()])
        case IntUniform(low, high, None, log=True):
            return IntDistribution(low, high, log=True)
        # Optuna counts steps from the lower end, which must therefore be a multiple of the quantum, as `snap` makes it
        case IntUniform(low, high, q, log=False):
            return IntDistribution(int(snap(domain, low)), int(snap(domain, high)), step=q or 1)
        case Uniform(low, high, q):
            return FloatDistribution(snap(domain, low), snap(domain, high), step=q)
        case LogUniform(low, high, None):
            return FloatDistribution(low, high, log=True)
        case _:
            return UNIT


def encode_value(domain: Domain, value: Value) -> Any:
    """Convert a value to what Optuna stores for it, in the distribution that `make_distribution` returns.

    That is JSON text for a choice, a number from 0 to 1 for the distribution `UNIT`, and otherwise the value itself.
    The value is not checked, except for `UNIT`, where the errors are those of `to_unit`.
    """
    known = make_distribution(domain)
    if isinstance(known, CategoricalDistribution):
        return key(value)
    if known == UNIT:
        return to_unit(domain, value)
    return value


def draw_value(trial: Trial, parameter: Parameter) -> Value:
    """Return the value that Optuna's sampler chooses for a parameter of a trial.

    Optuna records the choice in ``trial``. Raises TypeError for a tied parameter.
    """
    name = parameter.name
    domain = parameter.domain
    distribution = make_distribution(domain)
    match distribution:
        case CategoricalDistribution(choices=labels):
            label = trial.suggest_categorical(name, labels)
            # never None here, but the type checker does not know
            choices = list_choices(domain) or ()
            return choices[labels.index(label)]
        case IntDistribution(low=low, high=high, step=step, log=log):
            return trial.suggest_int(name, low, high, step=step, log=log)
        case FloatDistribution(low=low, high=high, step=step, log=log):
            number = trial.suggest_float(name, low, high, step=step, log=log)
            # With any other distribution than `UNIT`, which only these domains have, the number is the value.
            if distribution != UNIT and isinstance(domain, Uniform | LogUniform):
                return snap(domain, number)
            # With `UNIT`, it stands for a value. A uniform domain from 0 to 1 has `UNIT` as well; for this one,
            # `from_unit` returns the number itself. For a tied domain, it raises the TypeError.
            return from_unit(domain, number)
    # never reached: for the type checker, which does not know that there are no other distributions
    raise TypeError(f"{domain} has no distribution")


SamplerName: TypeAlias = Literal["tpe", "nsga2"]

Outcome: TypeAlias = tuple[TrialState, list[float] | None, Mapping[int, Mapping[str, float]]]
"""The state of a trial in the study, its final values, and its metrics by epoch."""


def build_sampler(
    method: SamplerName, space: Space, seed: int, *, objectives: int, trials: int = 0
) -> BaseSampler:
    """Return a new sampler of ``method`` for one trial, seeded by ``seed``.

    ``objectives`` and ``trials`` matter for tpe only. ``objectives`` is the number of objectives: with one, parameters
    are modelled jointly, otherwise each on its own. ``trials`` is the number of trials in the study: the more there
    are, the less the author's beliefs count.
    """
    match method:
        case "tpe":
            conditional = any(parameter.when for parameter in space.parameters)
            return TPESampler(
                space,
                seed,
                trials,
                multivariate=objectives == 1,
                group=objectives == 1 and conditional,
            )
        case "nsga2":
            return NSGAIISampler(space, seed)


STARTUP = 10  # random trials at the start, as a model of fewer is not useful
BETA = 10.0
"""Number of trials after which the author's beliefs count as much as the model of the trials."""


class TPESampler(samplers.TPESampler):
    """Optuna's TPE sampler with the author's beliefs, and with the space of common parameters given in advance.

    Optuna would compare all trials at each suggestion to find the parameters that all of them have. With one objective
    and no conditional parameters, this class saves that time. The author's beliefs are a factor of the acquisition
    function, with an exponent that falls as 1/n after n trials: piBO (Hvarfner et al., ICLR 2022, equation 6), applied
    to TPE's ratio of densities.
    """

    def __init__(
        self, space: Space, seed: int, trials: int, *, multivariate: bool, group: bool
    ) -> None:
        super().__init__(
            seed=seed,
            n_startup_trials=STARTUP,
            n_ei_candidates=24,
            multivariate=multivariate,
            group=group,
            constant_liar=True,  # running trials count as bad, so that concurrent workers get different points
        )
        # distributions of the parameters that are drawn jointly; None if Optuna must find out which these are
        self._common = list_common_distributions(space) if multivariate and not group else None
        self._believed = {one.name: one for one in space.parameters if one.belief is not None}
        self._trials = trials  # the number of trials in the study

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        if self._common is None:
            return super().infer_relative_search_space(study, trial)
        return self._common

    def _compute_acquisition_func(
        self, samples: dict[str, Any], mpe_below: Any, mpe_above: Any
    ) -> Any:
        """Return the logarithm of each sample's acquisition, as Optuna does, with the author's beliefs as a factor.

        ``samples`` has an array by the name of the parameter, with a number for each sample in Optuna's internal
        representation. ``mpe_below`` and ``mpe_above`` are Optuna's estimates of the densities of good and bad trials.
        """
        found = super()._compute_acquisition_func(samples, mpe_below, mpe_above)
        for name, numbers in samples.items():
            parameter = self._believed.get(name)
            if parameter is None or parameter.belief is None:
                continue
            domain = parameter.domain
            distribution = make_distribution(domain)
            logs = []
            for number in numbers.tolist():
                value = _decode_value(domain, distribution, number)
                logs.append(parameter.belief.log_density(domain, value))
            # TPE's function is a logarithm, so the factor becomes a summand, and its exponent a multiplier
            found = found + BETA / max(self._trials, 1) * np.array(logs)
        return found


def _decode_value(domain: Domain, known: BaseDistribution, number: float) -> Value:
    """Convert a number in Optuna's internal representation to a value.

    ``known`` is the distribution of ``domain`` (`make_distribution`). The number is an index for choices, a number from
    0 to 1 for domains that Optuna cannot draw (`UNIT`), and otherwise the value itself.
    """
    if isinstance(known, CategoricalDistribution):
        return (list_choices(domain) or ())[int(number)]
    # a uniform domain from 0 to 1 has `UNIT` as well
    if known == UNIT and not isinstance(domain, Uniform):
        return from_unit(domain, number)
    if isinstance(known, IntDistribution):
        return int(number)
    return number


class NSGAIISampler(samplers.NSGAIISampler):
    """Optuna's NSGA-II sampler with the space of common parameters given in advance.

    The name is that of Optuna's class, because Optuna uses it in the keys of its attributes about generations.
    """

    def __init__(self, space: Space, seed: int) -> None:
        super().__init__(
            seed=seed, population_size=50, mutation_prob=None, crossover_prob=0.9, swapping_prob=0.5
        )
        self._common = list_common_distributions(space)

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return self._common


def list_common_distributions(space: Space) -> dict[str, BaseDistribution]:
    """Return the distributions of the parameters that vary in every trial, by name, in alphabetical order.

    Optuna draws them in this order. Conditional, constant and tied parameters are left out, and those whose
    distribution has a single value.
    """
    known = {}
    for p in space.parameters:
        if p.drawn and not p.when:
            known[p.name] = make_distribution(p.domain)
    return {
        name: distribution
        for name, distribution in sorted(known.items())
        if not distribution.single()
    }


_SAMPLER_ATTEMPTS = 20  # random draws follow, at a hundredth of the cost


class OptunaSearcher:
    """Suggests what an Optuna sampler draws, given the results of all trials so far.

    Completed trials count with the metrics they reported last, pruned and paused ones as PRUNED with their values by
    epoch, failed ones as FAIL. Trials that diverged or ran out of memory count as bad. For tpe they are pruned before
    any value, which it ranks last (it ranks every completed trial above all pruned ones). For nsga2, which learns
    nothing from pruned trials, they are completed and worse than all others. If an objective has `impute`, failed
    trials count like diverged ones, with the values that its rule assigns. Completed trials that violate the
    constraints on metrics count as worse than those that meet them, by their violation (`Objective.measure_violation`).
    """

    foresees = False

    def __init__(
        self, method: SamplerName, space: Space, objectives: tuple[Objective, ...], seed: int
    ) -> None:
        self._method = method
        self._space = space
        self._objectives = objectives
        self._seed = seed
        self._ledger = Ledger()
        self._tried: set[str] = set()  # keys of the configurations of all started trials
        self._past: list[Record] = []  # trials of other sweeps
        self._reset_study()

    def _reset_study(self) -> None:
        """Replace the study by an empty one; the caller must add all trials, of this sweep and of others, again.

        What is known of the trials' numbers in the study, of their changes and of the ranges of losses is forgotten.
        """
        objectives = self._objectives
        self._storage = SearcherStorage(
            [StudyDirection[objective.goal.upper()] for objective in objectives]
        )
        # by number in the study; those of other sweeps come first
        self._known: list[tuple[_AskedPoint, Record]] = []
        # numbers in the study of this sweep's trials, by their numbers in the sweep; trials of another space have none
        self._study_numbers: dict[int, int] = {}
        # numbers in the study of trials that have changed since its last update
        self._stale: set[int] = set()
        # numbers in the study of trials whose values depend on the worst trial
        self._bad: set[int] = set()
        self._ranges = [_Range(objective) for objective in objectives]

    def learn(self, past: Iterable[Record]) -> int:
        records = list(past)
        self._past += records
        return self._learn_past(records)

    def _learn_past(self, past: Iterable[Record]) -> int:
        """Add those trials of other sweeps that fit the present space (`Space.adopt`), and return their number.

        A completed, infeasible or pruned trial is left out if the last value of an objective is absent, NaN or
        infinite.
        """
        before = len(self._known)
        for record in past:
            params = self._space.adopt(record.params)
            if params is not None and (
                record.status not in JUDGED or self._get_final_values(record)
            ):
                self._add(self._encode_past_trial(params), record)
        return len(self._known) - before

    def change_space(self, space: Space) -> None:
        """Suggest from another space from now on, and learn from all earlier trials that lie in it.

        These are the trials of this sweep, and those of other sweeps that were learned from. The study is built anew
        from them. Later events of a trial that is left out are ignored.
        """
        self._space = space
        self._reset_study()
        # Both leave out trials that lie outside of the space. A record has all that its trial has reported so far, and
        # how it ended, so nothing else has to be learned again.
        self._learn_past(self._past)
        for record in self._ledger.trials.values():
            self._add_started(record)

    def suggest(self, number: int) -> Params | None:
        if number in self._ledger.trials:
            return self._ledger.trials[number].params
        uniform = uniform_numbers(self._seed, number)
        # closing the draws removes the trial that the last one has created in the study
        with silence_optuna(), closing(self._generate_sampler_draws(number)) as draws:
            rest = independent_draws(self._space, self._seed, number)
            # At first, the sampler draws at random without knowing the user's beliefs; `rest` heeds them.
            uses_beliefs = self._space.has_beliefs and len(self._known) < STARTUP
            candidates = rest if uses_beliefs else chain(draws, rest)
            # A draw is moved to the nearest feasible point, and not on from there at random.
            return first_new(self._space, candidates, self._tried, uniform, walk=False)

    def observe(self, event: Event) -> None:
        match self._ledger.observe(event):
            case Started(trial):
                self._tried.add(key(trial.params))
                self._add_started(trial)
            # trials from another space have no number in the study
            case Reported(trial) | Interrupted(trial) | Ended(trial) if (
                trial.number in self._study_numbers
            ):
                self._mark_changed(self._study_numbers[trial.number])
            case _:
                pass

    def study(self) -> optuna.Study:
        """Return the searcher's Optuna study, brought up to date.

        It has the trials of other sweeps, then this sweep's in the order of their start; those that lie in another
        space are left out. It shares the searcher's storage, so that later suggestions update it, until a change of the
        space begins a new study.
        """
        with silence_optuna():
            return self._update_study(0)

    def _add_started(self, record: Record) -> None:
        """Add a trial of this sweep that has started, unless it lies in another space."""
        point = self._encode_trial(record.start)
        if point is not None:
            self._study_numbers[record.number] = len(self._known)
            self._add(point, record)

    def _add(self, point: _AskedPoint, record: Record) -> None:
        """Add a trial with the parameters ``point``; the next `_update_study` writes it to the study.

        ``record`` is kept, and is what later updates of the study read the trial's state from.
        """
        self._known.append((point, record))
        self._mark_changed(len(self._known) - 1)

    def _mark_changed(self, number: int) -> None:
        """Record that a trial has changed, so that the next `_update_study` writes it to the study.

        ``number`` is its number in the study. If it has ended with metrics that meet the constraints, and its loss
        widens the range of the losses, all trials whose values depend on that range are recorded as well.
        """
        self._stale.add(number)
        record = self._known[number][1]
        if record.status not in JUDGED:
            return
        # a list, because each range must take the loss into account; `any` alone would stop at the first that grows
        widened = [of_one.widen(record) for of_one in self._ranges]
        if any(widened):
            self._stale |= self._bad

    def _generate_sampler_draws(self, number: int) -> Generator[Draw]:
        """Yield the sampler's draws for the sweep's trial ``number``, each a new one, up to `_SAMPLER_ATTEMPTS`.

        A draw is a function that returns the value of the parameter that it gets. Each draw needs a new trial in the
        study, which is removed before the next draw and when the generator is closed, together with what the sampler
        has noted on the study.
        """
        study = self._update_study(number)
        notes = self._storage.notes  # attributes that samplers have set on the study
        for _ in range(_SAMPLER_ATTEMPTS):
            trial = study.ask()
            try:
                yield partial(draw_value, trial)
            finally:
                self._storage.remove_trials_from(trial.number)
                # the storage replaces this mapping instead of changing it
                self._storage.notes = notes

    def _update_study(self, number: int) -> optuna.Study:
        """Bring all trials of the study up to date, and return it with a new sampler for the sweep's trial ``number``.

        Only trials that were added or have changed since the last call, which `_mark_changed` records, are written to
        the study. The sampler's seed depends only on that of the searcher and on ``number``.
        """
        penalties = [of_one.penalty for of_one in self._ranges]
        for place in sorted(self._stale):  # in order, because the storage appends new ones
            told, is_bad = self._make_study_trial(*self._known[place], penalties)
            self._storage.set_trial(place, told)
            if is_bad:
                self._bad.add(place)
        self._stale.clear()
        seed = int(np.random.SeedSequence([self._seed, number]).generate_state(1)[0])
        sampler = build_sampler(
            self._method,
            self._space,
            seed,
            objectives=len(self._objectives),
            trials=len(self._known),
        )
        return optuna.load_study(
            study_name=optuna_storage.NAME, storage=self._storage, sampler=sampler
        )

    def _encode_trial(self, event: TrialStarted) -> _AskedPoint | None:
        """Return a started trial's parameters in Optuna's representation; None if they are from another space.

        They are if a drawn parameter that is unconditional is absent, or if a value does not lie in the parameter's
        domain. Constraints, conditions and unknown names are not checked. For nsga2, the study is updated, and the
        result also has the attributes that the sampler sets on a new trial, such as its generation.
        """
        point = _AskedPoint()
        for parameter in self._space.parameters:
            if parameter.name not in event.params:
                if parameter.drawn and not parameter.when:
                    return None
                continue
            value = event.params[parameter.name]
            if not contains(parameter.domain, value):
                return None
            if parameter.drawn:
                point.add(parameter, value)
        if self._method == "nsga2":
            with silence_optuna():
                self._record_sampler_attributes(event.trial, point)
        return point

    def _encode_past_trial(self, params: Params) -> _AskedPoint:
        """Return the parameters of another sweep's trial in Optuna's representation.

        ``params`` is a point of the present space. For nsga2, the trial is recorded as one of generation 0.
        """
        point = _AskedPoint()
        for parameter in self._space.parameters:
            if parameter.name in params and parameter.drawn:
                point.add(parameter, params[parameter.name])
        if self._method == "nsga2":
            # NSGA-II ignores trials without a generation
            point.notes = {NSGAIISampler._get_generation_key(): 0}
        return point

    def _record_sampler_attributes(self, number: int, point: _AskedPoint) -> None:
        """Store in ``point`` the attributes that the sampler sets on new trial ``number``, such as its generation.

        The study is brought up to date. A new trial is created in it for this and removed again, but what the sampler
        has noted on the study stays.
        """
        trial = self._update_study(number).ask()
        _ = trial.relative_params  # `ask` alone samples nothing
        point.notes = self._storage.get_trial(trial.number).system_attrs
        self._storage.remove_trials_from(trial.number)

    def _make_study_trial(
        self, point: _AskedPoint, record: Record, penalties: list[float]
    ) -> tuple[FrozenTrial, bool]:
        """Return a trial for the study, and whether its values must follow the worst loss of the other trials.

        ``point`` has the trial's parameters in Optuna's representation, ``record`` its state, and ``penalties`` a value
        for each objective, for trials without one. The values must follow if the trial is completed in the study with
        values other than those that it reported last. With one objective, the trial also has the finite values by
        epoch of the outcome that `_choose_outcome` returns.
        """
        state, values, epochs = self._choose_outcome(record, penalties)
        by_epoch = {}
        if len(self._objectives) == 1:  # Optuna compares pruned trials by one objective only
            for epoch, metrics in epochs.items():
                value = self._objectives[0].value(metrics)
                if value is not None:
                    by_epoch[epoch] = value
        if record.ended is None:
            ended = None
        else:
            ended = datetime.fromtimestamp(record.ended, UTC)
        span = datetime.fromtimestamp(record.started, UTC), ended
        told = optuna_storage.create_frozen_trial(
            state, values, point.params, point.distributions, by_epoch, span
        )
        told.system_attrs = point.notes
        must_follow = state is TrialState.COMPLETE and values != self._get_final_values(record)
        return told, must_follow

    def _choose_outcome(self, record: Record, penalties: list[float]) -> Outcome:
        """Return Optuna's state, values and metrics by epoch for a trial.

        A paused or pruned trial is PRUNED, another interrupted or a running one RUNNING, and a failed one FAIL unless
        an objective has ``impute``. A trial that was trained to its end with finite values is treated by
        `_make_finished_outcome`, and all others by `_impute_outcome`; the states above have no values, and all metrics
        that the trial reported. ``penalties`` has a value for each objective, for trials without one.
        """
        if record.paused or record.status is Status.PRUNED:  # a paused trial may never be resumed
            return TrialState.PRUNED, None, record.epochs
        match record.status:
            case Status.RUNNING | Status.INTERRUPTED:
                return TrialState.RUNNING, None, record.epochs
            case Status.COMPLETED | Status.INFEASIBLE if values := self._get_final_values(record):
                return self._make_finished_outcome(record, values)
            case Status.FAILED if all(objective.impute is None for objective in self._objectives):
                return TrialState.FAIL, None, record.epochs
        # diverged, out of memory, or without usable values
        return self._impute_outcome(record, penalties)

    def _impute_outcome(self, record: Record, penalties: list[float]) -> Outcome:
        """Return Optuna's state, values and metrics by epoch for a trial without usable final values.

        It has diverged, run out of memory or failed, or it was trained to its end and lacks a finite value. With tpe, a
        trial without an imputed loss for any of the objectives is pruned and has no values. Otherwise it is
        completed, and each objective has its imputed value (`Objective.impute_loss`) or, if there is none, its value in
        ``penalties``. There are never metrics by epoch.
        """
        imputed = []
        for objective in self._objectives:
            imputed.append(objective.impute_loss(record.epochs.values()))
        if self._method == "tpe" and all(loss is None for loss in imputed):
            return TrialState.PRUNED, None, {}
        values = []
        for objective, loss, penalty in zip(self._objectives, imputed, penalties, strict=True):
            values.append(penalty if loss is None else objective.from_loss(loss))
        return TrialState.COMPLETE, values, {}

    def _make_finished_outcome(self, record: Record, values: list[float]) -> Outcome:
        """Return the outcome of a trial that was trained to its end with ``values``, the last ones of all objectives.

        If it violates constraints, the outcome is worse than that of any completed trial that meets them. With tpe and
        one objective, it is then PRUNED at epoch 0, with the violation in place of the metric. Otherwise it is COMPLETE
        with values beyond the worst ones, the farther the larger the violation.
        """
        first = self._objectives[0]
        violation = first.measure_violation(record.last)
        if not violation:
            return TrialState.COMPLETE, values, record.epochs
        # pruned at epoch 0, it ranks below all that were pruned later
        if self._method == "tpe" and len(values) == 1:
            return TrialState.PRUNED, None, {0: {first.name: first.from_loss(violation)}}
        # further beyond the worst than a trial without values, which is a tenth of the range beyond (`_Range.penalty`)
        return (
            TrialState.COMPLETE,
            [one.compute_value_beyond(1.0 + violation) for one in self._ranges],
            {},
        )

    def _get_final_values(self, record: Record) -> list[float]:
        """Return the last values of all objectives; empty if any of them is absent, NaN or infinite."""
        values = []
        for objective in self._objectives:
            values.append(objective.value(record.last))
        finite = [value for value in values if value is not None]
        if len(finite) == len(values):
            return finite
        return []


def tpe_search(space: Space, objectives: tuple[Objective, ...], seed: int) -> OptunaSearcher:
    """Return a searcher that uses Optuna's TPE sampler, the tree-structured Parzen estimator."""
    return OptunaSearcher("tpe", space, objectives, seed)


def nsga2_search(space: Space, objectives: tuple[Objective, ...], seed: int) -> OptunaSearcher:
    """Return a searcher that uses Optuna's NSGA-II sampler, a genetic algorithm for several objectives."""
    return OptunaSearcher("nsga2", space, objectives, seed)


@dataclass(slots=True)
class _AskedPoint:
    """A trial's parameters in Optuna's representation, with what a sampler has recorded about the trial."""

    params: dict[str, Any] = field(default_factory=dict)
    distributions: dict[str, BaseDistribution] = field(default_factory=dict)
    # attributes that the sampler sets on this trial
    notes: dict[str, Any] = field(default_factory=dict)

    def add(self, parameter: Parameter, value: Value) -> None:
        """Add the value of a parameter, with Optuna's distribution for it."""
        self.distributions[parameter.name] = make_distribution(parameter.domain)
        self.params[parameter.name] = encode_value(parameter.domain, value)


class _Range:
    """The range of one objective's losses over the trials that meet the constraints."""

    def __init__(self, objective: Objective) -> None:
        self._objective = objective
        self._low = self._high = 0.0
        self._empty = True

    def widen(self, record: Record) -> bool:
        """Extend the range to include a trial's last loss; return whether the range changed.

        A trial without a finite loss, or whose last metrics violate a constraint, does not change the range. The first
        loss always does.
        """
        loss = self._objective.loss(record.last)
        if loss is None or self._objective.list_violated(record.last):
            return False
        before = self._empty, self._low, self._high
        if self._empty:
            self._low = loss
            self._high = loss
        else:
            self._low = min(self._low, loss)
            self._high = max(self._high, loss)
        self._empty = False
        return before != (self._empty, self._low, self._high)

    @property
    def penalty(self) -> float:
        """A value of the metric that is worse than all in the range by a tenth of it (`compute_value_beyond`)."""
        return self.compute_value_beyond(0.1)

    def compute_value_beyond(self, spreads: float) -> float:
        """Return the value of the metric that is worse than all in the range by ``spreads`` times the range.

        "Times the range" means times the difference of its ends. If they are equal, their absolute value is used in its
        place, or 1 if they are 0. An empty range counts as a single loss of 0.
        """
        spread = self._high - self._low or abs(self._high) or 1.0
        return self._objective.from_loss(self._high + spreads * spread)
