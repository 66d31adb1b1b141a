"""The driver's own clock: what hangs is found, what is slow is left alone."""

from __future__ import annotations

from sweep.runner.limits import Timeouts
from sweep.spec.blocks import Resources

MINUTE, HOUR = 60.0, 3600.0


class Clock:
    """Goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def watch(**resources: float) -> tuple[Timeouts, Clock]:
    clock = Clock()
    return Timeouts(Resources(**resources), clock), clock


def test_no_epoch_within_the_bound() -> None:
    one, clock = watch(epoch_minutes=2.0)
    one.begin(0)
    clock.now += 110
    one.record_step(0, 1)
    clock.now += 110
    assert list(one.list_overdue()) == []
    clock.now += 11
    assert list(one.list_overdue()) == [(0, "no epoch within 2 minutes (resources.epoch_minutes)")]
    one.end(0)
    assert list(one.list_overdue()) == []


def test_a_trial_takes_hours_over_all_its_workers_and_sessions() -> None:
    one, clock = watch(trial_hours=1.0)
    one.recall(0, 0.5 * HOUR)
    one.begin(0)
    clock.now += 0.3 * HOUR
    one.end(0)  # its worker is lost
    clock.now += 9 * HOUR
    one.begin(0)
    clock.now += 0.15 * HOUR
    one.record_step(0, 9)
    assert list(one.list_overdue()) == []
    clock.now += 0.1 * HOUR
    assert list(one.list_overdue()) == [(0, "took more than 1 hours (resources.trial_hours)")]


def test_without_a_bound_it_follows_from_what_was_measured() -> None:
    one, clock = watch()
    one.begin(0)
    clock.now += 100 * HOUR
    assert list(one.list_overdue()) == []  # nothing is known yet
    one.record_step(0, 1)
    one.begin(1)
    clock.now += 1000 * HOUR
    assert list(one.list_overdue()) == []
    clock.now += HOUR + 1
    assert [number for number, _ in one.list_overdue()] == [0, 1]


def test_a_quick_trial_is_given_minutes_and_a_first_epoch_an_hour() -> None:
    one, clock = watch()
    one.begin(0)
    clock.now += 1.0
    one.record_step(0, 10)
    one.begin(1)
    clock.now += 10 * MINUTE + 2.0
    reason = "no epoch within 10 minutes, far longer than any before (resources.epoch_minutes)"
    assert list(one.list_overdue()) == [(0, reason)]
    clock.now += 50 * MINUTE + 9.0
    assert [number for number, _ in one.list_overdue()] == [0, 1]


def test_a_driver_that_was_stopped_blames_no_trial() -> None:
    one, clock = watch(epoch_minutes=1.0)
    one.begin(0)
    clock.now += 0.1
    assert not one.is_due()
    clock.now += 0.2
    assert one.is_due()
    clock.now += HOUR  # Ctrl-Z
    assert one.is_due()
    assert list(one.list_overdue()) == []
    for _ in range(61):
        clock.now += 1.0
        assert one.is_due()
    assert [number for number, _ in one.list_overdue()] == [0]


def test_what_is_under_way_is_told() -> None:
    one, clock = watch()
    one.begin(0)
    clock.now += 5
    one.begin(1)
    clock.now += 5
    assert (one.session_s, one.under_way_s) == (10, 15)
    one.record_step(0, 1)
    assert one.under_way_s == 5


def test_steps_that_keep_the_driver_busy_count_as_time_of_their_trial() -> None:
    one, clock = watch(trial_hours=0.5)
    one.begin(0)
    for _ in range(30):  # as with --inline: the driver looks at the clock after each step alone
        clock.now += MINUTE
        one.record_step(0, 1)
        assert one.is_due()
        assert one.under_way_s == 0
        assert list(one.list_overdue()) == []
    clock.now += MINUTE
    one.record_step(0, 1)
    assert one.is_due()
    assert list(one.list_overdue()) == [(0, "took more than 0.5 hours (resources.trial_hours)")]
