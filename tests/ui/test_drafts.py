"""Sweep files that are written on the page."""

from __future__ import annotations

from pathlib import Path

import pytest
from living import FILE

from sweep.errors import InputError, RefusedError
from sweep.ui.drafts import TEMPLATE, check_draft, save_draft

MODULE = """
def train(hp, report):
    for epoch in range(6):
        report(val_accuracy=hp.learning_rate * hp.units + len(hp.optimizer))
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "drafted.py").write_text(MODULE)
    return tmp_path


def test_each_mistake_has_its_line(project: Path) -> None:
    text = FILE.replace("NAME", "new").replace("epochs: 6", "epochs: none").replace("run_cap", "run_cup")
    found = check_draft(text, "new.yaml")
    lines = {one.line: one for one in found.mistakes}
    assert lines[11].mistake.found == "epochs: text 'none'"
    assert lines[12].mistake.hint == "did you mean 'run_cap'?"
    assert lines[4].mistake.found.startswith("no module 'scored'")
    assert (found.name, found.work) == ("", "")


def test_a_file_without_mistakes_says_how_much_it_would_train(project: Path) -> None:
    found = check_draft(FILE.replace("NAME", "new").replace("scored:Scored", "drafted:train"), "new.yaml")
    assert found.mistakes == ()
    assert (found.name, found.work) == ("new", "random: 12 trials of at most 6 epochs")


@pytest.mark.parametrize("text", ["", "a: b: c", "\t", "- 1", "name: [", "\x00", TEMPLATE])
def test_whatever_is_typed_gives_mistakes(project: Path, text: str) -> None:
    found = check_draft(text, "new.yaml")
    assert found.mistakes
    assert all(0 <= one.line <= text.count("\n") + 1 for one in found.mistakes)


@pytest.mark.parametrize(
    "file", ["", "../a.yaml", "/a.yaml", "a/b.yaml", ".a.yaml", "-a.yaml", "a.py", "a\n.yaml", "a\\b.yaml"]
)
def test_a_draft_is_saved_under_a_plain_name_alone(tmp_path: Path, file: str) -> None:
    with pytest.raises(InputError, match="expected a plain name"):
        save_draft(tmp_path, file, "text")
    assert list(tmp_path.iterdir()) == []


def test_another_file_is_not_replaced(tmp_path: Path) -> None:
    assert save_draft(tmp_path, "a.yaml", "one\n").read_text() == "one\n"
    save_draft(tmp_path, "a.yaml", "one\n")
    with pytest.raises(RefusedError, match="exists with another text"):
        save_draft(tmp_path, "a.yaml", "two\n")
    save_draft(tmp_path, "a.yaml", "two\n", replace=True)
    assert (tmp_path / "a.yaml").read_text() == "two\n"
