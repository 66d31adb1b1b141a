"""Every command with every option on sweeps of every kind: exit code, output, and never a traceback."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import jsonschema
import pytest
from click.testing import CliRunner

from sweep.cli import main
from sweep.documents import schemas
from sweep.events import OutputPrinted, encode
from sweep.store.folder import ResultsFolder

TRAINABLE = '''
import json, math
from sweep.contract import EpochReported, Facts

def space(hp):
    hp.Int("a", 1, 3)

class Scored:
    """`a` is what its objective comes to; some fail, some diverge."""
    def join(self, devices, training):
        raise RuntimeError("no trial of this page has several workers")
    def leave(self, reason):
        raise RuntimeError("no trial of this page has several workers")
    def begin(self, assignment):
        self.given, self.done = assignment, 0
        self.a = assignment.params["a"]
    def train(self, report):
        while self.done < self.given.epochs:
            if self.a < 0:
                raise RuntimeError("no such a")
            self.done += 1
            bad = self.a == 0.9 and self.given.seed == 1
            metrics = {"score": math.nan if bad else self.a / self.done, "cost": 3.0 - self.a}
            if not report(EpochReported(trial=0, epoch=self.done, metrics=metrics, time=0.0, time_s=0.1)):
                return
    def save(self, folder):
        (folder / "done.json").write_text(json.dumps(self.done))
    def restore(self, folder):
        self.done = json.loads((folder / "done.json").read_text())
        return self.done
    def facts(self):
        return Facts(node="here", data="none")

def function(hp, report):
    report(score=hp.a, cost=3.0)
'''
FILE = """
trainable: scored:Scored
method: grid
metric: {name: score, goal: minimize}
parameters: {a: {values: [3, 1, 2]}}
epochs: 2
"""
FILES = {
    "one": FILE,
    "two": FILE.replace(
        "metric: {name: score, goal: minimize}",
        "metrics: [{name: score, goal: minimize}, {name: cost, goal: minimize}]",
    ),
    "repeats": FILE.replace("[3, 1, 2]", "[3, 0.9]") + "repeats: 2\n",
    "sure": FILE + "baseline: {a: 5}\nconfirm: {seeds: 8, budget: null}\n",
    "running": FILE,
    "killed": FILE,
    "failed": FILE.replace("[3, 1, 2]", "[-1, -2]"),
    "empty": FILE,
}
EMPTY_HANDED = ("failed", "empty")  # no trial of theirs completed


def call(line: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, line.split())
    assert result.exception is None or isinstance(result.exception, SystemExit), (
        line,
        result.exception,
    )
    assert "Traceback" not in result.output
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a sweep of each kind."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "scored.py").write_text(TRAINABLE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", list(sys.path))
        for name, text in FILES.items():
            (folder / f"{name}.yaml").write_text(text)
            call(f"run {name}.yaml --inline -q --no-memo")
        printed = OutputPrinted(trial=1, text="said by trial 1\n", time=1.0)
        with (folder / "results" / "one" / "log.jsonl").open("ab") as log_of_one:
            log_of_one.write(encode(printed))
        for name in ("running", "killed"):
            log = folder / "results" / name / "log.jsonl"
            log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:7]))
        for path in (folder / "results" / "empty").glob("*.*"):
            if path.name not in ("spec.yaml", "sweep.json"):
                path.unlink()
    sys.modules.pop("scored", None)
    return folder


@pytest.fixture
def project(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of it, in which one sweep is being run, by this process."""
    folder = tmp_path / "project"
    shutil.copytree(made, folder)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with ResultsFolder(folder / "results" / "running").lock():
        yield folder
    sys.modules.pop("scored", None)


@dataclass(frozen=True)
class Row:
    """A command line, with NEW for a name that is not taken, and what comes of it."""

    line: str
    code: int = 0
    out: str = ""  # a pattern
    err: str = ""

    def __str__(self) -> str:
        return self.line


