import subprocess
import sys

import pandas as pd
import pytest

import sweep
from sweep.errors import InputError
from sweep.events import Status

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
    assert loaded.trials["sweep"].tolist() == loaded.metrics["sweep"].tolist() == ["first", "second"]
    assert loaded.trials["param.lr"].tolist() == [0.1, "auto"]
    assert list(loaded.info) == ["first", "second"]
    assert loaded.best()["sweep"].tolist() == ["second"]


def test_best_gives_all_repeats_of_the_best_configurations(sweep_of):
    runs = [({"x": x}, DONE, [{"acc": value}]) for x, value in ((1, 0.5), (2, 0.6), (1, 0.9), (3, 0.1))]
    loaded = sweep.load(sweep_of(runs).path)
    best = loaded.best(2)
    assert best[["rank", "trial", "objective"]].to_numpy().tolist() == [[1, 0, 0.5], [1, 2, 0.9], [2, 1, 0.6]]
    assert list(best.columns) == ["rank", *loaded.trials.columns]
    assert loaded.ranking().rows[0].scores[0].mean == pytest.approx(0.7)


def test_what_is_no_sweep_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="no such sweep"):
        sweep.load(tmp_path / "x")
    with pytest.raises(InputError, match="no path is given"):
        sweep.load([])


def test_the_package_and_what_the_command_line_shows_import_no_heavy_library():
    modules = "sweep, sweep.store.log, sweep.store.folder, sweep.analysis.listing, sweep.render.tables"
    code = f"import sys, {modules}, sweep.render.live; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    heavy = {"pandas", "pyarrow", "numpy", "scipy", "pydantic", "ray", "optuna", "tensorflow", "keras"}
    assert heavy.isdisjoint(loaded.split())
    assert "rich" in loaded.split()


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        sweep.lod  # noqa: B018 - reading it is what raises
