from __future__ import annotations

import json
import math
import warnings

import optuna
import pytest
from optuna.trial import TrialState

from sweep.analysis import studies
from sweep.errors import InputError
from sweep.events import Status
from sweep.spec import parse
from sweep.store.folder import ResultsFolder

FILE = """
name: first
trainable: m:M
method: random
metric: {name: acc, goal: maximize}
parameters:
  lr: {distribution: log_uniform_values, min: 1e-4, max: 1e-1}
  opt: {values: [sgd, null, true]}
  momentum: {when: {opt: sgd}, min: 0.0, max: 1.0}
  twice: {value: "= 2 * lr"}
  epochs: {value: 3}
epochs: 3
run_cap: 10
"""


def with_spec(folder: ResultsFolder, text: str = FILE) -> ResultsFolder:
    spec = parse(text, "file.yaml").to_json_dict()
    folder.write_info(folder.read_info().changed(spec=spec, import_folders=[]))
    return folder


def point(lr: float, opt: object, **more: object) -> dict[str, object]:
    return {"lr": lr, "opt": opt, **more, "twice": 2 * lr, "epochs": 3}


def test_a_sweep_is_a_study(sweep_of) -> None:
    runs = [
        (point(1e-3, "sgd", momentum=0.5), Status.COMPLETED, [{"acc": 0.1, "f1": 0.2}, {"acc": 0.3, "f1": math.nan}]),
        (point(1e-2, None), Status.PRUNED, [{"acc": math.nan}, {"acc": 0.2}]),
        (point(1e-4, True), Status.DIVERGED, [{"acc": math.nan}]),
        (point(1e-4, None), Status.RUNNING, []),
    ]
    found = studies.of(with_spec(sweep_of(runs, ended=None)))
    assert (found.study_name, found.metric_names, found.direction.name) == ("first", ["acc"], "MAXIMIZE")
    first, second, third, last = found.trials
    assert first.params == {"lr": 1e-3, "opt": "sgd", "momentum": 0.5}
    assert list(first.distributions["opt"].choices) == ["sgd", None, True]
    assert [trial.params.get("opt", "missing") for trial in found.trials] == ["sgd", None, True, None]
    assert (first.value, first.intermediate_values) == (0.3, {1: 0.1, 2: 0.3})
    assert first.duration.total_seconds() == 9
    assert {
        "trial": 0,
        "seed": 0,
        "repeat": 0,
        "status": "completed",
        "param.twice": 2e-3,
        "metric.acc": 0.3,
    }.items() <= (first.user_attrs.items())
    assert "metric.f1" not in first.user_attrs
    assert (second.state, second.value, second.intermediate_values[2]) == (TrialState.PRUNED, 0.2, 0.2)
    assert math.isnan(second.intermediate_values[1])
    assert (third.state, third.user_attrs["status"]) == (TrialState.FAIL, "diverged")
    assert last.state is TrialState.WAITING  # nobody drives the sweep
    assert found.best_trial.number == 0


def test_while_it_runs_its_trials_run(sweep_of) -> None:
    folder = sweep_of([({"lr": 0.1}, Status.RUNNING, [{"acc": 0.5}])], ended=None)
    with folder.lock():
        assert studies.of(folder).trials[0].state is TrialState.RUNNING


def test_without_a_space_its_values_tell(sweep_of) -> None:
    runs = [
        ({"lr": lr, "units": units, "c": 1}, Status.COMPLETED, [{"acc": lr}]) for lr, units in ((0.1, 8), (0.5, 16))
    ]
    found = studies.of(sweep_of(runs))
    assert [trial.params for trial in found.trials] == [{"lr": 0.1, "units": 8}, {"lr": 0.5, "units": 16}]


def test_an_empty_sweep_and_one_without_an_objective(sweep_of) -> None:
    assert studies.of(sweep_of([], ended=None)).trials == []
    with pytest.raises(InputError, match="names no objective"):
        studies.of(sweep_of([], "other", objectives=()))


EVALUATORS = (
    optuna.importance.FanovaImportanceEvaluator(seed=0),
    optuna.importance.MeanDecreaseImpurityImportanceEvaluator(seed=0),
    optuna.importance.PedAnovaImportanceEvaluator(),
)


def test_what_is_written_for_optuna_works(sweep_of) -> None:
    runs = [
        (
            point(10 ** (-1 - k / 10), *(("sgd",), (None,))[k % 2], **({} if k % 2 else {"momentum": k / 40})),
            status,
            epochs,
        )
        for k in range(30)
        for status in [Status.PRUNED if k % 7 == 6 else Status.FAILED if k % 11 == 5 else Status.COMPLETED]
        for epochs in [[{"acc": k / 60}, {"acc": k / 30}]]
    ]
    found = studies.of(with_spec(sweep_of(runs)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        for evaluator in EVALUATORS:
            shares = optuna.importance.get_param_importances(found, evaluator=evaluator, params=["lr", "opt"])
            assert max(shares, key=shares.__getitem__) == "lr"
    frame = found.trials_dataframe()
    assert frame["state"].value_counts().to_dict() == {"COMPLETE": 24, "PRUNED": 4, "FAIL": 2}
    assert frame["user_attrs_trial"].tolist() == list(range(30))
    pytest.importorskip("plotly", reason="an extra of its own")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("optimization_history", "intermediate_values", "parallel_coordinate", "slice", "timeline", "edf"):
            figure = getattr(optuna.visualization, f"plot_{name}")(found)
            assert json.loads(figure.to_json())["data"]
