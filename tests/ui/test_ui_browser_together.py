"""Two browsers on one sweep: what is done in one is seen in the other, which is not loaded again."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from browsers import needs_chromium
from living import driving, end, epoch, start
from visiting import Visit, events_of, press_act

from sweep.events import Status
from sweep.store.folder import ResultsFolder

pytestmark = [pytest.mark.slow, needs_chromium]


def test_an_act_in_one_browser_is_seen_in_the_other(visit: Visit, project: Path) -> None:
    one, other, shelf = visit(), visit(color_scheme="dark"), visit()
    one.open("/killed")
    other.open("/killed")
    shelf.has_text("#sweeps", "killed")
    for visitor in (other, shelf):
        visitor.page.evaluate("window.opened = 'before'")

    press_act(one, "note", "note killed 'too fast'", {"text": "too fast"})
    other.has_text("#events", "noted on the sweep: too fast")
    shelf.has_text("#sweeps", r"note\s+too fast")

    one.open("/killed/1")
    press_act(one, "star", "star killed 1")
    other.has_text("#events", "gave trial 1 a star")
    one.open("/killed")

    press_act(other, "change", "change killed --set run_cap=20", {"changes": "run_cap=20"})
    one.has_text("#events", "changed run_cap from 12 to 20, from trial 9 on")
    shelf.has_text("#sweeps", "8/20 trials")
    one.has_text("#counts", "8/20 trials")

    for visitor in (other, shelf):
        assert visitor.page.evaluate("window.opened") == "before"
    kinds = [event["event"] for event in events_of(ResultsFolder(project / "results" / "killed"))]
    assert kinds[-3:] == ["note_written", "trial_starred", "sweep_changed"]


def test_what_is_chosen_in_one_browser_stays_when_the_other_acts(
    visit: Visit, project: Path
) -> None:
    with driving(ResultsFolder(project / "results" / "lives")) as driver:
        one, other = visit(), visit()
        for visitor in (one, other):
            visitor.open("/lives")
            visitor.wait("N === 5")
        one.page.evaluate("selectTrials(picked, [1])")
        other.page.evaluate("selectTrials(picked, [4])")
        now = time.time()
        driver.write(
            start(5, now), *[epoch(5, at, now) for at in range(1, 7)], end(5, Status.COMPLETED, now)
        )
        for visitor, mask in ((one, [0, 1, 0, 0, 0, 0]), (other, [0, 0, 0, 0, 1, 0])):
            visitor.wait("N === 6")
            visitor.has_text("#counts", "6/12 trials")
            assert visitor.page.evaluate("[...selection.mask]") == mask
