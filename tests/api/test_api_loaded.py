import json
import math
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

import sweep
from sweep.api.loaded_sweep import curves_frame
from sweep.cli import main
from sweep.errors import InputError, StoreError
from sweep.events import EpochReported, Status, TrialStarted
from sweep.store.log import Log

DONE = Status.COMPLETED


def test_frames_are_those_of_the_files(sweep_of):
    folder = sweep_of([({"lr": 0.1}, DONE, [{"acc": 0.5}, {"acc": 0.6}])])
    loaded = sweep.load(folder.path)
    pd.testing.assert_frame_equal(loaded.trials, pd.read_parquet(folder.trials))
    pd.testing.assert_frame_equal(loaded.metrics, pd.read_parquet(folder.metrics))
    assert loaded.info["name"] == "first"


def test_a_killed_sweep_is_read_from_its_log_and_nothing_is_written(sweep_of):
    folder = sweep_of([({"lr": 0.1}, Status.RUNNING, [{"acc": 0.5}])], ended=None)
    before = sorted(folder.path.rglob("*"))
    loaded = sweep.load(str(folder.path))
    assert loaded.trials["status"].tolist() == ["running"]
    assert loaded.metrics["metric.acc"].tolist() == [0.5]
    assert sorted(folder.path.rglob("*")) == before


def test_several_sweeps_are_read_as_one(sweep_of):
    first = sweep_of([({"lr": 0.1}, DONE, [{"acc": 0.5}])], "first")
    second = sweep_of([({"lr": "auto", "depth": 2}, DONE, [{"acc": 0.6}])], "second")
    loaded = sweep.load([first.path, second.path])
    assert (
        loaded.trials["sweep"].tolist() == loaded.metrics["sweep"].tolist() == ["first", "second"]
    )
    assert loaded.trials["param.lr"].tolist() == [0.1, "auto"]
    assert list(loaded.info) == ["first", "second"]
    assert loaded.best()["sweep"].tolist() == ["second"]


def test_best_gives_all_repeats_of_the_best_configurations(sweep_of):
    runs = [
        ({"x": x}, DONE, [{"acc": value}]) for x, value in ((1, 0.5), (2, 0.6), (1, 0.9), (3, 0.1))
    ]
    loaded = sweep.load(sweep_of(runs).path)
    best = loaded.best(2)
    assert best[["rank", "trial", "objective"]].to_numpy().tolist() == [
        [1, 0, 0.5],
        [1, 2, 0.9],
        [2, 1, 0.6],
    ]
    assert list(best.columns) == ["rank", *loaded.trials.columns]
    assert loaded.ranking().rows[0].scores[0].mean == pytest.approx(0.7)


@pytest.mark.parametrize(
    "values", [[[16, 8], [32]], [1, "a"], [{"a": 1}, None], [1, 0.5], [True, False], ["x", "y"]]
)
def test_configurations_have_the_parameters_that_trials_and_the_file_have(sweep_of, values):
    folders = [
        sweep_of([({"x": x, "n": n}, DONE, [{"acc": n / 10}]) for n, x in enumerate(some)], name)
        for name, some in (("first", values), ("second", [5, 6]))
    ]
    for loaded in (sweep.load(folders[0].path), sweep.load([one.path for one in folders])):
        ranked = loaded.configurations().astype({"trials": "int64"})
        both = ranked.merge(loaded.trials, left_on=["sweep", "trials"], right_on=["sweep", "trial"])
        assert len(both) == len(loaded.trials)
        for one, other in zip(both["param.x_x"], both["param.x_y"], strict=True):
            assert (type(one), one) == (type(other), other) or (pd.isna(one) and pd.isna(other))
    first = sweep.load(folders[0].path)
    kept = first.configurations()["param.x"]
    assert kept.dtype == first.trials["param.x"].dtype


@pytest.mark.parametrize("values", [[0.1, 0.2], [1, 2], [True, False], ["x", "y"]])
@pytest.mark.parametrize("lacks", ["it", "its values"])
def test_a_parameter_that_one_sweep_lacks_keeps_its_type(sweep_of, values, lacks):
    others = [{"y": y} if lacks == "it" else {"y": y, "x": None} for y in range(2)]
    folders = [
        sweep_of([(params, DONE, [{"acc": n / 10}]) for n, params in enumerate(some)], name)
        for name, some in (("first", [{"x": x} for x in values]), ("second", others))
    ]
    loaded = sweep.load([one.path for one in folders])
    ranked = loaded.configurations()
    for name in ("param.x", "param.y"):
        assert ranked[name].dtype == loaded.trials[name].dtype


