"""All that the readers of a log make of it, as JSON: for the sweeps in ``recorded/``, which earlier code has run."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

from sweep import analysis
from sweep.analysis import Outline, ranking
from sweep.analysis.live_status import Standing
from sweep.analysis.replay import replay_rule
from sweep.contract import Devices
from sweep.render.status import Frame, picture
from sweep.runner import restoring
from sweep.runner.coordinator import Coordinator
from sweep.runner.methods import build_searcher
from sweep.runner.resuming import reopen
from sweep.schedulers.early_termination import build_scheduler
from sweep.space.early_terminate import Asha
from sweep.spec import Spec
from sweep.store import log as store_log
from sweep.store import reading
from sweep.store.folder import ResultsFolder
from sweep.store.ledger import list_ended_trials
from sweep.store.log import Log

RECORDED = Path(__file__).parent / "recorded"
NAMES = ("statuses", "interrupted", "folds", "confirmed", "answered")


def read(name: str, results: Path) -> dict[str, Any]:
    """What a recorded sweep, copied into ``results``, is to its readers."""
    shutil.copytree(RECORDED / name, results / name, ignore=shutil.ignore_patterns("read.json"))
    for line in (results / name / "log.jsonl").read_text().splitlines():
        if checkpoint := re.search(r'"checkpoint":"([^"]+)"', line):
            (results / name / checkpoint[1]).mkdir(parents=True, exist_ok=True)
    sweep = reopen(results, name, ["run_cap=99"])
    found = {
        **_tables(sweep.folder),
        "ranking": [
            (str(row.status), row.completed, [score.mean for score in row.scores], row.params)
            for row in _rows(sweep.folder)
        ],
        "past": [
            (one.params, str(one.status), one.epochs)
            for one in list_ended_trials(store_log.read(sweep.folder.log))
        ],
        "ends": _ends(sweep.folder),
        "standing": _standing(sweep.folder, sweep.spec),
        "replay": _replay(sweep.folder, sweep.spec),
        "next": _next(sweep.folder, sweep.spec),
    }
    plain: dict[str, Any] = json.loads(json.dumps(found, default=str))
    return plain


def _tables(folder: ResultsFolder) -> dict[str, object]:
    tables = reading.read_tables(folder)
    return {"trials": tables.trials.to_pylist(), "metrics": tables.metrics.to_pylist()}


def _rows(folder: ResultsFolder) -> tuple[ranking.RankedConfiguration, ...]:
    return ranking.rank([analysis.read_sweep(folder)]).rows


def _ends(folder: ResultsFolder) -> list[object]:
    """Of each trial how its log says that it began and ended, and its epochs."""
    found = []
    for trial in analysis.read_sweep(folder).trials:
        state, reports = restoring.history(folder, trial.trial)
        found.append((state.start.trial_id, state.end and str(state.status), sorted(reports)))
    return found


def _standing(folder: ResultsFolder, spec: Spec) -> list[str]:
    standing = Standing(Outline.of(spec))
    for event in store_log.read(folder.log):
        standing.observe(event)
    return [
        line.plain.rstrip()
        for line in picture(standing, standing.last or 0.0, Frame(width=120, height=40))
    ]


def _replay(folder: ResultsFolder, spec: Spec) -> object:
    def make() -> Any:
        return build_scheduler(Asha(min_iter=1, eta=2), spec.objectives[0], spec.epochs)

    events = list(store_log.read(folder.log))
    return str(replay_rule(events, spec, ("other", make), ("ran", make), orderings=20))


def _next(folder: ResultsFolder, spec: Spec) -> object:
    """The next trial of a session that goes on."""
    searcher = build_searcher(spec.method, spec.space, spec.objectives, spec.seed, spec.trials_each)
    scheduler = build_scheduler(spec.early_terminate, spec.objectives[0], spec.epochs)
    with Log(folder.log) as log:
        driver = Coordinator(spec, Devices(), searcher, scheduler, log)
        driver.open(list(store_log.read(folder.log)))
        order = driver.next()
        race = (driver.completed, driver.stopping, driver.confirmed)
    return order and (
        order.assignment.trial,
        order.assignment.params,
        order.assignment.seed,
        order.whole,
    ), race
