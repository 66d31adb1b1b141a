import pytest

from sweep.events import Status, TrialStarted
from sweep.runner.trials import EarlyEnd, OpenTrial
from sweep.store.ledger import TrialState

STARTED = TrialStarted(trial=3, trial_id="t", params={}, seed=0, repeat=0, time=0.0)


@pytest.mark.parametrize(
    ("epoch", "early", "status", "reason"),
    [
        (2, None, None, ""),
        (2, EarlyEnd(Status.PRUNED, "rung 1"), Status.PRUNED, "rung 1"),
        (2, EarlyEnd(Status.COMPLETED, "target"), Status.COMPLETED, "target"),
        (4, None, Status.COMPLETED, ""),
        (4, EarlyEnd(Status.PRUNED, "rung 1"), Status.COMPLETED, ""),
        (4, EarlyEnd(Status.COMPLETED, "target"), Status.COMPLETED, ""),
        (4, EarlyEnd(Status.DIVERGED, "loss is nan"), Status.DIVERGED, "loss is nan"),
    ],
)
def test_the_end_that_epochs_have_come_to(epoch, early, status, reason) -> None:
    end = OpenTrial(TrialState(STARTED, epoch=epoch), 4, (2,), early_end=early).make_due_end()
    if status is None:
        assert end is None
        return
    assert (end.trial, end.status, end.reason) == (3, status, reason)
    assert end.at_target is (reason == "target")