READING = (
    Row("status {}", out=r"^{}  (finished|running|unfinished)\ntrials   "),
    Row("status {} --results results", out="trials"),
    Row("status {} --json", out=r'"total": \d'),
    Row("compare {}", out="{}: trained"),
    Row("compare {} one --results results", out="one: trained"),
    Row("compare {} --limit 1", out="trained"),
    Row("compare {}", out=r"\nanswer   "),
    Row("compare {} --json", out=r'"rows": \['),
    Row("compare {} --json", out=r'"answer": "'),
    Row("compare {} --json --limit 1", out=r'"rows": \['),
    Row("report {}", out=r"report   results/{}/report.html"),
    Row("report {} --results results --output NEW", out="report   NEW"),
    Row("report {} --json", out='"report": "results/{}/report.html"'),
    Row("export csv {} --results results", out="csv      results/{}/csv/trials.csv"),
    Row("export csv {} --json", out='"results/{}/csv/trials.csv"'),
    Row(
        "export tensorboard {} --output NEW",
        out=r"events   \d+ trials?\nlook     tensorboard --logdir NEW",
    ),
    Row(
        "export wandb {}",
        out=r"wandb    \d+ trials?\nsend     wandb sync results/{}/wandb/offline-run",
    ),
    Row("report {} one", out=r"report   results/{}/report.html"),
)
BEST = (
    Row("best {}", out=r"(?s)rank +trial.*\n +1 "),
    Row("best {} --results results", out="rank"),
    Row("best {} --json", out=r'"rank": 1'),
    Row(
        "best {} --export NEW",
        2,
        err="has no export.*its checkpoint can be copied: --format checkpoint",
    ),
    Row(
        "best {} --export NEW --format checkpoint",
        out="(?s)rank.*exported trial . after epoch 2 to NEW: checkpoint",
    ),
    Row(
        "best {} --json --export NEW --format checkpoint",
        out=r'(?s)"rank": 1.*"export"',
        err="exported trial",
    ),
)
OTHERS = (
    Row(
        "best one --trial 2 --epoch 2 --format checkpoint --export NEW",
        out="exported trial 2 after epoch 2 to NEW",
    ),
    Row("best failed --trial 1", out=r"failed"),
    Row("best one --trial 9", 3, err="one: has no trial 9; it has trials 0 to 2"),
    Row("best empty --trial 0", 3, err="empty: has no trial 0; no trial was started yet"),
    Row(
        "best one --epoch soon",
        2,
        err="--epoch: 'soon', expected best, last or the number of an epoch",
    ),
    Row("best one --export one.yaml", 4, err="one.yaml: exists already; name a new folder"),
    Row("best one --export NEW --format tflite", 2, err="'tflite' is no format"),
    Row(
        "retrain one --inline --name NEW --epochs 3 --seeds 2 --no-memo",
        out=r"(?s)\[2/2\].*results  results/NEW",
    ),
    Row(
        "retrain one --inline --name NEW --tensorboard",
        out="events   tensorboard --logdir results/NEW/tens",
    ),
    Row("retrain one --inline -q --trial 2 --results results --set seed=7", out="^rank +trial"),
    Row(
        "retrain two --inline --trial 1 -v --max-concurrent 1 --no-reuse",
        out="results  results/two-retrain",
    ),
    Row("retrain two --inline", 2, err="no single best trial; .*choose one with --trial N"),
    Row("retrain one --inline --name one", 4, err="holds a sweep already"),
    Row("retrain one --inline --all-data", 2, err="scored:Scored is not a KerasTrainable"),
    Row(
        "retrain one --inline --epochs 2000000",
        2,
        err="--epochs: 2,000,000, expected at most 1,000,000",
    ),
    Row("retrain failed --inline", 4, err="no trial has completed"),
    Row("retrain one --trial 9", 3, err="one: has no trial 9"),
    Row("retrain one --address 127.0.0.1:1", 2, err="127.0.0.1:1"),
    Row(
        "confirm one --inline --no-memo",
        4,
        err="one: confirm.budget: 20% of the search's 6 epochs is 1, too few: one fresh seed for each of 2 finalists "
        r"takes 4; allow more: python -m sweep confirm one --budget 1\d\d%, or --budget none; or search "
        "on: python -m sweep resume one --run-cap N",
    ),
    Row(
        "confirm one --inline --seeds 6 --finalists 2 --budget none -v --results results",
        out="(?s)told apart from 1 other finalist.*was 0.5000 in the search and is 0.5000 with fresh seeds",
    ),
    # equal
    Row(
        "confirm one --inline -q --budget 900% --no-reuse --max-concurrent 1",
        out=r"worse +7 +1.500",
    ),
    Row("confirm one --inline --budget 200% --tensorboard", out="--logdir results/one/tensorboard"),
    Row(
        "confirm one --inline --budget 20",
        2,
        err="confirm.budget: number 20, expected a share such as 20%",
    ),
    Row("confirm one --seeds 1", 2, err="not in the range"),
    Row("confirm two --inline", 2, err="confirm: needs a single metric"),
    Row("confirm failed --inline", 4, err="no trial has completed"),
    Row(
        "confirm sure --inline",
        out="(?s)beats the baseline by 2 .*told apart from 3 other finalists",
    ),
    Row("confirm running --inline", 4, err="is being run by process"),
    Row("confirm nowhere", 3, err="no such sweep"),
    Row("confirm one --budget none --address 127.0.0.1:1", 2, err="127.0.0.1:1"),
    Row("replay one", out="check    in the log's order its 0 decisions are the same"),
    Row(
        "replay one --early-terminate asha --orderings 9 --results results",
        out="(?s)rule     asha min_iter=1.*winner   trial 1 .*over 9 orderings, 1 trials at a time",
    ),
    Row(
        "replay repeats --early-terminate none --run-cap 1",
        out="the first 1 configurations of an ordering",
    ),
    Row("replay sure --json", out='"configurations": 3'),
    Row("replay failed", 4, err="no configuration has completed"),
    Row("replay empty", 4, err="no configuration has completed"),
    Row("replay killed", out="winner   trial 0"),
    Row(
        "replay one --early-terminate ashes",
        2,
        err="--early-terminate: type: text 'ashes', expected one of asha",
    ),
    Row("replay one --early-terminate scored:None_", 2, err="early_terminate: scored:None_"),
    Row("replay two --early-terminate asha", 2, err="needs a single metric"),
    Row("list", out="(?s)(?=.*empty +unfinished)(?=.*failed +finished)running +running"),
    Row("list --results results", out="one +finished +3 completed +score"),
    Row("list --results nowhere", out="no sweeps in nowhere"),
    Row("list --json", out='"name": "one"'),
    *(
        Row(f"status {name} --watch", out=rf"^{name}  {state}\n.*\d/\d trials")
        for name, state in (
            *(
                ("one", "finished"),
                ("two", "finished"),
                ("repeats", "finished"),
                ("killed", "unfinished"),
            ),
            *(("failed", "finished"), ("empty", "unfinished")),
        )
    ),
    Row(
        "status one --watch --interval 0.1 --results results",
        out="(?s)best    score 0.5000  trial 1.*trial 2 completed",
    ),
    Row("status repeats --watch", out="1 diverged  last trial 3: "),
    Row("status one --interval 2", 2, err="--interval: is given without --watch"),
    Row("plan one.yaml", out="trials +3"),
    Row("plan two.yaml --results results", out="trials +3"),
    # tests have no standard input
    Row("plan typed.yaml --stdin", 2, err="typed.yaml: empty, expected a mapping"),
    Row("plan one.yaml --set epochs=5 --json", out='"epochs": 15'),
    Row("plan one.yaml --simulate-gpus 2", out="trials +3"),
    Row("plan one.yaml --set resources.workers=2", out="2 workers of 1 CPU a trial"),
    Row("plan one.yaml --set resources.workers=2 --json", out='"workers": 2'),
    Row(
        "plan one.yaml --set resources.workers=2 --time",
        2,
        err="--time: trains in a single process, but a trial has",
    ),
    Row(
        "plan one.yaml --set resources.workers=2 --set trainable=scored:function",
        2,
        err="resources.workers: a trial has 2 workers, and scored:function is a function, which trains in one process;",
    ),
    Row("plan one.yaml --set trainable=scored:function", out="trials +3"),
    Row(
        "plan one.yaml --set training.strategy=tpu --set resources.gpus=1",
        2,
        err="and trials are given GPUs",
    ),
    Row(
        "plan one.yaml --set resources.gpus=auto --simulate-gpus 1",
        out="1 CPU, a GPU, shared as measured a trial",
    ),
    Row("plan one.yaml --set resources.gpus=auto --json", out='"gpus": "auto"'),
    Row(
        "plan one.yaml --set resources.gpus=auto --set resources.workers=2",
        2,
        err="resources.gpus: a share of a GPU, and",
    ),
    Row(
        "plan one.yaml --set resources.gpus=auto --set resources.max_concurrent=1",
        2,
        err="one runs at a time; write gpus",
    ),
    Row(
        "plan one.yaml --set resources.gpus=automatic",
        2,
        err="resources.gpus: .* expected a number .*auto",
    ),
    Row("plan one.yaml --address 127.0.0.1:1", 2, err="nobody answers at 127.0.0.1:1"),
    Row("plan one.yaml --time", out="s an epoch"),
    Row(
        "plan one.yaml --set resources.gpus=1 --set resources.price_per_gpu_hour=2.5",
        out="costs +.*2.50 a GPU hour",
    ),
    Row(
        "plan one.yaml --compare-prices A100=1:1.29:30 --compare-prices B=2:1",
        out="A100 +1 +1 +30.00",
    ),
    Row(
        "plan one.yaml --compare-prices A100",
        2,
        err="'A100' is no machine, expected NAME=GPUS:PRICE",
    ),
    Row(
        "plan one.yaml --set budget.money=5",
        2,
        err="budget.money: never reached, because trials use no GPUs",
    ),
    Row(
        "plan one.yaml --set budget.money=5 --set resources.gpus=1",
        2,
        err="money: nothing has a price; add",
    ),
    Row(
        "plan one.yaml --find-lr",
        2,
        err=r"scored:Scored has no try_rates\(\), which --find-lr needs",
    ),
    Row(
        "plan one.yaml --tune-throughput",
        2,
        err="reports no examples_per_s, as trainables of KerasTrainable do",
    ),
    Row("plan nowhere.yaml", 2, err="no such file"),
    Row("schema", out=r'"\$schema"'),
    Row("schema status --json", out=r'"title": "sweep status --json"'),
    Row("schema statu", 3, err="statu: no schema has this name; did you mean 'status'"),
    Row(
        "run one.yaml --inline --name NEW",
        # of several sweeps with the same trials, the latest
        out=r"(?s)\[3/3\].*1 trial answered from killed.*2 trials answered from sure.*results  results/NEW",
    ),
    Row("run one.yaml --inline --name NEW --no-memo -v", out=r"(?s)debug.log.*\[3/3\]"),
    Row("run one.yaml --inline --name NEW -q --run-cap 1 --set epochs=1", out="^rank +trial"),
    Row(
        "run one.yaml --inline --name NEW --results other --no-reuse --no-memo",
        out="results  other/NEW",
    ),
    Row("run one.yaml --inline --name NEW --max-concurrent 1 --profile --no-memo", out=r"\[3/3\]"),
    Row(
        "run one.yaml --inline --name NEW --eager --no-memo",
        2,
        err="scored:Scored is not a KerasTrainable",
    ),
    Row(
        "run one.yaml --inline --name NEW --simulate-gpus 2 --no-memo",
        out="rehearsal: 2 logical CPU devices",
    ),
    Row("run one.yaml --name NEW --address 127.0.0.1:1", 2, err="127.0.0.1:1"),
    Row("run one.yaml --inline", 4, err="holds a sweep already"),
    Row("run one.yaml --inline --name=", 2, err="name: text '', expected"),
    Row("run one.yaml --inline --or-resume", out="results  results/one"),
    Row(
        "run one.yaml --inline --or-resume --name NEW --no-memo",
        out=r"(?s)\[3/3\].*results  results/NEW",
    ),
    Row(
        "run one.yaml --inline --name NEW --set resources.workers=2",
        2,
        err="a trial has 2 workers .*; leave it out",
    ),
    Row(
        "run failed.yaml --inline --name NEW",
        1,
        err=r"no trial completed: trial 0 failed, RuntimeError: scored.py:.* no such a; see the error column",
    ),
    Row(
        "run one.yaml --inline --name NEW --set constraints=[cost<-9]",
        1,
        err=r"(?s)\A(?!.*try failed trials).*no trial completed: trial 0 infeasible",
    ),
    Row("resume running --inline", 4, err="is being run by process"),
    Row("resume killed --inline -q", out="^rank +trial"),
    Row(
        "resume failed --inline -v --results results", 1, out="debug.log", err="no trial completed"
    ),
    Row("resume one --inline --set metric.target=5 --no-memo", out="stopped  target reached"),
    Row(
        "resume one --inline --run-cap 3 --max-concurrent 1 --no-reuse", out="results  results/one"
    ),
    Row("resume two --inline", out="front"),
    Row("resume two --address 127.0.0.1:1", 2, err="127.0.0.1:1"),
    Row("resume killed --inline -q --here", out="^rank +trial"),
    Row("resume nowhere", 3, err="no such sweep"),
    Row("resume failed --inline --retry-failed", 1, err="no trial completed"),
    Row(
        "run one.yaml --inline --name NEW --no-memo --tensorboard",
        out="events   tensorboard --logdir results/NEW/tens",
    ),
    Row("resume killed --inline --tensorboard", out="--logdir results/killed/tensorboard"),
    Row("export mlflow one --output NEW", out="mlflow   3 trials written, 0 there already"),
    Row(
        "export mlflow one --tracking-uri mlruns",
        2,
        err="--tracking-uri mlruns: is no address of a tracking",
    ),
    Row("export mlflow one --tracking-uri sqlite:///a.db --output NEW", 2, err="name two places"),
    Row("export mlflow one --tracking-uri=", 2, err="is no address of a tracking"),
    Row("export csv one --tracking-uri sqlite:///a.db", 2, err="means nothing to csv"),
    Row("export csv nowhere", 3, err="no such sweep"),
    Row("export excel one", 2, err="'excel' is not one of"),
    Row("dashboard nowhere --results results --port 0", 3, err="no such sweep"),
    Row("dashboard one --port 99999", 2, err="99999"),
    Row("ui nowhere --results results --port 0 --no-open --read-only", 3, err="no such sweep"),
    Row("ui one --port 99999 --beside 1 --within 1", 2, err="99999"),
    Row("run nowhere.yaml --ui", 2, err="no such file"),
    Row("stop one --results results", 4, err="is not running"),
    Row("stop one --trial 1 --now", 4, err="is not running"),
    Row("stop --warm", out="nothing is kept warm for this folder"),
    Row(
        "stop one --warm",
        2,
        err="error: --warm: is given with a sweep or its options; leave one of them out",
    ),
    Row("stop", 2, err="Missing argument 'SWEEP'"),
    *(
        Row(
            f"{line} --inline --keep-warm 5m",
            2,
            err="error: --keep-warm: is given with --inline; leave one of them out",
        )
        for line in ("run one.yaml --name NEW", "resume one", "confirm one", "retrain one")
    ),
    Row(
        "run one.yaml --name NEW --keep-warm soon",
        2,
        err="'soon' is not a duration of up to 24 hours, such as 90s",
    ),
    Row("add one a=7 --results results", 2, err="add: a: number 7, expected one of 3, 1, 2"),
    Row(
        "add one b=7",
        2,
        err="(?s)b: no parameter 'b'.*add: lacks a, expected a value for each parameter that varies",
    ),
    Row("add one a=1", 4, err="this configuration is that of trial 1 already"),
    Row(
        "add killed a=2",
        out="1 configuration added to killed, tried when the sweep goes on: python -m sweep resume",
    ),
    Row("add one", 2, err="add: expected either NAME=VALUE"),
    Row("add one --from nowhere.csv", 2, err="nowhere.csv: no such file"),
    Row("add one a=1 --address http://127.0.0.1:1", 2, err="does not answer"),
    Row(
        "change one --set parameters.a.values=[3,1,2,4]",
        out=r"parameters.a.values is \[3, 1, 2, 4\] from now on",
    ),
    Row(
        "change one --set run_cap=9 --results results",
        out="(?s)run_cap is 9 from now on; it was not set.*go on",
    ),
    Row(
        "change one --set epochs=3 --set metric.name=cost",
        4,
        err="(?s)--set metric.name: is cost.*--set epochs: is 3",
    ),
    Row("change one --set parameters.a.values=[]", 2, err="parameters.a"),
    Row("change one", 2, err="Missing option '--set'"),
    Row("change one --set run_cap=9 --address http://127.0.0.1:1", 2, err="does not answer"),
    Row("note one good --results results", out="^noted on one"),
    Row("note empty good", out="^noted on empty"),
    Row("note killed 1 good", out="^noted on trial 1 of killed"),
    Row(
        "note one good words",
        2,
        err="TRIAL: 'good', expected the number of a trial; put the text in quotes",
    ),
    Row("note one 1 good words", 2, err="TEXT: 3 words, expected one text"),
    Row("note one 9 good", 3, err="one: has no trial 9; it has trials 0 to 2"),
    Row("note one good --address http://127.0.0.1:1", 2, err="does not answer"),
    Row("star one 1 --results results", out="^trial 1 of one has a star"),
    Row("star one 1 --remove", out="^trial 1 of one has no star"),
    Row("star one 9", 3, err="one: has no trial 9"),
    Row("star one 1 --address http://127.0.0.1:1", 2, err="does not answer"),
    Row(
        "list --address http://127.0.0.1:1",
        2,
        err="does not answer; expected the address of a Ray dashboard",
    ),
    Row("status one --address http://127.0.0.1:1", 2, err="does not answer"),
    Row("stop one --address http://127.0.0.1:1", 2, err="does not answer"),
    Row("stop one --address http://127.0.0.1:1 --trial 1", 2, err="does not answer"),
    Row("resume one --address http://127.0.0.1:1", 2, err="does not answer"),
    Row("resume one --address http://127.0.0.1:1 --no-memo", 2, err="--no-memo: is not passed"),
    Row("resume one --address http://127.0.0.1:1 --inline", 2, err="--inline: is not passed"),
    Row("resume one --address http://127.0.0.1:1 --results a", 2, err="--results: is not passed"),
    Row("resume one --address http://127.0.0.1:1 --detach", 2, err="does not answer"),
    Row("logs one --address http://127.0.0.1:1 --follow", 2, err="does not answer"),
    Row("logs one --address http://127.0.0.1:1 --trial 1", 2, err="does not answer"),
    Row("logs one --trial 1 --results results", out=r"^said by trial 1\n$"),
    Row("logs one --trial 0", out="^$"),
    Row("logs one --trial 1 --follow", out=r"^said by trial 1\n$"),
    Row("logs one --trial 9", 3, err="one: has no trial 9; it has trials 0 to 2"),
    Row("logs one --trial 9 --follow", 3, err="one: has no trial 9; it has trials 0 to 2"),
    Row("logs one", 2, err="logs: neither a trial nor a cluster is given; --trial N shows"),
    Row(
        "submit one.yaml --address http://127.0.0.1:1 --results /all/see --name NEW --set epochs=1 --run-cap 1 "
        "--max-concurrent 1 --include scored.py --requirements one.yaml --retries 1 --wait",
        2,
        out="plan +trials 1",
        err="does not answer",
    ),
    Row(
        "submit one.yaml --address http://127.0.0.1:1 --results here",
        2,
        err="--results: 'here' is no whole path",
    ),
    Row(
        "submit one.yaml --address http://127.0.0.1:1 --results ftp://x/y",
        2,
        err="is in no store that is known",
    ),
    Row(
        "kube one.yaml --image i:1 --results s3://b/p --name NEW --set epochs=1 --run-cap 1 --include scored.py "
        "--most 2 --memory 8Gi --spot eks --secret s --token t --redis r:1 --retries 1",
        out=r"(?s)kind: ConfigMap.*kind: RayJob.*run one.yaml --or-resume --results s3://b/p --set epochs=1 --set",
        err="note: left out: (__pycache__/, )?results/",
    ),
    Row(
        "kube one.yaml --image i:1 --results s3://b/p --workdir /app",
        out="(?s)^apiVersion: ray.io/v1.*cd /app &&",
    ),
    Row(
        "kube one.yaml --image i:1 --results results",
        2,
        err="'results' is no place in an object store, and",
    ),
    Row(
        "slurm one.yaml --results s3://b/p --time 1-0 --nodes 2 --gpus 4 --partition gpu --save-before 600 --sbatch=-v "
        "--setup true --name NEW --set epochs=1 --run-cap 1 --dry-run",
        out=r"(?s)^#!/bin/bash\n#SBATCH --job-name=NEW.*symmetric-run .*run one.yaml --or-resume --results s3:",
    ),
    Row("slurm one.yaml", 2, err="--dry-run prints the script, to be submitted where Slurm is"),
    Row(
        "slurm one.yaml --time soon",
        2,
        err="--time: 'soon' is no time limit; write it as in 8:00:00",
    ),
    Row("slurm one.yaml --sbatch qos", 2, err="--sbatch: 'qos' is no option of sbatch"),
    Row("slurm one.yaml --results ftp://x/y", 2, err="is in no store that is known"),
    Row("submit nowhere.yaml --address http://127.0.0.1:1 --results /x", 2, err="no such file"),
    Row("list --results ftp://x/y", 2, err="--results: ftp://x/y is in no store that is known"),
    Row("repair one --results results", out="one"),
    Row("repair running", 4, err="is being run by process"),
    Row("init NEW --function --to NEW", out="next     python -m sweep plan NEW/NEW.yaml"),
    Row("init NEW --torch", out="wrote    NEW.yaml, NEW.py"),
    Row("init NEW --from verdict", out="wrote    NEW.yaml, NEW.py"),
    Row("init NEW --from-hypermodel scored:space", out="wrote    NEW.yaml, NEW.py"),
    Row(
        "init NEW --from-hypermodel scored:absent",
        2,
        err="scored:absent cannot be imported: AttributeError",
    ),
    Row("init scored", 4, err="scored.py: already in"),
    Row("examples", out="lr_wd_aug"),
    Row("examples --json", out=r'"name": "lr_wd_aug",\n +"question": "Which learning rate'),
    Row("examples verdict --to NEW --json", out='"NEW/verdict.yaml"'),
    Row("examples verdict --to NEW", out="wrote    NEW/verdict.yaml\n"),
    Row("mcp now", 2, err="Got unexpected extra argument"),
    Row(
        "doctor --results results --timeout 1 --address 127.0.0.1:1 --json",
        1,
        out=r'"level": "error"',
    ),
)


