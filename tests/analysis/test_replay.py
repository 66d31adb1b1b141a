"""Replays of logs: the rule that ran decides as it did, and what no log can tell lies between two extremes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

sys.path.insert(0, str(Path(__file__).parents[1] / "runner"))

import simulated

from sweep.analysis import replay
from sweep.events import EpochReported, Event, Facts, Status, TrialEnded, TrialStarted
from sweep.schedulers.early_termination import build_scheduler
from sweep.spec import Spec, parse_spec
from sweep.spec.work import find_max_length

RULES = (
    "{type: asha, min_iter: 1, eta: 2}",
    "{type: asha, min_iter: 1, eta: 2, brackets: 2}",
    "{type: hyperband, min_iter: 2, eta: 2}",
    "{type: median, min_iter: 1, min_trials: 2}",
    "{type: asha_promotion, min_iter: 1, eta: 2}",
    "{type: pasha, min_iter: 1, eta: 2}",
    "{type: freeze_thaw, min_iter: 1, eta: 2}",
)


def maker(spec: Spec) -> replay.Make:
    return lambda: build_scheduler(
        spec.early_terminate,
        spec.objectives[0],
        find_max_length(spec),
        default_epochs=spec.length,
    )


def replayed(events: list[Event], spec: Spec, other: Spec, **more: int) -> replay.Replay | None:
    words = (str(other.early_terminate), maker(other)), (str(spec.early_terminate), maker(spec))
    return replay.replay_rule(events, spec, *words, **{"orderings": 20, **more})


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("room", [1, 4])
def test_the_rule_that_ran_decides_as_it_did(tmp_path: Path, rule: str, room: int) -> None:
    spec = parse_spec(
        simulated.FILE.format(method="random", rule=rule, seed=room, repeats=2, count="").replace(
            "cap: 9", "cap: 25"
        ),
        "f.yaml",
    )
    events = simulated.simulate(spec, tmp_path / "log.jsonl", room, seed=5)
    pruned = sum(
        isinstance(event, TrialEnded) and event.status is Status.PRUNED for event in events
    )
    assert pruned
    found = replayed(events, spec, spec)
    assert found is not None
    assert found.same_as_live is True
    assert found.live_decisions == found.cut == pruned
    assert found.log_order_epochs == found.ran_epochs
    assert found.log_order_kept
    # by what reports show
    assert found.at_once == room or ("freeze" in rule and found.at_once == room - 1)


@pytest.mark.parametrize("rule", RULES)
def test_the_rule_decides_as_it_did_where_trials_differ_in_length(
    tmp_path: Path, rule: str
) -> None:
    file = simulated.FILE.format(method="random", rule=rule, seed=1, repeats=1, count="")
    lengths = ", epochs: {values: [4, 9]}}\nrun_cap: 40"
    file = file.replace("epochs: 9\n", "").replace("run_cap: 9\n", "")
    spec = parse_spec(file.replace("[1, 2, 3]}}", "[1, 2, 3]}" + lengths), "f.yaml")
    events = simulated.simulate(spec, tmp_path / "log.jsonl", 4, seed=5)
    found = replayed(events, spec, spec)
    assert found is not None
    assert found.same_as_live is True
    assert found.log_order_epochs == found.ran_epochs


def curve(place: int, values: list[float], status: Status, of: int = 4) -> list[Event]:
    started = TrialStarted(
        trial=place, trial_id="", params={"a": place}, seed=0, repeat=0, time=0.0
    )
    reports = [
        EpochReported(trial=place, epoch=epoch, metrics={"score": value}, time=1.0, time_s=1.0)
        for epoch, value in enumerate(values, start=1)
    ]
    return [
        started,
        *reports,
        TrialEnded(trial=place, status=status, reason="r: x", time=2.0, facts=Facts()),
    ]


def small(rule: str) -> Spec:
    text = simulated.FILE.format(method="random", rule=rule, seed=0, repeats=1, count="").replace(
        "epochs: 9", "epochs: 4"
    )
    return parse_spec(text, "f.yaml")


def test_of_repeats_those_count_that_are_left() -> None:
    """As in a ranking: the winner ranks first with one seed of two, where no other has more."""
    curves = [(0, [9, 1, 1, 1.0]), (0, [1, 1, 1, 1.0]), (1, [5, 5, 5, 5.0]), (1, [4, 4, 4, 4.0])]
    events = [
        structs.replace(event, params={"a": a}) if isinstance(event, TrialStarted) else event
        for place, (a, values) in enumerate(curves)
        for event in curve(place, values, Status.COMPLETED)
    ]
    found = replayed(
        events, small("{type: none}"), small("{type: median, min_iter: 1, min_trials: 1}")
    )
    assert found is not None
    assert found.winner == (0, 1)
    assert 0 < found.if_better.winner_kept < 1
    assert found.if_better.lost.high == pytest.approx(3.5)  # the other with both of its seeds


def test_the_winner_is_the_one_that_compare_calls_best(tmp_path: Path) -> None:
    """Of a configuration whose other repeats have not begun, the rest is missing, whatever the first one reached."""
    spec = parse_spec(
        simulated.FILE.format(method="random", rule="{type: none}", seed=0, repeats=3, count=""),
        "f.yaml",
    )
    curves = [(0, 0.5), (0, 0.5), (0, 0.5), (1, 0.4)]
    events = [
        structs.replace(event, params={"a": a}, repeat=place % 3)
        if isinstance(event, TrialStarted)
        else event
        for place, (a, value) in enumerate(curves)
        for event in curve(place, [value] * 9, Status.COMPLETED, of=9)
    ]
    found = replayed(events, spec, spec)
    assert found is not None
    assert found.winner == (0, 1, 2)


def test_without_a_cut_curve_nothing_is_unknown() -> None:
    events = [event for n in range(6) for event in curve(n, [n, n, n, float(n)], Status.COMPLETED)]
    found = replayed(events, small("{type: none}"), small("{type: asha, min_iter: 1, eta: 2}"))
    assert found is not None
    assert found.if_worse == found.if_better
    assert (found.cut, found.whole_epochs, found.ran_epochs) == (0, 24, 24)
    assert found.if_better.winner_kept == 1.0  # its curve is best at every rung
    assert found.if_better.epochs.median < 24
    assert found.same_as_live is None


def test_what_follows_a_cut_curve_is_bounded_by_two_extremes() -> None:
    events = [event for n in range(4) for event in curve(n, [n, n, n, float(n)], Status.COMPLETED)]
    events += [event for n in range(4, 9) for event in curve(n, [n - 4.5], Status.PRUNED)]
    found = replayed(
        events,
        small("{type: asha, min_iter: 1, eta: 4}"),
        small("{type: median, min_iter: 2, min_trials: 1}"),
    )
    assert found is not None
    assert (found.cut, found.ran_epochs, found.whole_epochs) == (5, 21, 36)
    assert found.went_on.median == 5  # the rule looks at the second epoch first
    assert found.if_worse != found.if_better


def test_a_constraint_that_all_trials_meet_changes_nothing() -> None:
    """What is not known of a trial is as good as the best one: it meets the constraints as that one does."""
    curves = [(n, [n, n, n, float(n)], Status.COMPLETED) for n in range(4)]
    curves += [(n, [n - 4.5], Status.PRUNED) for n in range(4, 9)]
    events = [event for one in curves for event in curve(*one)]
    with_latency = [
        structs.replace(event, metrics={**event.metrics, "latency": 1.0})
        if isinstance(event, EpochReported)
        else event
        for event in events
    ]
    ran, other = "{type: asha, min_iter: 1, eta: 4}", "{type: asha, min_iter: 2, eta: 2}"
    constrained = [
        parse_spec(
            simulated.FILE.format(method="random", rule=rule, seed=0, repeats=1, count="").replace(
                "epochs: 9", "epochs: 4\nconstraints: [latency < 5]"
            ),
            "f.yaml",
        )
        for rule in (ran, other)
    ]
    assert replayed(with_latency, *constrained) == replayed(events, small(ran), small(other))


def test_a_cap_leaves_configurations_out() -> None:
    events = [event for n in range(6) for event in curve(n, [float(n)] * 4, Status.COMPLETED)]
    found = replayed(events, small("{type: none}"), small("{type: none}"), run_cap=2, orderings=300)
    assert found is not None
    assert found.if_better.epochs.median == 8
    assert 0.2 < found.if_better.winner_kept < 0.5  # 2 of 6
    assert found.if_better.lost.high > 0


def test_failed_and_diverged_trials_end_where_they_ended() -> None:
    events = [
        *curve(0, [1.0] * 4, Status.COMPLETED),
        *curve(1, [0.5], Status.FAILED),
        *curve(2, [], Status.INTERRUPTED),
    ]
    found = replayed(events, small("{type: none}"), small("{type: none}"))
    assert found is not None
    assert found.if_better.epochs.median == found.if_worse.epochs.median == 5
    assert (
        replayed(curve(0, [1.0], Status.FAILED), small("{type: none}"), small("{type: none}"))
        is None
    )


class Impatient:
    """A scheduler of somebody's own: it stops the second trial, and gives a reason in words of its own."""

    def decision_epochs(self, epochs: int) -> tuple[int, ...]:
        return tuple(range(1, epochs))

    def observe(self, event: Event) -> str | None:
        stops = isinstance(event, EpochReported) and (event.trial, event.epoch) == (1, 2)
        return "seen enough" if stops else None


@pytest.mark.parametrize(
    ("end", "same"),
    [
        ({"reason": "seen enough"}, True),
        ({"reason": "stopped on request", "asked": True}, False),
        ({"reason": "stopped on request"}, False),  # of a log that does not say who
    ],
)
def test_a_rule_of_one_s_own_is_believed_and_who_stops_a_trial_by_hand_is_no_rule(
    end: dict[str, Any], same: bool
) -> None:
    events = [*curve(0, [1, 1, 1, 1.0], Status.COMPLETED), *curve(1, [2, 2.0], Status.PRUNED)]
    events[-1] = structs.replace(events[-1], **end)
    spec, rule = small("{type: none}"), ("own:Impatient", Impatient)
    found = replay.replay_rule(events, spec, rule, rule, orderings=2)
    assert found is not None
    assert (found.same_as_live, found.live_decisions) == (same, int(same))
