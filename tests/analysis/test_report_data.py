"""What a report is made of: costs, curves, lanes of workers, importance."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from sweep.analysis import report_data
from sweep.analysis.report_data import LEAST, curves_of
from sweep.events import (
    EpochReported,
    Event,
    Facts,
    SessionEnded,
    SessionStarted,
    Status,
    TrialEnded,
    TrialStarted,
)
from sweep.render.tables import cost_lines
from sweep.store import reading
from sweep.store.folder import ResultsFolder
from sweep.store.log import Log


@pytest.fixture
def folder(tmp_path) -> ResultsFolder:
    """Two trials: 10 s from start to end, 8 s of them in epochs; the second waits for half of its time."""
    made = ResultsFolder.create(
        tmp_path, "s", "", {"objectives": [{"name": "acc", "goal": "maximize"}]}
    )
    events = [SessionStarted(time=0.0, resumed=False, version="1")]
    for trial, waited in ((0, 0.0), (1, 2.0)):
        begun = 100.0 * trial
        events.append(
            TrialStarted(trial=trial, trial_id=f"t{trial}", params={}, seed=0, repeat=0, time=begun)
        )
        for epoch in (1, 2):
            measures = {"data_wait_s": waited}
            events.append(
                EpochReported(
                    trial=trial,
                    epoch=epoch,
                    metrics={"acc": 0.5},
                    time=begun + epoch,
                    time_s=4.0,
                    measures=measures,
                )
            )
        facts = Facts(started=begun, train_s=8.0, overhead_s={"compile": 1.0, "data": 0.25})
        events.append(
            TrialEnded(
                trial=trial, status=Status.COMPLETED, reason="", time=begun + 10, facts=facts
            )
        )
    with Log(made.log) as log:
        log.append(events)
    return made


def test_sums_over_trials(folder: ResultsFolder) -> None:
    found = report_data.costs_of(folder.name, reading.read_tables(folder))
    assert (found.sweep, found.train_s) == ("s", 16.0)
    assert found.overhead_s == {"compile": 2.0, "data": 0.5, "wait": pytest.approx(1.5)}


@pytest.mark.parametrize("status", [Status.FAILED, Status.OOM])
def test_the_time_of_a_failed_trial_is_not_waiting(folder: ResultsFolder, status: Status) -> None:
    with Log(folder.log) as log:
        log.append(
            [
                TrialStarted(trial=2, trial_id="t2", params={}, seed=0, repeat=0, time=300.0),
                TrialEnded(
                    trial=2, status=status, reason="", time=330.0, facts=Facts(started=300.0)
                ),
            ]
        )
    found = report_data.costs_of(folder.name, reading.read_tables(folder))
    assert found.overhead_s == {
        "compile": 2.0,
        "data": 0.5,
        "failed": 30.0,
        "wait": pytest.approx(1.5),
    }


def test_names_trials_that_starve(folder: ResultsFolder) -> None:
    assert report_data.costs_of(folder.name, reading.read_tables(folder)).starving == {1: 0.5}


def test_lines(folder: ResultsFolder) -> None:
    assert list(cost_lines(report_data.costs_of(folder.name, reading.read_tables(folder)))) == [
        "s: trained 16.0 s, overhead 4.0 s (compile 2.0 s, wait 1.5 s, data 0.5 s)",
        "s: starved of data: trial 1 (50 %); see docs/data.md",
    ]


def test_what_was_fused_is_told(folder: ResultsFolder) -> None:
    with Log(folder.log) as log:
        for trial, fused in ((2, "8 trials"), (3, "4 trials")):
            facts = Facts(started=300.0, numerics={"fused": fused})
            log.append(
                [
                    TrialStarted(
                        trial=trial, trial_id=f"t{trial}", params={}, seed=0, repeat=0, time=300.0
                    ),
                    TrialEnded(
                        trial=trial, status=Status.COMPLETED, reason="", time=300.0, facts=facts
                    ),
                ]
            )
    found = report_data.costs_of(folder.name, reading.read_tables(folder))
    assert found.fused == {8: 1, 4: 1}
    assert next(cost_lines(found)).endswith("data 0.5 s), fused 2 trials, up to 8 at once")


def test_many_starving_trials_are_counted() -> None:
    several = report_data.Costs("s", 1.0, {}, {trial: 0.3 + trial / 100 for trial in range(8)})
    assert list(cost_lines(several)) == [
        "s: trained 1.0 s, overhead 0.0 s",
        "s: starved of data: trial 7 (37 %), 6 (36 %), 5 (35 %), 4 (34 %), 3 (33 %) and 3 more; see docs/data.md",
    ]


def metrics(rows: list[tuple[int, int, float | None, float]]) -> pa.Table:
    names = ("trial", "epoch", "metric.acc", "metric.loss")
    return pa.table({name: [row[at] for row in rows] for at, name in enumerate(names)})


def test_rows_come_in_the_order_of_trials_and_epochs() -> None:
    found = curves_of(
        metrics([(7, 2, 0.2, 1.0), (3, 1, None, 2.0), (7, 1, 0.1, 3.0), (9, 1, 0.5, 4.0)]),
        [7, 3, 1],
        ["acc"],
    )
    assert found.starts.tolist() == [0, 2, 3, 3]  # trial 9 was not asked for, 1 has no epoch
    assert found.epochs.tolist() == [1, 2, 1]
    np.testing.assert_array_equal(found.values["acc"], np.float32([0.1, 0.2, np.nan]))
    assert list(found.values) == ["acc", "loss"]
    assert (found.thinned, found.left_out) == (None, ())


def test_what_was_trained_is_summed_up_by_trial() -> None:
    table = metrics([(0, 2, 0.2, 1.0), (0, 1, 0.1, 1.0), (1, 1, 0.3, 1.0), (1, 2, 0.4, 1.0)])
    table = table.append_column("time_s", pa.array([4.0, 1.0, 2.0, 2.0]))
    assert {
        name: sums.tolist() for name, sums in curves_of(table, [1, 0], ["acc"]).across.items()
    } == {"seconds of training": [2.0, 4.0, 1.0, 5.0]}
    speeds = table.append_column("examples_per_s", pa.array([10.0, 20.0, 5.0, 5.0]))
    assert curves_of(speeds, [1, 0], ["acc"]).across["examples"].tolist() == [
        10.0,
        20.0,
        20.0,
        60.0,
    ]
    some = table.append_column("examples_per_s", pa.array([10.0, None, 5.0, 5.0]))
    assert "examples" not in curves_of(some, [1, 0], ["acc"]).across


@pytest.mark.filterwarnings("error")
def test_what_is_too_large_for_32_bits_is_infinite() -> None:
    table = pa.table({"trial": [0, 0], "epoch": [1, 2], "metric.acc": [1e39, 1.0]})
    table = table.append_column("time_s", pa.array([1.0, 1.0]))
    assert curves_of(table, [0], ["acc"]).values["acc"].tolist() == [math.inf, 1.0]


def test_without_rows() -> None:
    assert curves_of(metrics([]), [], ["acc"]).starts.tolist() == [0]
    assert curves_of(metrics([]), [0, 1], ["acc"]).starts.tolist() == [0, 0, 0]
    assert curves_of(pa.table({"trial": [0], "epoch": [1]}), [0], ["acc"]).values == {}


def test_other_metrics_give_way_first_then_epochs_but_not_the_best_nor_the_last() -> None:
    rows = [(n, epoch, float(epoch == 37 + n), 0.0) for n in range(4) for epoch in range(1, 101)]
    roomy = curves_of(metrics(rows), range(4), ["acc"], points=400)
    assert (list(roomy.values), roomy.left_out, roomy.thinned) == (["acc"], ("loss",), None)
    found = curves_of(metrics(rows), range(4), ["acc"], points=80)
    assert found.thinned == 20
    for n, (start, end) in enumerate(zip(found.starts, found.starts[1:], strict=False)):
        epochs = found.epochs[start:end].tolist()
        assert {1, 37 + n, 100} <= set(epochs)
        assert 20 <= len(epochs) <= 23
        assert found.values["acc"][start:end].max() == 1.0
    assert curves_of(metrics(rows), range(4), ["acc"], points=8).thinned == LEAST


def test_a_value_that_is_not_known_is_no_extreme() -> None:
    rows = [
        (n, epoch, math.nan if epoch % 2 else 2.0 - (epoch == 38), 0.0)
        for n in range(4)
        for epoch in range(1, 101)
    ]
    found = curves_of(metrics(rows), range(4), ["acc"], points=80)
    assert found.thinned == 20
    for start, end in zip(found.starts, found.starts[1:], strict=False):
        assert 38 in found.epochs[start:end].tolist()


def ran(
    number: int, begin: float, end: float | None, node: str | None = "n", devices: str = "cpu:0"
) -> list[Event]:
    events: list[Event] = [
        TrialStarted(trial=number, trial_id=f"t{number}", params={}, seed=0, repeat=0, time=begin)
    ]
    if end is not None:
        facts = Facts(started=begin, node=node, devices=devices)
        events.append(
            TrialEnded(trial=number, status=Status.COMPLETED, reason="", time=end, facts=facts)
        )
    return events


def timeline(tmp_path: Path, events: list[Event], now: float | None = None) -> report_data.Timeline:
    folder = ResultsFolder.create(
        tmp_path, "s", "", {"objectives": [{"name": "acc", "goal": "maximize"}]}
    )
    with Log(folder.log) as log:
        log.append(sorted(events, key=lambda event: event.time))
    return report_data.timeline_of(folder.log, reading.read_tables(folder), now)


def test_trials_side_by_side_have_lanes_of_their_own(tmp_path: Path) -> None:
    start = SessionStarted(time=0.0, resumed=False, version="1")
    events = [*ran(0, 0.0, 4.0), *ran(1, 1.0, 3.0), *ran(2, 2.99, 8.0), *ran(3, 5.0, 7.0)]
    found = timeline(tmp_path, [start, *events, SessionEnded(time=10.0, reason="finished")])
    assert found.lanes == ("n · 1", "n · 2")
    assert [(span.row, span.lane) for span in found.spans] == [(0, 0), (1, 1), (2, 1), (3, 0)]
    assert found.busy_s == pytest.approx(4 + 2 + 5.01 + 2)
    assert found.idle_s == pytest.approx(2 * 10 - found.busy_s)


def test_lanes_are_of_nodes_and_gpus_and_of_what_nobody_knows(tmp_path: Path) -> None:
    start = SessionStarted(time=0.0, resumed=False, version="1")
    gpus = [*ran(0, 0.0, 4.0, "a", "gpu:0"), *ran(1, 5.0, 6.0, "a", "gpu:1")]
    found = timeline(tmp_path, [start, *gpus, *ran(2, 1.0, 2.0, None), *ran(3, 3.0, None)])
    assert found.lanes == ("a gpu:0", "a gpu:1", "not known")
    assert found.spans[-1].end == 6.0  # it runs: to the last event


def test_what_runs_is_drawn_up_to_now_where_the_others_ran(tmp_path: Path) -> None:
    start = SessionStarted(time=0.0, resumed=False, version="1")
    found = timeline(
        tmp_path, [start, *ran(0, 0.0, 4.0), *ran(1, 1.0, None), *ran(2, 4.5, None)], now=9.0
    )
    assert found.lanes == ("n · 1", "n · 2")
    assert [(span.row, span.lane, span.end, span.open) for span in found.spans] == [
        (0, 0, 4.0, False),
        (1, 1, 9.0, True),
        (2, 0, 9.0, True),
    ]
    assert found.busy_s + found.idle_s == pytest.approx(2 * 9.0)


def test_what_runs_first_has_lanes_too(tmp_path: Path) -> None:
    start = SessionStarted(time=0.0, resumed=False, version="1")
    found = timeline(tmp_path, [start, *ran(0, 0.0, None), *ran(1, 1.0, None)], now=2.0)
    assert found.lanes == ("running now · 1", "running now · 2")


def test_a_pause_is_nobodys_work(tmp_path: Path) -> None:
    first, second = (SessionStarted(time=at, resumed=at > 0, version="1") for at in (0.0, 100.0))
    events = [first, *ran(0, 1.0, 104.0), *ran(1, 2.0, 6.0), *ran(2, 101.0, 106.0), second]
    found = timeline(tmp_path, events)
    assert found.pauses == ((6.0, 100.0),)
    assert [(span.row, span.begin, span.end) for span in found.spans if span.row == 0] == [
        (0, 1.0, 6.0),
        (0, 100.0, 104.0),
    ]
    assert found.idle_s == pytest.approx(2 * 12 - found.busy_s)


def test_a_sweep_that_has_not_begun(tmp_path: Path) -> None:
    assert timeline(tmp_path, []) == report_data.Timeline((), (), (), (), 0.0, 0.0)


RUNS = [
    ({"a": 1}, Status.COMPLETED, [{"acc": 0.1}, {"acc": math.nan}, {"acc": 0.3}]),
    ({"a": 2}, Status.PRUNED, [{"acc": 0.2}]),
    ({"a": 3}, Status.FAILED, []),
]


def test_a_sweep_is_read_once(sweep_of) -> None:
    found = report_data.read_report_data(sweep_of(RUNS))
    assert found.curves.starts.tolist() == [0, 3, 4, 4]
    assert found.curves.epochs.tolist() == [1, 2, 3, 1]
    np.testing.assert_array_equal(found.curves.values["acc"], np.float32([0.1, np.nan, 0.3, 0.2]))
    assert found.counts == {Status.COMPLETED: 1, Status.PRUNED: 1, Status.FAILED: 1}
    assert found.lasted_s == 100.0  # to the end of the session
    assert not found.running


def test_a_report_of_a_sweep_that_has_not_begun(sweep_of) -> None:
    found = report_data.read_report_data(sweep_of([], ended=None))
    assert (found.curves.starts.tolist(), found.errors, dict(found.counts)) == ([0], {}, {})
    assert (found.timeline.lanes, found.question) == ((), ())


def test_the_question_is_the_first_comment(sweep_of) -> None:
    folder = sweep_of(RUNS)
    folder.spec.write_text(
        "\ufeff# Is a better than b?\n#\n# yaml-language-server: $schema=x\n# A minute.\na: 1\n# no\n"
    )
    assert report_data.read_report_data(folder).question == ("Is a better than b?", "A minute.")


def test_importance_is_of_completed_trials_with_a_score(sweep_of) -> None:
    runs = [
        ({"a": n % 7, "b": n % 2}, Status.COMPLETED, [{"acc": float(n % 7)}]) for n in range(30)
    ]
    (rows,) = report_data.list_importances(
        [report_data.read_report_data(sweep_of([*runs, *RUNS]))], ["a", "b"]
    ).values()
    assert [row.param for row in rows] == ["a", "b"]
    assert rows[0].share > 0.7


def test_a_parameter_that_only_a_failed_trial_has_has_no_importance(sweep_of) -> None:
    runs = [({"a": n, "b": n % 2}, Status.COMPLETED, [{"acc": float(n % 7)}]) for n in range(12)]
    failed = ({"a": 1, "b": 1, "momentum": 0.5}, Status.FAILED, [])
    (rows,) = report_data.list_importances(
        [report_data.read_report_data(sweep_of([*runs, failed]))], ["a", "b", "momentum"]
    ).values()
    assert {row.param for row in rows} == {"a", "b"}
