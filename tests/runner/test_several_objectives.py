"""Sweeps with several objectives whose trials stop early, or pause."""

from __future__ import annotations

from pathlib import Path

import pytest
from curves import ends, resume, run

from sweep.analysis import read_sweep
from sweep.events import TrialEnded
from sweep.store import log as store_log

TRAINABLE = '''
import json
from sweep.contract import EpochReported, Facts

class Net:
    """The larger the better, and the more expensive; what is wasted is neither."""
    def begin(self, assignment):
        self.given, self.done = assignment, 0
    def train(self, report):
        size, waste = self.given.params["size"], self.given.params["waste"]
        while self.done < self.given.epochs:
            self.done += 1
            metrics = {"score": 1 - size + waste + 1 / self.done, "cost": size + waste, "memory": 10 * size}
            if not report(EpochReported(trial=0, epoch=self.done, metrics=metrics, time=0.0, time_s=0.1)):
                return
    def save(self, folder):
        (folder / "done.json").write_text(json.dumps(self.done))
    def restore(self, folder):
        self.done = json.loads((folder / "done.json").read_text())
        return self.done
    def facts(self):
        return Facts(node="here", data="none")
'''

FILE = """
name: curves
trainable: net:Net
method: {method}
metrics: [{{name: score}}, {{name: cost}}]
parameters: {{size: {{min: 0.0, max: 1.0}}, waste: {{min: 0.0, max: 1.0}}}}
constraints: {constraints}
epochs: 9
run_cap: 18
early_terminate: {{type: {rule}}}
"""


@pytest.mark.parametrize("rule", ["asha", "asha_promotion"])
@pytest.mark.parametrize("method", ["random", "tpe", "nsga2"])
def test_trials_stop_by_non_dominated_rank_and_a_resumed_sweep_goes_on_as_it_would(
    project: Path, method: str, rule: str
) -> None:
    (project / "net.py").write_text(TRAINABLE)
    text = FILE.format(method=method, rule=rule, constraints=["memory <= 8"])
    whole = run(project, text).folder
    statuses = ends(whole)
    assert len(statuses) == 18
    assert set(statuses.values()) <= {"completed", "pruned", "infeasible"}
    assert "completed" in statuses.values()
    pruned = [
        e.reason
        for e in store_log.read(whole.log)
        if isinstance(e, TrialEnded) and e.status == "pruned"
    ]
    assert pruned
    assert all("by non-dominated rank" in why or "too few came" in why for why in pruned)
    (project / "results" / "curves").rename(project / "results" / "whole")
    run(project, text.replace("run_cap: 18", "run_cap: 7") if rule == "asha" else text)
    again = resume(project, "run_cap=18").folder
    assert [one.params for one in read_sweep(again).trials] == [
        one.params for one in read_sweep(whole).trials
    ]
    assert ends(again) == statuses
