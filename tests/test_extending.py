"""The page about searchers and schedulers of one's own: what it shows passes the suites, and trains."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

import sweep
from sweep.cli import main
from sweep.conformance.searchers import LOSS, SPACE, SearcherConformance
from sweep.runner.methods import build_searcher
from sweep.searchers import Searcher
from sweep.space import Space, early_terminate
from sweep.space.objectives import Objective
from sweep.spec.search_methods import METHODS, Method

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "extending.md").read_text()
SEARCHER, SCHEDULER, PAUSING, TESTS, HALTON, ROW, RULE = re.findall(
    r"```python\n(.*?)```", PAGE, re.DOTALL
)
TRAINABLE = """
from sweep.contract import EpochReported, Facts

class Bowl:
    def begin(self, assignment):
        self.given, self.done = assignment, 0
    def train(self, report):
        while self.done < self.given.epochs:
            self.done += 1
            score = (self.given.params["x"] - 0.3) ** 2 + 1 / self.done
            if not report(EpochReported(trial=0, epoch=self.done, metrics={"score": score}, time=0.0, time_s=0.1)):
                return
    def save(self, folder): pass
    def restore(self, folder): return 0
    def facts(self): return Facts()
"""
FILE = """
trainable: bowl:Bowl
method: my_search:Climb
metric: {name: score}
parameters: {x: {min: 0.0, max: 1.0}}
start_with: [{x: 0.9}]
early_terminate: my_search:Halfway
epochs: 6
run_cap: 12
"""


@pytest.fixture
def halton(monkeypatch: pytest.MonkeyPatch) -> str:
    """The method of the page as part of sweep: its module and its row."""
    row = eval(ROW, {"Method": Method})
    module = ModuleType("sweep.searchers.halton_search")
    exec(HALTON, module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(METHODS, row.name, row)
    return str(row.name)


@pytest.mark.parametrize(
    "test", [name for name in vars(SearcherConformance) if name.startswith("test_")]
)
def test_a_method_in_sweep_itself_is_a_module_and_a_row(halton: str, test: str) -> None:
    class TestHalton(SearcherConformance):
        def make(self, space: Space, objectives: tuple[Objective, ...], seed: int) -> Searcher:
            return build_searcher(halton, space, objectives, seed)

    getattr(TestHalton(), test)()


def test_a_method_in_sweep_itself_begins_with_start_with(halton: str) -> None:
    searcher = build_searcher(halton, SPACE, LOSS, 0, start_with=[{"lr": 1e-3}])
    assert [searcher.suggest(number)["lr"] == 1e-3 for number in range(2)] == [True, False]


def test_a_rule_in_sweep_itself_is_a_class_whose_fields_are_its_keys() -> None:
    found = dict(vars(early_terminate))
    exec(RULE, found)
    rule = found["HalfwayRule"]
    assert early_terminate.compute_decision_epochs(rule(), 10) == (5,)
    assert early_terminate.compute_decision_epochs(rule(), 1) == ()
    with pytest.raises(early_terminate.Misfit, match="min_trials"):
        rule(min_trials=0)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "my_search.py").write_text(SEARCHER + SCHEDULER + PAUSING)
    (tmp_path / "test_my_search.py").write_text(TESTS)
    (tmp_path / "bowl.py").write_text(TRAINABLE)
    (tmp_path / "own.yaml").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    for name in ("my_search", "bowl"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def conformance(project: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_my_search.py"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=project, capture_output=True, text=True, env=environment)


def test_the_page_s_tests_pass(project: Path) -> None:
    done = conformance(project)
    assert done.returncode == 0, done.stdout
    assert "28 passed" in done.stdout


def test_a_part_that_breaks_the_contract_fails_them(project: Path) -> None:
    (project / "my_search.py").write_text(
        (SEARCHER + SCHEDULER + PAUSING).replace("self.ledger.observe(event)", "pass")
    )
    done = conformance(project)
    assert done.returncode == 1
    assert (
        "FAILED test_my_search.py::TestClimb::test_a_finite_space_is_tried_completely_once_then_exhausted"
        in done.stdout
    )


def test_a_sweep_with_both_is_planned_run_and_resumed(project: Path) -> None:
    planned = CliRunner().invoke(main, ["plan", "own.yaml"])
    assert planned.exit_code == 0, planned.output
    assert "trials can be pruned at epoch 3" in planned.output
    ran = CliRunner().invoke(main, ["run", "own.yaml", "--inline"])
    assert ran.exit_code == 0, ran.output
    trials = sweep.load("results/own").trials
    assert trials["param.x"][0] == 0.9
    assert set(trials["status"]) == {"completed", "pruned"}
    assert (
        trials["status_reason"][trials["status"] == "pruned"]
        .str.contains("is of the worse half")
        .all()
    )
    resumed = CliRunner().invoke(main, ["resume", "own", "--run-cap", "20", "--inline"])
    assert resumed.exit_code == 0, resumed.output
    assert len(sweep.load("results/own").trials) == 20


def test_a_sweep_whose_trials_pause_is_planned_run_replayed_and_resumed(project: Path) -> None:
    (project / "own.yaml").write_text(FILE.replace("Halfway", "BestOfFour"))
    planned = CliRunner().invoke(main, ["plan", "own.yaml"])
    assert planned.exit_code == 0, planned.output
    assert "12 trials" in planned.output or "3 (12)" in planned.output
    ran = CliRunner().invoke(main, ["run", "own.yaml", "--inline"])
    assert ran.exit_code == 0, ran.output
    trials = sweep.load("results/own").trials
    assert trials["status"].tolist().count("completed") == 3
    assert (
        trials["status_reason"][trials["status"] == "pruned"] == "best of four: another one went on"
    ).all()
    replayed = CliRunner().invoke(main, ["replay", "own", "--orderings", "3"])
    assert "decisions are the same as when it ran" in replayed.output
    resumed = CliRunner().invoke(main, ["resume", "own", "--run-cap", "20", "--inline"])
    assert resumed.exit_code == 0, resumed.output
    assert sweep.load("results/own").trials["status"].tolist().count("completed") == 5


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            "method: nowhere:Climb",
            "error: method: nowhere:Climb cannot be imported: ModuleNotFoundError: No module",
        ),
        (
            "method: my_search:Climber",
            "method: my_search:Climber cannot be imported: AttributeError",
        ),
        (
            "method: my_search:Halfway",
            "method: my_search:Halfway lacks foresees, learn, suggest; expected a class",
        ),
        (
            "early_terminate: my_search:Climb",
            "my_search:Climb lacks decision_epochs; expected a class",
        ),
        (
            "method: my_search:Broken",
            "error: method: my_search:Broken failed: RuntimeError: no such thing",
        ),
    ],
)
def test_what_is_no_such_part_is_said_before_anything_starts(
    project: Path, wrong: str, message: str
) -> None:
    with (project / "my_search.py").open("a") as file:
        file.write(
            "\nclass Broken(Climb):\n    def __init__(self, *given):\n        raise RuntimeError('\\nno such thing')\n"
        )
    key = wrong.partition(":")[0]
    lines = [wrong if line.startswith(f"{key}:") else line for line in FILE.splitlines()]
    (project / "own.yaml").write_text("\n".join(lines))
    for command in (["plan", "own.yaml"], ["run", "own.yaml", "--inline"]):
        result = CliRunner().invoke(main, command)
        assert result.exit_code == 2
        assert message in result.output
    assert not Path("results").exists()