JSON = (
    *(
        Row(line, out=out)
        for line, out in (
            ("init NEW --function --json", '"NEW.yaml",\n +"NEW.py"'),
            ("examples --json", '"name": "verdict"'),
            ("examples verdict --to NEW --json", '"NEW/verdict.yaml"'),
            ("plan one.yaml --json", '"find_lr": null'),
            ("list --json", '"name": "one"'),
            ("status one --json", '"version": 1'),
            ("run one.yaml --inline --name NEW --json", '"completed": 3'),
            ("resume killed --inline --json", '"sweep": "killed"'),
            ("status one --trials --json", '"each": \\['),
            ("wait one --until trials=3 --interval 0.1 --json", '"reached": true'),
            ("confirm one --inline --no-memo --budget none --json", '"answer": "'),
            ("retrain one --inline --name NEW --json", '"sweep": "NEW"'),
            (
                "kube one.yaml --image i:1 --results s3://b/p --workdir /app --json",
                '"kind": "List"',
            ),
            ("slurm one.yaml --dry-run --json", '"job": null'),
            ("compare one --json", '"rungs": {'),
            ("best one --json", '"export": null'),
            ("replay one --orderings 9 --json", '"orderings": 9'),
            ("report one --json", '"report": "'),
            ("export mlflow one --output NEW --json", '"trials": 3'),
            ("export tensorboard one --output NEW --json", '"next": "tensorboard --logdir NEW"'),
            ("export wandb one --json", '"trials": 3'),
            ("repair one --json", '"original": null'),
            ("add killed a=2 --json", r'"configurations": \['),
            ("change one --set run_cap=9 --json", '"key": "run_cap"'),
            ("note one 1 good --json", '"text": "good"'),
            ("star one 1 --json", '"starred": true'),
            ("logs one --trial 1 --json", r'"text": "said by trial 1\\n"'),
            ("schema --json", '"Sweep file"'),
        )
    ),
    *(
        Row(f"{line} --json", code, out=rf'(?s)"exit_code": {code}.*{out}', err=err)
        for line, code, out, err in (
            ("init scored", 4, '"where": "scored.yaml, scored.py"|"where": "scored.py"', "error: "),
            (
                "examples verdic",
                3,
                '"hint": "did you mean .verdict',
                "error: verdic: no such example",
            ),
            ("plan one.yaml --set methd=grid", 2, "methd", "error: "),
            ("plan nowhere.yaml", 2, '"is": "no such file"', "error: "),
            ("list --results ftp://x/y", 2, '"where": "--results"', "error: "),
            (
                "status oneself",
                3,
                '"is": "no such sweep in results"',
                "error: oneself: no such sweep",
            ),
            ("status one --intervall 2", 2, '"where": "--intervall"', "Error: No such option"),
            ("run one.yaml --inline", 4, "holds a sweep already", "error: "),
            (
                "run failed.yaml --inline --name NEW",
                1,
                "no trial completed: trial 0 failed",
                "error: no trial completed",
            ),
            (
                "run one.yaml --inline --name NEW --set epochs=0 --set methd=grid",
                2,
                "epochs.*methd",
                "error: ",
            ),
            ("resume nowhere --inline", 3, "no such sweep", "error: "),
            ("resume one --inline --set method=random", 4, '"where": "--set method"', "error: "),
            ("stop one", 4, "is not running", "error: "),
            ("add one a=7", 2, '"expected": "one of 3, 1, 2"', "error: "),
            ("change one --set epochs=3", 4, '"where": "--set epochs"', "error: "),
            ("note one 9 good", 3, "has no trial 9", "error: "),
            ("star nowhere 1", 3, "no such sweep", "error: "),
            (
                "run one.yaml --inline --name NEW --notify slack:NOT_SET",
                2,
                '"where": "notify.0.slack"',
                "error: ",
            ),
            ("resume killed --inline --notify slack:NOT_SET", 2, "NOT_SET is not set", "error: "),
            ("run one.yaml --inline --events", 2, '"where": "--events"', "error: "),
            ("run one.yaml --inline --detach --name one", 4, "holds a sweep already", "error: "),
            (
                "resume one --detach --inline --set method=random",
                4,
                '"where": "--set method"',
                "error: ",
            ),
            ("wait nowhere", 3, "no such sweep", "error: "),
            ("wait one --until done", 2, '"expected": "finished, verdict', "error: "),
            (
                "wait killed --until finished --interval 0.1",
                1,
                "is not running, and not finished",
                "error: ",
            ),
            ("wait running --timeout 0 --results results", 124, "not finished after", "error: "),
            ("confirm running --inline --events", 2, "leave one", "error: "),
            ("retrain one --inline --events", 2, "leave one", "error: "),
            ("resume one --inline --events", 2, "leave one", "error: "),
            ("confirm running --inline", 4, "is being run by process", "error: "),
            ("retrain one --trial 9", 3, "has no trial 9", "error: "),
            (
                "submit one.yaml --address http://127.0.0.1:1 --results /x",
                2,
                "does not answer",
                "error: ",
            ),
            ("logs one --address http://127.0.0.1:1", 2, "does not answer", "error: "),
            ("logs one --trial 9", 3, "has no trial 9", "error: "),
            (
                "logs one --address http://127.0.0.1:1 --follow",
                2,
                "is given with --json",
                "error: ",
            ),
            ("kube one.yaml --image i:1 --results here", 2, '"where": "--results"', "error: "),
            ("slurm one.yaml --time soon", 2, '"is": "\'soon\' is no time limit"', "error: "),
            ("compare nowhere", 3, "no such sweep", "error: "),
            ("best empty", 4, "no trial has completed", "error: "),
            ("replay failed", 4, "no configuration has completed", "error: "),
            ("report nowhere", 3, "no such sweep", "error: "),
            ("export excel one", 2, '"where": "FORMAT"', "Error: "),
            ("dashboard nowhere", 3, "no such sweep", "error: "),
            ("ui nowhere", 3, "no such sweep", "error: "),
            ("doctor --timeout soon", 2, '"where": "--timeout"', "Error: "),
            ("repair running", 4, "is being run by process", "error: "),
            ("schema statu", 3, '"hint": "did you mean .status', "error: "),
            ("stat", 2, "No such command", "Error: "),
        )
    ),
)


