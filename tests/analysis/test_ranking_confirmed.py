"""Sweeps that were confirmed, ranked alone and together with others: one data set gets one answer."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from sweep.analysis import confirmation, read_sweep, search_efficiency, verdict
from sweep.analysis.ranking import rank
from sweep.analysis.sweep_rows import Sweep
from sweep.events import (
    EpochReported,
    Event,
    Role,
    SessionEnded,
    SessionStarted,
    Status,
    TrialEnded,
    TrialStarted,
)
from sweep.statistics.verdicts import Verdict
from sweep.store import reading
from sweep.store.folder import ResultsFolder
from sweep.store.log import Log
from sweep.store.tables import build_tables, write

FIRST = (0.9861, 0.9806, 0.9806, 0.9667, 0.9833, 0.975, 0.975)  # the search, then six fresh seeds
SECOND = (0.9778, 0.9722, 0.975, 0.9667, 0.975, 0.9722, 0.9611)
LUCKY = (0.9775,)  # better than what fresh seeds show, with the one score that the search chose by


def write_sweep(results: Path, name: str, configurations: dict[int, tuple[float, ...]]) -> Sweep:
    """A sweep whose configurations have one trial of the search each, and then trials with fresh seeds."""
    confirm = {"seeds": 6, "finalists": 2, "budget": None, "race": 2}
    info = {"objectives": [{"name": "acc", "goal": "maximize"}], "spec": {"confirm": confirm}}
    folder = ResultsFolder.create(results, name, "", info)
    events: list[Event] = [SessionStarted(time=0.0, resumed=False, version="1")]
    trials = [
        (x, repeat, score)
        for x, scores in configurations.items()
        for repeat, score in enumerate(scores)
    ]
    for trial, (x, repeat, score) in enumerate(sorted(trials, key=lambda one: one[1])):
        role = Role.CONFIRM if repeat else Role.SEARCH
        begun = TrialStarted(
            trial=trial,
            trial_id=f"t{trial}",
            params={"x": x},
            seed=repeat,
            repeat=repeat,
            role=role,
            time=trial,
        )
        reported = EpochReported(
            trial=trial, epoch=1, metrics={"acc": score}, time=trial + 0.5, time_s=0.5
        )
        events += [
            begun,
            reported,
            TrialEnded(trial=trial, status=Status.COMPLETED, reason="", time=trial + 0.6),
        ]
    events.append(SessionEnded(time=100.0, reason="finished"))
    with Log(folder.log) as log:
        log.append(events)
    write(folder, build_tables(folder))
    return read_sweep(folder)


@pytest.fixture
def confirmed(tmp_path: Path) -> Sweep:
    return write_sweep(tmp_path, "confirmed", {1: FIRST, 2: SECOND, 3: LUCKY})


@pytest.fixture
def other(tmp_path: Path) -> Sweep:
    return write_sweep(tmp_path, "other", {5: (0.9,), 6: (0.91,)})


def test_finalists_keep_their_verdicts_when_their_sweep_is_compared_with_another(
    confirmed: Sweep, other: Sweep
):
    alone, together = rank([confirmed]), rank([confirmed, other])
    for ranking in (alone, together):
        first, second = ranking.rows[:2]
        assert [row.params["x"] for row in (first, second)] == [1, 2]
        assert [row.verdict for row in (first, second)] == [Verdict.BEST, Verdict.TIES]
        assert second.difference == pytest.approx(sum(SECOND[1:]) / 6 - sum(FIRST[1:]) / 6)
    assert together.rows[1].difference_low == alone.rows[1].difference_low
    assert together.method == f"finalists of confirmed: {alone.method}"
    assert "ties with it" in verdict.summarize_ranking(together)


@pytest.mark.parametrize("seeds", [3, 7])
def test_a_finalist_that_was_compared_with_nothing_is_not_best(tmp_path: Path, seeds: int):
    folder = write_sweep(tmp_path, "alone", {1: (0.9, *[0.8] * seeds), 2: (0.8, math.nan)}).folder
    ranking = rank([read_sweep(folder)])
    assert ranking.confirmed is not None
    assert ranking.confirmed.rows[1].is_broken
    assert [(row.verdict, row.undecided) for row in ranking.rows] == [
        (Verdict.UNDECIDED, "nothing to compare with"),
        (Verdict.UNDECIDED, confirmation.BROKEN),
    ]


def test_one_score_of_the_search_does_not_overtake_finalists_with_fresh_seeds(
    confirmed: Sweep, other: Sweep
):
    assert [row.params["x"] for row in rank([confirmed, other]).rows] == [1, 2, 3, 6, 5]


def test_scores_by_which_finalists_were_chosen_are_not_compared_with_another_sweep(
    confirmed: Sweep, other: Sweep
):
    rows = {(row.sweep, row.params["x"]): row for row in rank([confirmed, other]).rows}
    assert rows["other", 6].undecided == "no seed in common with the best"


def test_what_a_search_was_worth_does_not_depend_on_fresh_seeds_and_other_sweeps(tmp_path: Path):
    configurations = {1: (0.7, *[0.9] * 6), 2: (0.8, *[0.6] * 6), 3: (0.75,)}
    sweep = write_sweep(tmp_path, "a", configurations)
    other = write_sweep(tmp_path, "b", {5: (0.95,), 6: (0.96,)})
    read = reading.read_tables(sweep.folder)
    for ranking in (rank([sweep]), rank([sweep, other])):
        found = search_efficiency.measure_search_efficiency("a", ranking, read)
        assert found is not None
        control = found.control
        assert control is not None
        # the search, which trained for one epoch only, chose the best of its own scores
        assert (control.rank, control.score, control.behind) == (1, 0.8, 0.0)
