"""What the page says of an act before it is done."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from living import finished, make_sweep, some_trials

from sweep.store.folder import ResultsFolder
from sweep.store.sweep_info import Submission
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
    assert shown["wrong"].startswith("done: confirm.budget: 1% of the search's ")
    wrong = preview_act(ALL["confirm"], {"sweep": "done", "budget": "soon"}, "results", done)
    assert "expected a share such as 20%" in wrong["wrong"]


def test_other_acts_have_none(done: ResultsFolder) -> None:
    shown = preview_act(ALL["resume"], {"sweep": "done"}, "results", done)
    assert shown == {"command": "python -m sweep resume done --detach", "wrong": "", "note": ""}


@pytest.mark.parametrize(
    ("settings", "mistake"),
    [
        ("learning_rate=abc\nunits=8\noptimizer=sgd", "learning_rate"),
        ("lr=0.01\nunits=8\noptimizer=sgd", "lr"),
        ("learning_rate", "'learning_rate', expected NAME=VALUE"),
        ("learning_rate=0.01\nunits=8\noptimizer=sgd", "is limited to 12 configurations"),
    ],
)
def test_what_cannot_be_added_is_said_before(
    done: ResultsFolder, settings: str, mistake: str
) -> None:
    before = done.log.read_bytes()
    shown = preview_act(ALL["add"], {"sweep": "done", "settings": settings}, "results", done)
    assert shown["command"].startswith("python -m sweep add done ")
    assert mistake in shown["wrong"]
    assert done.log.read_bytes() == before


def test_what_can_be_added_has_no_mistake(tmp_path: Path) -> None:
    folder = make_sweep(tmp_path / "results", "lives", some_trials(time.time(), 5))
    given = {"sweep": "lives", "settings": "learning_rate=0.01\nunits=8\noptimizer=sgd"}
    assert preview_act(ALL["add"], given, "results", folder)["wrong"] == ""


def test_of_a_submitted_sweep_it_says_where_what_happens(done: ResultsFolder) -> None:
    done.write_info(
        done.read_info().changed(submitted=Submission("http://head:8265", "ann").as_fields())
    )
    shown = preview_act(ALL["resume"], {"sweep": "done"}, "results", done)
    assert shown == {
        "command": "python -m sweep resume ann/done --address http://head:8265",
        "wrong": "",
        "note": "",
    }
    shown = preview_act(ALL["retrain"], {"sweep": "done"}, "results", done)
    assert shown["note"].startswith(
        "It trains on this machine, not on the cluster at http://head:8265"
    )
    given = {"sweep": "done", "seeds": "4", "finalists": "2", "budget": "none"}
    note = preview_act(ALL["confirm"], given, "results", done)["note"]
    assert note.startswith("done: at most 8 trainings")
    assert "It trains on this machine" in note
