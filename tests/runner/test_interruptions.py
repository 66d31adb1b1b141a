"""Signals at every point of a run: it ends, says how to go on, and leaves a folder that resume takes, or none."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import processes
import pytest
from terminals import Terminal
from waiting import PATIENCE_S, until

import sweep
from sweep.documents.schemas import find_schema
from sweep.events import EpochReported, decode
from sweep.store.folder import ResultsFolder

HERE = Path(__file__).parent
INT, TERM, HUP = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
# a closed terminal: the shell sends the signal, and then the kernel
SIGNALS = {"first": [INT], "term": [TERM], "closed": [HUP, HUP], "second": [INT, INT]}

TRAINABLE = """
import json
from sweep.contract import EpochReported, Facts

class Walk:
    def begin(self, assignment):
        self.given, self.done = assignment, 0
    def train(self, report):
        while self.done < self.given.epochs:
            self.epoch()
            loss = self.given.params["a"] / self.done
            if not report(EpochReported(trial=0, epoch=self.done, metrics={"loss": loss}, time=0.0, time_s=0.1)):
                return
    def epoch(self):
        self.done += 1
    def save(self, folder):
        (folder / "done.json").write_text(json.dumps(self.done))
    def restore(self, folder):
        self.done = json.loads((folder / "done.json").read_text())
        return self.done
    def facts(self):
        return Facts()
    def test(self):
        return {"score": self.given.params["a"]}
