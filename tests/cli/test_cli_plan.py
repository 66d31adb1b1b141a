"""``plan`` as a user meets it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sweep.cli import main
from sweep.events import EpochReported, Status, TrialEnded, TrialStarted
from sweep.store.folder import ResultsFolder
from sweep.store.log import Log

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "search_spaces" / "examples"
PUBLISHED = """\
program: train.py
method: bayes
metric:
  name: val_accuracy
  goal: maximize
parameters:
  learning_rate:
    distribution: log_uniform_values
    min: 1e-5
    max: 1e-1
  batch_size:
    distribution: q_log_uniform_values
    q: 8
    min: 32
    max: 256
  dropout:
    values: [0.3, 0.4, 0.5]
  epochs:
    value: 10
  optimizer:
    values: ["adam", "sgd"]
early_terminate:
  type: hyperband
  s: 2
  eta: 3
  max_iter: 27
"""

TIMED = """
from sweep.contract import EpochReported, Facts

class Model:
    def begin(self, assignment):
        self.epochs = assignment.epochs
        self.x = assignment.params["x"]

    def train(self, report):
        for epoch in range(1, self.epochs + 1):
            if not report(EpochReported(trial=0, epoch=epoch, metrics={"loss": self.x}, time=0.0, time_s=36.0)):
                return

    def save(self, folder): pass
    def restore(self, folder): return 0
    def facts(self): return Facts()
