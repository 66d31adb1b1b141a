"""What the page says of an act before it is done."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from living import finished, make_sweep

from sweep.store.folder import ResultsFolder
from sweep.ui.acts import ACTS
from sweep.ui.previews import preview_act

ALL = {act.name: act for act in ACTS}


@pytest.fixture
def done(tmp_path: Path) -> ResultsFolder:
    results = tmp_path / "results"
    make_sweep(results, "done", finished(time.time() - 3600))
    return ResultsFolder(results / "done")


def test_a_confirmation_has_its_price(done: ResultsFolder) -> None:
    given = {"sweep": "done", "seeds": "4", "finalists": "2", "budget": "none"}
    shown = preview_act(ALL["confirm"], given, "results", done)
    assert shown["command"] == "python -m sweep confirm done --seeds 4 --finalists 2 --budget none"
    assert shown["note"].startswith("done: at most 8 trainings with fresh seeds, 48 epochs, about ")


def test_a_budget_that_is_spent_is_said_before(done: ResultsFolder) -> None:
    shown = preview_act(ALL["confirm"], {"sweep": "done", "budget": "1%"}, "results", done)
    assert shown["note"].startswith("done: confirm.budget: 1% of the search's ")
    wrong = preview_act(ALL["confirm"], {"sweep": "done", "budget": "soon"}, "results", done)
    assert "expected a share such as 20%" in wrong["note"]


def test_other_acts_have_none(done: ResultsFolder) -> None:
    shown = preview_act(ALL["resume"], {"sweep": "done"}, "results", done)
    assert shown == {"command": "python -m sweep resume done --detach", "wrong": "", "note": ""}
