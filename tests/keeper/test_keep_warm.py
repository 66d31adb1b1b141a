"""Commands one after another with ``--keep-warm``, as a user types them, on a real Ray."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import processes
import pytest
from terminals import Terminal

import sweep

pytestmark = pytest.mark.ray

TRAINABLE = """
import os
from pathlib import Path

from sweep.contract import EpochReported, Facts

SCALE = 1.0
DATA = float(Path("data.txt").read_text())


class Mine:
    def __init__(self):
        self.begun = 0

    def begin(self, assignment):
        self.begun += 1
        self.given, self.done = assignment, 0
        self.precision = assignment.training.get("precision")

    def train(self, report):
        while self.done < self.given.epochs:
            self.done += 1
            loss = SCALE * DATA * self.given.params["rate"] / self.done
            metrics = {"loss": loss, "process": float(os.getpid()), "begun": float(self.begun)}
            if not report(EpochReported(trial=0, epoch=self.done, metrics=metrics, time=0.0, time_s=0.1)):
                return

    def save(self, folder):
        (folder / "done").write_text(str(self.done))

    def restore(self, folder):
        self.done = int((folder / "done").read_text())
        return self.done

    def facts(self):
        return Facts(data="the same")
"""
FILE = """
name: NAME
trainable: mine:Mine
method: grid
metric: {name: loss}
parameters: {rate: {values: [1, 2, 3, 4]}}
epochs: 2
resources: {max_concurrent: 2}
"""
SLOW = TRAINABLE.replace(
    "            self.done += 1", "            import time; time.sleep(0.3); self.done += 1"
)


class Project:
    """A folder in which commands are typed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"
        }
        (folder / "mine.py").write_text(TRAINABLE)
        (folder / "data.txt").write_text("1.0")

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "sweep", *arguments],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def type(self, *arguments: str, code: int = 0) -> str:
        """Run a command; return what it says."""
        process = self.start(*arguments)
        output, errors = process.communicate(timeout=300)
        assert process.returncode == code, output + errors
        return output + errors

    def run(self, name: str, *arguments: str, **changes: str) -> str:
        """Run a sweep of this name; ``changes`` replace words of the file."""
        text = FILE.replace("NAME", name)
        for old, new in changes.items():
            text = text.replace(old, new)
        (self.folder / "mine.yaml").write_text(text)
        return self.type("run", "mine.yaml", "--no-memo", "--keep-warm", "5m", *arguments)

    def read(self, name: str, column: str) -> list[float]:
        """Return a metric of each trial."""
        return [
            float(value)
            for value in sweep.load(str(self.folder / "results" / name)).trials[f"metric.{column}"]
        ]


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path)
    yield made
    made.type("stop", "--warm")


def test_the_next_run_uses_the_workers_of_the_one_before(project: Project) -> None:
    said = project.run("a")
    assert re.search(
        r"^warm     Ray and [12] workers? stays? for 5 min 00 s \(process ", said, re.MULTILINE
    )
    project.run("b", rate="rate")
    assert set(project.read("b", "process")) & set(project.read("a", "process"))
    # the object of before trained them
    assert max(project.read("b", "begun")) > max(project.read("a", "begun"))
    assert project.read("b", "loss") == project.read("a", "loss") == [0.5, 1.0, 1.5, 2.0]
    project.run("c", **{"values: [1, 2, 3, 4]": "values: [5]", "epochs: 2": "epochs: 3"})
    assert project.read("c", "loss") == [5 / 3]
    assert set(project.read("c", "process")) <= {
        *project.read("a", "process"),
        *project.read("b", "process"),
    }
    # without the option, all the same
    said = project.type("resume", "c", "--set", "parameters.rate.values=[5, 6]")
    assert project.read("c", "loss") == [5 / 3, 2.0]
    assert "cannot be used" not in said


