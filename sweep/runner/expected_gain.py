"""Ends a search when its next configurations are not expected to gain enough (`stop_when.gain` and `gain_per_hour`).

A Gaussian process is fitted to the results of the search, whatever its method (`sweep.searchers.gp_search`). The
expected gain is how much better the best of the next `NEXT` configurations is expected to be than the best one so far.
With a method that learns, the next configurations are the most promising ones; with others, those that the method would
try. The search ends once the expected gain is less than

- ``gain``, as given;
- with ``gain: auto``, the smallest difference that the sweep could tell from luck: the difference that its seeds can
  show, or that the choice of held-out examples may explain. Once what is left to gain is within the error of the
  objective, further search overfits it: Makarova et al., Automatic Termination for Hyperparameter Optimization, AutoML
  2022. They compare an upper bound of the regret; the expected gain is less cautious and has the units of the setting;
- ``gain_per_hour`` times the hours that the next configurations train: Xie et al., Cost-aware Stopping for Bayesian
  Optimization, 2025, where a search ends when no configuration is expected to gain more than it costs.

The decision is a function of the events, so that a resumed sweep decides as it did before: the model is asked whenever
about 5 % more configurations have ended, and the first answer that is too low is final.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sweep.analysis import ranking
from sweep.analysis.numbering import Numbering, follow_numbering
from sweep.events import WHOLE, EpochReported, Event, Params, Status, TrialEnded, TrialStarted
from sweep.progress import UnitReports
from sweep.runner import methods
from sweep.runner.limits import NEXT, ExpectedGain
from sweep.runner.methods import Repeated
from sweep.searchers import Searcher
from sweep.searchers.gp_search import GaussianProcessSearcher
from sweep.space import Space
from sweep.space.objectives import Objective
from sweep.spec import Spec
from sweep.spec.blocks import StopWhen
from sweep.statistics.intervals import compute_fold_correction
from sweep.statistics.power import (
    LEAST,
    compute_detectable_difference,
    compute_error_of_difference,
    compute_spread,
)
from sweep.store import log as store_log
from sweep.store.folder import ResultsFolder
from sweep.store.ledger import Ledger, renumber_for_search
from sweep.text import counted

FEWEST_ENDED = 10
"""Configurations that must have ended before the rule may end a search, plus one for each parameter that varies."""
ASKED_SHARE = 20  # the model is asked again whenever one in so many configurations is new
UPCOMING = 256  # configurations to come that are considered, with a method that does not learn
MOST_GRID = 2048
ONCE = Numbering(trials_each=1)
"""The numbering of a sweep that trains each configuration once."""


@dataclass(frozen=True, slots=True)
class GainSetting:
    """The settings of the rule, and the parts of the sweep file that it needs."""

    space: Space
    objective: Objective
    seed: int
    stop_when: StopWhen
    seeds: int = 1  # with which configurations are compared in the end
    # the correction for folds that they have in common, see `compute_fold_correction`
    shared: float = 0.0

    @classmethod
    def of(cls, spec: Spec) -> GainSetting | None:
        """Return the settings in a sweep file; None if it does not ask for a gain.

        The number of seeds is that of the confirmation, if there is one, otherwise the trials of each configuration.
        """
        wanted = spec.stop_when
        if wanted is None or not wanted.asks_for_gain:
            return None
        if spec.confirm is not None:  # finalists are compared by their fresh seeds alone
            seeds, shared = spec.confirm.seeds, 0.0
        else:
            seeds, shared = spec.trials_each, compute_fold_correction(spec.folds)
        return cls(spec.space, spec.objectives[0], spec.seed, wanted, seeds, shared)


def build_gain_rule(spec: Spec, searcher: Searcher, numbering: Numbering) -> GainRule | None:
    """Return the rule of a sweep, which asks ``searcher`` for configurations; None if the sweep file sets no gain.

    If the method learns, the rule does not use ``searcher``. ``numbering`` is that of the sweep's trials from now on.
    The rule has observed nothing yet.
    """
    setting = GainSetting.of(spec)
    if setting is None:
        return None
    used = None if spec.search_method.learns else searcher
    return _make_rule(setting, spec, used, numbering)


def _make_rule(
    setting: GainSetting, spec: Spec, searcher: Searcher | None, numbering: Numbering
) -> GainRule:
    """Return a rule with the ``setting`` of a sweep, which has observed nothing yet.

    ``searcher`` is None if the sweep's method learns. ``numbering`` is that of the sweep's trials from now on.
    """
    return GainRule(
        setting,
        searcher,
        numbering,
        enumerates=spec.search_method.enumerates,
        units=_make_units(spec),
    )


def _make_units(spec: Spec) -> UnitReports | None:
    """Return a new converter of the reports of a sweep with minutes; None if the sweep has none."""
    return None if spec.minutes is None else UnitReports(spec.length)


def measure_expected_gain(folder: ResultsFolder, spec: Spec, first: Spec) -> ExpectedGain | None:
    """Return the expected gain of a sweep's next configurations, computed from its log.

    Return None if the sweep file does not ask for a gain, if too few configurations have ended, if none is left to try,
    if there is no log, or if the model cannot predict. ``spec`` is the sweep as it is now, and ``first`` as it was
    before the changes in the log.

    Raises:
        StoreError: if the log is damaged.
    """
    setting = GainSetting.of(spec)
    if setting is None:
        return None
    numbering = _read_numbering(folder, first)
    if spec.search_method.learns:
        searcher = None
    else:
        searcher = methods.searcher(spec, (), numbering)
    rule = _make_rule(setting, spec, searcher, numbering)
    rule.asks = False  # `compute` asks once, after all events
    units = _make_units(spec)  # not that of the rule, as it remembers what it has converted
    for change, _ in Ledger(keep_epochs=False).follow(folder.log):
        event = renumber_for_search(change)
        if event is None:  # not of the search
            continue
        rule.observe(event)
        if searcher is not None:
            for translated in [event] if units is None else units.translate(event):
                searcher.observe(translated)
    return rule.compute()


def _read_numbering(folder: ResultsFolder, first: Spec) -> Numbering:
    """Return the numbering of a sweep's trials after all changes in its log; ``first`` is the sweep before them.

    Without a log, it is that of ``first``. Raises `StoreError` if the log is damaged.
    """
    numbering = Numbering.of(first)
    if not folder.log.exists() or not store_log.is_steered(folder.log):
        return numbering
    ledger = Ledger(keep_epochs=False)
    for change, _ in ledger.follow(folder.log):
        numbering = follow_numbering(numbering, change, ledger.trials.values(), first.folds)
    return numbering


class GainRule:
    """Observes a search and decides when its next configurations are not expected to gain enough.

    ``searcher`` suggests the configurations to come; it is None if the method learns. A configuration counts once it
    has all trials that it is to have by ``numbering``. ``units`` converts the reports of trials with minutes for the
    model, and is used only by this rule; None for trials with epochs.
    """

    def __init__(
        self,
        setting: GainSetting,
        searcher: Searcher | None,
        numbering: Numbering = ONCE,
        *,
        enumerates: bool = False,
        units: UnitReports | None = None,
    ) -> None:
        self._setting = setting
        self._searcher = searcher
        self._numbering = numbering
        self._enumerates = enumerates
        self._units = units
        self._model = GaussianProcessSearcher(setting.space, (setting.objective,), setting.seed)
        self._configurations = _Configurations(self._model)
        # gets the events, and passes them on to the model
        self._listener: Searcher = self._configurations
        # the model then sees each configuration as one trial, with mean metrics
        if not numbering.is_plain:
            self._listener = Repeated(self._configurations, numbering)
        # configurations that must have ended before the model is asked
        self._fewest_ended = FEWEST_ENDED + len(setting.space.varying)
        self._ended_when_asked = 0  # configurations that had ended when the model was asked last
        self._records = _Records(setting, numbering)
        self._started: set[int] = set()  # numbers of the configurations that have started
        self.reason: str | None = None
        """Why the search starts no more configurations; None if it goes on."""
        self.asks = True
        """Whether `observe` asks the model when configurations have ended; if False, only `compute` asks it."""

    def observe(self, event: Event) -> None:
        """Update the model with an event of the search; when enough configurations have ended, decide again.

        Sets ``reason`` once the expected gain is too low, which is final. With ``asks`` set to False, nothing is
        decided. Trials are numbered within the search; epochs are counted as in the log, even if trials are limited by
        minutes.
        """
        if isinstance(event, TrialStarted):
            self._started.add(self._numbering.find(event.trial).configuration)
        # the time of an epoch counts once, however many units it takes
        self._records.observe(event)
        for translated in [event] if self._units is None else self._units.translate(event):
            self._listener.observe(translated)
        if not self.asks or self.reason is not None:  # it must not decide, or has decided for good
            return
        if not isinstance(event, TrialEnded) or not self._is_due():
            return
        self._ended_when_asked = self._configurations.ended
        found = self.compute()
        if found is not None and not found.is_enough:
            self.reason = found.describe()

    def _is_due(self) -> bool:
        """Return whether enough configurations have ended for a first decision, or 5 % more since the last one.

        Configurations that pause count as well. There must always be at least one more.
        """
        ended = self._configurations.ended
        new = ended - self._ended_when_asked
        return ended >= self._fewest_ended and new >= max(1, ended // ASKED_SHARE)

    def compute(self) -> ExpectedGain | None:
        """Return the expected gain of the next configurations as of now, with the smallest gain that is enough.

        The next ones are up to `NEXT`, fewer if the searcher has fewer to come. Return None if too few configurations
        have ended, if the searcher has none to come, or if the model cannot predict.
        """
        if self._configurations.ended < self._fewest_ended:
            return None
        # stays empty if the method learns: the model then looks at the whole space
        upcoming: list[Params] = []
        if self._searcher is not None:
            upcoming = list(self._list_upcoming(self._searcher))
            if not upcoming:
                return None
        # a method that learns and a grid, which is tried whole, reach the most promising ones; others try any next
        is_chosen = self._searcher is None or self._enumerates
        modelled = self._model.expected_gain(NEXT, upcoming, chosen=is_chosen)
        if modelled is None:
            return None
        if upcoming:
            count = min(NEXT, len(upcoming))
        else:
            count = NEXT
        bounds = self._records.list_bounds(count, modelled.noise)
        least, why = max(bounds)  # the search ends at whichever bound the gain falls below first
        return ExpectedGain(modelled.gain, least, why, count)

    def _list_upcoming(self, searcher: Searcher) -> Iterator[Params]:
        """Yield the configurations that ``searcher`` suggests and that have not started, until it has no more.

        Looks at most 256 configurations beyond the number of started ones, or 2048 for a method that enumerates.
        """
        most = len(self._started) + (MOST_GRID if self._enumerates else UPCOMING)
        for number in range(most):
            if number in self._started:
                continue
            params = searcher.suggest(self._numbering.find_first_place(number))
            if params is None:
                return
            yield params


class _Configurations:
    """Counts the configurations that have ended or pause, as a searcher that passes events on to the model."""

    foresees = False

    def __init__(self, model: GaussianProcessSearcher) -> None:
        self._model = model
        self._over: set[int] = set()

    @property
    def ended(self) -> int:
        """Number of configurations that have ended or have paused; one that has resumed since still counts."""
        return len(self._over)

    def learn(self, past: object) -> int:
        """Do nothing and return 0: the model learns only from this sweep."""
        return 0

    def suggest(self, number: int) -> Params | None:
        """Return None: this searcher suggests nothing."""
        return None

    def observe(self, event: Event) -> None:
        """Let the model observe an event of a configuration; if it ends or pauses for the first time, count it.

        The event's ``trial`` must be the number of the configuration.
        """
        self._model.observe(event)
        if isinstance(event, TrialEnded) and (
            event.status is not Status.INTERRUPTED or event.waits
        ):
            self._over.add(event.trial)


class _Records:
    """What the trials of a search have shown so far: scores by configuration, and the time of training."""

    def __init__(self, setting: GainSetting, numbering: Numbering) -> None:
        self._setting = setting
        self._numbering = numbering
        self._last: dict[int, EpochReported] = {}  # of trials that train
        self._scores: dict[int, list[float]] = {}  # of completed trials, by configuration
        self._best: EpochReported | None = None  # last epoch of the best feasible trial
        self._best_loss = math.inf
        self._examples = 0  # number of validation examples
        self._trained_s = 0.0  # seconds of all epochs
        self._trained: set[int] = set()  # configurations that have reported an epoch

    def observe(self, event: Event) -> None:
        """Record the time of a reported epoch, or the score of a trial that was trained to its end.

        Other events are ignored.
        """
        if isinstance(event, EpochReported):
            self._last[event.trial] = event
            # only the first epoch of a trial reports this number
            self._examples = int(event.measures.get("validation_examples", self._examples))
            self._trained_s += event.time_s
            self._trained.add(self._numbering.find(event.trial).configuration)
        elif isinstance(event, TrialEnded) and event.status is not Status.INTERRUPTED:
            self._end(event, self._last.pop(event.trial, None))

    def _end(self, event: TrialEnded, last: EpochReported | None) -> None:
        """Record the loss of a trial in its last epoch ``last``, if it was trained to its end (`WHOLE`).

        Do nothing if it has reported no epoch, or if the objective is absent from the last one or not finite there.
        """
        if last is None or event.status not in WHOLE:
            return
        loss = self._setting.objective.loss(last.metrics)
        if loss is None:
            return
        self._scores.setdefault(self._numbering.find(event.trial).configuration, []).append(loss)
        # a trial that violates a constraint is not the best one, whatever its score
        if event.status is not Status.INFEASIBLE and loss < self._best_loss:
            self._best, self._best_loss = last, loss

    def list_bounds(self, count: int, noise: float) -> list[tuple[float, str]]:
        """Return the smallest gains for which the next ``count`` configurations are worthwhile, each as (gain, reason).

        There are one or more, one for each reason; the search goes on only if the expected gain reaches all. ``noise``
        is the standard deviation of the scores of one configuration, as the model estimates it.
        """
        wanted = self._setting.stop_when  # has ``gain``, ``gain_per_hour`` or both
        bounds = []
        if wanted.gain == "auto":
            bounds += [self._bound_by_seeds(noise), *self._bound_by_examples()]
        elif wanted.gain is not None:
            bounds.append((wanted.gain, "stop_when.gain"))
        if wanted.gain_per_hour is not None:
            # the next configurations are taken to train as long as those before did on average
            hours = count * self._trained_s / max(len(self._trained), 1) / 3600
            bounds.append(
                (
                    wanted.gain_per_hour * hours,
                    f"stop_when.gain_per_hour, for {hours:.2g} h of training",
                )
            )
        return bounds

    def _bound_by_seeds(self, noise: float) -> tuple[float, str]:
        """Return (difference, description): the smallest difference of two configurations that the seeds can show.

        With fewer than `LEAST` seeds, it is one standard error of the difference of two means. ``noise`` is used as the
        standard deviation over seeds if the trials do not show one: no configuration has two scores.
        """
        seeds, shared = self._setting.seeds, self._setting.shared
        spread = compute_spread(self._scores.values())
        if spread is None:
            spread = noise
        if seeds >= LEAST:
            # as large as is significant about half the time
            difference = compute_detectable_difference(spread, seeds, 2, shared)
            return difference, f"what {seeds} seeds can tell"
        standard_error = compute_error_of_difference(spread, seeds, shared)
        return standard_error, f"the standard error with {counted(seeds, 'seed')}"

    def _bound_by_examples(self) -> Sequence[tuple[float, str]]:
        """Return [(difference, description)] for what the choice of validation examples may explain; [] if unknown.

        The difference is that between two configurations as good as the best one so far.
        """
        best = self._best
        if best is None:
            return []
        name = self._setting.objective.name
        deviation = best.measures.get("validation_loss_std")
        found = ranking.compute_sampling_error(name, best.metrics[name], self._examples, deviation)
        if found is None:
            return []
        return [(found.difference, f"what {found.examples} validation examples can tell")]
