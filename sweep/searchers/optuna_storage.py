"""Storages of Optuna studies, for the trials of a searcher (without copies) and for sweeps that are only read."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NoReturn, Protocol

import optuna
from optuna.distributions import BaseDistribution
from optuna.storages import BaseStorage
from optuna.study import StudyDirection
from optuna.study._frozen import FrozenStudy
from optuna.study.study import _SYSTEM_ATTR_METRIC_NAMES
from optuna.trial import FrozenTrial, TrialState

from sweep.events import Value

NAME = "sweep"
VIOLATED = "constraints"
"""The attribute with a trial's constraint violations; Optuna never takes a trial with one above 0 as the best."""
_ID = 0


def _refuse_writing(*given: Any, **named: Any) -> NoReturn:
    raise NotImplementedError("a sweep is what its log says; nothing is written here")


class SearcherStorage(BaseStorage):
    """A storage of one study, in which the id of a trial is its number, and trials are returned without copying.

    `set_trial` sets the trial with a number. Trials that Optuna creates are appended; `remove_trials_from` removes
    them.
    """

    def __init__(self, directions: Sequence[StudyDirection]) -> None:
        self._directions = list(directions)
        self._trials: list[FrozenTrial] = []
        self.notes: dict[str, Any] = {}  # attributes that samplers set on the study

    def set_trial(self, number: int, trial: FrozenTrial) -> None:
        """Replace the trial with number ``number``, or append it if the number is the next one.

        ``trial`` is stored without copying, and its own number and id are set to ``number``, which must not be larger
        than that of the next trial.
        """
        trial.number = trial._trial_id = number
        self._trials[number : number + 1] = [trial]

    def remove_trials_from(self, number: int) -> None:
        """Remove the trial with number ``number`` and all later ones, if there are any."""
        del self._trials[number:]

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        running = TrialState.RUNNING
        self.set_trial(
            len(self._trials),
            template_trial
            or create_frozen_trial(running, None, {}, {}, {}, (datetime.now(UTC), None)),
        )
        return len(self._trials) - 1

    def get_trial(self, trial_id: int) -> FrozenTrial:
        return self._trials[trial_id]

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        # Optuna asks for waiting trials before each new one; here no trial ever waits
        if states == (TrialState.WAITING,):
            return []
        trials = []
        for trial in self._trials:
            if states is None or trial.state in states:
                trials.append(trial)
        if deepcopy:
            return copy.deepcopy(trials)
        return trials

    def set_trial_param(
        self,
        trial_id: int,
        param_name: str,
        param_value_internal: float,
        distribution: BaseDistribution,
    ) -> None:
        trial = self._trials[trial_id]
        trial.params = {
            **trial.params,
            param_name: distribution.to_external_repr(param_value_internal),
        }
        trial.distributions = {**trial.distributions, param_name: distribution}

    def set_trial_state_values(
        self, trial_id: int, state: TrialState, values: Sequence[float] | None = None
    ) -> bool:
        trial = self._trials[trial_id]
        trial.state = state
        if values is not None:
            trial.values = list(values)
        if state.is_finished():
            trial.datetime_complete = datetime.now(UTC)
        return True

    def set_trial_intermediate_value(
        self, trial_id: int, step: int, intermediate_value: float
    ) -> None:
        self._trials[trial_id].intermediate_values[step] = intermediate_value

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> None:
        self._trials[trial_id].user_attrs = {**self._trials[trial_id].user_attrs, key: value}

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        self._trials[trial_id].system_attrs = {**self._trials[trial_id].system_attrs, key: value}

    def get_study_id_from_name(self, study_name: str) -> int:
        return _ID

    def get_study_name_from_id(self, study_id: int) -> str:
        return NAME

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        return self._directions

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        return {}

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        return self.notes

    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> None:
        self.notes = {**self.notes, key: value}

    create_new_study = delete_study = get_all_studies = set_study_user_attr = _refuse_writing


def create_frozen_trial(
    state: TrialState,
    values: list[float] | None,
    params: dict[str, Any],
    distributions: dict[str, BaseDistribution],
    by_epoch: dict[int, float],
    span: tuple[datetime | None, datetime | None],
) -> FrozenTrial:
    """Return an Optuna trial with the placeholder -1 as its number and id.

    ``params`` are in Optuna's representation, in ``distributions``. ``values`` has the final value of each objective,
    or is None; ``by_epoch`` are the intermediate values. ``span`` is the time of its start and the time of its end;
    each is None if unknown. The trial has no attributes. Mappings are not copied.
    """
    return FrozenTrial(
        number=-1,
        trial_id=-1,
        state=state,
        value=None,
        values=values,
        params=params,
        distributions=distributions,
        intermediate_values=by_epoch,
        datetime_start=span[0],
        datetime_complete=span[1],
        user_attrs={},
        system_attrs={},
    )


