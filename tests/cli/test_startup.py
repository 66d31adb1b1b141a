"""What a command shows before its first trial."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from sweep.cli.startup import Startup, describe_cost
from sweep.events import EpochReported, Facts, Status, TrialEnded, TrialStarted
from sweep.runner import Options
from sweep.spec import parse_spec
from sweep.store.folder import ResultsFolder
from sweep.store.log import Log

FILE = """
name: some
trainable: trainables.digits_cnn:DigitsCNN
metric: {name: val_loss, goal: minimize}
parameters: {learning_rate: VALUES}
"""


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_off_a_terminal_there_are_only_lines_that_stay(capsys: pytest.CaptureFixture[str]) -> None:
    with Startup() as startup:
        startup.step("reading a.yaml")
        startup.announce("some: 3 trials")
        startup.step("checking a")
    assert capsys.readouterr().err == "some: 3 trials\n"


def test_on_a_terminal_a_step_takes_the_place_of_the_last_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with Startup() as startup:
        startup.step("reading a.yaml")
        startup.announce("some: 3 trials")
        startup.step("checking a")
    clear = "\r\x1b[K"
    assert terminal.getvalue() == f"reading a.yaml{clear}some: 3 trials\nchecking a{clear}"


def test_with_quiet_nothing_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with Startup(quiet=True) as startup:
        startup.step("reading a.yaml")
        startup.announce("some: 3 trials")
    assert capsys.readouterr().err == ""


def test_a_closed_output_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", buffering=1) as closed:
        monkeypatch.setattr(sys, "stderr", closed)
        with Startup() as startup:
            startup.announce("some: 3 trials")
        os.dup2(os.open(os.devnull, os.O_WRONLY), writer)  # so that it can be flushed


def record_sweep(results: Path, gpus: int | None, params: dict[str, int]) -> None:
    """Write a sweep of one trial: 3 epochs of 0.5 s each, and 2 s besides these."""
    info = {"spec": {"trainable": "trainables.digits_cnn:DigitsCNN"}, "simulated_gpus": gpus}
    folder = ResultsFolder.create(results, "first", "", info)
    with Log(folder.log) as log:
        log.append([TrialStarted(trial=0, trial_id="a", params=params, seed=0, repeat=0, time=0.0)])
        for epoch in range(1, 4):
            log.append([EpochReported(trial=0, epoch=epoch, metrics={}, time=0.0, time_s=0.5)])
        facts = Facts(overhead_s={"build": 2.0})
        log.append([TrialEnded(trial=0, status=Status.COMPLETED, reason="", time=0.0, facts=facts)])


@pytest.mark.parametrize(
    ("keys", "cost"),
    [
        # (2 s + 10 epochs of 0.5 s) for each of 3 trials
        ("method: grid\nepochs: 10", "about 21 s, 0.5 s an epoch as in sweep first"),
        (
            "method: grid\nepochs: 10\ntraining: {patience: 3}",
            "at most about 21 s, 0.5 s an epoch as in sweep first",
        ),
        (
            "method: random\nrun_cap: 100\nepochs: 10\nearly_terminate: {type: asha}",
            "at most about 11 min 40 s, 0.5 s an epoch as in sweep first",
        ),
        # the longest trial counts for all
        (
            "method: grid\nEPOCHS {values: [5, 16]}",
            "about 1 min 00 s, 0.5 s an epoch as in sweep first",
        ),
        (
            "method: random\nepochs: 10\nbudget: {hours: 8}",
            "about 8 h 00 min, 0.5 s an epoch as in sweep first",
        ),
        (
            "method: grid\nminutes: 2",
            "about 6 min 06 s, 0.5 s an epoch as in sweep first",
        ),
        # without an end, and with epochs of other and of several lengths
        ("method: random\nepochs: 10", ""),
        ("method: grid\nSTEPS {value: 7}", ""),
        ("method: grid\nSTEPS {values: [7, 8]}", ""),
    ],
)
def test_the_cost_of_a_sweep_at_the_pace_of_an_earlier_one(
    tmp_path: Path, keys: str, cost: str
) -> None:
    record_sweep(tmp_path, None, {})
    values = "{values: [0.1, 0.01, 0.001]}" if "grid" in keys else "{min: 0.001, max: 0.1}"
    file = FILE.replace("VALUES", values)
    for mark, name in (("EPOCHS", "epochs"), ("STEPS", "steps_per_epoch")):
        keys, _, values = keys.partition(f"\n{mark}")
        if values:
            file = file.rstrip().removesuffix("}") + f", {name}: {values}}}\n"
    spec = parse_spec(file + keys, "some.yaml")
    assert describe_cost(spec, tmp_path, Options(inline=True)) == cost
    assert describe_cost(spec, tmp_path / "absent", Options(inline=True)) == ""
    assert describe_cost(spec, tmp_path, Options(address="ray://head:10001")) == ""


def test_the_cost_counts_places_and_the_price_of_gpus(tmp_path: Path) -> None:
    record_sweep(tmp_path, 4, {})
    keys = "method: grid\nepochs: 3596\nresources: {gpus: 1, price_per_gpu_hour: {on_demand: 2, spot: 1}}"
    spec = parse_spec(FILE.replace("VALUES", "{values: [1.0, 0.1, 0.01, 0.001]}") + keys, "s.yaml")
    # 4 trials of half an hour each, in 2 places as there are no more CPU cores here, or one after another
    found = describe_cost(spec, tmp_path, Options(simulated_gpus=4, max_concurrent=1))
    assert found == "about 2 h 00 min and 2.00 to 4.00, 0.5 s an epoch as in sweep first"


@pytest.mark.slow
def test_a_run_on_a_terminal_says_what_it_does_before_anything_is_checked(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def train(hp, report):\n    report(a=hp['x'])\n")
    (tmp_path / "some.yaml").write_text(
        "name: some\ntrainable: mine:train\nmetric: {name: a, goal: maximize}\nmethod: grid\nepochs: 1\n"
        "parameters: {x: {values: [1, 2]}}\n"
    )
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "sweep", "run", "some.yaml", "--inline"],
        cwd=tmp_path,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # the process has ended
        while True:
            shown += os.read(ours, 10_000)
    assert process.wait() == 0
    text = shown.decode()
    order = [
        "reading some.yaml",
        "some: grid, 2 trials of at most 1 epoch, 2 together",
        "checking mine:train",
        "rank",
    ]
    places = [text.index(line) for line in order]
    assert places == sorted(places)
