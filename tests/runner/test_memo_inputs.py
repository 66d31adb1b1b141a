"""An earlier trial answers only if all that it has read beside its code and its data is the same."""

from __future__ import annotations

import itertools
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
from curves import Watcher, run

import sweep
from sweep.backends import checkpoints
from sweep.events import Inputs, TrialEnded

_numbers = itertools.count()
Run: TypeAlias = Callable[[str], tuple[set[bool], list[str]]]
"""Runs a sweep of a name; returns whether its trials were answered, and what was said."""

TRAINABLE = """{head}

def train(hp, report):
    {body}
    report(score=hp.a + value)

train.data = "none"
{attributes}
"""


def _sweep(project: Path, body: str, head: str = "", attributes: str = "") -> Run:
    """Write a function trainable with this code in it."""
    module = f"reads_{next(_numbers)}"  # of its own, for a process imports a module once
    lines = body.replace("\n", "\n    ")
    (project / f"{module}.py").write_text(
        TRAINABLE.format(head=head, body=lines, attributes=attributes)
    )
    text = "metric: {name: score, goal: minimize}\nparameters: {a: {values: [1, 2]}}\nepochs: 1\nmethod: grid\n"

    def trained(name: str) -> tuple[set[bool], list[str]]:
        watcher = Watcher()
        run(project, f"name: {name}\ntrainable: {module}:train\n{text}", watcher, memo=True)
        return {
            event.memo is not None for event in watcher.seen if isinstance(event, TrialEnded)
        }, watcher.said

    return trained


def _expect_answers(trained: Run) -> None:
    answered, said = trained("second")
    assert answered == {True}, said  # which is the reason of those that were trained


def _database(path: Path, value: int) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("create table if not exists t (a)")
        connection.execute("delete from t")
        connection.execute("insert into t values (?)", (value,))
    connection.close()


READS: dict[str, tuple[str, Callable[[Path, int], object]]] = {
    "text": (
        "value = float(open({path!r}).read())",
        lambda path, value: path.write_text(str(value)),
    ),
    "numpy": (
        "import numpy as np\nvalue = float(np.load({path!r} + '.npy'))",
        lambda path, value: np.save(path.with_name(f"{path.name}.npy"), np.array(value)),
    ),
    "csv": (
        "import pandas as pd\nvalue = float(pd.read_csv({path!r}).a[0])",
        lambda path, value: path.write_text(f"a\n{value}\n"),
    ),
    "database": (
        "import sqlite3\nvalue = sqlite3.connect({path!r}).execute('select a from t').fetchone()[0]",
        _database,
    ),
    "listing": (
        "import os\nvalue = len(os.listdir({path!r}))",
        lambda path, value: (path / str(value)).mkdir(parents=True),
    ),
}


@pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
@pytest.mark.parametrize("name", READS)
def test_other_input_is_trained_and_the_same_is_answered(
    name: str, project: Path, tmp_path: Path
) -> None:
    body, write = READS[name]
    path = tmp_path / "input"
    write(path, 1)
    trained = _sweep(project, body.format(path=str(path)))
    assert trained("first")[0] == {False}
    _expect_answers(trained)
    write(path, 5)
    answered, said = trained("third")
    assert answered == {False}
    assert any("which has changed" in line or "where other files are now" in line for line in said)


def test_a_file_that_is_read_at_import_counts(project: Path, tmp_path: Path) -> None:
    (tmp_path / "input").write_text("1")
    trained = _sweep(
        project,
        "value = VALUE",
        f"import pathlib\nVALUE = float(pathlib.Path({str(tmp_path / 'input')!r}).read_text())",
    )
    trained("first")
    _expect_answers(trained)
    (tmp_path / "input").write_text("5")
    assert trained("third")[0] == {False}