def test_the_table_has_every_command_and_every_option() -> None:
    table: dict[str, set[str]] = {}
    for row in (*READING, *BEST, *OTHERS, *JSON):
        command, *words = row.line.split()
        table.setdefault(command, set()).update(word for word in words if word.startswith("-"))
    for name, command in main.commands.items():
        options = [
            param
            for param in command.params
            if isinstance(param, click.Option) and param.name != "help" and not param.hidden
        ]
        missing = [
            option.opts for option in options if not set(option.opts) & table.get(name, set())
        ]
        assert (name in table, missing) == (True, [])


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("row", READING, ids=str)
def test_commands_that_read(project: Path, row: Row, kind: str) -> None:
    if kind == "two" and "{} one" in row.line:
        row = Row(row.line, 2, err="compare sweeps of one objective")
    _check(row, kind)


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("row", BEST, ids=str)
def test_the_best(project: Path, row: Row, kind: str) -> None:
    if kind in EMPTY_HANDED:
        row = Row(
            row.line,
            4,
            err=f"error: {kind}: no trial has completed; see python -m sweep compare {kind}",
        )
    elif kind == "two" and "--export" in row.line:
        row = Row(
            row.line,
            2,
            err="two: score and cost have no single best trial; .*choose one with --trial N",
        )
    _check(row, kind)