"""


def plan(*arguments: object) -> Result:
    result = CliRunner().invoke(main, ["plan", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_a_published_wandb_file_plans_with_a_trainable_added(tmp_path: Path) -> None:
    file = tmp_path / "published.yaml"
    file.write_text(PUBLISHED)
    refused = plan(file)
    assert refused.exit_code == 2
    assert "W&B's program is not run; name a class instead" in refused.output
    file.write_text(f"trainable: trainables.digits_cnn:DigitsCNN\nrun_cap: 30\n{PUBLISHED}")
    result = plan(file, "--json", "--results", tmp_path)
    assert result.exit_code == 0, result.output
    assert result.stderr == "note: program: without effect here\n"
    data = json.loads(result.stdout)
    assert (data["trials"], data["epochs"]) == (30, 300)
    assert [rung["epoch"] for rung in data["rungs"]] == [3, 9]
    assert data["sweep"]["method"] == "tpe"
    assert data["sweep"]["early_terminate"]["type"] == "hyperband"
    assert data["sweep"]["parameters"]["batch_size"] == {
        "distribution": "q_log_uniform_values",
        "min": 32,
        "max": 256,
        "q": 8,
    }
    assert all(
        params["batch_size"] % 8 == 0 and params["epochs"] == 10 for params in data["sample"]
    )


def test_a_wandb_file_without_a_run_cap_goes_on_until_it_is_stopped(tmp_path: Path) -> None:
    file = tmp_path / "published.yaml"
    file.write_text(f"trainable: trainables.digits_cnn:DigitsCNN\n{PUBLISHED}")
    result = plan(file, "--results", tmp_path)
    assert result.exit_code == 0, result.output
    assert (
        "note: without run_cap and budget the sweep goes on until you stop it (Ctrl-C; it can be"
        in result.stderr
    )
    assert "trials       until you stop it; what follows is for 50" in result.stdout
    assert "10 a trial, about" in result.stdout
    data = json.loads(plan(file, "--json", "--results", tmp_path).stdout)
    assert (data["trials"], data["epochs"], data["expected"]["trials"]) == (None, None, 50)
    assert 150 < data["expected"]["epochs"] < 500
    assert (
        "note: program"
        in (bounded := plan(file, "--results", tmp_path, "--set", "budget.hours=1")).stderr
    )
    assert "without run_cap" not in bounded.stderr


def test_the_shipped_wandb_file_plans_and_names_what_it_ignores(tmp_path: Path) -> None:
    result = plan(EXAMPLES / "wandb.yaml", "--results", tmp_path)
    assert result.exit_code == 0, result.output
    assert result.stderr == "note: program, project, entity, command: without effect here\n"
    for text in (
        "trials       20",
        "200 in all",
        "pruned at epoch 3 (20), 9 (",
        "batch_size",
        "adam",
    ):
        assert text in result.stdout
    assert "not known: time one epoch with --time" in result.stdout


def test_hours_by_a_timed_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "timed_model.py").write_text(TIMED)
    file = tmp_path / "timed.yaml"
    file.write_text(
        "trainable: timed_model:Model\nmethod: grid\nparameters: {x: {values: [1, 2]}}\nepochs: 100\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    result = plan(file, "--time", "--json", "--set", "resources.max_concurrent=1")
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    assert data["expected"]["hours"] == pytest.approx(2.0, rel=1e-3)
    assert data["timing"]["source"] == "timed now"
    assert (
        "about 2 h 00 min: 36.00 s an epoch"
        in plan(file, "--time", "--set", "resources.max_concurrent=1").stdout
    )


def test_earlier_sweeps_are_looked_for_and_learned_from(tmp_path: Path) -> None:
    file = EXAMPLES / "warm_start.yaml"
    refused = plan(file, "--results", tmp_path)
    assert refused.exit_code == 2
    assert "warm_start" in refused.output
    assert "log_uniform_tpe" in refused.output
    folder = ResultsFolder.create(tmp_path, "log_uniform_tpe", "", {})
    points = [
        {"learning_rate": 1e-3, "weight_decay": 1e-3, "dropout": x / 10, "batch_size": 64}
        for x in range(6)
    ]
    with Log(folder.log) as log:
        for number, params in enumerate(points):
            started = TrialStarted(
                trial=number, trial_id="t", params=params, seed=0, repeat=0, time=0.0
            )
            epoch = EpochReported(
                trial=number, epoch=1, metrics={"val_accuracy": 0.5}, time=0.0, time_s=1.0
            )
            log.append(
                [
                    started,
                    epoch,
                    TrialEnded(trial=number, status=Status.COMPLETED, reason="", time=0.0),
                ]
            )
    result = plan(file, "--results", tmp_path)
    assert result.exit_code == 0, result.output
    assert f"5 of 6 trials of {folder.path}" in result.stderr


@pytest.mark.parametrize("example", ["asha", "log_uniform_tpe"])
def test_planning_imports_neither_ray_nor_tensorflow(example: str, tmp_path: Path) -> None:
    code = (
        "import sys\nfrom sweep.cli import main\n"
        f"main({['plan', f'{EXAMPLES / example}.yaml', '--results', str(tmp_path)]}, standalone_mode=False)\n"
        "heavy = {'ray', 'tensorflow', 'pandas', 'pyarrow', 'keras', 'torch'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=ROOT)


@pytest.mark.parametrize("metric", ["acc[/top5]", "acc[bold]", "acc:smile:"])
def test_names_are_shown_as_they_are(tmp_path: Path, metric: str) -> None:
    file = tmp_path / "named.yaml"
    (tmp_path / "m.py").write_text(TIMED)
    file.write_text(
        f"trainable: m:Model\nmethod: grid\nmetric: {{name: '{metric}', goal: maximize}}\n"
        "parameters: {x: {values: ['[red]', '[/]']}}\n"
    )
    shown = plan(file, "--results", tmp_path)
    assert f"objective    maximize {metric}\n" in shown.output
    assert "[red]" in shown.output
    assert "[/]" in shown.output


def test_a_note_cannot_steer_the_terminal(tmp_path: Path) -> None:
    file = tmp_path / "named.yaml"
    (tmp_path / "m.py").write_text(TIMED)
    file.write_text(
        'trainable: m:Model\nmethod: grid\nmetric: {name: "acc \\a"}\nparameters: {x: {values: [1]}}\n'
    )
    shown = plan(file, "--results", tmp_path)
    assert "looks as if larger is better" in shown.stderr
    assert "\a" not in shown.stderr


def test_no_console_reads_markup() -> None:
    """Names and values are the user's: only `sweep.render.console` makes consoles, and takes texts as they are."""
    made = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "sweep").rglob("*.py")
        if re.search(r"\bConsole\(", path.read_text())
        and path != ROOT / "sweep" / "render" / "__init__.py"
    ]
    assert made == ["sweep/api/running.py"], "it prints `Text` alone"


def test_a_text_from_standard_input_is_named_by_its_file(tmp_path: Path) -> None:
    text = "trainable: scored:Scored\nmethod: gridd\nparameters: {a: {values: [1]}}\n"
    command = [sys.executable, "-m", "sweep", "plan", "--stdin", "--", "draft.yaml"]
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 2
    assert "error: draft.yaml:2:9: method: text 'gridd', expected one of " in done.stderr
    assert "/dev/stdin" not in done.stderr
