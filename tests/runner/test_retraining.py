"""The winner at full length, as a sweep of its own."""

from __future__ import annotations

from pathlib import Path

import curves
import pytest

from sweep.errors import InputError
from sweep.inspection import inspect
from sweep.runner import resuming, retraining, session
from sweep.runner.retraining import Retraining, RetrainingOptions
from sweep.store.folder import ResultsFolder

FILE = (
    curves.FILE.replace("goal: minimize", "goal: minimize, target: 0.2")
    + "early_terminate: {type: asha}\n"
)


@pytest.fixture
def folder(project: Path) -> ResultsFolder:
    return curves.run(project, FILE).folder


def refused(folder: ResultsFolder, **options: object) -> str:
    with pytest.raises(InputError) as caught:
        retraining.prepare_retraining(folder, RetrainingOptions(**options))
    return str(caught.value)


def train(made: Retraining, folder: ResultsFolder) -> session.Outcome:
    source = inspect(made.spec.trainable, made.sweep.import_folders)
    how = session.Options(inline=True, memo=False)
    training = session.SweepSource(
        spec=made.spec, source=source, import_folders=made.sweep.import_folders
    )
    return session.run_sweep(
        training, made.text, folder.path.parent, how, lambda *_: curves.Watcher(), made.origin
    )


def test_the_best_trial_at_its_full_length_with_several_seeds(folder: ResultsFolder) -> None:
    made = retraining.prepare_retraining(folder, RetrainingOptions(epochs=9, seeds=3))
    spec = made.spec
    assert (made.trial, spec.epochs, spec.repeats, spec.seed, spec.trials) == (1, 9, 3, 0, 1)
    assert (spec.metrics[0].target, type(spec.early_terminate).__name__) == (None, "NoTermination")
    outcome = train(made, folder)
    assert (outcome.completed, outcome.folder.name) == (3, "curves-retrain")
    origin = outcome.folder.read_info().origin
    assert origin == {
        "command": "retrain",
        "sweep": "curves",
        "folder": str(folder.path.absolute()),
        "trial": 1,
        "all_data": False,
    }


@pytest.mark.parametrize("all_data", [False, True])
def test_constraints_over_metrics_stay_but_for_those_that_need_held_out_data(
    project: Path, all_data: bool
) -> None:
    code = project / "curve.py"
    code.write_text(code.read_text().replace('{"score":', '{"size": 2.0, "val_score":'))
    text = (
        curves.FILE.replace("name: score", "name: val_score")
        + "constraints: [a > 0, size <= 3, val_score < 9]\n"
    )
    made = retraining.prepare_retraining(
        curves.run(project, text).folder, RetrainingOptions(trial=1, all_data=all_data)
    )
    kept = ["size <= 3"] if all_data else ["size <= 3", "val_score < 9"]
    assert [one.text for one in made.spec.constraints] == kept
    told = [note for note in made.notes if "val_score < 9" in note]
    assert told == (
        ["nothing is held out to measure val_score < 9 on: left out"] if all_data else []
    )


def test_it_can_be_stopped_and_gone_on_with(folder: ResultsFolder, project: Path) -> None:
    again = train(
        retraining.prepare_retraining(folder, RetrainingOptions(trial=0, epochs=6, seeds=2)), folder
    ).folder
    lines = again.log.read_bytes().splitlines(keepends=True)
    again.log.write_bytes(b"".join(lines[:5]))
    assert curves.resume(project, name="curves-retrain").completed == 2
    assert again.read_info().origin


def test_names_that_are_taken_are_not_taken_again(folder: ResultsFolder) -> None:
    names = []
    for _ in range(2):
        made = retraining.prepare_retraining(folder, RetrainingOptions())
        names.append(made.spec.name)
        train(made, folder)
    assert names == ["curves-retrain", "curves-retrain-2"]
    assert (
        retraining.prepare_retraining(folder, RetrainingOptions(trial=2, name="mine")).spec.name
        == "mine"
    )
    assert (
        retraining.prepare_retraining(
            folder, RetrainingOptions(trial=2, assignments=["checkpoint.every_s=0"])
        ).spec.checkpoint.every_s
        == 0
    )


