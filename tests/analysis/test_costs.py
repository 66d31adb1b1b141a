from __future__ import annotations

import pytest

from sweep.analysis import costs
from sweep.events import EpochReported, Facts, SessionStarted, Status, TrialEnded, TrialStarted
from sweep.render.costs import lines
from sweep.store.folder import ResultsFolder
from sweep.store.log import Log


@pytest.fixture
def folder(tmp_path) -> ResultsFolder:
    """Two trials: 10 s from start to end, 8 s of them in epochs; the second waits for half of its time."""
    made = ResultsFolder.create(tmp_path, "s", "", {"objectives": [{"name": "acc", "goal": "maximize"}]})
    events = [SessionStarted(time=0.0, resumed=False, version="1")]
    for trial, waited in ((0, 0.0), (1, 2.0)):
        begun = 100.0 * trial
        events.append(TrialStarted(trial=trial, trial_id=f"t{trial}", params={}, seed=0, repeat=0, time=begun))
        for epoch in (1, 2):
            measures = {"data_wait_s": waited}
            events.append(
                EpochReported(
                    trial=trial, epoch=epoch, metrics={"acc": 0.5}, time=begun + epoch, time_s=4.0, measures=measures
                )
            )
        facts = Facts(started=begun, train_s=8.0, overhead_s={"compile": 1.0, "data": 0.25})
        events.append(TrialEnded(trial=trial, status=Status.COMPLETED, reason="", time=begun + 10, facts=facts))
    with Log(made.log) as log:
        log.append(events)
    return made


def test_sums_over_trials(folder: ResultsFolder) -> None:
    found = costs.of(folder)
    assert (found.sweep, found.train_s) == ("s", 16.0)
    assert found.overhead_s == {"compile": 2.0, "data": 0.5, "wait": pytest.approx(1.5)}


def test_names_trials_that_starve(folder: ResultsFolder) -> None:
    assert costs.of(folder).starving == {1: 0.5}


def test_lines(folder: ResultsFolder) -> None:
    assert list(lines(costs.of(folder))) == [
        "s: trained 16.0 s, overhead 4.0 s (compile 2.0 s, wait 1.5 s, data 0.5 s)",
        "s: starved of data: trial 1 (50%); see docs/data.md",
    ]


def test_many_starving_trials_are_counted() -> None:
    several = costs.Costs("s", 1.0, {}, {trial: 0.3 + trial / 100 for trial in range(8)})
    assert list(lines(several)) == [
        "s: trained 1.0 s, overhead 0.0 s",
        "s: starved of data: trial 7 (37%), 6 (36%), 5 (35%), 4 (34%), 3 (33%) and 3 more; see docs/data.md",
    ]
