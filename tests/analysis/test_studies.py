"""Sweeps as Optuna studies, read once or followed."""

from __future__ import annotations

import json
import math
import warnings

import optuna
import pytest
from msgspec import structs
from optuna.trial import FrozenTrial, TrialState

from sweep.analysis import studies
from sweep.analysis.live_status import LogReader
from sweep.analysis.studies import FollowedSweep
from sweep.errors import InputError, StoreError
from sweep.events import (
    EpochReported,
    Event,
    ModelTested,
    NoteWritten,
    SessionStarted,
    Status,
    TrialEnded,
    TrialStarred,
    TrialStarted,
)
from sweep.spec import parse_spec
from sweep.store.folder import ResultsFolder
from sweep.store.log import Log

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
    spec = parse_spec(text, "file.yaml").to_json_dict()
    folder.write_info(folder.read_info().changed(spec=spec, import_folders=[]))
    return folder


def point(lr: float, opt: object, **more: object) -> dict[str, object]:
    return {"lr": lr, "opt": opt, **more, "twice": 2 * lr, "epochs": 3}


def test_a_sweep_is_a_study(sweep_of) -> None:
    runs = [
        (
            point(1e-3, "sgd", momentum=0.5),
            Status.COMPLETED,
            [{"acc": 0.1, "f1": 0.2}, {"acc": 0.3, "f1": math.nan}],
        ),
        (point(1e-2, None), Status.PRUNED, [{"acc": math.nan}, {"acc": 0.2}]),
        (point(1e-4, True), Status.DIVERGED, [{"acc": math.nan}]),
        (point(1e-4, None), Status.RUNNING, []),
    ]
    found = studies.of(with_spec(sweep_of(runs, ended=None)))
    assert (found.study_name, found.metric_names, found.direction.name) == (
        "first",
        ["acc"],
        "MAXIMIZE",
    )
    first, second, third, last = found.trials
    assert first.params == {"lr": 1e-3, "opt": "sgd", "momentum": 0.5}
    assert list(first.distributions["opt"].choices) == ["sgd", None, True]
    assert [trial.params.get("opt", "missing") for trial in found.trials] == [
        "sgd",
        None,
        True,
        None,
    ]
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
    assert (second.state, second.value, second.intermediate_values[2]) == (
        TrialState.PRUNED,
        0.2,
        0.2,
    )
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
        ({"lr": lr, "units": units, "c": 1}, Status.COMPLETED, [{"acc": lr}])
        for lr, units in ((0.1, 8), (0.5, 16))
    ]
    found = studies.of(sweep_of(runs))
    assert [trial.params for trial in found.trials] == [
        {"lr": 0.1, "units": 8},
        {"lr": 0.5, "units": 16},
    ]


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
            point(
                10 ** (-1 - k / 10),
                *(("sgd",), (None,))[k % 2],
                **({} if k % 2 else {"momentum": k / 40}),
            ),
            status,
            epochs,
        )
        for k in range(30)
        for status in [
            Status.PRUNED if k % 7 == 6 else Status.FAILED if k % 11 == 5 else Status.COMPLETED
        ]
        for epochs in [[{"acc": k / 60}, {"acc": k / 30}]]
    ]
    found = studies.of(with_spec(sweep_of(runs)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        for evaluator in EVALUATORS:
            shares = optuna.importance.get_param_importances(
                found, evaluator=evaluator, params=["lr", "opt"]
            )
            assert max(shares, key=shares.__getitem__) == "lr"
    frame = found.trials_dataframe()
    assert frame["state"].value_counts().to_dict() == {"COMPLETE": 24, "PRUNED": 4, "FAIL": 2}
    assert frame["user_attrs_trial"].tolist() == list(range(30))
    pytest.importorskip("plotly", reason="an extra of its own")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in (
            "optimization_history",
            "intermediate_values",
            "parallel_coordinate",
            "slice",
            "timeline",
            "edf",
        ):
            figure = getattr(optuna.visualization, f"plot_{name}")(found)
            assert json.loads(figure.to_json())["data"]


BEGAN = 1_700_000_000.0


def append(folder: ResultsFolder, *events: Event) -> None:
    with Log(folder.log) as log:
        log.append(events)


def started(number: int, **params: float) -> TrialStarted:
    return TrialStarted(
        trial=number, trial_id=f"t{number}", params=params, seed=number, repeat=0, time=BEGAN
    )


def epoch(trial: int, number: int, value: float) -> EpochReported:
    return EpochReported(
        trial=trial, epoch=number, metrics={"acc": value}, time=BEGAN + number, time_s=1.0
    )


def ended(trial: int, status: Status, *, again: bool = False) -> TrialEnded:
    return TrialEnded(trial=trial, status=status, reason="why", time=BEGAN + 9, again=again)


def told(trials: list[FrozenTrial]) -> list[tuple[object, ...]]:
    return [
        (
            one.state,
            one.value,
            one.params,
            one.distributions,
            one.intermediate_values,
            one.user_attrs,
        )
        for one in sorted(trials, key=lambda one: one.user_attrs["trial"])
    ]


def look(folder: ResultsFolder) -> FollowedSweep:
    return FollowedSweep(folder, pytest.fail)


def test_each_look_shows_what_a_fresh_reading_would(sweep_of) -> None:
    folder = sweep_of([], ended=None)
    sweep = look(folder)
    assert sweep.trials() == []
    for events in (
        [
            SessionStarted(time=BEGAN, resumed=False, version="1"),
            started(1, x=0.1, y=1.0),
            epoch(1, 1, 0.5),
        ],
        [started(0, x=0.9, y=1.0)],  # they need not begin in their order
        [epoch(1, 2, 0.6), epoch(0, 1, math.nan)],
        [ended(1, Status.INTERRUPTED), ended(0, Status.DIVERGED)],
        [SessionStarted(time=BEGAN + 9, resumed=True, version="1"), epoch(1, 3, 0.8)],
        [ended(1, Status.COMPLETED)],
        [started(2, x=-5.0, y=2.0), epoch(2, 1, 0.1), ended(2, Status.FAILED)],
        [ended(2, Status.INTERRUPTED, again=True)],
        [epoch(2, 2, 0.9), ended(2, Status.PRUNED)],
        [
            TrialStarred(trial=1, request="a", time=BEGAN),
            NoteWritten(trial=1, text="odd", request="b", time=BEGAN),
        ],
        [
            TrialStarred(trial=1, starred=False, request="c", time=BEGAN),
            NoteWritten(text="of the sweep", request="d", time=BEGAN),
        ],
        [ModelTested(trial=1, metrics={"acc": 0.7, "f1": math.nan}, time=BEGAN)],
        [structs.replace(started(3, x=0.5, y=1.0), fold=2)],
    ):
        append(folder, *events)
        found, fresh = sweep.trials(), studies.of(folder).trials
        assert repr(told(found)) == repr(told(fresh))  # NaN is not equal to itself
    assert [trial.number for trial in sweep.trials()] == [1, 0, 2, 3]  # new ones last
    assert [trial.state for trial in sweep.trials()] == [
        TrialState.COMPLETE,
        TrialState.FAIL,
        TrialState.PRUNED,
        TrialState.WAITING,
    ]
    first, *_, last = sweep.trials()
    assert (first.user_attrs["test.acc"], last.user_attrs["fold"]) == (0.7, 2)
    assert "test.f1" not in first.user_attrs
    assert "fold" not in first.user_attrs


def test_a_parameter_that_a_running_sweep_gets_is_shown(sweep_of) -> None:
    folder = with_spec(sweep_of([], ended=None))
    append(folder, started(0, lr=1e-3, opt=None, twice=2e-3, epochs=3))
    sweep = look(folder)
    assert sweep.trials()[0].params == {"lr": 1e-3, "opt": None}
    with_spec(folder, FILE.replace("parameters:", "parameters:\n  decay: {min: 0.0, max: 1.0}"))
    append(folder, started(1, lr=1e-2, opt=None, decay=0.5, twice=2e-2, epochs=3))
    assert sweep.trials()[1].params == {"lr": 1e-2, "opt": None, "decay": 0.5}


def test_it_sees_whether_somebody_drives_the_sweep(sweep_of) -> None:
    folder = sweep_of([({"x": 0.1}, Status.RUNNING, [{"acc": 0.5}])], ended=None)
    sweep = look(folder)
    assert (sweep.trials()[0].state, sweep.notes["state"]) == (TrialState.WAITING, "not running")
    with folder.lock():
        assert (sweep.trials()[0].state, sweep.notes["state"]) == (TrialState.RUNNING, "running")
    assert sweep.trials()[0].state is TrialState.WAITING


def test_another_log_of_the_name_is_read_from_its_beginning(sweep_of) -> None:
    folder = sweep_of([({"x": 0.1}, Status.COMPLETED, [{"acc": 0.5}])], ended=None)
    sweep = look(folder)
    folder.log.unlink()
    assert len(sweep.trials()) == 1
    append(folder, started(0, x=0.7), *(epoch(0, number, 0.1) for number in range(1, 20)))
    assert sweep.trials()[0].params == {"x": 0.7} or sweep.trials()[0].params == {}


def test_a_sweep_in_an_object_store_is_followed_there(
    sweep_of, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = sweep_of([({"x": 0.1}, Status.COMPLETED, [{"acc": 0.5}])], ended=None)
    sweep = look(folder)
    monkeypatch.setattr("sweep.analysis.live_status.REFRESH_S", 0.0)
    pulled = iter([[started(1, x=0.2)]])
    monkeypatch.setattr(ResultsFolder, "refresh", lambda copy: append(copy, *next(pulled, [])))
    assert len(sweep.trials()) == 2


def test_an_event_that_cannot_be_is_told_at_each_look_until_it_is_gone(sweep_of) -> None:
    folder = sweep_of([({"x": 0.1}, Status.COMPLETED, [{"acc": 0.5}])], ended=None)
    said: list[str] = []
    sweep = FollowedSweep(folder, said.append)
    whole = folder.log.read_bytes()
    append(folder, epoch(7, 1, 0.1), started(1, x=0.2))
    assert [len(sweep.trials()) for _ in range(3)] == [1, 1, 1]
    assert "trial 7" in said[0]
    folder.log.write_bytes(whole)
    append(folder, started(1, x=0.2))
    assert len(sweep.trials()) == 2


def test_a_log_that_becomes_damaged_is_told_once_and_shown_as_it_was(sweep_of) -> None:
    folder = sweep_of([({"x": 0.1}, Status.COMPLETED, [{"acc": 0.5}])], ended=None)
    said: list[str] = []
    sweep = FollowedSweep(folder, said.append)
    whole = folder.log.read_bytes()
    folder.log.write_bytes(whole + b"torn\nand more\n")
    assert [len(sweep.trials()) for _ in range(3)] == [1, 1, 1]
    (line,) = said
    assert "repair" in line
    folder.log.write_bytes(whole)
    append(folder, started(1, x=0.2))
    assert len(sweep.trials()) == 2


def test_what_was_read_before_a_log_failed_is_shown_at_the_next_look(
    sweep_of, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = sweep_of([({"x": 0.1}, Status.COMPLETED, [{"acc": 0.5}])], ended=None)
    sweep = FollowedSweep(folder, lambda text: None)
    append(folder, started(1, x=0.2))
    read = LogReader.more
    looks = []

    def more(reader: LogReader) -> list[Event] | None:
        looks.append(1)
        if len(looks) == 2:
            raise StoreError("the disk does not answer")
        return read(reader)

    monkeypatch.setattr(LogReader, "more", more)
    assert len(sweep.trials()) == 1
    assert len(sweep.trials()) == 2


def test_without_an_objective_there_is_no_study(sweep_of) -> None:
    with pytest.raises(InputError, match="names no objective"):
        look(sweep_of([], objectives=()))
