import pytest

from sweep.events import Status, TrialStarted
from sweep.runner.trials import OpenTrial
from sweep.store.ledger import TrialState

STARTED = TrialStarted(trial=3, trial_id="t", params={}, seed=0, repeat=0, time=0.0)


@pytest.mark.parametrize(
    ("known", "status", "reason"),
    [
        ({"epoch": 2}, None, ""),
        ({"epoch": 2, "verdict": "rung 1"}, Status.PRUNED, "rung 1"),
        ({"epoch": 2, "verdict": "rung 1", "reached": "target"}, Status.COMPLETED, "target"),
        ({"epoch": 4, "verdict": "rung 1"}, Status.COMPLETED, ""),
        ({"epoch": 4, "diverged": "loss is nan"}, Status.DIVERGED, "loss is nan"),
    ],
)
def test_the_end_that_epochs_have_come_to(known, status, reason) -> None:
    state = TrialState(STARTED, epoch=known["epoch"])
    end = OpenTrial(state, 4, (2,), **{name: one for name, one in known.items() if name != "epoch"}).overdue()
    if status is None:
        assert end is None
        return
    assert (end.trial, end.status, end.reason) == (3, status, reason)
    assert end.at_target is (reason == "target")
