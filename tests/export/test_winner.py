"""The folder of an exported trial: what is in it, how it is checked, and that it is whole or not there."""

from __future__ import annotations

import sys
from pathlib import Path

import kettles
import pytest

from sweep.errors import InputError
from sweep.export import winner
from sweep.runner.restoring import history
from sweep.store.folder import ResultsFolder


@pytest.fixture
def folder(tmp_path: Path) -> ResultsFolder:
    return kettles.run(tmp_path)


def refused(folder: ResultsFolder, target: Path, *arguments: object) -> str:
    before = sorted(target.parent.iterdir())
    with pytest.raises(InputError) as caught:
        winner.export_winner(folder, target, *arguments)
    assert sorted(target.parent.iterdir()) == before
    return str(caught.value)


def test_the_winner_with_all_that_belongs_to_it(folder: ResultsFolder, tmp_path: Path) -> None:
    made = winner.export_winner(folder, tmp_path / "out", formats=("keras", "checkpoint"))
    assert (made.trial, made.epoch, made.notes) == (0, 4, ("it is <hot>",))
    files = {
        str(path.relative_to(made.folder)) for path in made.folder.rglob("*") if path.is_file()
    }
    assert files == {"MODEL_CARD.md", "sweep.yaml", "model.keras", "checkpoint/done.json"}


def test_its_sweep_file_trains_the_same_trial(folder: ResultsFolder, tmp_path: Path) -> None:
    repeated = kettles.run(
        tmp_path, kettles.FILE.replace("name: kettles", "name: twice\nrepeats: 2\nseed: 5")
    )
    for sweep, trial in ((folder, 1), (repeated, 3)):
        made = winner.export_winner(sweep, tmp_path / f"out{trial}", trial, formats=("checkpoint",))
        again = kettles.run(tmp_path, (made.folder / "sweep.yaml").read_text())
        before, after = history(sweep, trial), history(again, 0)
        assert (before[0].params, before[0].start.seed) == (after[0].params, after[0].start.seed)
        assert {e: r.metrics for e, r in before[1].items()} == {
            e: r.metrics for e, r in after[1].items()
        }


def test_a_trial_of_a_cross_validation_comes_with_its_folds(
    folder: ResultsFolder, tmp_path: Path
) -> None:
    folded = kettles.run(
        tmp_path, kettles.FILE.replace("name: kettles", "name: folded\nrepeats: 2\nfolds: 3")
    )
    trial = 10  # the second configuration, its second repeat, fold 1
    made = winner.export_winner(folded, tmp_path / "out", trial, formats=("checkpoint",))
    text = (made.folder / "sweep.yaml").read_text()
    assert "# It is one of 3 folds, which are trained together: trial 1 is this one.\n" in text
    again = kettles.run(tmp_path, text)
    before, after = history(folded, trial), history(again, 1)
    assert [(one.params, one.start.seed, one.start.fold) for one in (before[0], after[0])] == [
        (before[0].params, before[0].start.seed, 1)
    ] * 2
    assert {e: r.metrics for e, r in before[1].items()} == {
        e: r.metrics for e, r in after[1].items()
    }


def test_any_trial_and_epoch_of_which_there_is_a_checkpoint(
    folder: ResultsFolder, tmp_path: Path
) -> None:
    assert winner.export_winner(folder, tmp_path / "two", 2, "best", ("keras",)).trial == 2
    assert "trial 2: has no checkpoint of epoch 9" in refused(folder, tmp_path / "x", 2, 9)


def test_a_model_that_is_not_what_was_validated(folder: ResultsFolder, tmp_path: Path) -> None:
    code = tmp_path / "kettle.py"
    code.write_text(code.read_text().replace("wrong = 0.0", "wrong = 0.01"))
    sys.modules.pop("kettle", None)
    text = refused(folder, tmp_path / "x", 0)
    assert "its model is not what was validated: val_heat is 6." in text
    assert text.endswith("; the code has changed since the trial was trained; it is <hot>")


