"""A storage of Optuna that shows sweeps and takes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState

from sweep.events import Value
from sweep.searchers.optuna_storage import WatchedStudies


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
