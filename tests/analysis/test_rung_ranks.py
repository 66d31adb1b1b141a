"""Whether the rungs of a rule rank: their rank correlation with the last epoch."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
from folders import story

from sweep.analysis import rung_ranks
from sweep.analysis.search_efficiency import read_metric_at_units
from sweep.events import EpochReported, Status
from sweep.progress import HUNDREDTHS, UnitReports
from sweep.render.tables import rung_lines
from sweep.store.folder import ResultsFolder
from sweep.store.reading import read_tables

DONE = Status.COMPLETED
ASHA = {"type": "asha", "min_iter": 1, "eta": 2.0}


def with_rule(
    folder: ResultsFolder, rule: object, epochs: int | None, *, minutes: float | None = None
) -> ResultsFolder:
    spec: dict[str, object] = {"early_terminate": rule}
    if epochs is not None:
        spec["epochs"] = epochs
    if minutes is not None:
        spec["minutes"] = minutes
    info = json.loads(folder.info.read_text())
    folder.info.write_text(json.dumps({**info, "spec": spec}))
    return folder


def curve(*values: float) -> list[dict[str, float]]:
    return [{"acc": value, "size": -value} for value in values]


def test_each_rung_is_compared_with_the_last_epoch_of_those_that_got_there(
    sweep_of: Callable[..., ResultsFolder],
) -> None:
    runs = [
        ({"a": a}, DONE, curve(0.9 - 0.1 * a, 0.1 * a, 0.1 * a, 0.2, 0.1 * a)) for a in range(6)
    ]
    runs += [({"a": 6}, Status.PRUNED, curve(0.99, 0.01)), ({"a": 7}, Status.FAILED, curve(0.99))]
    runs.append(({"a": 8}, Status.INFEASIBLE, curve(0.01, 0.9, 0.9, 0.2, 0.9)))
    folder = with_rule(sweep_of(runs), ASHA, 5)
    found = rung_ranks.measure_folder(folder)
    assert [(one.metric, one.epoch, one.trials) for one in found] == [
        ("acc", 1, 7),
        ("acc", 2, 7),
        ("acc", 4, 7),
    ]
    assert [one.value for one in found] == [pytest.approx(-1.0), pytest.approx(1.0), None]
    assert next(rung_lines(found)) == (
        "rank correlation of acc with the last epoch: -1.00 at epoch 1 (7 trials), 1.00 at epoch 2 (7 trials)"
    )


def test_a_rung_that_ranks_poorly_is_named(sweep_of: Callable[..., ResultsFolder]) -> None:
    starts = [0.3, 0.1, 0.4, 0.15, 0.92, 0.65, 0.35, 0.89, 0.79, 0.32, 0.38, 0.46]
    runs = [
        ({"a": a}, DONE, curve(start, 0.5 + a / 100, a / 100))
        for a, start in enumerate(reversed(starts))
    ]
    found = rung_ranks.measure_folder(with_rule(sweep_of(runs), ASHA, 3))
    assert [one.is_poor for one in found] == [True, False]
    assert list(rung_lines(found))[1].startswith(
        "at epoch 1 acc says little about the last epoch (correlation below "
    )


@pytest.mark.parametrize(
    "rule", [None, {"type": "none"}, "my:Rule", {"type": "asha", "later_key": 1}, {"type": "?"}]
)
def test_without_known_rungs_nothing_is_said(
    sweep_of: Callable[..., ResultsFolder], rule: object
) -> None:
    runs = [({"a": a}, DONE, curve(a, a, a)) for a in range(4)]
    assert rung_ranks.measure_folder(with_rule(sweep_of(runs), rule, 3)) == ()


def test_before_three_trials_have_got_there_there_is_no_line(
    sweep_of: Callable[..., ResultsFolder],
) -> None:
    runs = [({"a": a}, DONE, curve(a, a, a)) for a in range(2)]
    found = rung_ranks.measure_folder(with_rule(sweep_of(runs), ASHA, 3))
    assert [(one.trials, one.value) for one in found] == [(2, None), (2, None)]
    assert list(rung_lines(found)) == []
    assert rung_ranks.measure_folder(with_rule(sweep_of([], "empty"), ASHA, 3)) == ()


def test_rungs_are_those_of_the_longest_trial(sweep_of: Callable[..., ResultsFolder]) -> None:
    runs = [({"a": a, "epochs": 10}, DONE, curve(*[a] * 10)) for a in range(4)]
    # the epochs of the file, which its parameter `epochs` replaces
    found = rung_ranks.measure_folder(with_rule(sweep_of(runs), ASHA, 3))
    assert [(one.epoch, one.trials) for one in found] == [(1, 4), (2, 4), (4, 4), (8, 4)]


def test_the_epochs_of_the_file_do_not_count_where_they_are_a_parameter(
    sweep_of: Callable[..., ResultsFolder],
) -> None:
    runs = [({"a": a, "epochs": 3}, DONE, curve(*[a] * 3)) for a in range(4)]
    folder = with_rule(sweep_of(runs), ASHA, 10)
    info = json.loads(folder.info.read_text())
    # the epochs 5 are of no trial so far
    for parameters, epochs in [({}, [1, 2]), ({"epochs": {"values": [3, 5]}}, [1, 2, 4])]:
        spec = {**info["spec"], "parameters": parameters}
        folder.info.write_text(json.dumps({**info, "spec": spec}))
        assert [one.epoch for one in rung_ranks.measure_folder(folder)] == epochs


def test_each_objective_has_its_line(sweep_of: Callable[..., ResultsFolder]) -> None:
    runs = [({"a": a}, DONE, curve(a, a + 1)) for a in range(4)]
    folder = sweep_of(runs, objectives=(("acc", "maximize"), ("size", "minimize")))
    found = rung_ranks.measure_folder(with_rule(folder, ASHA, 2))
    assert [(one.metric, one.value) for one in found] == [
        ("acc", pytest.approx(1.0)),
        ("size", pytest.approx(1.0)),
    ]


def test_a_rule_that_decides_after_every_epoch_is_measured_at_some(
    sweep_of: Callable[..., ResultsFolder],
) -> None:
    runs = [({"a": a}, DONE, curve(*[a] * 40)) for a in range(4)]
    found = rung_ranks.measure_folder(with_rule(sweep_of(runs), {"type": "median"}, 40))
    assert len(found) == rung_ranks.MOST_RUNGS
    assert (found[0].epoch, found[-1].epoch) == (1, 39)


@pytest.mark.parametrize(
    ("epochs", "rule"), [(None, {**ASHA, "min_iter": 50}), (10, {**ASHA, "min_iter": 5})]
)
def test_with_minutes_a_rung_is_where_a_trial_has_used_that_share(
    sweep_of: Callable[..., ResultsFolder], epochs: int | None, rule: dict[str, object]
) -> None:
    runs = []
    shares = []
    for a in range(6):
        last = 0.1 * a
        # a fast model reaches half of its time in its third epoch, a slow one in its first
        if a % 2:
            runs.append(({"a": a}, DONE, curve(0.9, 0.8, last, 0.5, last)))
            shares.append([0.2, 0.4, 0.6, 0.8, 1.0])
        else:
            runs.append(({"a": a}, DONE, curve(last, last)))
            shares.append([0.5, 1.0])
    runs.append(({"a": 6}, Status.PRUNED, curve(0.95)))  # not trained to its end
    shares.append([0.5])
    runs.append(({"a": 7}, DONE, curve(0.1)))  # a single epoch is rung and end at once
    shares.append([1.0])
    folder = with_rule(sweep_of(runs, shares=shares), rule, epochs, minutes=3)
    (found,) = rung_ranks.measure_folder(folder)
    assert (found.epoch, found.share, found.trials, found.value) == (
        None,
        0.5,
        6,
        pytest.approx(1.0),
    )
    limit = "minutes" if epochs is None else "budget"
    assert list(rung_lines([found])) == [
        f"rank correlation of acc with the last epoch: 1.00 at 50 % of the {limit} (6 trials)"
    ]


def test_with_minutes_rungs_are_where_the_rule_itself_sees_them(
    sweep_of: Callable[..., ResultsFolder],
) -> None:
    draws = np.random.default_rng(0)
    runs = []
    shares = []
    for a in range(20):
        ends = np.cumsum(draws.random(draws.integers(2, 30)))
        shares.append((ends / ends[-1]).tolist())
        runs.append(({"a": a}, DONE, curve(*draws.random(len(ends)).tolist())))
    folder = with_rule(sweep_of(runs, shares=shares), ASHA, None, minutes=1)
    read = read_tables(folder)
    units = list(range(1, HUNDREDTHS))
    seen = np.full((20, len(units)), np.nan)
    reports = UnitReports(HUNDREDTHS)
    for event in story(runs, shares=shares):
        for one in reports.translate(event):
            is_last = isinstance(event, EpochReported) and event.epoch == len(shares[event.trial])
            if isinstance(one, EpochReported) and one.epoch < HUNDREDTHS and not is_last:
                seen[one.trial, one.epoch - 1] = one.metrics["acc"]
    np.testing.assert_array_equal(read_metric_at_units(read, "acc", units, HUNDREDTHS), seen)


def test_without_shares_nothing_is_said(sweep_of: Callable[..., ResultsFolder]) -> None:
    folder = with_rule(
        sweep_of([({"a": a}, DONE, curve(a, a)) for a in range(4)]), ASHA, None, minutes=1
    )
    assert {one.value for one in rung_ranks.measure_folder(folder)} == {None}