@pytest.mark.parametrize(
    ("file", "content", "factor", "reason"),
    [
        ("mine.py", TRAINABLE.replace("SCALE = 1.0", "SCALE = 10.0"), 10.0, "the code has changed"),
        ("data.txt", "3.0", 3.0, "they have read data.txt, which has changed"),
    ],
)
def test_what_was_changed_is_noticed(
    project: Project, file: str, content: str, factor: float, reason: str
) -> None:
    project.run("a")
    (project.folder / file).write_text(content)
    said = project.run("b")
    assert f"of the sweep before cannot be used again: {reason}" in said
    assert not set(project.read("b", "process")) & set(project.read("a", "process"))
    assert project.read("b", "loss") == [factor * loss for loss in project.read("a", "loss")]
    project.run("c")
    assert set(project.read("c", "process")) & set(project.read("b", "process"))


@pytest.mark.slow
def test_other_resources_and_another_training_block_get_other_workers(project: Project) -> None:
    project.run("a")
    said = project.run("b", **{"epochs: 2": "epochs: 2\ntraining: {precision: float32}"})
    assert "its devices or its training block are others" in said
    said = project.run("c", **{"max_concurrent: 2": "max_concurrent: 2, cpus: 0.5"})
    assert len({tuple(project.read(name, "process")) for name in "abc"}) == 3
    assert project.read("c", "loss") == project.read("a", "loss")


@pytest.mark.slow
def test_ctrl_c_saves_and_the_next_command_goes_on_warm(project: Project) -> None:
    (project.folder / "mine.py").write_text(SLOW)
    project.run("a")
    (project.folder / "mine.yaml").write_text(
        FILE.replace("NAME", "b").replace("epochs: 2", "epochs: 10")
    )
    process = project.start("run", "mine.yaml", "--no-memo")
    log = project.folder / "results" / "b" / "log.jsonl"
    _wait(lambda: log.exists() and log.read_text().count("epoch_reported") > 2)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=100)
    assert process.returncode == 130
    assert "go on with: python -m sweep resume b" in errors
    project.type("resume", "b")
    assert project.read("b", "loss") == [0.1, 0.2, pytest.approx(0.3), 0.4]
    assert set(project.read("b", "process")) & set(project.read("a", "process"))


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("nohup"), reason="there is no nohup")
def test_a_closed_terminal_ends_the_command_in_it_and_keeps_ray_warm(project: Project) -> None:
    (project.folder / "mine.py").write_text(SLOW)
    command = f"{sys.executable} -m sweep run {_file(project, 'a')} --no-memo"
    first = project.folder / "results" / "a" / "log.jsonl"
    with Terminal(project.folder) as terminal:
        terminal.type(f"nohup {command} --keep-warm 5m")
        _wait(lambda: first.exists() and "epoch_reported" in first.read_text())
    _wait(lambda: "session_ended" in first.read_text())
    assert '"finished"' in first.read_text()
    (project.folder / "mine.yaml").write_text(
        FILE.replace("NAME", "b").replace("epochs: 2", "epochs: 10")
    )
    log = project.folder / "results" / "b" / "log.jsonl"
    with Terminal(project.folder) as terminal:
        terminal.type(command)
        _wait(lambda: log.exists() and log.read_text().count("epoch_reported") > 2)
        family = processes.below(terminal.process)
    processes.wait_until_gone(family, 60)
    assert "the sweep was stopped" in log.read_text()
    with Terminal(project.folder) as terminal:
        terminal.type(f"{sys.executable} -m sweep resume b")
        _wait(lambda: '"finished"' in log.read_text())
        processes.wait_until_gone(processes.below(terminal.process), 60)
    assert project.read("b", "loss") == [0.1, 0.2, pytest.approx(0.3), 0.4]
    assert set(project.read("b", "process")) & set(project.read("a", "process"))