def test_the_best_has_all_its_repeats(project: Path) -> None:
    (row,) = json.loads(call("best repeats --json")[1])["rows"]
    assert (row["params"]["a"], row["completed"]) == (3, 1.0)
    ranked = json.loads(call("compare repeats --json")[1])["rows"]
    assert [(row["params"]["a"], row["completed"]) for row in ranked] == [(3, 1.0), (0.9, 0.5)]
    assert {row["verdict"] for row in ranked} == {"undecided"}
    assert ranked[1]["undecided"]


def test_of_repeats_the_best_that_has_a_checkpoint_is_exported(project: Path) -> None:
    shutil.rmtree(project / "results" / "repeats" / "checkpoints" / "00000")
    assert (
        "exported trial 1 after epoch 2"
        in call("best repeats --export second --format checkpoint")[1]
    )
    assert json.loads((project / "second" / "checkpoint" / "done.json").read_text()) == 2


@pytest.mark.parametrize("row", OTHERS, ids=str)
def test_all_others(project: Path, row: Row) -> None:
    _check(row, "")


@pytest.mark.parametrize("row", JSON, ids=str)
def test_documents_of_results_and_of_errors(project: Path, row: Row) -> None:
    _check(row, "")


def test_every_command_fails_with_a_document() -> None:
    failing = {row.line.split()[0] for row in JSON if row.code}
    assert failing >= set(main.commands) - {"mcp"}  # which prints answers of a protocol


_new = iter(range(10**6))


def _check(row: Row, kind: str) -> None:
    name = f"new{next(_new)}"
    code, out, err = call(row.line.replace("{}", kind).replace("NEW", name))
    assert code == row.code, (out, err)
    for pattern, text in ((row.out, out), (row.err, err)):
        assert re.search(pattern.replace("{}", kind).replace("NEW", name), text), (out, err)
    if "--json" in row.line:
        _check_document(row, out)


ERRORS = (2, 3, 4)


def _check_document(row: Row, out: str) -> None:
    """Check standard output: one document, which meets its schema and has no key that the schema lacks."""
    command = row.line.split()[0]
    if command == "schema" and not row.code:
        return
    schema = schemas.find_schema("error" if row.code in ERRORS else command)
    for definition in schema["$defs"].values():
        if "properties" in definition:
            definition["additionalProperties"] = False
    jsonschema.validate(json.loads(out), schema)
