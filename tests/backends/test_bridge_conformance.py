"""Each method with each scheduler: what became of a trial is what searcher, log and tables say of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from optuna.trial import TrialState

from sweep.backends import Job
from sweep.backends.inline import Inline
from sweep.contract import Devices
from sweep.events import Status, TrialEnded
from sweep.runner.coordinator import Coordinator
from sweep.runner.methods import build_searcher
from sweep.schedulers.early_termination import build_scheduler
from sweep.searchers.optuna_search import OptunaSearcher
from sweep.space.objectives import Objective
from sweep.spec import parse_spec
from sweep.spec.search_methods import STANDALONE, find_method
from sweep.store import log as store_log
from sweep.store.log import Log
from sweep.store.tables import TableBuilder

pytestmark = pytest.mark.usefixtures("light_collections")  # a trial that fails is followed by one

FILE = """
name: bridge
trainable: bridging:Bridging
method: {method}
metric: {{name: score, goal: minimize}}
parameters: {{a: {{min: 0.0, max: 1.0{count}}}, b: {{values: [1, 2, 3]}}, batch_size: {{value: 2}}}}
epochs: 4
run_cap: 10
max_failures: 99
early_terminate: {rule}
"""
RULES = {
    "none": "{type: none}",
    "asha": "{type: asha, min_iter: 1, eta: 2}",
    "hyperband": "{type: hyperband, min_iter: 1, eta: 2}",
    "median": "{type: median, min_iter: 1, min_trials: 1}",
}
# of each five trials; the others go on
FATES = {
    1: Status.DIVERGED,
    2: Status.OOM,
    3: Status.FAILED,
}
TOLD = {
    Status.COMPLETED: TrialState.COMPLETE,
    Status.PRUNED: TrialState.PRUNED,
    Status.FAILED: TrialState.FAIL,
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("method", [method.name for method in STANDALONE])
def test_every_state_reaches_everybody_as_what_it_is(
    tmp_path: Path, method: str, rule: str
) -> None:
    count = ", count: 5" if find_method(method).enumerates else ""
    spec = parse_spec(FILE.format(method=method, count=count, rule=RULES[rule]), "f.yaml")
    job = Job(
        "bridge", spec.trainable, (Path(__file__).parent,), tmp_path, Objective("score", "minimize")
    )
    searcher = build_searcher(spec.method, spec.space, spec.objectives, spec.seed)
    scheduler = build_scheduler(spec.early_terminate, spec.objectives[0], spec.epochs)
    with Log(tmp_path / "log.jsonl") as log:
        driver = Coordinator(spec, Devices(), searcher, scheduler, log)
        driver.open()
        Inline(job=job).train(driver)
        driver.close()
    events = list(store_log.read(log.path))
    ends = {event.trial: event.status for event in events if isinstance(event, TrialEnded)}
    assert len(ends) == 10
    for trial, status in ends.items():
        expected = FATES.get(trial % 5)
        assert status is expected if expected else status in (Status.COMPLETED, Status.PRUNED), (
            trial
        )
    assert (Status.PRUNED in ends.values()) == (rule != "none")
    table = TableBuilder("bridge", (("score", "minimize"),))
    for event in events:
        table.observe(event)
    rows = table.trials().to_pylist()
    assert [row["status"] for row in rows] == [ends[n].value for n in range(10)]
    assert all((row["error"] is not None) == (row["status"] in ("failed", "oom")) for row in rows)
    assert all(bool(row["status_reason"]) == (row["status"] != "completed") for row in rows)
    if isinstance(searcher, OptunaSearcher):
        states = [trial.state for trial in searcher.study().trials]
        for trial, state in enumerate(states):
            status = ends[trial]
            bad = TrialState.PRUNED if method == "tpe" else TrialState.COMPLETE
            assert state == TOLD.get(status, bad), (trial, status)