def test_what_is_no_sweep_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="no such sweep"):
        sweep.load(tmp_path / "x")
    with pytest.raises(InputError, match="no path is given"):
        sweep.load([])


def test_the_package_and_what_the_command_line_shows_import_no_heavy_library():
    modules = (
        "sweep, sweep.store.log, sweep.store.folder, sweep.analysis.verdict, sweep.render.tables"
    )
    code = f"import sys, {modules}, sweep.render.live; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    heavy = {
        "pandas",
        "pyarrow",
        "numpy",
        "scipy",
        "pydantic",
        "ray",
        "optuna",
        "tensorflow",
        "keras",
    }
    assert heavy.isdisjoint(loaded.split())
    assert "rich" in loaded.split()


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        sweep.lod  # noqa: B018 - reading it is what raises


def test_curves_have_a_column_per_trial_in_order_and_end_with_their_trials(sweep_of):
    folder = sweep_of(
        [
            (
                {"x": 1},
                Status.COMPLETED,
                [{"acc": 0.1, "of/top 5": 1.0}, {"acc": 0.2}, {"acc": math.nan}],
            ),
            ({"x": 2}, Status.FAILED, []),
            ({"x": 3}, Status.PRUNED, [{"acc": 0.3}]),
        ]
    )
    loaded = sweep.load(folder.path)
    curves = loaded.curves("acc")
    assert (list(curves.columns), curves.columns.name) == ([0, 1, 2], "trial")
    assert (list(curves.index), curves.index.name) == ([1, 2, 3], "epoch")
    assert curves[0].tolist()[:2] == [0.1, 0.2]
    assert curves[2].notna().tolist() == [True, False, False]
    assert curves[1].isna().all()
    pd.testing.assert_frame_equal(curves, loaded.curves())
    pd.testing.assert_frame_equal(curves, loaded.curves("metric.acc"))
    assert loaded.curves("of/top 5")[0][1] == 1.0
    assert loaded.curves("time_s")[0].tolist() == [1.0, 1.0, 1.0]
    with pytest.raises(InputError) as caught:
        loaded.curves("ac")
    assert "curves: no trial has reported 'ac'; did you mean 'acc'? there are: " in str(
        caught.value
    )
    of_epochs = pd.DataFrame(
        {"sweep": ["s"], "trial": [0], "epoch": [1], "metric.mean_pool": [0.5]}
    )
    with pytest.raises(InputError, match="'loss'; there are: mean_pool"):
        curves_frame(of_epochs, of_epochs, "loss")


def test_curves_of_several_sweeps_are_by_sweep_and_trial(sweep_of, monkeypatch, tmp_path):
    sweep_of([({"x": 1}, DONE, [{"acc": 0.1}]), ({"x": 2}, DONE, [{"acc": 0.2}])], "lr_b")
    sweep_of([({"x": 1}, DONE, [{"acc": 0.3}, {"acc": 0.4}])], "lr_a")
    monkeypatch.chdir(tmp_path)
    curves = sweep.load("lr_*").curves()
    assert list(curves.columns) == [("lr_a", 0), ("lr_b", 0), ("lr_b", 1)]
    assert curves["lr_a"][0].tolist() == [0.3, 0.4]
    assert list(curves.columns.names) == ["sweep", "trial"]