def test_epochs_that_are_a_parameter(project: Path) -> None:
    text = curves.FILE.replace(
        "{a: {values: [3, 1, 2]}}", "{a: {value: 1}, epochs: {values: [2, 3]}}"
    )
    folder = curves.run(project, text).folder
    assert (
        retraining.prepare_retraining(folder, RetrainingOptions()).spec.trial_epochs({"epochs": 3})
        == 3
    )
    made = retraining.prepare_retraining(folder, RetrainingOptions(trial=0, epochs=20))
    assert [p.domain.value for p in made.spec.space.parameters] == [1, 20]


def test_all_data_holds_nothing_out_and_says_so(project: Path) -> None:
    code = project / "curve.py"
    code.write_text(code.read_text().replace('"score"', '"val_score"'))
    folder = curves.run(project, FILE.replace("name: score", "name: val_score")).folder
    made = retraining.prepare_retraining(folder, RetrainingOptions(all_data=True))
    assert (made.spec.objectives[0].name, made.spec.training["all_data"]) == ("score", True)
    assert made.notes == (
        "no data is held out: score is measured on training examples and says nothing about new ones",
    )
    assert "no data is held out" in made.text
    with pytest.raises(InputError, match="curve:Curve is not a KerasTrainable"):
        retraining.check_joins(inspect("curve:Curve", [project]))


def test_all_data_is_for_what_derives_from_keras_trainable_not_for_what_imports_it(
    tmp_path: Path,
) -> None:
    derived = (
        "class Base(KerasTrainable): pass\nclass Mine(Base): pass\ndef train(hp, report): pass\n"
    )
    (tmp_path / "joined.py").write_text(
        f"from trainables.keras_trainable import KerasTrainable\n{derived}"
    )
    retraining.check_joins(inspect("joined:Mine", [tmp_path]))
    with pytest.raises(InputError, match="joined:train is not a KerasTrainable"):
        retraining.check_joins(inspect("joined:train", [tmp_path]))


def test_what_watches_the_validation_is_refused_with_all_data(project: Path) -> None:
    folder = curves.run(project, curves.FILE + "training: {patience: 3}\n").folder
    assert (
        "has training.patience: it watches score, and with --all-data no data is held out"
        in refused(folder, all_data=True)
    )
    lifted = retraining.prepare_retraining(
        folder, RetrainingOptions(all_data=True, assignments=["training.patience=null"])
    )
    assert lifted.spec.training["patience"] is None
    assert (
        "training.patience 3 of the sweep still ends a trial"
        in retraining.prepare_retraining(folder, RetrainingOptions()).notes[0]
    )
    text = curves.FILE.replace("name: curves", "name: others").replace(
        "{a:", "{lr_schedule: {value: plateau}, a:"
    )
    assert "lr_schedule plateau: it watches" in refused(
        curves.run(project, text).folder, all_data=True
    )


def test_a_sweep_without_a_winner(project: Path) -> None:
    folder = curves.run(project, curves.FILE.replace("[3, 1, 2]", "[-1]")).folder
    assert "no trial has completed" in refused(folder)
    assert retraining.prepare_retraining(folder, RetrainingOptions(trial=0)).trial == 0


def test_seeds_that_count_up_too_far_are_refused(project: Path) -> None:
    folder = curves.run(project, curves.FILE + "seed: 4294967295\n").folder
    expected = "seed: 4294967295, and the seeds of repeats and confirm count up from it to"
    assert f"{expected} 4294967296" in refused(folder, seeds=2)
    with pytest.raises(InputError, match=f"{expected} 4294967303"):
        resuming.reopen_to_confirm(folder.path.parent, "curves")
    assert retraining.prepare_retraining(folder, RetrainingOptions(seeds=1)).spec.seed == 4294967295