"""
FILE = """
trainable: walk:Walk
method: grid
metric: {name: loss}
parameters: {a: {values: [3, 1, 2]}}
epochs: 4
"""

NONE = {  # nothing is left
    "reading the file": "runner/sweep_files.py:load_file",
    "checking": "runner/checking.py:check_trainable",
    "what it runs on": "store/sweep_info.py:provenance",
    "before the folder": "store/folder.py:ResultsFolder.create",
    "making the folder": "store/folder.py:ResultsFolder.write_info",
    "making the view": "cli/running.py:_make_viewer.<locals>.view",
    "connecting": "runner/features.py:open_backend",
    "the searcher": "runner/methods.py:searcher",
    "opening the log": "store/log.py:Log.__init__",
    "earlier sweeps": "runner/features.py:find_earlier_results",
    "tables": "store/reading.py:TableWriter.__init__",
}
BEGUN = {  # the sweep goes on with resume
    "opening": "runner/coordinator.py:Coordinator.open",
    "the first line of the log": "store/log.py:Log.append",
    "the first ask": "runner/coordinator.py:Coordinator.next",
    "the first draw": "runner/trials.py:Upcoming.choose",
    "mid-epoch": "walk.py:Walk.epoch 2",
    "while an event is shown": "analysis/live_status.py:Standing.observe 5",
    "while an event is logged": "store/log.py:Log.append 4",
    "while a checkpoint is saved": "walk.py:Walk.save",
    "between trials": "runner/coordinator.py:Coordinator.next 2",
    "rendering": "cli/running.py:conclude",
    "the last table": "render/tables.py:print_table",
    "the last lines": "analysis/verdict.py:summarize_ranking",
}
DONE = {  # nothing is left to stop: the first signal changes nothing
    "the last epoch": "walk.py:Walk.epoch 12",
    "after the last trial": "runner/coordinator.py:Coordinator.next 4",
    "closing the log": "runner/coordinator.py:Coordinator.close",
    "final tables": "runner/session.py:_write_configurations",
    "cleaning up": "runner/session.py:_delete_temporary_files 2",
}
POINTS = {**NONE, **BEGUN, **DONE}
CONFIRM = """
baseline: {a: 4}
confirm: {seeds: 2, finalists: 2, budget: null}
"""
LEFT = {  # after the last trial, too
    "closing the log": "runner/coordinator.py:Coordinator.close",
    "cleaning up": "runner/session.py:_delete_temporary_files 2",
    "before the test": "runner/restoring.py:_offers_test",
    "the first test": "walk.py:Walk.test",
}

ON_RAY = {
    "Ray is about to start": "ray_tune/cluster.py:_start_ray",
    "Ray has started": "ray_tune/cluster.py:_start_watching_servers",
    "workers are about to start": "ray_tune/backend.py:train_trials",
    "the first ask": "ray_tune/adapters.py:DriverSearcher.suggest",
    "the first result": "runner/coordinator.py:Coordinator.take",
    "between trials": "runner/coordinator.py:Coordinator.next 3",
    "closing the log": "runner/coordinator.py:Coordinator.close",
    "Ray ends": "ray_tune/cluster.py:_shut_down_ray",
}
ALWAYS = {
    ("Ray has started", "term"),
    ("the first result", "first"),
    ("Ray is about to start", "second"),
}

Run = Callable[..., tuple[int, str]]


@pytest.mark.parametrize("point", sorted({*POINTS.values(), *LEFT.values(), *ON_RAY.values()}))
def test_each_point_is_in_the_source(point: str) -> None:
    file, _, where = point.partition(":")
    if file != "walk.py":
        (path,) = Path(sweep.__file__).parent.rglob(file)
        assert f"def {where.split()[0].rpartition('.')[2]}(" in path.read_text()


@pytest.fixture(scope="module")
def server() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(HERE / "interrupting.py")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture
def run(server: subprocess.Popen[str], tmp_path: Path) -> Run:
    """A command in a folder of its own: its exit code, and its last line of errors."""
    (tmp_path / "walk.py").write_text(TRAINABLE)
    (tmp_path / "it.yaml").write_text(FILE)

    def command(*argv: str, **how: Any) -> tuple[int, str]:
        streams = [str(tmp_path / "out"), str(tmp_path / "err")]
        request = {
            "folder": str(tmp_path),
            "argv": argv,
            "streams": streams,
            "terminal": False,
            **how,
        }
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        code = int(server.stdout.readline())
        errors = Path(streams[1]).read_text()
        assert "Traceback" not in errors
        return code, (errors.splitlines() or [""])[-1]

    return command


def check(
    run: Run, tmp_path: Path, ended: tuple[int, str], *, may_be_gone: bool, may_be_left: bool
) -> None:
    """It was interrupted and says how to go on; who does so has all trials, and each epoch once."""
    folder, (code, last) = ResultsFolder(tmp_path / "results" / "it"), ended
    assert code == 130
    if not folder.path.exists():
        assert may_be_gone
        assert last.endswith(("start it again", "run the command again"))
        assert run("run", "it.yaml", "--inline", "-q")[0] == 0
    else:
        assert may_be_left
        assert last.endswith("go on with: python -m sweep resume it")
        assert run("resume", "it", "--inline", "-q")[0] == 0
    found = sweep.load(folder.path)
    assert found.trials["status"].tolist() == ["completed"] * 3
    assert found.metrics.groupby("trial").size().tolist() == [4] * 3


def check_done(run: Run, tmp_path: Path, ended: tuple[int, str]) -> None:
    """It ended as if nobody had asked it to, and nothing is left for who goes on."""
    folder, (code, last) = ResultsFolder(tmp_path / "results" / "it"), ended
    assert code == 0, last
    assert "go on with" not in last
    printed = (tmp_path / "out").read_text()
    assert "results  results/it" in printed
    assert "stopped" not in printed
    assert decode(folder.log.read_bytes().splitlines()[-1]).reason == "finished"
    found = sweep.load(folder.path)
    assert found.trials["status"].tolist() == ["completed"] * 3
    assert found.metrics.groupby("trial").size().tolist() == [4] * 3


def signalled(points: Iterable[str]) -> list[Any]:
    """Points and signals; a second signal ends at once wherever it comes: every day, at each third point."""
    return [
        pytest.param(
            where,
            signals,
            marks=() if signals == "first" or place % 3 == 0 else pytest.mark.exhaustive,
        )
        for place, where in enumerate(points)
        for signals in ("first", "second")
    ]


@pytest.mark.parametrize(("where", "signals"), signalled(POINTS))
def test_it_ends_and_goes_on(run: Run, tmp_path: Path, where: str, signals: str) -> None:
    ended = run("run", "it.yaml", "--inline", point=POINTS[where], signals=SIGNALS[signals])
    if where in DONE and signals == "first":
        check_done(run, tmp_path, ended)
    else:
        check(
            run,
            tmp_path,
            ended,
            may_be_gone=where in NONE,
            may_be_left=where not in NONE or signals == "second",
        )


@pytest.mark.parametrize("signals", ["first", "second"])
@pytest.mark.parametrize(
    "where", ["importing", "reading the file", "the first ask", "mid-epoch", "rendering"]
)
def test_a_program_gets_one_document(run: Run, tmp_path: Path, where: str, signals: str) -> None:
    point = {**POINTS, "importing": "sweep/cli/running.py:<module>"}[where]
    how = {"point": point, "signals": SIGNALS[signals], "fresh": where == "importing"}
    code, last = run("run", "it.yaml", "--inline", "--json", **how)
    document = json.loads((tmp_path / "out").read_text())
    assert code == document["exit_code"] == 130
    if signals == "second" or where not in {"the first ask", "mid-epoch"}:
        jsonschema.validate(document, find_schema("error"))
        assert [mistake["is"] for mistake in document["error"]] == [last]
    else:
        jsonschema.validate(document, find_schema("run"))


@pytest.mark.parametrize("signals", ["term", "closed"])
@pytest.mark.parametrize(
    "where", ["reading the file", "making the view", "mid-epoch", "final tables"]
)
def test_sigterm_and_a_closed_terminal_are_as_ctrl_c(
    run: Run, tmp_path: Path, where: str, signals: str
) -> None:
    ended = run("run", "it.yaml", "--inline", point=POINTS[where], signals=SIGNALS[signals])
    if where in DONE:
        check_done(run, tmp_path, ended)
    else:
        check(run, tmp_path, ended, may_be_gone=where in NONE, may_be_left=where in BEGUN)


@pytest.mark.parametrize("where", LEFT)
def test_a_model_that_is_still_to_be_tested_is_left_for_later(
    run: Run, tmp_path: Path, where: str
) -> None:
    (tmp_path / "it.yaml").write_text(FILE + CONFIRM)
    code, last = run("run", "it.yaml", "--inline", point=LEFT[where], signals=[INT])
    assert (code, last) == (130, "interrupted; go on with: python -m sweep resume it")
    before = models_tested(tmp_path)
    assert run("resume", "it", "--inline", "-q")[0] == 0
    assert before < models_tested(tmp_path) > 1


def test_the_last_test_is_the_end(run: Run, tmp_path: Path) -> None:
    (tmp_path / "it.yaml").write_text(FILE + CONFIRM)
    assert run("run", "it.yaml", "--inline", "-q", "--name", "other")[0] == 0
    point = f"walk.py:Walk.test {models_tested(tmp_path, 'other')}"
    code, last = run("run", "it.yaml", "--inline", "--no-memo", point=point, signals=[INT])
    assert (code, "go on with" in last) == (0, False), last
    assert models_tested(tmp_path) == models_tested(tmp_path, "other")


def test_fresh_seeds_that_are_still_to_come_are_left_for_later(run: Run, tmp_path: Path) -> None:
    (tmp_path / "it.yaml").write_text(FILE + CONFIRM + "budget: {epochs: 9}")
    point = "runner/session.py:_write_configurations"
    code, last = run("run", "it.yaml", "--inline", point=point, signals=[INT])
    assert (code, last) == (130, "interrupted; go on with: python -m sweep resume it")
    assert models_tested(tmp_path) == 0
    assert run("resume", "it", "--inline", "-q")[0] == 0
    assert models_tested(tmp_path) > 1


def test_a_limit_that_has_ended_the_sweep_has_ended_it(run: Run, tmp_path: Path) -> None:
    (tmp_path / "it.yaml").write_text(FILE + "budget: {epochs: 9}")
    point = "runner/session.py:_write_configurations"
    code, last = run("run", "it.yaml", "--inline", point=point, signals=[INT])
    assert (code, "go on with" in last) == (0, False), last
    assert "stopped  budget of 9 epochs" in (tmp_path / "out").read_text()


def models_tested(folder: Path, name: str = "it") -> int:
    """How many models were tested."""
    return ResultsFolder(folder / "results" / name).log.read_text().count('"event":"model_tested"')


@pytest.mark.parametrize("signals", SIGNALS)
def test_while_the_program_is_imported_nothing_is_left(
    run: Run, tmp_path: Path, signals: str
) -> None:
    point = "sweep/cli/running.py:<module>"
    ended = run("run", "it.yaml", "--inline", point=point, signals=SIGNALS[signals], fresh=True)
    check(run, tmp_path, ended, may_be_gone=True, may_be_left=False)


@pytest.mark.parametrize("signals", ["first", "second"])
def test_a_view_that_holds_its_lock_does_not_hang(run: Run, tmp_path: Path, signals: str) -> None:
    point = "analysis/live_status.py:Standing.observe 5"
    ended = run("run", "it.yaml", "--inline", point=point, signals=SIGNALS[signals], terminal=True)
    check(run, tmp_path, ended, may_be_gone=False, may_be_left=True)


def test_output_that_nobody_reads_keeps_nobody_from_ending(run: Run, tmp_path: Path) -> None:
    ended = run(
        "run", "it.yaml", "--inline", point=BEGUN["mid-epoch"], signals=SIGNALS["second"], full=True
    )
    check(run, tmp_path, ended, may_be_gone=False, may_be_left=True)


@pytest.mark.parametrize("where", ["making the view", "tables"])
def test_a_resumed_sweep_that_has_not_gone_on_stays_as_it_was(
    run: Run, tmp_path: Path, where: str
) -> None:
    assert run("run", "it.yaml", "--inline", "-q", "--run-cap", "1")[0] == 0
    log = ResultsFolder(tmp_path / "results" / "it").log
    before = log.read_bytes()
    again = ("resume", "it", "--inline", "--run-cap", "3")
    code, last = run(*again, point=NONE[where], signals=[INT])
    assert (code, last) == (
        130,
        "interrupted before it went on; go on with: python -m sweep resume it",
    )
    assert log.read_bytes() == before
    assert run(*again, "-q")[0] == 0


def test_a_command_that_trains_nothing_ends_as_any_program(run: Run) -> None:
    assert run("list", point="cli/results.py:list_sweeps", signals=[INT]) == (130, "interrupted")


SCRIPT = """
import sweep
try:
    sweep.run("it.yaml", inline=True)
