import pytest

from sweep.events import Status, TrialStarted
from sweep.runner.open_trial import OpenTrial

STARTED = TrialStarted(trial=3, trial_id="t", params={}, seed=0, repeat=0, time=0.0)


@pytest.mark.parametrize(
    ("known", "status", "reason"),
    [
        ({"last_epoch": 2}, None, ""),
        ({"last_epoch": 2, "verdict": "rung 1"}, Status.PRUNED, "rung 1"),
        ({"last_epoch": 2, "verdict": "rung 1", "reached": "target"}, Status.COMPLETED, "target"),
        ({"last_epoch": 4, "verdict": "rung 1"}, Status.COMPLETED, ""),
        ({"last_epoch": 4, "diverged": "loss is nan"}, Status.DIVERGED, "loss is nan"),
    ],
)
def test_the_end_that_epochs_have_come_to(known, status, reason) -> None:
    end = OpenTrial(STARTED, 4, (2,), **known).overdue()
    if status is None:
        assert end is None
        return
    assert (end.trial, end.status, end.reason) == (3, status, reason)
    assert end.at_target is (reason == "target")
