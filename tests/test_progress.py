"""How far a trial is, and what searchers and schedulers see of trials that minutes end."""

from __future__ import annotations

import pytest

from sweep.events import EpochReported, Event, Status, TrialEnded
from sweep.progress import (
    SHARE,
    UNBOUNDED_EPOCHS,
    UnitReports,
    compute_share,
    count_length,
    count_units,
)


@pytest.mark.parametrize(
    ("epoch", "epochs", "trained_s", "minutes", "share"),
    [
        (3, 10, 99.0, None, 0.3),
        (3, UNBOUNDED_EPOCHS, 30.0, 1.0, 0.5),
        (3, 10, 30.0, 1.0, 0.5),
        (8, 10, 30.0, 1.0, 0.8),
        (10, 10, 0.0, 1.0, 1.0),
        (1, 10, 600.0, 1.0, 1.0),
    ],
)
def test_the_share_is_that_of_epochs_or_minutes(
    epoch: int, epochs: int, trained_s: float, minutes: float | None, share: float
) -> None:
    assert compute_share(epoch, epochs, trained_s, minutes) == pytest.approx(share, abs=1e-6)


def test_minutes_alone_count_hundredths() -> None:
    assert count_length(27) == 27
    assert count_length(UNBOUNDED_EPOCHS) == 100
    assert count_units(3, None, 27) == 3
    assert count_units(3, 0.29, 100) == 29  # 0.29 * 100 is 28.999999999999996
    assert count_units(3, 1.0, 100) == 100


def report(epoch: int, share: float | None) -> EpochReported:
    measures = {} if share is None else {SHARE: share}
    return EpochReported(
        trial=0, epoch=epoch, metrics={"loss": 1 / epoch}, time=0.0, time_s=0.0, measures=measures
    )


def end(status: Status) -> TrialEnded:
    return TrialEnded(trial=0, status=status, reason="", time=0.0)


def seen(units: UnitReports, *events: Event) -> list[tuple[int, float]]:
    """Return epoch and loss of each report that is seen in place of the events."""
    found = [one for event in events for one in units.translate(event)]
    return [(one.epoch, one.metrics["loss"]) for one in found if isinstance(one, EpochReported)]


def test_each_unit_is_reported_once_with_the_epoch_that_reached_it() -> None:
    units = UnitReports(10)
    assert seen(units, report(1, 0.05)) == []
    assert seen(units, report(2, 0.35)) == [(1, 1 / 2), (2, 1 / 2), (3, 1 / 2)]
    assert seen(units, report(3, 0.36), report(4, 0.41)) == [(4, 1 / 4)]
    assert seen(units, report(5, 1.0)) == [(unit, 1 / 5) for unit in range(5, 11)]
    assert seen(units, end(Status.COMPLETED)) == []


def test_reasons_name_shares() -> None:
    reason = "asha: loss 0.5 at epoch 12 above the cutoff 0.4"
    assert (
        UnitReports(100).reword(reason)
        == "asha: loss 0.5 at 12 % of its budget above the cutoff 0.4"
    )
    assert (
        UnitReports(27).reword(reason)
        == "asha: loss 0.5 at 12/27 of its budget above the cutoff 0.4"
    )


def test_the_last_metrics_of_a_whole_trial_are_seen() -> None:
    units = UnitReports(10)
    assert seen(units, report(1, 0.25), report(2, 0.28)) == [(1, 1.0), (2, 1.0)]
    assert seen(units, end(Status.INTERRUPTED)) == []
    assert seen(units, end(Status.COMPLETED)) == [(3, 1 / 2)]


def test_a_trial_that_was_pruned_has_no_more_reports() -> None:
    units = UnitReports(10)
    assert seen(units, report(1, 0.25), report(2, 0.28), end(Status.PRUNED)) == [(1, 1.0), (2, 1.0)]


def test_trials_of_a_sweep_without_minutes_are_placed_by_their_epochs() -> None:
    assert seen(UnitReports(100, epochs=50), report(1, None)) == [(1, 1.0), (2, 1.0)]