def test_sweeps_of_one_name_are_told_apart_by_their_places_and_named_twice_are_one(
    sweep_of, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    sweep_of([({"x": x}, DONE, [{"acc": x / 100}, {"acc": x / 50}]) for x in range(9)])
    (tmp_path / "results").rename("earlier")
    sweep_of([({"x": x}, DONE, [{"acc": x / 10}]) for x in range(4)])
    both = sweep.load(["first", "earlier/first"])
    assert both.name == "results/first, earlier/first"
    assert list(both.info) == ["results/first", "earlier/first"]
    assert both.trials.groupby("sweep", sort=False).size().to_dict() == {
        "results/first": 4,
        "earlier/first": 9,
    }
    assert both.curves()["earlier/first"][8].tolist() == [0.08, 0.16]
    assert both.configurations()["sweep"].value_counts().to_dict() == {
        "earlier/first": 9,
        "results/first": 4,
    }

    def told(*names):
        ran = CliRunner().invoke(main, ["compare", *names, "--json"])
        assert ran.exit_code == 0, ran.output
        return json.loads(ran.stdout)

    alone, twice = (
        told("first"),
        told("first", "results/first", str(tmp_path / "results" / "first")),
    )
    assert alone == twice
    (new, old) = told("first", "earlier/first")["search"]
    assert (new["sweep"], old["sweep"]) == ("results/first", "earlier/first")
    assert {**new, "sweep": "first"} == alone["search"][0]
    assert old["control"]["of_epochs"] == 18
    assert CliRunner().invoke(main, ["report", "first", "earlier/first"]).exit_code == 0


def test_a_sweep_whose_folder_was_renamed_is_called_by_the_folder(sweep_of, tmp_path):
    folder = sweep_of([({"x": x}, DONE, [{"acc": x / 10}, {"acc": x / 5}]) for x in range(4)])
    renamed = folder.path.rename(tmp_path / "kept")
    told = json.loads(CliRunner().invoke(main, ["compare", str(renamed), "--json"]).stdout)
    assert (told["rows"][0]["sweep"], told["search"][0]["control"]["of_epochs"]) == ("kept", 8)


def test_curves_of_a_metric_go_before_a_measure_of_its_name(sweep_of):
    folder = sweep_of([], ended=None, objectives=(("cost", "minimize"),))
    events = [
        TrialStarted(trial=0, trial_id="a", params={}, seed=0, repeat=0, time=1.0),
        EpochReported(
            trial=0, epoch=1, metrics={"cost": 0.5}, time=2.0, time_s=1.0, measures={"cost": 30.0}
        ),
    ]
    with Log(folder.log) as log:
        log.append(events)
    loaded = sweep.load(folder.path)
    assert [loaded.curves(*name)[0][1] for name in ((), ("cost",), ("metric.cost",))] == [
        0.5,
        0.5,
        0.5,
    ]


def test_sweeps_are_found_by_name_path_and_pattern_each_once(sweep_of, monkeypatch, tmp_path):
    for name in ("lr_1", "lr_2", "other", "odd[1]"):
        sweep_of([({"x": 1}, DONE, [{"acc": 0.1}])], name)
    monkeypatch.chdir(tmp_path)

    def names(*given, **more):
        return [folder.name for folder in sweep.load(*given, **more).folders]

    assert names("lr_*") == names("lr_[12]") == names("results/lr_?") == ["lr_1", "lr_2"]
    assert names(["other", "lr_*", "results/other", tmp_path / "results" / "lr_1"]) == [
        "other",
        "lr_1",
        "lr_2",
    ]
    assert names("odd[1]") == ["odd[1]"]
    assert names("lr_1", results=tmp_path / "results") == ["lr_1"]
    monkeypatch.chdir("/")
    assert names("l*", results=tmp_path / "results") == ["lr_1", "lr_2"]
    monkeypatch.chdir(tmp_path)
    for wrong in ("no_*", "results/no_*", "lr"):
        with pytest.raises(InputError, match="no such sweep in results"):
            sweep.load(wrong)


def test_a_pattern_leaves_out_a_folder_that_one_may_not_look_into(sweep_of, monkeypatch):
    folder = sweep_of([({"x": 1}, DONE, [{"acc": 0.1}])], "lr_1")
    (folder.path.parent / "lr_2").mkdir()
    stat = Path.stat

    def refuse(path, **given):
        if path.parent.name == "lr_2":  # root may look into all
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, **given)

    monkeypatch.setattr(Path, "stat", refuse)
    loaded = sweep.load("lr_*", results=folder.path.parent)
    assert [one.name for one in loaded.folders] == ["lr_1"]
    with pytest.raises(StoreError, match="lr_2: may not be read by this user"):
        sweep.load("lr_2", results=folder.path.parent)


def test_a_study_has_the_states_that_the_trials_have(sweep_of):
    states = (Status.COMPLETED, Status.PRUNED, Status.FAILED, Status.DIVERGED)
    folder = sweep_of(
        [
            ({"x": 0.1 * n}, state, [{"acc": 0.1 * n}, {"acc": 0.5}])
            for n, state in enumerate(states)
        ]
    )
    study = sweep.load(folder.path).study()
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "PRUNED", "FAIL", "FAIL"]
    assert study.trials[1].intermediate_values == {1: 0.1, 2: 0.5}
    assert (study.best_trial.number, study.direction.name) == (0, "MAXIMIZE")
    assert len(study.trials_dataframe()) == 4


