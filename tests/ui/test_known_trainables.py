"""What the editor of a new sweep knows of a trainable, by its source alone."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from living import make_sweep

from sweep.ui import known_trainables
from sweep.ui.drafts import complete_draft
from sweep.ui.known_trainables import KnownTrainables

MODULE = """
raise SystemExit("an author's module is not run for proposals")
def train(hp, report):
    while report({"top 5": hp.number("depth")}, val_accuracy=hp.units, checkpoint=None):
        pass
"""
DRAFT = "trainable: typed:train\nparameters:\n  "


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "typed.py").write_text(MODULE)
    return tmp_path


def ask(
    known: KnownTrainables, before: str, after: str = "", results: Path = Path("results")
) -> list[str]:
    return [one.label for one in complete_draft(before, after, known, results).proposals]


def test_a_source_is_read_aside_and_not_run(project: Path) -> None:
    known = KnownTrainables()
    first = complete_draft(DRAFT, "", known, project)
    assert first.unread == "typed:train"
    assert "learning_rate" in [one.label for one in first.proposals]
    known.read(first.unread, "new.yaml")
    assert complete_draft(DRAFT, "", known, project).unread == ""
    assert ask(known, DRAFT) == ["depth", "units", "epochs"]
    assert ask(known, "trainable: typed:train\nmetric: {name: ") == ["top 5", "val_accuracy"]
    assert "typed" not in sys.modules


def test_a_source_that_has_changed_is_read_again(project: Path) -> None:
    known = KnownTrainables()
    known.read("typed:train", "new.yaml")
    path = project / "typed.py"
    path.write_text(MODULE.replace("depth", "width"))
    os.utime(path, ns=(1, 1))
    assert complete_draft(DRAFT, "", known, project).unread == "typed:train"
    assert ask(known, DRAFT)[0] == "depth"
    known.read("typed:train", "new.yaml")
    assert ask(known, DRAFT) == ["units", "width", "epochs"]


def test_what_cannot_be_read_is_looked_for_later(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = KnownTrainables()
    known.read("absent:Model", "new.yaml")
    draft = DRAFT.replace("typed:train", "absent:Model")
    assert complete_draft(draft, "", known, project).unread == ""
    assert "learning_rate" in ask(known, draft)
    monkeypatch.setattr(known_trainables, "AGAIN_S", 0.0)
    assert complete_draft(draft, "", known, project).unread == "absent:Model"
    assert complete_draft("trainable: a b\n", "", known, project).unread == ""


def test_only_some_are_remembered(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_trainables, "KEPT", 2)
    known = KnownTrainables()
    for number in range(4):
        known.read(f"absent_{number}:Model", "new.yaml")
    assert [known.find(f"absent_{number}:Model")[1] for number in range(4)] == [
        True,
        True,
        False,
        False,
    ]


@pytest.mark.keras
def test_a_keras_trainable_reads_the_standard_hyperparameters_and_its_own() -> None:
    known = KnownTrainables()
    known.read("trainables.digits_cnn:DigitsCNN", "new.yaml")
    found = ask(known, "trainable: trainables.digits_cnn:DigitsCNN\nparameters:\n  ")
    assert found[:3] == ["augmentation", "filters", "batch_size"]
    assert {"learning_rate", "dropout", "optimizer"} <= set(found)
    metrics = ask(known, "trainable: trainables.digits_cnn:DigitsCNN\nmetric: {name: val_")
    assert metrics == ["val_loss", "val_accuracy", "val_mae"]


def test_characters_are_counted_as_browsers_do(project: Path) -> None:
    found = complete_draft("# \U0001f600\nepo", "chs: 3 # \U0001f600", KnownTrainables(), project)
    assert (found.before, found.after) == (3, 3)
    found = complete_draft(
        "# \U0001f600\ntrainable: \U0001f600", "\U0001f600\n", KnownTrainables(), project
    )
    assert (found.before, found.after) == (2, 2)


def test_earlier_sweeps_are_proposed_by_name(project: Path) -> None:
    make_sweep(project / "results", "first", [])
    make_sweep(project / "results", "second", [])
    assert ask(KnownTrainables(), "warm_start: [") == ["first", "second"]
    assert ask(KnownTrainables(), "warm_start: [", results=project / "absent") == []
