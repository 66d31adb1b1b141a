"""Storages of Optuna studies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from sweep.events import Value
from sweep.searchers.optuna_storage import (
    NAME,
    VIOLATED,
    SearcherStorage,
    WatchedStudies,
    create_frozen_trial,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
X = {"x": FloatDistribution(0, 1)}


def test_a_study_sees_what_is_told_and_what_is_told_anew() -> None:
    storage = SearcherStorage([StudyDirection.MINIMIZE])
    study = optuna.load_study(
        study_name=NAME, storage=storage, sampler=optuna.samplers.RandomSampler(0)
    )
    storage.set_trial(
        0, create_frozen_trial(TrialState.RUNNING, None, {"x": 0.5}, X, {1: 4.0}, (NOON, None))
    )
    noted = create_frozen_trial(TrialState.COMPLETE, [3.0], {"x": 0.1}, X, {}, (NOON, NOON))
    noted.system_attrs = {"note": 1}
    storage.set_trial(1, noted)
    assert [trial.state for trial in study.trials] == [TrialState.RUNNING, TrialState.COMPLETE]
    storage.set_trial(
        0, create_frozen_trial(TrialState.COMPLETE, [2.0], {"x": 0.5}, X, {}, (NOON, NOON))
    )
    assert study.best_trial.number == 0
    assert [trial.values for trial in study.trials] == [[2.0], [3.0]]


def test_what_is_asked_for_comes_last_and_is_forgotten() -> None:
    storage = SearcherStorage([StudyDirection.MINIMIZE])
    storage.set_trial(
        0, create_frozen_trial(TrialState.COMPLETE, [2.0], {"x": 0.5}, X, {}, (NOON, NOON))
    )
    study = optuna.load_study(
        study_name=NAME, storage=storage, sampler=optuna.samplers.TPESampler(seed=0)
    )
    trial = study.ask()
    assert 0 <= trial.suggest_float("x", 0, 1) <= 1
    trial.report(1.0, 1)
    assert (trial.number, study.trials[1].intermediate_values) == (1, {1: 1.0})
    study.tell(trial, 0.5)
    assert study.best_value == 0.5
    storage.remove_trials_from(1)
    assert [one.number for one in study.trials] == [0]


class Shown:
    """A sweep that is what a test says."""

    objectives: Sequence[tuple[str, str]] = (("acc", "maximize"),)
    notes: Mapping[str, Value] = {"method": "tpe"}

    def __init__(self, name: str, *values: float) -> None:
        self.name = name
        self._trials = []
        for number, value in enumerate(values):
            trial = optuna.trial.create_trial(value=value)
            trial.number = number
            self._trials.append(trial)

    def trials(self) -> Sequence[FrozenTrial]:
        return self._trials


STORAGE = WatchedStudies([Shown("first", 0.1, 0.7, 0.3), Shown("second", 0.9)])


def test_studies_are_read_as_any() -> None:
    assert optuna.get_all_study_names(STORAGE) == ["first", "second"]
    study = optuna.load_study(study_name="first", storage=STORAGE)
    assert (study.best_trial.number, study.best_value, study.metric_names) == (1, 0.7, ["acc"])
    assert study.user_attrs == {"method": "tpe"}
    assert [trial.number for trial in study.get_trials(states=(TrialState.COMPLETE,))] == [0, 1, 2]
    second = optuna.load_study(study_name="second", storage=STORAGE)
    assert STORAGE.get_trial(second.trials[0]._trial_id).value == 0.9
    assert {trial._trial_id for trial in study.trials}.isdisjoint({second.trials[0]._trial_id})


def test_the_best_trial_meets_its_constraints() -> None:
    shown = Shown("third", 0.1, 0.7, 0.3)
    shown.trials()[1].system_attrs = {VIOLATED: (1.0,)}
    storage = WatchedStudies([shown])
    assert storage.get_best_trial(0).number == 2
    for trial in shown.trials():
        trial.system_attrs = {VIOLATED: (1.0,)}
    with pytest.raises(ValueError, match="no trial that meets its constraints"):
        storage.get_best_trial(0)


def test_what_is_not_there_is_a_key_error() -> None:
    for ask in (
        lambda: STORAGE.get_study_id_from_name("third"),
        lambda: STORAGE.get_study_name_from_id(2),
        lambda: STORAGE.get_trial(99),
    ):
        with pytest.raises(KeyError):
            ask()


def test_nothing_can_be_written() -> None:
    study = optuna.load_study(study_name="first", storage=STORAGE)
    for write in (
        study.ask,
        lambda: study.set_user_attr("a", 1),
        lambda: optuna.delete_study(study_name="first", storage=STORAGE),
        lambda: optuna.create_study(storage=STORAGE, study_name="third"),
        lambda: study.add_trial(optuna.trial.create_trial(value=1.0)),
        lambda: STORAGE.set_trial_state_values(0, TrialState.FAIL),
    ):
        with pytest.raises(NotImplementedError, match="nothing is written"):
            write()