def test_a_metric_that_was_infinite_when_it_was_validated(tmp_path: Path) -> None:
    code = kettles.TRAINABLE.replace('"heat": self.power}', '"heat": float("inf")}')
    code = code.replace('{"val_heat": self.metrics()["val_heat"] + self.wrong}', '{"heat": 1.0}')
    (tmp_path / "kettle.py").write_text(code)
    sys.modules.pop("kettle", None)
    text = refused(kettles.run(tmp_path), tmp_path / "x", 0)
    sys.modules.pop("kettle", None)
    assert "its model is not what was validated: heat is 1, inf in the log" in text


def test_formats_that_cannot_be(folder: ResultsFolder, tmp_path: Path) -> None:
    assert "'tflite' is no format; expected some of keras" in refused(
        folder, tmp_path / "x", None, "last", ["tflite"]
    )
    assert "no format is named" in refused(folder, tmp_path / "x", None, "last", [])
    assert refused(folder, tmp_path / "x", 1, "last", ["onnx"]) == (
        "kettles, trial 1: not exported: a kettle is no network"
    )
    assert "exists already; name a new folder" in refused(folder, tmp_path / "results")


def test_a_trainable_that_exports_nothing_has_its_checkpoint_copied(tmp_path: Path) -> None:
    (tmp_path / "kettle.py").write_text(kettles.TRAINABLE.replace("def export", "def _export"))
    folder = kettles.run(tmp_path)
    assert "kettle:Kettle has no export(folder, formats)" in refused(folder, tmp_path / "x")
    assert "--format checkpoint (" in refused(folder, tmp_path / "x")
    assert (
        winner.export_winner(folder, tmp_path / "out", formats=("checkpoint",)).exported.files == {}
    )
    sys.modules.pop("kettle", None)


def test_an_export_that_breaks_its_contract(folder: ResultsFolder, tmp_path: Path) -> None:
    code = tmp_path / "kettle.py"
    code.write_text(
        code.read_text().replace("return Exported(", "raise OSError(28, 'full')\n        Exported(")
    )
    sys.modules.pop("kettle", None)
    assert "not exported: OSError: [Errno 28] full" in refused(folder, tmp_path / "x")
    code.write_text(code.read_text().replace("raise OSError(28, 'full')", "return 3"))
    sys.modules.pop("kettle", None)
    assert "Kettle.export() returned int, expected sweep.contract.Exported" in refused(
        folder, tmp_path / "x"
    )


def test_the_card_formats_nothing_that_it_was_given(folder: ResultsFolder, tmp_path: Path) -> None:
    winner.export_winner(folder, tmp_path / "out")
    card = (tmp_path / "out" / "MODEL_CARD.md").read_text()
    assert "# kettles, trial 0" in card
    assert "Which \\| power? \\<b\\>" in card
    assert "| `water.kind` | `` tap \\| `still` `` |" in card
    assert "````text\nFill it.\n```\n# not | a heading\n````" in card
    assert "- it is \\<hot\\>" in card
    assert "license: unknown  # to be filled in by the author" in card
    assert "| `val_heat` | `maximize` | `6." in card
    assert "| `fingerprint` | `water` |" in card
    assert "3 validation examples in a fresh process" in card
    assert card.count("**To be filled in by the author.**") == 2


def test_a_trial_of_a_sweep_that_never_completed(folder: ResultsFolder, tmp_path: Path) -> None:
    lines = folder.log.read_bytes().splitlines(keepends=True)
    # killed within its first trial, whose last checkpoint is there
    folder.log.write_bytes(b"".join(lines[:4]))
    folder.trials.unlink()
    folder.metrics.unlink()
    assert "no trial has completed" in refused(folder, tmp_path / "x")
    made = winner.export_winner(folder, tmp_path / "out", 0)
    assert made.epoch == 4
    assert "`running`" in (tmp_path / "out" / "MODEL_CARD.md").read_text()
