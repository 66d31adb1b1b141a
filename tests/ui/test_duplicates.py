"""The file of a sweep as it is now, for a new sweep."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from living import FILE, make_sweep
from walking import write_project

from sweep.cli import main
from sweep.errors import StoreError
from sweep.runner import resuming
from sweep.spec import parse_spec
from sweep.store.folder import ResultsFolder
from sweep.ui.duplicates import duplicate_file

COMMENTED = """\
# Which width?
# Seconds.
name: lives
trainable: scored:Scored
method: random
metric: {name: val_accuracy, goal: maximize}  # of the validation
# the space
parameters:
  units:
    values: [8, 16, 32]

  # its rate
  rate: {min: 0.1, max: 1.0}
# the length
epochs: 6
run_cap: 12
"""


def call(*arguments: str) -> None:
    result = CliRunner().invoke(main, list(arguments))
    assert result.exit_code == 0, result.output


@pytest.fixture
def lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ResultsFolder:
    monkeypatch.chdir(tmp_path)
    return make_sweep(tmp_path / "results", "lives", [], COMMENTED)


def test_a_sweep_that_was_not_changed_keeps_its_text(tmp_path: Path) -> None:
    folder = make_sweep(tmp_path / "results", "old", [])
    assert duplicate_file(folder, "old-2") == FILE.replace("NAME", "old-2")
    folder.spec.write_text("# Why?\nepochs: 3\n")
    assert duplicate_file(folder, "old-2") == "# Why?\nname: old-2\nepochs: 3\n"


def test_a_sweep_without_its_file_cannot_be_duplicated(tmp_path: Path) -> None:
    folder = make_sweep(tmp_path / "results", "old", [])
    folder.spec.unlink()
    with pytest.raises(StoreError, match=r"spec\.yaml"):
        duplicate_file(folder, "old-2")


def test_what_was_changed_is_in_the_file(lives: ResultsFolder) -> None:
    call("change", "lives", "--set", "parameters.units.values=[16,64]", "--set", "budget.hours=2")
    call("change", "lives", "--set", "run_cap=20", "--set", "metric.target=0.9")
    text = duplicate_file(lives, "again")
    assert text == (
        "# Which width?\n# Seconds.\nname: again\ntrainable: scored:Scored\nmethod: random\n"
        "# changed in lives\nmetric: {name: val_accuracy, goal: maximize, target: 0.9}\n"
        "# the space\n# changed in lives\nparameters:\n  units: {distribution: categorical, values: [16, 64]}\n"
        "  rate: {distribution: uniform, min: 0.1, max: 1.0}\n"
        "# the length\nepochs: 6\n# changed in lives\nrun_cap: 20\n"
        "# changed in lives\nbudget: {hours: 2.0}\n"
    )
    present = resuming.open_sweep(lives).spec.to_json_dict()
    assert parse_spec(text, "again.yaml").to_json_dict() == present | {"name": "again"}


def test_added_configurations_are_tried_first_or_named(lives: ResultsFolder) -> None:
    call("add", "lives", "units=16", "rate=0.5")
    call("add", "lives", "units=8", "rate=0.25")
    call("change", "lives", "--set", "parameters.units.values=[16,64]")
    text = duplicate_file(lives, "again")
    assert text.endswith(
        "# changed in lives\nstart_with: [{units: 16, rate: 0.5}]\n"
        "# added to lives, and not in its present space: {units: 8, rate: 0.25}\n"
    )
    assert parse_spec(text, "again.yaml").start_with == ({"units": 16, "rate": 0.5},)


def test_a_file_in_which_keys_cannot_be_found_is_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "{name: flow, trainable: 's:S', method: random, run_cap: 3, parameters: {a: {min: 0.0, max: 1.0}}}\n"
    folder = make_sweep(tmp_path / "results", "flow", [], text)
    call("change", "flow", "--set", "run_cap=9")
    found = duplicate_file(folder, "again")
    present = resuming.open_sweep(folder).spec.to_json_dict()
    assert found.startswith("# as flow is now\n")
    assert parse_spec(found, "again.yaml").to_json_dict() == present | {"name": "again"}


def test_what_a_run_was_given_is_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    call("run", "first.yaml", "--inline", "-q", "--run-cap", "1")
    folder = ResultsFolder(tmp_path / "results" / "first")
    spec = parse_spec(duplicate_file(folder, "again"), "again.yaml")
    assert spec.run_cap == 1
    shutil.rmtree(folder.path)
