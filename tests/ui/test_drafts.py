"""Sweep files that are written on the page."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from living import FILE

from sweep.errors import InputError, RefusedError, StoreError, UnknownNameError
from sweep.ui.drafts import (
    EXAMPLE,
    TEMPLATE,
    check_draft,
    has_other_text,
    list_files,
    read_file,
    save_draft,
    write_template,
)
from sweep.ui.known_trainables import KnownTrainables

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
    text = (
        FILE.replace("NAME", "new")
        .replace("epochs: 6", "epochs: none")
        .replace("run_cap", "run_cup")
    )
    found = check_draft(text, "new.yaml")
    lines = {one.line: one for one in found.mistakes}
    assert lines[11].mistake.found == "epochs: text 'none'"
    assert lines[12].mistake.hint == "did you mean 'run_cap'?"
    assert lines[4].mistake.found.startswith("no module 'scored'")
    assert (found.name, found.work) == ("", "")


def test_mistakes_come_by_line_and_a_key_without_a_value_is_at_its_own(project: Path) -> None:
    text = "metric:\n  name:\n  goal: minimize\nparameters:\n  lr:\n\n# a comment\ntrainable: no:Such\nepochs: none\n"
    found = check_draft(text, "new.yaml")
    places = [(one.line, one.mistake.found.partition(":")[0]) for one in found.mistakes]
    assert [line for line, _ in places] == sorted(line for line, _ in places)
    assert {(2, "metric.name"), (5, "parameters.lr"), (9, "epochs")} <= set(places)


def test_a_file_without_mistakes_says_how_much_it_would_train(project: Path) -> None:
    found = check_draft(
        FILE.replace("NAME", "new").replace("scored:Scored", "drafted:train"), "new.yaml"
    )
    assert found.mistakes == ()
    assert (found.name, found.work) == ("new", "random, 12 trials of at most 6 epochs, 72 together")


def test_a_trainable_named_like_a_word_of_the_template_is_filled_in_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_METRICS.py").write_text(
        "def GOALS(hp, report):\n    report(val_loss=hp.learning_rate)\n"
    )
    known = KnownTrainables()
    known.search_folder(tmp_path)
    assert "trainable: my_METRICS:GOALS\n" in write_template(known, "sweep.yaml")


@pytest.mark.parametrize("text", ["", "a: b: c", "\t", "- 1", "name: [", "\x00", TEMPLATE])
def test_whatever_is_typed_gives_mistakes(project: Path, text: str) -> None:
    found = check_draft(text, "new.yaml")
    assert found.mistakes
    assert all(0 <= one.line <= text.count("\n") + 1 for one in found.mistakes)


ELSEWHERE = [
    "",
    "../a.yaml",
    "/a.yaml",
    "a/b.yaml",
    ".a.yaml",
    "search_spaces/../a.yaml",
    "search_spaces/b/a.yaml",
    "-a.yaml",
    "a.py",
    "a\n.yaml",
    "a\\b.yaml",
]


@pytest.mark.parametrize("file", ELSEWHERE)
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


def test_the_folder_of_sweep_files_is_created(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    assert save_draft(inner, "search_spaces/a.yaml", "one\n").read_text() == "one\n"
    (inner / "search_spaces" / "a.yaml").unlink()
    (inner / "search_spaces").rmdir()
    (inner / "search_spaces").symlink_to(tmp_path / "missing")
    with pytest.raises(InputError, match="is a link to another folder"):
        save_draft(inner, "search_spaces/a.yaml", "one\n")
    assert not (tmp_path / "missing").exists()


@pytest.mark.parametrize("file", ELSEWHERE)
def test_a_file_is_opened_by_a_plain_name_alone(tmp_path: Path, file: str) -> None:
    (tmp_path / "a.yaml").write_text("secret\n")
    inner = tmp_path / "inner"
    inner.mkdir()
    with pytest.raises(InputError, match="expected a plain name"):
        read_file(inner, file)
    with pytest.raises(InputError, match="expected a plain name"):
        has_other_text(inner, file, "")


def test_a_link_does_not_lead_out_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "secret.yaml").write_text("secret\n")
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "a.yaml").symlink_to(tmp_path / "secret.yaml")
    with pytest.raises(InputError, match="is a link to another folder"):
        read_file(inner, "a.yaml")
    with pytest.raises(InputError, match="is a link to another folder"):
        save_draft(inner, "a.yaml", "mine\n", replace=True)
    assert (tmp_path / "secret.yaml").read_text() == "secret\n"


def test_the_sweep_files_of_the_folder_are_listed_and_opened(tmp_path: Path) -> None:
    for age, name in enumerate(["new.yaml", "old.yml", ".hidden.yaml", "notes.txt"]):
        (tmp_path / name).write_text(f"name: {name}\nparameters:\n")
        os.utime(tmp_path / name, (1_700_000_000 - age, 1_700_000_000 - age))
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "mkdocs.yml").write_text("site_name: no sweep file\n")
    (tmp_path / "search_spaces").mkdir()
    (tmp_path / "search_spaces" / "wide.yaml").write_text("trainable: a:b\n")
    os.utime(tmp_path / "search_spaces" / "wide.yaml", (1, 1))
    assert list_files(tmp_path) == ["new.yaml", "old.yml", "search_spaces/wide.yaml"]
    assert read_file(tmp_path, "old.yml") == "name: old.yml\nparameters:\n"
    assert read_file(tmp_path, "search_spaces/wide.yaml") == "trainable: a:b\n"
    with pytest.raises(UnknownNameError, match=r"did you mean 'new\.yaml'"):
        read_file(tmp_path, "nev.yaml")
    assert has_other_text(tmp_path, "new.yaml", "other")
    assert not has_other_text(tmp_path, "new.yaml", "name: new.yaml\nparameters:\n")
    assert not has_other_text(tmp_path, "third.yaml", "other")


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs a file that nobody can read")
def test_a_file_that_cannot_be_read_hides_no_other_and_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("parameters:\n")
    (tmp_path / "secret.yaml").symlink_to("/proc/self/mem")
    (tmp_path / "folder.yaml").mkdir()
    assert list_files(tmp_path) == ["mine.yaml"]
    with pytest.raises(StoreError, match=r"folder\.yaml: Is a directory"):
        has_other_text(tmp_path, "folder.yaml", "parameters:\n")


def test_a_new_sweep_begins_with_a_trainable_of_the_folder_and_no_mistake(project: Path) -> None:
    known = KnownTrainables()
    known.search_folder(project)
    (project / "drafted.py").write_text(
        "def train(hp, report):\n    report(val_loss=hp.learning_rate)\n"
    )
    text = write_template(known, "sweep.yaml")
    assert "trainable: drafted:train\nmetric: {name: val_loss, goal: minimize}\n" in text
    assert check_draft(text, "sweep.yaml").mistakes == ()
    (project / "drafted.py").unlink()
    text = write_template(KnownTrainables(), "sweep.yaml")
    assert f"trainable: {EXAMPLE}\n" in text
    assert check_draft(text, "sweep.yaml").mistakes == ()
