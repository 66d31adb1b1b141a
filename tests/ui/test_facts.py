"""What the page says of each event."""

from __future__ import annotations

import pytest
from msgspec import structs

from sweep.analysis import Outline
from sweep.analysis.live_status import Standing
from sweep.events import (
    ConfigurationsEnqueued,
    EpochReported,
    Event,
    NoteWritten,
    SessionEnded,
    SessionStarted,
    Status,
    SweepChanged,
    TrialEnded,
    TrialStarred,
    TrialStarted,
)
from sweep.progress import SHARE
from sweep.render.status import Frame, picture
from sweep.spec import parse_spec
from sweep.ui.facts import describe_event, describe_standing

BY_ADA = {"request": "r", "by": "ada", "time": 3.0}
STARTED = TrialStarted(
    trial=0, trial_id="t0", params={"units": 8, "rate": 0.1}, seed=0, repeat=0, time=2.0
)


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (SessionStarted(time=3.0, resumed=True, version="1"), "the sweep was resumed"),
        (SessionEnded(time=3.0, reason="finished"), "the session ended: finished"),
        (structs.replace(STARTED, trial=1), "trial 1 started: units=8"),
        (structs.replace(STARTED, trial=1, params={"rate": 0.1}), "trial 1 started"),
        (NoteWritten(text="second try", **BY_ADA), "ada noted on the sweep: second try"),
        (NoteWritten(trial=0, text="", **BY_ADA), "ada removed the note on trial 0"),
        (TrialStarred(trial=0, **BY_ADA), "ada gave trial 0 a star"),
        (TrialStarred(trial=0, starred=False, **BY_ADA), "ada took the star of trial 0 away"),
        (
            ConfigurationsEnqueued(configurations=({"units": 64, "rate": 0.1},), **BY_ADA),
            "ada added units=64",
        ),
        (
            ConfigurationsEnqueued(
                configurations=tuple({"units": n} for n in range(5)), request="r", time=3.0
            ),
            "somebody added units=0; units=1; units=2 and 2 more",
        ),
        (
            SweepChanged(settings={"parameters": {}, "run_cap": 9}, **BY_ADA),
            "ada changed parameters, run_cap, from trial 1 on",
        ),
        (
            TrialEnded(trial=0, status=Status.PRUNED, reason="rank 3 of 3", time=3.0),
            "trial 0 is pruned: rank 3 of 3",
        ),
        (
            TrialEnded(
                trial=0, status=Status.PRUNED, reason="stopped on request", asked=True, time=3.0
            ),
            "trial 0 was stopped by hand",
        ),
        (
            TrialEnded(
                trial=0,
                status=Status.INTERRUPTED,
                reason="ValueError: a; b; tried again, 1 of 3",
                again=True,
                time=3.0,
            ),
            "trial 0 failed and is tried again, 1 of 3: ValueError: a; b",
        ),
    ],
)
def test_events_in_words(event: Event, text: str) -> None:
    standing = Standing(Outline(name="s", metric="loss", goal="minimize", varying=("units",)))
    standing.observe(SessionStarted(time=1.0, resumed=False, version="1"))
    standing.observe(STARTED)
    standing.observe(event)
    assert describe_event(event, 3, standing).text == text


def test_the_running_trial_that_leads_is_named_until_a_completed_one_is_better() -> None:
    standing = Standing(
        Outline(name="s", metric="loss", goal="minimize", varying=("units",), epochs=9)
    )
    leaders = []
    for event in (
        SessionStarted(time=1.0, resumed=False, version="1"),
        STARTED,
        structs.replace(STARTED, trial=1, params={"units": 4}),
        EpochReported(trial=0, epoch=1, metrics={"loss": 0.5}, time=3.0, time_s=1.0),
        EpochReported(trial=1, epoch=1, metrics={"loss": 0.4}, time=3.0, time_s=1.0),
        EpochReported(trial=0, epoch=2, metrics={"loss": 0.3}, time=4.0, time_s=1.0),
        TrialEnded(trial=0, status=Status.COMPLETED, reason="", time=5.0),
    ):
        standing.observe(event)
        leader = describe_standing(standing, 6.0, running=True, read=1.0, line=0, events=()).leader
        leaders.append(leader and (leader.trial, leader.value, leader.position))
    assert leaders == [None, None, None, (0, 0.5, "1/9"), (1, 0.4, "1/9"), (0, 0.3, "2/9"), None]


def test_trials_of_so_many_minutes_are_as_far_as_their_minutes() -> None:
    spec = parse_spec(
        "trainable: m:f\nmethod: random\nmetric: {name: loss, goal: minimize}\nminutes: 5\nrun_cap: 4\n"
        "parameters: {rate: {min: 0.1, max: 1.0}}\nearly_terminate: {type: asha, min_iter: 20}\n",
        "s.yaml",
    )
    standing = Standing(Outline.of(spec))
    standing.observe(SessionStarted(time=1.0, resumed=False, version="1"))
    standing.observe(STARTED)
    for epoch, share in enumerate((0.21, 0.37), 1):
        measures = {SHARE: share}
        standing.observe(
            EpochReported(
                trial=0,
                epoch=epoch,
                metrics={"loss": 0.5},
                time=2.0 + epoch,
                time_s=1.0,
                measures=measures,
            )
        )
    facts = describe_standing(standing, 6.0, running=True, read=1.0, line=0, events=())
    (worker,) = facts.workers
    assert (worker.epoch, worker.done, worker.of, worker.position) == (2, 37, 100, "37 %")
    assert facts.leader is not None
    assert facts.leader.position == "37 %"
    assert not facts.counts_epochs
    assert [rung.epoch for rung in facts.rungs] == [20]
    lines = [line.plain for line in picture(standing, 6.0, Frame(width=100))]
    assert any("20 % of the minutes: 0 of 1 pruned" in line for line in lines)


def test_a_sweep_that_does_not_run_is_not_said_to_be_killed_before_its_log_has_been_read() -> None:
    standing = Standing(Outline(name="s", metric="loss", goal="minimize"))
    states = []
    for event, read in (
        (SessionStarted(time=1.0, resumed=False, version="1"), 0.3),
        (STARTED, 0.6),
        (SessionEnded(time=3.0, reason="finished"), 1.0),
    ):
        standing.observe(event)
        states.append(
            describe_standing(standing, 6.0, running=False, read=read, line=0, events=()).state
        )
    assert states == ["reading", "reading", "ended"]