def test_what_makes_sense_for_one_sweep_alone_says_so(sweep_of):
    both = sweep.load(
        [sweep_of([({"x": 1}, DONE, [{"acc": 0.5}])], name).path for name in ("first", "second")]
    )
    for call in (both.study, both.model):
        message = rf"{call.__name__}\(\): 2 sweeps are loaded \(first, second\), expected one; load one of them"
        with pytest.raises(InputError, match=message) as refused:
            call()
        # by its path, because it is not in results/
        assert f"sweep.load({str(both.folders[0].path)!r}).{call.__name__}()" in str(refused.value)
    assert both.name == "first, second"


def test_a_model_needs_a_checkpoint(sweep_of):
    loaded = sweep.load(sweep_of([({"x": 1}, DONE, [{"acc": 0.5}])]).path)
    with pytest.raises(InputError, match="first, trial 0: kept no checkpoint"):
        loaded.model()
    with pytest.raises(InputError, match="first: has no trial 7"):
        loaded.model(7)


HOSTILE = "<script>alert(1)</script>"


def test_a_summary_escapes_what_comes_from_results(sweep_of):
    runs = [
        (
            {HOSTILE: "\x1b[31m<b>", "n": None, "b": True, "a.ü": [1, 2]},
            DONE,
            [{"acc": 0.5, HOSTILE: 1.0}],
        ),
        ({HOSTILE: "two"}, Status.FAILED, []),
    ]
    loaded = sweep.load(sweep_of(runs, "<img src=x onerror=alert(1)>").path)
    html = loaded._repr_html_()
    assert "<script" not in html
    assert "<img" not in html
    assert "\x1b" not in html + repr(loaded)
    assert "&lt;script&gt;" in html
    assert "a.ü" in html


def test_summaries_of_sweeps_of_every_kind(sweep_of):
    def shown(runs, name, **more):
        loaded = sweep.load(sweep_of(runs, name, **more).path)
        assert "<table" in loaded._repr_html_() or not runs
        return repr(loaded)

    two = (("acc", "maximize"), ("cost", "minimize"))
    done = [({"x": n}, DONE, [{"acc": 0.1 * n, "cost": n}]) for n in (1, 2)]
    assert shown([], "none", ended=None) == "<sweep none: unfinished; no trials yet>"
    assert shown([({"x": 1}, Status.RUNNING, [])], "killed", ended=None).startswith(
        "<sweep killed: unfinished; 1 interrupted"
    )
    assert "best acc 0.2000, trial 1 x=2>" in shown(done, "done")
    assert "; 2 on the Pareto front, one of them acc 0.2000, cost 2.000, trial 1 x=2>" in shown(
        done, "two", objectives=two
    )
    assert shown([({"x": 1}, Status.FAILED, [])], "failed").endswith("; 1 failed; 1 min 40 s>")
    assert "best" not in shown([({"x": 1}, DONE, [{"acc": math.nan}])], "nan")
    many = sweep.load(sweep_of([({"x": n}, DONE, [{"acc": 0.1}]) for n in range(9)], "many").path)
    assert many._repr_html_().count("<tr>") == 6
    assert "and 4 more" in many._repr_html_()


def test_a_summary_of_sweeps_without_a_common_order_has_no_table(sweep_of):
    folders = [
        sweep_of([({"x": 1}, DONE, [{"acc": 0.5}])], name, objectives=objectives)
        for name, objectives in (
            ("first", (("acc", "maximize"),)),
            ("second", (("acc", "minimize"),)),
        )
    ]
    loaded = sweep.load([folder.path for folder in folders])
    assert "<table" not in loaded._repr_html_()
    assert repr(loaded).count("\n") == 1


def test_a_sweep_that_cannot_be_ranked_is_still_shown(sweep_of, monkeypatch):
    def refuse(sweeps):
        raise InputError.one("changed", "the file is not valid in this version")

    loaded = sweep.load(sweep_of([({"x": 1}, DONE, [{"acc": 0.5}])], "changed").path)
    monkeypatch.setattr("sweep.api.display.rank", refuse)
    assert repr(loaded) == "<sweep changed: finished; 1 completed; 1 min 40 s>"
    assert "<table" not in loaded._repr_html_()


def test_a_running_sweep_says_so(sweep_of):
    folder = sweep_of([({"x": 1}, Status.RUNNING, [{"acc": 0.5}])], ended=None)
    with folder.lock():
        assert repr(sweep.load(folder.path)).startswith("<sweep first: running; 1 running")