@contextmanager
def silence_optuna() -> Iterator[None]:
    """Suppress Optuna's log messages below critical, and all Python warnings, inside of a ``with`` block.

    This holds for the whole process, also for its other threads. Optuna's verbosity and the filters of warnings are
    restored afterwards.
    """
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)


_IDS = 10_000_000  # a trial's id is its number plus this many for each study before its own


class FollowedSweep(Protocol):
    """A sweep whose trials can be requested repeatedly while it runs."""

    @property
    def name(self) -> str:
        """The name of its study."""

    @property
    def objectives(self) -> Sequence[tuple[str, str]]:
        """The metric and the goal, ``minimize`` or ``maximize``, of each objective."""

    @property
    def notes(self) -> Mapping[str, Value]:
        """The user attributes of its study."""

    def trials(self) -> Sequence[FrozenTrial]:
        """Return all trials in their present state; trials that were not returned by earlier calls come last.

        Callers may set the id of a returned trial.
        """


class WatchedStudies(BaseStorage):
    """A read-only storage with one study for each sweep.

    Trials keep their numbers in the sweep, and are listed in the order in which they were first seen.
    """

    def __init__(self, sweeps: Sequence[FollowedSweep]) -> None:
        self._sweeps = list(sweeps)

    def get_all_studies(self) -> list[FrozenStudy]:
        studies = []
        for number, sweep in enumerate(self._sweeps):
            studies.append(
                FrozenStudy(
                    study_name=sweep.name,
                    direction=None,
                    directions=self.get_study_directions(number),
                    user_attrs=dict(sweep.notes),
                    system_attrs=self.get_study_system_attrs(number),
                    study_id=number,
                )
            )
        return studies

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        trials = []
        for trial in self._get_sweep(study_id).trials():
            if states is None or trial.state in states:
                trials.append(trial)
        for trial in trials:
            trial._trial_id = _IDS * study_id + trial.number
        if deepcopy:
            return copy.deepcopy(trials)
        return trials

    def get_trial(self, trial_id: int) -> FrozenTrial:
        for trial in self.get_all_trials(trial_id // _IDS, deepcopy=False):
            if trial._trial_id == trial_id:
                return trial
        raise KeyError(trial_id)

    def get_best_trial(self, study_id: int) -> FrozenTrial:
        """Return the completed trial with the best value that meets the constraints.

        Of equally good ones, it is the first; it is not copied. The study must have one objective. Raises ValueError if
        there is no such trial, and KeyError if there is no such study. The inherited method compares values only,
        although `study.best_trial` considers constraints.
        """
        completed = self.get_all_trials(study_id, deepcopy=False, states=(TrialState.COMPLETE,))
        feasible = []
        for trial in completed:
            if _meets_constraints(trial):
                feasible.append(trial)
        if not feasible:
            raise ValueError("no trial that meets its constraints is completed yet")
        if self.get_study_directions(study_id) == [StudyDirection.MAXIMIZE]:
            choose_best = max
        else:
            choose_best = min
        return choose_best(feasible, key=lambda trial: trial.values[0])

    def get_study_id_from_name(self, study_name: str) -> int:
        for number, sweep in enumerate(self._sweeps):
            if sweep.name == study_name:
                return number
        raise KeyError(study_name)

    def get_study_name_from_id(self, study_id: int) -> str:
        return self._get_sweep(study_id).name

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        directions = []
        for _, goal in self._get_sweep(study_id).objectives:
            directions.append(StudyDirection[goal.upper()])
        return directions

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        return dict(self._get_sweep(study_id).notes)

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        return {
            _SYSTEM_ATTR_METRIC_NAMES: [
                metric for metric, _ in self._get_sweep(study_id).objectives
            ]
        }

    def _get_sweep(self, study_id: int) -> FollowedSweep:
        if not 0 <= study_id < len(self._sweeps):
            raise KeyError(study_id)
        return self._sweeps[study_id]

    create_new_study = delete_study = set_study_user_attr = set_study_system_attr = _refuse_writing
    create_new_trial = set_trial_param = set_trial_state_values = set_trial_intermediate_value = (
        _refuse_writing
    )
    set_trial_user_attr = set_trial_system_attr = _refuse_writing


def _meets_constraints(trial: FrozenTrial) -> bool:
    return not any(by > 0 for by in trial.system_attrs.get(VIOLATED, ()))