@pytest.mark.slow
def test_if_the_keeper_is_killed_the_sweep_is_resumed_and_nothing_stays(project: Project) -> None:
    (project.folder / "mine.py").write_text(SLOW)
    said = project.run("a")
    keeper = int(said.partition("(process ")[2].partition(")")[0])
    (project.folder / "mine.yaml").write_text(
        FILE.replace("NAME", "b").replace("epochs: 2", "epochs: 10")
    )
    process = project.start("run", "mine.yaml", "--no-memo")
    log = project.folder / "results" / "b" / "log.jsonl"
    _wait(lambda: log.exists() and log.read_text().count("epoch_reported") > 2)
    family = processes.below(keeper)
    os.kill(keeper, signal.SIGKILL)
    _, errors = process.communicate(timeout=100)
    assert process.returncode == 1
    assert "the process that kept Ray warm and ran this command has ended" in errors
    project.type("resume", "b")
    assert project.read("b", "loss") == [0.1, 0.2, pytest.approx(0.3), 0.4]
    processes.wait_until_gone(family, 100)


@pytest.mark.slow
def test_what_depends_on_names_is_compared_with_what_it_was(project: Project) -> None:
    declared = TRAINABLE.replace(
        "SCALE = 1.0",
        'import subprocess\n\nSCALE = float(subprocess.check_output("cat scale", shell=True))',
    )
    declared = declared.replace("class Mine:", 'class Mine:\n    depends_on = ["scale"]\n')
    (project.folder / "mine.py").write_text(declared)
    (project.folder / "scale").write_text("1.0")
    project.run("a")
    project.run("b")
    assert set(project.read("b", "process")) & set(project.read("a", "process"))
    (project.folder / "scale").write_text("4.0")
    said = project.run("c")
    assert "they have read scale, which has changed" in said
    assert project.read("c", "loss") == [2.0, 4.0, 6.0, 8.0]


@pytest.mark.slow
def test_what_dies_while_nothing_runs_is_replaced(project: Project) -> None:
    said = project.run("a")
    keeper = int(said.partition("(process ")[2].partition(")")[0])
    one = int(project.read("a", "process")[0])
    os.kill(one, signal.SIGKILL)
    said = project.run("b")
    assert "1 worker of the sweep before cannot be used again" in said
    assert project.read("b", "loss") == [0.5, 1.0, 1.5, 2.0]
    assert one not in project.read("b", "process")
    raylet = next(
        process for process in processes.below(keeper) if "raylet/raylet" in process.title
    )
    raylet.kill()
    _wait(lambda: not Path(f"/proc/{keeper}").exists())
    said = project.run("c")
    assert project.read("c", "loss") == [0.5, 1.0, 1.5, 2.0]


@pytest.mark.slow
def test_it_ends_after_its_time_with_all_its_processes(project: Project) -> None:
    said = project.type("run", _file(project, "a"), "--keep-warm", "3s")
    keeper = int(said.partition("(process ")[2].partition(")")[0])
    family = processes.below(keeper)
    assert any("raylet" in process.title for process in family)
    processes.wait_until_gone(family, 60)
    assert project.type("stop", "--warm") == "nothing is kept warm for this folder\n"


@pytest.mark.slow
def test_mistakes_are_told_as_ever_and_end_nothing(project: Project) -> None:
    project.run("a")
    (project.folder / "wrong.yaml").write_text(
        FILE.replace("NAME", "wrong").replace("method: grid", "method: gird")
    )
    said = project.type("run", "wrong.yaml", code=2)
    assert "method" in said
    assert "Traceback" not in said
    document = json.loads(
        project.type("run", "wrong.yaml", "--json", code=2)
        .partition("\nerror")[0]
        .rpartition("\n}")[0]
        + "\n}"
    )
    assert document["error"]
    project.run("b")
    assert set(project.read("b", "process")) & set(project.read("a", "process"))


def _file(project: Project, name: str) -> str:
    (project.folder / "mine.yaml").write_text(FILE.replace("NAME", name))
    return "mine.yaml"


def _wait(condition: object) -> None:
    deadline = time.monotonic() + 100
    assert callable(condition)
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
