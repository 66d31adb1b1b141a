"""A sweep with repeats ends with an answer, and everything that tells of it says the same."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

import sweep
from sweep.cli import main
from sweep.events import (
    EpochReported,
    Event,
    Params,
    SessionStarted,
    Status,
    TrialEnded,
    TrialStarted,
)
from sweep.store.folder import ResultsFolder
from sweep.store.log import Log

SCORED = """
import random

def train(hp, report):
    noise = random.Random(f"{report.seed} {hp['size']}").gauss(0, 0.01)
    level = {"a": 0.9, "b": 0.895, "c\u202e<b>": 0.5}[hp["size"]]
    for epoch in (1, 2, 3):
        report(val_accuracy=level * epoch / 3 + noise)
"""
FILE = r"""
name: told
trainable: scored:train
method: grid
metric: {name: val_accuracy, goal: maximize}
parameters: {size: {values: [a, b, "c\u202e<b>"]}}
epochs: 3
repeats: %d
"""


def call(*arguments: str) -> str:
    result = CliRunner().invoke(main, list(arguments))
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "scored.py").write_text(SCORED, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "scored", raising=False)
    return tmp_path


def test_a_sweep_with_repeats_ends_with_a_verdict(project: Path) -> None:
    Path("told.yaml").write_text(FILE % 8, encoding="utf-8")
    last = call("run", "told.yaml", "--inline").rstrip().splitlines()[-1]
    assert last.startswith("answer   The best was size=")
    assert "1 of the 2 others ties with it" in last
    assert "It is better than 1 of the 2 others: size=c" in last
    assert "\u202e" not in last
    told = json.loads(call("compare", "told", "--json"))
    assert [row["verdict"] for row in told["rows"]] == ["best", "ties", "worse"]
    worse = told["rows"][2]
    assert worse["difference_low"] < worse["difference"] < worse["difference_high"] < 0
    assert worse["p"] == 2**-7
    assert worse["p"] <= worse["p_adjusted"] <= 0.05
    assert told["answer"] in last
    assert told["search"][0]["control"]["of_epochs"] == 72
    assert "method   model confidence set" in call("best", "told")
    assert "(best, 1 tie)" in call("status", "told")
    stored = pd.read_parquet("results/told/configurations.parquet")
    assert stored["verdict"].tolist() == ["best", "ties", "worse"]
    loaded = sweep.load("told").configurations()
    pd.testing.assert_frame_equal(stored, loaded, check_dtype=False)
    call("report", "told")
    page = Path("results/told/report.html").read_text(encoding="utf-8")
    assert "1 of the 2 others ties with it" in page
    assert "Was the search worth it?" in page


NULLS = """
name: nulls
trainable: normed:train
method: grid
metric: {name: val_loss, goal: minimize}
parameters: {norm: {values: [null, layer]}, width: {values: [null, 2], when: {norm: layer}}}
repeats: 2
"""
NORMED = """
def train(hp, report):
    report(val_loss={None: 1.0, "layer": 2.0}[hp["norm"]] + (hp.get("width", 0) or 1) + 0.01 * report.seed)
