"""The list of trials in which Optuna's study lives, used as Optuna uses a storage."""

from __future__ import annotations

from datetime import UTC, datetime

import optuna
from optuna.distributions import FloatDistribution
from optuna.study import StudyDirection
from optuna.trial import TrialState

from sweep.searchers.optuna_storage import NAME, ToldTrials, frozen

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
X = {"x": FloatDistribution(0, 1)}


def test_a_study_sees_what_is_told_and_what_is_told_anew() -> None:
    storage = ToldTrials([StudyDirection.MINIMIZE])
    study = optuna.load_study(study_name=NAME, storage=storage, sampler=optuna.samplers.RandomSampler(0))
    storage.tell(0, frozen(TrialState.RUNNING, None, {"x": 0.5}, X, {1: 4.0}, {}, NOON, None))
    storage.tell(1, frozen(TrialState.COMPLETE, [3.0], {"x": 0.1}, X, {}, {"note": 1}, NOON, NOON))
    assert [trial.state for trial in study.trials] == [TrialState.RUNNING, TrialState.COMPLETE]
    storage.tell(0, frozen(TrialState.COMPLETE, [2.0], {"x": 0.5}, X, {}, {}, NOON, NOON))
    assert study.best_trial.number == 0
    assert [trial.values for trial in study.trials] == [[2.0], [3.0]]


def test_what_is_asked_for_comes_last_and_is_forgotten() -> None:
    storage = ToldTrials([StudyDirection.MINIMIZE])
    storage.tell(0, frozen(TrialState.COMPLETE, [2.0], {"x": 0.5}, X, {}, {}, NOON, NOON))
    study = optuna.load_study(study_name=NAME, storage=storage, sampler=optuna.samplers.TPESampler(seed=0))
    trial = study.ask()
    assert 0 <= trial.suggest_float("x", 0, 1) <= 1
    trial.report(1.0, 1)
    assert (trial.number, study.trials[1].intermediate_values) == (1, {1: 1.0})
    study.tell(trial, 0.5)
    assert study.best_value == 0.5
    storage.forget(1)
    assert [one.number for one in study.trials] == [0]
