"""MLflow's own client reads the runs back."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hostile import BEGAN, STATUSES, story, trial
from msgspec.structs import replace

from sweep.errors import InputError
from sweep.events import (
    Event,
    Facts,
    ModelTested,
    NoteWritten,
    Role,
    Status,
    TrialEnded,
    TrialStarred,
    TrialStarted,
)
from sweep.export import mlflow_runs, runs
from sweep.store.folder import ResultsFolder
from sweep.store.log import Log

os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
pytest.importorskip("mlflow", reason="an extra of its own")


@pytest.mark.slow  # a database takes MLflow seconds to make
@pytest.mark.filterwarnings("default")
def test_runs_are_read_back_and_not_written_twice(
    made: Callable[..., ResultsFolder], tmp_path: Path
) -> None:
    from mlflow.tracking import MlflowClient

    events = story()
    begun = next(place for place, event in enumerate(events) if isinstance(event, TrialStarted))
    events[begun] = replace(events[begun], role=Role.BASELINE)
    folder = made(events)
    uri = mlflow_runs.make_local_uri(tmp_path / "out")
    done = mlflow_runs.export_to_mlflow(runs.read_sweep_state(folder), uri)
    assert (done.new, done.unchanged, done.renamed) == (len(STATUSES), 0, {"f1=macro": "f1_macro"})

    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name(folder.name)
    found = {
        run.data.tags.get("sweep.trial", ""): run
        for run in client.search_runs([experiment.experiment_id])
    }
    assert sorted(found) == ["", *map(str, range(len(STATUSES)))]
    parent = found.pop("")
    assert (parent.info.status, parent.info.run_name) == ("FINISHED", folder.name)
    assert parent.data.tags["mlflow.source.git.commit"] == "abc"
    assert parent.data.tags["mlflow.note.content"] == "Which, if any?"
    assert parent.data.tags["sweep.best_trial"] == "1"
    assert {run.data.tags["mlflow.parentRunId"] for run in found.values()} == {parent.info.run_id}
    assert [found[str(number)].info.status for number in range(len(STATUSES))] == [
        *("SCHEDULED", "FINISHED", "FINISHED", "KILLED", "FAILED", "FAILED", "FAILED", "SCHEDULED")
    ]
    first = found["1"]
    assert first.data.params == {
        "lr": "0.1",
        "opt": "sgd",
        "cnn.head.units": "9",
        "size-2": "2.5",
        "twice": "0.2",
        "batch": "32",
    }
    assert [found[number].data.params["opt"] for number in ("3", "5", "6")] == [
        "null",
        "true",
        "[1, 2]",
    ]
    assert (first.info.start_time, first.info.end_time) == (
        (BEGAN + 10) * 1000,
        (BEGAN + 15) * 1000,
    )
    history = client.get_metric_history(first.info.run_id, "val/acc")
    assert [(one.step, one.value, one.timestamp) for one in history] == [
        (epoch, 0.1 + epoch / 100, (BEGAN + 10 + epoch) * 1000) for epoch in (1, 2, 3)
    ]
    assert math.isnan(first.data.metrics["f1_macro"])
    tags = found["6"].data.tags
    assert (tags["sweep.status"], tags["sweep.seed"], tags["sweep.repeat"]) == ("failed", "13", "0")
    assert tags["sweep.reason"] == "because, of\nfailed"

    assert tags["sweep.role"] == "search"
    assert found["0"].data.tags["sweep.role"] == "baseline"

    again = mlflow_runs.export_to_mlflow(runs.read_sweep_state(folder), uri)
    assert (again.new, again.unchanged) == (0, len(STATUSES))
    with Log(folder.log) as log:
        log.append([trial(0, Status.COMPLETED)[-1]])
    third = mlflow_runs.export_to_mlflow(runs.read_sweep_state(folder), uri)
    assert (third.new, third.unchanged) == (1, len(STATUSES) - 1)
    listed = client.search_runs([experiment.experiment_id])
    assert len(listed) == 1 + len(STATUSES)
    assert (
        next(run for run in listed if run.data.tags.get("sweep.trial") == "0").info.status
        == "FINISHED"
    )

    other = made([], "empty")
    assert mlflow_runs.export_to_mlflow(runs.read_sweep_state(other), uri).new == 0
    # its run would have another identity once it has begun
    assert client.get_experiment_by_name("empty") is None
    client.delete_experiment(experiment.experiment_id)
    with pytest.raises(InputError, match="has been deleted there; mlflow experiments restore"):
        mlflow_runs.export_to_mlflow(runs.read_sweep_state(folder), uri)


@pytest.mark.slow  # a database takes MLflow seconds to make
@pytest.mark.filterwarnings("default")
def test_a_note_is_written_when_it_has_changed(
    made: Callable[..., ResultsFolder], tmp_path: Path
) -> None:
    from mlflow.tracking import MlflowClient

    folder = made(story())
    uri = mlflow_runs.make_local_uri(tmp_path / "out")
    client = MlflowClient(tracking_uri=uri)

    def export() -> dict[str, str]:
        mlflow_runs.export_to_mlflow(runs.read_sweep_state(folder), uri)
        experiment = client.get_experiment_by_name(folder.name)
        (found,) = client.search_runs([experiment.experiment_id], "tags.`sweep.trial` = '1'")
        ids.add(found.info.run_id)
        return dict(found.data.tags)

    ids: set[str] = set()
    assert "mlflow.note.content" not in export()
    with Log(folder.log) as log:
        log.append([NoteWritten(trial=1, text="looks odd", request="a", time=BEGAN + 99)])
    assert export()["mlflow.note.content"] == "looks odd"
    (number,) = ids  # it is the same run
    client.set_tag(number, "mlflow.note.content", "written in MLflow")
    assert export()["mlflow.note.content"] == "written in MLflow"
    with Log(folder.log) as log:
        log.append([NoteWritten(trial=1, text="", request="b", time=BEGAN + 100)])
    assert export()["mlflow.note.content"] == ""


@pytest.mark.slow  # a database takes MLflow seconds to make
@pytest.mark.filterwarnings("default")
def test_tags_follow_what_has_changed(made: Callable[..., ResultsFolder], tmp_path: Path) -> None:
    from mlflow.tracking import MlflowClient

    folder = made([*story()[:1], *trial(6, Status.RUNNING)])
    uri = mlflow_runs.make_local_uri(tmp_path / "out")
    client = MlflowClient(tracking_uri=uri)

    def export(number: int, *events: Event) -> tuple[str, dict[str, str]]:
        with Log(folder.log) as log:
            log.append(list(events))
        mlflow_runs.export_to_mlflow(runs.read_sweep_state(folder), uri)
        experiment = client.get_experiment_by_name(folder.name)
        (found,) = client.search_runs(
            [experiment.experiment_id], f"tags.`sweep.trial` = '{number}'"
        )
        return found.info.run_id, dict(found.data.tags)

    def fail(reason: str, status: Status, time: float, **facts: Any) -> TrialEnded:
        return TrialEnded(
            trial=6, status=status, reason=reason, time=time, facts=Facts(**facts), error=reason
        )

    first, tags = export(6, fail("ImportError", Status.FAILED, BEGAN + 80, node="old"))
    assert (tags["sweep.reason"], tags["sweep.node"]) == ("ImportError", "old")
    again = [
        replace(fail("again", Status.INTERRUPTED, BEGAN + 90), again=True),
        fail("ValueError", Status.FAILED, BEGAN + 95),
    ]
    second, tags = export(6, *again)
    assert second != first  # its epochs may be others
    assert (tags["sweep.reason"], tags["sweep.error"]) == ("ValueError", "ValueError")

    client.set_tag(second, "mine", "stays")
    client.set_tag(second, "sweep.accumulate", "2")  # of a fact that is no more
    star = TrialStarred(trial=6, request="a", time=BEGAN + 99)
    third, tags = export(6, star)
    assert third == second
    assert (tags["sweep.starred"], tags["mine"]) == ("True", "stays")
    assert "sweep.accumulate" not in tags
    _, tags = export(6, replace(star, starred=False, request="b"))
    assert tags.get("sweep.starred", "False") == "False"


@pytest.mark.slow  # a database takes MLflow seconds to make
@pytest.mark.filterwarnings("default")
def test_folds_and_metrics_on_the_test_data(
    made: Callable[..., ResultsFolder], tmp_path: Path
) -> None:
    from mlflow.tracking import MlflowClient

    first, *others = trial(0, Status.COMPLETED)
    assert isinstance(first, TrialStarted)
    folder = made([replace(first, fold=2), *others])
    uri = mlflow_runs.make_local_uri(tmp_path / "out")
    client = MlflowClient(tracking_uri=uri)

    def export() -> Any:
        mlflow_runs.export_to_mlflow(runs.read_sweep_state(folder), uri)
        experiment = client.get_experiment_by_name(folder.name)
        (found,) = client.search_runs([experiment.experiment_id], "tags.`sweep.trial` = '0'")
        return found

    before = export()
    assert before.data.tags["sweep.fold"] == "2"
    tested = {"val/acc": 0.7, "f1=macro": 0.6}
    with Log(folder.log) as log:  # when the run is there already
        log.append([ModelTested(trial=0, metrics=tested, time=BEGAN + 50)])
    after = export()
    assert after.info.run_id == before.info.run_id
    assert after.data.metrics["test/val/acc"] == 0.7
    assert after.data.metrics["test/f1_macro"] == 0.6
    assert after.data.metrics["val/acc"] == before.data.metrics["val/acc"]
    client.delete_run(after.info.run_id)
    (one,) = client.get_metric_history(export().info.run_id, "test/val/acc")
    assert (one.value, one.step) == (0.7, 3)


@pytest.mark.parametrize("uri", ["mlruns", "./mlruns", "/data/mlruns", "file:///data/mlruns"])
def test_folders_are_refused_with_a_way_out(hostile: ResultsFolder, uri: str) -> None:
    with pytest.raises(InputError, match="no longer written by MLflow; give sqlite"):
        mlflow_runs.export_to_mlflow(runs.read_sweep_state(hostile), uri)


def test_a_database_is_not_made_outside_of_its_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has a question mark.*; name another folder"):
        mlflow_runs.make_local_uri(tmp_path / "which?" / "mlflow")
    assert not [*tmp_path.iterdir()]
    assert (
        mlflow_runs.make_local_uri(tmp_path / "50 % #") == f"sqlite:///{tmp_path}/50 % #/mlflow.db"
    )


def test_an_address_that_nobody_knows(hostile: ResultsFolder) -> None:
    with pytest.raises(InputError, match=r"--tracking-uri nosuch://x: "):
        mlflow_runs.export_to_mlflow(runs.read_sweep_state(hostile), "nosuch://x")


@pytest.mark.parametrize(
    "name",
    ["a=b", "/a", "a//b", "a/", ".", "..", "../a", "a/../b", "a/./b", "", "x" * 251, "\ud800"],
)
def test_names_become_what_mlflow_takes(name: str) -> None:
    from mlflow.utils.validation import _validate_metric_name, _validate_param_name

    there = mlflow_runs.make_mlflow_names([name, "b"])[name]
    assert there != name
    _validate_metric_name(there)
    _validate_param_name(there)


def test_other_names_stay_and_stay_apart() -> None:
    names = ["a=b", "a+b", "a_b", "größe", "a/b", "a.b-c d:e"]
    assert mlflow_runs.make_mlflow_names(names) == {
        "a=b": "a_b_2",
        "a+b": "a_b_3",
        "a_b": "a_b",
        "größe": "größe",
        "a/b": "a/b",
        "a.b-c d:e": "a.b-c d:e",
    }
