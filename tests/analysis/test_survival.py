from __future__ import annotations

from collections import Counter

import pytest

from sweep.analysis.survival import Foresight, simulate_reports
from sweep.events import EpochReported, Event
from sweep.schedulers import early_termination
from sweep.schedulers.early_termination import build_scheduler
from sweep.space.early_terminate import Asha, EarlyTermination, Hyperband, Median
from sweep.space.objectives import Objective

LOSS = Objective("loss", "minimize")
SCORE = Objective("score", "maximize")
RULES = [Asha(1, None, 3), Hyperband(min_iter=1), Median()]


@pytest.mark.parametrize("objective", [LOSS, SCORE])
@pytest.mark.parametrize("rule", RULES)
def test_made_up_trials_are_judged_by_the_rule(
    rule: EarlyTermination, objective: Objective
) -> None:
    scheduler = build_scheduler(rule, objective, 27)
    epochs = (*scheduler.decision_epochs(27), 27)
    ends = [
        max(simulate_reports(scheduler, objective, trial, loss, epochs, epoch_s=1.0))
        for trial, loss in enumerate([0.1] * 5 + [0.9])
    ]
    assert ends[0] == 27
    assert ends[-1] < 27


@pytest.mark.parametrize("rule", RULES)
def test_few_of_many_that_wait_come_to_their_end(rule: EarlyTermination) -> None:
    found = Foresight(rule, LOSS, [27]).prospect({}, 1000, Counter())
    assert found.left == []
    assert found.whole == 0
    assert 0 < found.waiting_whole < 0.3
    assert 1 < found.waiting_left < 14


def test_a_better_trial_is_thought_to_come_further() -> None:
    foresight = Foresight(Asha(1, None, 3), LOSS, [27])
    for trial in range(20):
        foresight.hear(trial, 1, trial / 20, 1.0)
        if trial >= 6:
            foresight.end(trial, (1, 27))
    found = foresight.prospect(dict.fromkeys(range(6), (1, 27)), 40, Counter())
    assert found.left[0] > found.left[3] > 0
    assert 0 < found.whole <= 6


def test_between_rehearsals_trials_come_nearer_to_their_ends() -> None:
    foresight = Foresight(Asha(1, None, 3), LOSS, [27])
    foresight.hear(0, 1, 0.5, 1.0)
    before = foresight.prospect({0: (1, 27)}, 9, Counter())
    after = foresight.prospect({0: (2, 27), 1: (0, 27)}, 8, Counter())
    assert after.left == [before.left[0] - 1, before.waiting_left]
    foresight.end(0, (2, 27))
    foresight.reopen(0)
    assert len(foresight.prospect({0: (2, 27), 1: (0, 27)}, 8, Counter()).left) == 2


def test_the_rule_sees_epochs_that_take_as_long_as_the_real_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard: list[EpochReported] = []

    class Watching:
        def observe(self, event: Event) -> None:
            if isinstance(event, EpochReported):
                heard.append(event)

    monkeypatch.setattr(early_termination, "build_scheduler", lambda *given: Watching())
    foresight = Foresight(Asha(1, None, 3), LOSS, [27])
    foresight.hear(0, 1, 0.5, 2.0)
    foresight.hear(0, 2, 0.5, 4.0)
    foresight.prospect({0: (2, 27)}, 9, Counter())
    assert {event.time_s for event in heard} == {3.0}
    assert all(event.time == 3.0 * event.epoch for event in heard)


def test_as_many_of_those_to_come_fail_as_did() -> None:
    foresight = Foresight(Asha(1, None, 3), LOSS, [27])
    for trial in range(10):
        foresight.end(trial, (0, 27))
    found = foresight.prospect({}, 100, Counter({0: 10}))
    assert (found.waiting_left, found.waiting_whole) == (0, 0)


def test_a_trial_that_began_later_is_expected_to_train_its_own_epochs() -> None:
    foresight = Foresight(Asha(30, None, 3), LOSS, [10, 50])
    found = foresight.prospect({0: (1, 10)}, 20, Counter())
    assert found.waiting_left < 30
    found = foresight.prospect({0: (1, 10), 1: (9, 10), 2: (9, 50)}, 18, Counter())
    assert found.left[:2] == pytest.approx([9.0, 1.0])
    assert 10 < found.left[2] <= 41
