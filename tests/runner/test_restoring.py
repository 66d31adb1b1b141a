"""A trial's trainable out of its checkpoint, and what is said where it cannot be had."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import curves
import pytest

from sweep.backends import checkpoints
from sweep.backends.checkpoints import Manifest
from sweep.contract import Devices
from sweep.errors import InputError
from sweep.runner import restoring
from sweep.store.folder import ResultsFolder

WAVES = (
    curves.FILE.replace("{a: {values: [3, 1, 2]}}", "{a: {values: [3, 1, -1, 2]}}")
    + "checkpoint: {every_s: 0}\n"
)


@pytest.fixture
def folder(project: Path) -> ResultsFolder:
    return curves.run(project, WAVES).folder


def restore(
    folder: ResultsFolder, trial: int | None, epoch: restoring.Which = "last"
) -> restoring.Restored:
    return restoring.begin_trial(restoring.find_checkpoint(folder, trial, epoch))


def refused(folder: ResultsFolder, trial: int | None, epoch: restoring.Which = "last") -> str:
    with pytest.raises(InputError) as caught:
        restore(folder, trial, epoch)
    return str(caught.value)


def test_the_best_trial_with_the_state_that_its_score_is_of(folder: ResultsFolder) -> None:
    restored = restore(folder, None)
    assert (restored.kept.trial, restored.kept.epoch, restored.kept.metrics) == (
        1,
        4,
        {"score": 0.25},
    )
    assert restored.trainable.done == 4
    assert (restored.assignment.params, restored.assignment.epochs) == ({"a": 1}, 4)
    assert restored.notes == ()


def test_another_trial_and_the_best_of_its_epochs(folder: ResultsFolder) -> None:
    assert restore(folder, 3, "best").kept.epoch == 4
    assert restore(folder, 0, 4).kept.metrics == {"score": 0.75}
    assert refused(folder, 0, 2) == "curves, trial 0: has no checkpoint of epoch 2; kept are 4"


def test_trials_that_are_not_there_or_kept_nothing(folder: ResultsFolder) -> None:
    assert refused(folder, 7) == "curves: has no trial 7; it has trials 0 to 3"
    assert refused(folder, 2).startswith(
        "curves, trial 2: kept no checkpoint; those that did: 0, 1, 3; "
    )
    shutil.rmtree(folder.path / "checkpoints" / "00001")
    assert refused(folder, None).startswith(
        "curves, trial 1: kept no checkpoint; those that did: 0, 3; "
    )


def test_a_damaged_checkpoint_is_never_replaced_in_silence(folder: ResultsFolder) -> None:
    (folder.path / "checkpoints" / "00001" / "epoch-000004" / "done.json").write_text("5")
    assert "the checkpoint of epoch 4 is damaged (done.json is damaged)" in refused(folder, 1)


def test_changed_code_is_noted_and_named_where_it_does_not_fit(
    folder: ResultsFolder, project: Path
) -> None:
    code = project / "curve.py"
    code.write_text(code.read_text() + "\nX = 1\n")
    sys.modules.pop("curve", None)
    assert restore(folder, 1).notes == ("the code has changed since the trial was trained",)
    code.write_text(
        code.read_text().replace('json.loads((folder / "done.json")', 'json.loads((folder / "x")')
    )
    sys.modules.pop("curve", None)
    assert "cannot be restored from epoch-000004: FileNotFoundError" in refused(folder, 1)
    assert refused(folder, 1).endswith("; the code has changed since the trial was trained")


def test_a_trainable_that_is_gone(folder: ResultsFolder, project: Path) -> None:
    sys.modules.pop("curve", None)
    (project / "curve.py").write_text("raise OSError('no data here')\nclass Curve: ...\n")
    assert "curve:Curve cannot be imported: OSError: no data here" in refused(folder, 1)
    (project / "curve.py").unlink()
    assert "no module 'curve'" in refused(folder, 1)


def test_a_sweep_of_which_nothing_has_completed(project: Path) -> None:
    folder = curves.run(project, curves.FILE.replace("[3, 1, 2]", "[-1]")).folder
    assert (
        refused(folder, None)
        == f"curves: no trial has completed; see python -m sweep compare {folder.path}"
    )


def test_a_pareto_front_has_no_single_best(project: Path) -> None:
    code = project / "curve.py"
    code.write_text(
        code.read_text().replace('{"score": value}', '{"score": value, "cost": -self.a}')
    )
    metrics = "metrics: [{name: score, goal: minimize}, {name: cost, goal: minimize}]"
    text = curves.FILE.replace("metric: {name: score, goal: minimize}", metrics)
    folder = curves.run(project, text).folder
    assert (
        "no single best trial; on the Pareto front are 1, 2, 0; choose one with --trial N"
        in refused(folder, None)
    )
    sys.modules.pop("curve", None)


def test_the_epoch_with_the_best_objective(folder: ResultsFolder) -> None:
    place = checkpoints.get_trial_folder(folder.path, 0)
    checkpoints.begin_checkpoint(
        place, Manifest(2, loss=-1.0), lambda aside: _write(aside / "done.json", "2"), 9
    )()
    assert restore(folder, 0).kept.epoch == 4
    best = restore(folder, 0, "best").kept
    assert (best.epoch, best.metrics) == (2, {"score": 1.5})
    assert refused(folder, 0, 3) == "curves, trial 0: has no checkpoint of epoch 3; kept are 2, 4"
    _write(place / "epoch-000004" / "done.json", "damaged")
    assert refused(folder, 0).endswith("; kept as well is epoch 2: --epoch 2")


@pytest.mark.parametrize("every_s", [0, 60])
def test_the_best_epoch_is_saved_with_every_epoch_and_otherwise_a_note_says_that_it_was_not(
    project: Path, every_s: int
) -> None:
    code = project / "curve.py"
    rises = "value = abs(self.done - 2) + self.a"
    code.write_text(re.sub("value = .*", rises, code.read_text()))
    folder = curves.run(project, curves.FILE + f"checkpoint: {{every_s: {every_s}}}\n").folder
    restored = restore(folder, 1, "best")
    if every_s:
        assert restored.kept.epoch == 4
        (note,) = restored.notes
        assert note.startswith("its best epoch was 2 (score 1), of which no checkpoint was kept")
    else:
        assert (restored.kept.epoch, restored.notes) == (2, ())
    assert restore(folder, 1).notes == ()
    sys.modules.pop("curve", None)


def test_a_trial_of_gpus_that_this_machine_lacks(folder: ResultsFolder) -> None:
    info = folder.read_info()
    folder.write_info(info.changed(spec={**info.spec, "resources": {"cpus": 2, "gpus": 64}}))
    restored = restore(folder, 1)
    assert restored.notes == ("trained on 64 GPUs, restored on this machine's CPU",)
    assert restored.assignment.devices == Devices(2)
    folder.write_info(
        info.changed(simulated_gpus=64, spec={**info.spec, "resources": {"gpus": 64}})
    )
    assert restore(folder, 1).assignment.devices == Devices(1, 64, simulated=True)


def _write(file: Path, text: str) -> None:
    file.write_text(text)