def test_a_variable_of_the_environment_counts(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNITS", "1")
    trained = _sweep(project, "import os\nvalue = float(os.environ['UNITS'])")
    trained("first")
    _expect_answers(trained)
    monkeypatch.setenv("UNITS", "2")
    answered, said = trained("third")
    assert answered == {False}
    assert "they have read the environment variable UNITS, which has changed" in said[0]


PROGRAM = (
    "import subprocess, sys\nvalue = float(subprocess.check_output([sys.executable, {path!r}]))"
)


def test_a_trial_that_started_a_program_is_trained_again(project: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("print(1)")
    trained = _sweep(project, PROGRAM.format(path=str(program)))
    trained("first")
    answered, said = trained("second")
    assert answered == {False}
    assert (
        "in train starts a program; if that cannot change their results, name what can in depends_on"
        in said[0]
    )


def test_what_a_program_depends_on_can_be_named(project: Path, tmp_path: Path) -> None:
    program = tmp_path / "tools" / "program.py"
    program.parent.mkdir()
    program.write_text("print(1)")
    trained = _sweep(
        project,
        PROGRAM.format(path=str(program)),
        attributes=f"train.depends_on = [{str(program.parent)!r}]",
    )
    trained("first")
    _expect_answers(trained)
    program.write_text("print(5)")
    assert trained("third")[0] == {False}


@pytest.mark.parametrize("named", ["'tools'", "[1]", "7"])
def test_a_wrong_depends_on_fails_its_trials(named: str, project: Path) -> None:
    _sweep(project, "value = 1", attributes=f"train.depends_on = {named}")("first")
    errors = sweep.load(project / "results/first").trials["error"]
    assert all(
        "expected a list of paths, such as ['tools/simulate.py']" in error for error in errors
    )


@pytest.mark.parametrize("named", ["['data/**.csv']", "['/']"])
def test_a_pattern_that_is_none_fails_its_trials_by_name(named: str, project: Path) -> None:
    _sweep(project, "value = 1", attributes=f"train.depends_on = {named}")("first")
    errors = sweep.load(project / "results/first").trials["error"]
    assert all(
        f"depends_on has {named[1:-1]}, expected a file, a folder, or a pattern" in error
        for error in errors
    )


def test_a_trial_whose_reads_are_not_in_its_log_answers_none(project: Path) -> None:
    trained = _sweep(project, "value = 1")
    trained("first")
    log = project / "results/first/log.jsonl"
    lines = [
        line.split(',"inputs"')[0] + "}}" if '"inputs"' in line else line
        for line in log.read_text().splitlines()
    ]
    log.write_text("\n".join(lines) + "\n")
    answered, said = trained("second")
    assert answered == {False}
    assert said == [
        "trials of first are not reused: what they read beside their data was not recorded"
    ]


def test_a_checkpoint_keeps_what_its_trial_has_read(tmp_path: Path) -> None:
    inputs = Inputs(files={"a": "1"}, folders={"b": "2"}, environment={"C": "3"}, unknown=("d",))
    manifest = checkpoints.Manifest(3, inputs=inputs)
    checkpoints.begin_checkpoint(tmp_path, manifest, lambda folder: None, keep=1)()
    assert checkpoints.read_verified_manifest(tmp_path / "epoch-000003").inputs == inputs


def test_what_a_function_returned_answers_no_sweep_that_names_it_otherwise(project: Path) -> None:
    module = f"reads_{next(_numbers)}"
    code = "def train(hp):\n    return hp.a\n\ntrain.data = 'none'\n"
    (project / f"{module}.py").write_text(code)
    text = f"trainable: {module}:train\nmethod: grid\nepochs: 1\nparameters: {{a: {{values: [1, 2]}}}}\n"
    run(project, f"{text}name: first\nmetric: {{name: score, goal: minimize}}\n")
    outcome = run(
        project, f"{text}name: second\nmetric: {{name: error, goal: minimize}}\n", memo=True
    )
    assert sweep.load(outcome.folder.path).trials["objective"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("head", "body", "training", "reason"),
    [
        # only the first repeat of the second sweep has a seed of the first one
        (
            "import numpy as np\nNOISE = np.random.normal()",
            "value = NOISE",
            "",
            "draws numbers when it is imported, and did so under the data_seed 0",
        ),
        ("", "value = report.training['data_seed']", "training: {{data_seed: {seed}}}", None),
    ],
    ids=["drawn at import", "read"],
)
def test_a_trial_of_another_data_seed_answers_only_if_nothing_but_its_data_follows_from_it(
    head: str, body: str, training: str, reason: str | None, tmp_path: Path
) -> None:
    module = f"reads_{next(_numbers)}"
    (tmp_path / f"{module}.py").write_text(TRAINABLE.format(head=head, body=body, attributes=""))

    def trained(name: str, seed: int) -> tuple[set[bool], list[str]]:
        watcher = Watcher()
        text = (
            f"name: {name}\ntrainable: {module}:train\nmetric: {{name: score, goal: minimize}}\n"
            f"parameters: {{a: {{values: [1, 2]}}}}\nepochs: 1\nmethod: grid\n{training.format(seed=seed)}\n"
        )
        text += "" if training else f"seed: {seed}\nrepeats: 2\n"
        run(tmp_path, text, watcher, memo=True)
        ends = [event for event in watcher.seen if isinstance(event, TrialEnded)]
        return {end.memo is not None for end in ends}, watcher.said

    trained("first", 0)
    assert trained("again", 0)[0] == {True}
    answered, said = trained("other", 1)
    assert answered == {False}
    if reason is not None:
        assert f"trials of first are not reused: {module} {reason}" in said
    # this process goes on with other sweeps, whose results would follow from what it drew
    del sys.modules[module]


def test_a_trial_that_has_read_its_number_answers_only_the_same_number(tmp_path: Path) -> None:
    module = f"reads_{next(_numbers)}"
    code = TRAINABLE.format(head="", body="value = report.trial", attributes="")
    (tmp_path / f"{module}.py").write_text(code)

    def trained(name: str, values: str) -> tuple[list[str | None], list[float], list[str]]:
        watcher = Watcher()
        text = (
            f"name: {name}\ntrainable: {module}:train\nmetric: {{name: score, goal: minimize}}\n"
            f"parameters: {{a: {{values: {values}}}}}\nepochs: 1\nmethod: grid\n"
        )
        folder = run(tmp_path, text, watcher, memo=True).folder
        ends = [event for event in watcher.seen if isinstance(event, TrialEnded)]
        scores = sweep.load(folder.path).trials["objective"].tolist()
        return [end.memo for end in ends], scores, watcher.said

    assert trained("first", "[1, 2]")[:2] == ([None, None], [1, 3])
    answers, scores, said = trained("second", "[2, 1]")
    assert (answers, scores) == ([None, None], [2, 2])
    why = "their function has read report.trial, and they have other numbers there"
    assert f"trials of first are not reused: {why}" in said
    # also an answer that was taken from an earlier sweep has its number
    assert trained("third", "[1, 2]")[:2] == (["first/0", "first/1"], [1, 3])
    assert trained("fourth", "[1, 3]")[:2] == (["first/0", None], [1, 4])
