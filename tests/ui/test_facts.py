"""What the page says of each event."""

from __future__ import annotations

import pytest
from msgspec import structs

from sweep.analysis import Outline
from sweep.analysis.live_status import Standing
from sweep.events import (
    ConfigurationsEnqueued,
    Event,
    NoteWritten,
    SessionEnded,
    SessionStarted,
    SweepChanged,
    TrialStarred,
    TrialStarted,
)
from sweep.ui.facts import describe_event

BY_ADA = {"request": "r", "by": "ada", "time": 3.0}
STARTED = TrialStarted(trial=0, trial_id="t0", params={"units": 8, "rate": 0.1}, seed=0, repeat=0, time=2.0)


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
        (ConfigurationsEnqueued(configurations=({"units": 64, "rate": 0.1},), **BY_ADA), "ada added units=64"),
        (
            ConfigurationsEnqueued(configurations=tuple({"units": n} for n in range(5)), request="r", time=3.0),
            "somebody added units=0; units=1; units=2 and 2 more",
        ),
        (
            SweepChanged(settings={"parameters": {}, "run_cap": 9}, **BY_ADA),
            "ada changed parameters, run_cap, from trial 1 on",
        ),
    ],
)
def test_events_in_words(event: Event, text: str) -> None:
    standing = Standing(Outline(name="s", metric="loss", goal="minimize", varying=("units",)))
    standing.observe(SessionStarted(time=1.0, resumed=False, version="1"))
    standing.observe(STARTED)
    standing.observe(event)
    assert describe_event(event, 3, standing).text == text
