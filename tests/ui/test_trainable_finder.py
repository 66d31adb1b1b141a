"""Trainables that a sweep file may name, as they are found in a folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from sweep.ui.drafts import FOLDER, complete_draft
from sweep.ui.known_trainables import KnownTrainables
from sweep.ui.trainable_finder import TrainableFinder, find_trainables

MODULE = """
raise SystemExit("an author's module is not run to find what is in it")
from trainables.digits_cnn import DigitsCNN
from trainables import keras_trainable

class Mine(keras_trainable.KerasTrainable):
    def model(self, hp): ...

class Wider(DigitsCNN): ...
class Widest(Wider): ...
class _Hidden(DigitsCNN): ...
class Config: ...

def train(hp, report): ...
def load(path, options): ...
"""


def test_classes_and_functions_are_told_from_others() -> None:
    assert list(find_trainables(MODULE)) == ["Mine", "Wider", "Widest", "train"]


@pytest.mark.parametrize(
    "text",
    [
        "def (",
        "\x00",
        "class A(B): ...",
        # A table that was written by a program: too deep for the parser.
        f"x = {' + '.join(['1'] * 20_000)}\ndef train(hp, report): ...",
        f"x = {'-' * 20_000}1\ndef train(hp, report): ...",
    ],
    ids=["unfinished", "null byte", "unknown base", "many terms", "many signs"],
)
def test_what_is_no_trainable_is_left_out(tmp_path: Path, text: str) -> None:
    (tmp_path / "odd.py").write_text(text)
    assert not [
        name for name in TrainableFinder().list_trainables(tmp_path) if name.startswith("odd")
    ]


def test_modules_and_packages_of_the_folder_come_first(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "wide.py").write_text("def train(hp, report): ...")
    (tmp_path / "not-a-module.py").write_text("def train(hp, report): ...")
    for apart in ("tests/some.py", "benchmarks/some.py", "models/test_wide.py"):
        (tmp_path / apart).parent.mkdir(exist_ok=True)
        (tmp_path / apart).write_text("def train(hp, report): ...")
    found = TrainableFinder().list_trainables(tmp_path)
    assert list(found)[:5] == [
        "mine:Mine",
        "mine:Wider",
        "mine:Widest",
        "mine:train",
        "models.wide:train",
    ]
    assert all(name.startswith(("mine:", "models.wide:", "trainables.")) for name in found)
    assert "trainables.session:TrialSession" not in found
    assert found["models.wide:train"] == f"In {Path('models') / 'wide.py'}."
    assert found["trainables.digits_cnn:DigitsCNN"] == "One that comes with sweep."
    assert "mine" not in sys.modules


def test_a_module_that_has_changed_is_read_again(tmp_path: Path) -> None:
    seeker = TrainableFinder()
    path = tmp_path / "mine.py"
    path.write_text("def train(hp, report): ...")
    assert "mine:train" in seeker.list_trainables(tmp_path)
    path.write_text("def other(hp, report): ...")
    os.utime(path, (1, 1))
    assert "mine:other" in seeker.list_trainables(tmp_path)
    path.unlink()
    assert "mine:other" not in seeker.list_trainables(tmp_path)


def test_a_draft_is_offered_what_was_found(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def train(hp, report): ...")
    known = KnownTrainables()
    assert complete_draft("trainable: ", "", known, tmp_path).unread == FOLDER
    known.search_folder(tmp_path)
    found = complete_draft("trainable: ", "", known, tmp_path)
    assert (found.proposals[0].label, found.unread) == ("mine:train", "")