"""


def test_null_is_a_value_wherever_results_are_shown(project: Path) -> None:
    Path("normed.py").write_text(NORMED, encoding="utf-8")
    Path("nulls.yaml").write_text(NULLS, encoding="utf-8")
    last = call("run", "nulls.yaml", "--inline").rstrip().splitlines()[-1]
    assert last.startswith("answer   The best was norm=null (trials 0, 1) with")
    assert "The next, norm=layer, width=null (trials 2, 3)," in last
    told = json.loads(call("best", "nulls", "--json"))
    assert [row["params"] for row in told["rows"]] == [{"norm": None}]
    assert told["rows"][0]["trials"][0]["params"] == {"norm": None}
    compared = json.loads(call("compare", "nulls", "--json"))
    assert [row["params"] for row in compared["rows"]] == [
        {"norm": None},
        {"norm": "layer", "width": None},
        {"norm": "layer", "width": 2},
    ]
    assert call("best", "nulls").splitlines()[1].endswith("null")
    stored = pd.read_parquet("results/nulls/configurations.parquet")
    assert stored["null_params"].fillna("").tolist() == ['["norm"]', '["width"]', ""]
    assert sweep.load("nulls").best()["null_params"].tolist() == ['["norm"]', '["norm"]']
    call("report", "nulls")
    page = Path("results/nulls/report.html").read_text(encoding="utf-8")
    assert (
        '{"name":"norm","labels":["null","layer"],"written":["null","layer"],"values":[0,0,1,1,1,1]}'
        in page
    )
    assert (
        '{"name":"width","labels":["null","2"],"written":["null","2"],"values":[-1,-1,0,0,1,1]}'
        in page
    )


def test_a_plan_says_what_can_be_told(project: Path) -> None:
    Path("few.yaml").write_text(FILE % 1, encoding="utf-8")
    said = call("plan", "few.yaml")
    assert (
        "no difference: to tell one from luck, 3 configurations need 6 seeds each, and have one seed"
        in said
    )
    Path("told.yaml").write_text(FILE % 8, encoding="utf-8")
    assert "no earlier sweep shows the spread over seeds" in call("plan", "told.yaml")
    call("run", "told.yaml", "--inline", "-q")
    assert "by 8 seeds each and a spread of 0.0" in call("plan", "told.yaml")
    assert json.loads(call("plan", "told.yaml", "--json"))["telling"]["by_seeds"] > 0
    call("run", "few.yaml", "--inline", "-q", "--name", "few", "--no-memo")
    assert "With one seed it cannot be told from luck; repeats: 6" in call("compare", "few")


def test_the_hint_after_no_answer_works_where_the_results_are(project: Path) -> None:
    (project / "scored.py").write_text(
        "def train(hp, report):\n    raise ValueError(hp.size)\n", encoding="utf-8"
    )
    Path("told.yaml").write_text(FILE % 1, encoding="utf-8")
    CliRunner().invoke(main, ["run", "told.yaml", "--inline", "--results", "elsewhere"])
    best = CliRunner().invoke(main, ["best", "told", "--results", "elsewhere"])
    assert (
        best.output
        == "error: told: no trial has completed; see python -m sweep compare elsewhere/told\n"
    )


def test_the_command_that_confirms_names_the_sweep_where_its_results_are(project: Path) -> None:
    (project / "told.yaml").write_text(FILE % 2, encoding="utf-8")
    place = ["--results", "my results"]
    told = "python -m sweep confirm 'my results/told' trains the candidates"
    ran = ["run", "told.yaml", "--inline", *place]
    for command in (ran, ["compare", "told", *place], ["best", "told", *place]):
        assert told in " ".join(call(*command).split()), command
    document = json.loads(call("best", "told", "--json", *place))
    assert told in document["answer"]


def test_the_lineage_of_a_copy_is_shown_as_far_as_the_log_has_it(tmp_path: Path) -> None:
    folder = ResultsFolder.create(
        tmp_path, "cut", "", {"objectives": [{"name": "acc", "goal": "maximize"}]}
    )
    # the start of trial 0 was lost: `repair` leaves out its line
    events: list[Event] = [SessionStarted(time=1.0, resumed=False, version="1")]
    for trial, parent in ((1, 0), (2, 1)):
        known = {"trial": trial, "trial_id": str(trial), "seed": 0, "repeat": 0, "time": 1.0}
        events.append(
            TrialStarted(**known, params={"x": trial}, parent=parent, parent_epoch=2 * trial)
        )
        for epoch in range(1, 2 * trial + 3):  # those of its parent as well
            events.append(
                EpochReported(trial=trial, epoch=epoch, metrics={"acc": 0.5}, time=2.0, time_s=1.0)
            )
        events.append(TrialEnded(trial=trial, status=Status.COMPLETED, reason="", time=3.0))
    with Log(folder.log) as log:
        log.append(events)
    frame = sweep.load(folder.path).lineage(2)
    assert frame[["trial", "first_epoch", "last_epoch"]].to_numpy().tolist() == [
        [1, 3, 4],
        [2, 5, 6],
    ]
    place = ("--results", str(tmp_path))
    said = call("compare", "cut", *place)
    assert "lineage  trial unknown to epoch 2, 1 to epoch 4" in said
    call("report", "cut", *place)
    assert "unknown to epoch 2" in (folder.path / "report.html").read_text()


def test_a_comparison_moves_no_cursor_and_changes_no_colours(tmp_path: Path) -> None:
    folder = ResultsFolder.create(
        tmp_path, "odd", "", {"objectives": [{"name": "acc", "goal": "maximize"}]}
    )
    events: list[Event] = [SessionStarted(time=1.0, resumed=False, version="1")]
    for trial, (value, parent) in enumerate((("a", None), ("b\x1b]0;title\x07", 0))):
        known = {"trial": trial, "trial_id": str(trial), "seed": 0, "repeat": 0, "time": 1.0}
        params: Params = {"augment": value}
        events.append(
            TrialStarted(
                **known, params=params, parent=parent, parent_epoch=None if parent is None else 1
            )
        )
        for epoch in (1, 2):
            events.append(
                EpochReported(
                    trial=trial, epoch=epoch, metrics={"acc": 0.5 + trial}, time=2.0, time_s=1.0
                )
            )
        events.append(TrialEnded(trial=trial, status=Status.COMPLETED, reason="", time=3.0))
    with Log(folder.log) as log:
        log.append(events)
    said = call("compare", "odd", "--results", str(tmp_path))
    assert "lineage  trial 0 to epoch 1, 1 to epoch 2: augment a, b" in said
    assert "\x1b" not in said