except KeyboardInterrupt as error:
    told = str(error)
begun = "start it again" not in told
done = sweep.resume("it", inline=True) if begun else sweep.run("it.yaml", inline=True)
print(told)
print(done.trials["status"].tolist(), len(done.metrics), flush=True)
"""
EMBEDDED = (
    "connecting",
    "tables",
    "opening",
    "mid-epoch",
    "while an event is shown",
    "closing the log",
)


@pytest.mark.parametrize(("where", "signals"), signalled([*EMBEDDED, "final tables"]))
def test_a_process_that_lives_on_is_told_how_to_go_on_and_does(
    run: Run, tmp_path: Path, where: str, signals: str
) -> None:
    assert run(point=POINTS[where], signals=SIGNALS[signals], script=SCRIPT)[0] == 0
    told, done = (tmp_path / "out").read_text().splitlines()[-2:]
    assert told.endswith(("start it again", "go on with sweep.resume('it')"))
    assert done == "['completed', 'completed', 'completed'] 12"


@pytest.mark.ray
@pytest.mark.parametrize(
    ("where", "signals"),
    [
        pytest.param(
            where, signals, marks=() if (where, signals) in ALWAYS else pytest.mark.exhaustive
        )
        for where in ON_RAY
        for signals in SIGNALS
    ],
)
def test_on_ray_it_ends_and_goes_on(run: Run, tmp_path: Path, where: str, signals: str) -> None:
    ended = run("run", "it.yaml", point=ON_RAY[where], signals=SIGNALS[signals])
    begun = where not in ("Ray is about to start", "Ray has started")
    if where in ("closing the log", "Ray ends") and signals != "second":
        check_done(run, tmp_path, ended)
        return
    check(run, tmp_path, ended, may_be_gone=not begun, may_be_left=begun or signals == "second")


LONG = 1000  # epochs that take 20 s until there is a file `quick`


@pytest.mark.slow
def test_if_the_terminal_is_closed_running_trials_are_saved(tmp_path: Path) -> None:
    _close_the_terminal(tmp_path, "--inline")


@pytest.mark.ray
@pytest.mark.slow
def test_if_the_terminal_is_closed_ray_lives_until_running_trials_are_saved(tmp_path: Path) -> None:
    _close_the_terminal(tmp_path, "")


def _close_the_terminal(folder: Path, options: str) -> None:
    """Close the terminal in which a sweep runs: it ends in order, no process stays, and resume goes on from there."""
    began = _begin(folder, f"{sys.executable} -m sweep run it.yaml {options}")
    processes.wait_until_gone(began, PATIENCE_S)
    logged = _read_log(folder)
    assert (logged[-1].reason, logged[-1].finished) == ("interrupted", False)
    reached = {event.trial: event.epoch for event in logged if isinstance(event, EpochReported)}
    assert max(reached.values()) < LONG
    (folder / "quick").touch()
    command = [sys.executable, "-m", "sweep", "resume", "it", "--inline", "-q"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    found = sweep.load(folder / "results" / "it")
    assert found.trials["status"].tolist() == ["completed"] * 3
    assert found.metrics.groupby("trial").size().tolist() == [LONG] * 3
    # each went on from the epoch at which it was saved
    restored = (folder / "restored").read_text().split()
    assert sorted(map(int, restored)) == sorted(reached.values())


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("nohup"), reason="there is no nohup")
def test_with_nohup_a_sweep_outlives_its_terminal(tmp_path: Path) -> None:
    command = f"nohup {sys.executable} -m sweep run it.yaml --inline"
    began = _begin(tmp_path, command)
    (tmp_path / "quick").touch()
    processes.wait_until_gone(began, PATIENCE_S)
    assert _read_log(tmp_path)[-1].reason == "finished"


def _begin(folder: Path, command: str) -> list[processes.Process]:
    """Run a command in a terminal, and close it when some epochs are logged; return the command's processes."""
    if not shutil.which("bash"):
        pytest.skip("there is no bash")
    wait = "os.path.exists('quick') or time.sleep(0.02)"
    slow = TRAINABLE.replace("        self.done += 1", f"        {wait}; self.done += 1")
    slow = slow.replace(
        "        return self.done",
        "        open('restored', 'a').write(f'{self.done} '); return self.done",
    )
    (folder / "walk.py").write_text(f"import os, time\n{slow}")
    (folder / "it.yaml").write_text(FILE.replace("epochs: 4", f"epochs: {LONG}"))
    log = ResultsFolder(folder / "results" / "it").log
    with Terminal(folder) as terminal:
        terminal.type(command)
        until(lambda: log.exists() and b"epoch_reported" in log.read_bytes())
        return processes.below(terminal.process)


def _read_log(folder: Path) -> list[Any]:
    """Return the events of the sweep."""
    lines = ResultsFolder(folder / "results" / "it").log.read_bytes().splitlines()
    return [decode(line) for line in lines]
