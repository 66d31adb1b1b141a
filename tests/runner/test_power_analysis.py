"""What a plan can tell from luck."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import stats

from sweep.cli import main
from sweep.events import (
    EpochReported,
    SessionEnded,
    SessionStarted,
    Status,
    TrialEnded,
    TrialStarted,
)
from sweep.runner.power_analysis import Known, detectable, find_earlier_results
from sweep.spec import parse_spec
from sweep.statistics.racing import FIRST_SEEDS, look_at_race
from sweep.store.folder import ResultsFolder
from sweep.store.log import Log

FILE = """
trainable: my_model:Mine
method: grid
metric: {name: val_accuracy, goal: maximize}
parameters: {a: {values: [1, 2, 3]}}
repeats: %d
"""


def test_too_few_seeds_tell_nothing() -> None:
    told = detectable(parse_spec(FILE % 3, "f"), 3, Known("s", 0.9, 0.01, 400))
    assert (told.seeds, told.needed, told.by_seeds, told.examples_needed) == (3, 6, None, None)
    assert told.examples is not None
    assert told.examples.difference == pytest.approx(1.96 * math.sqrt(2 * 0.09 / 400), rel=1e-4)


def test_enough_seeds_tell_differences_from_some_size_on() -> None:
    told = detectable(parse_spec(FILE % 8, "f"), 3, Known("s", 0.9, 0.01, 400))
    expected = stats.t.ppf(1 - 0.05 / 2 / 3, 14) * 0.01 * math.sqrt(2 / 8)
    assert told.by_seeds == pytest.approx(expected)
    assert told.examples_needed == math.ceil(2 * 0.09 * (1.959964 / expected) ** 2)
    assert detectable(parse_spec(FILE % 8, "f"), 3, None).by_seeds is None


def test_folds_tell_less_than_as_many_seeds() -> None:
    known = Known("s", 0.9, 0.01, 400)
    told = detectable(parse_spec(FILE % 2 + "folds: 5\n", "f"), 3, known)
    # the variance of the mean has a quarter more of that of a score: of validated to trained examples
    expected = stats.t.ppf(1 - 0.05 / 2 / 3, 18) * 0.01 * math.sqrt(2 * (1 / 10 + 1 / 4))
    assert (told.seeds, told.by_seeds) == (10, pytest.approx(expected))


def test_finalists_are_told_apart_by_their_fresh_seeds() -> None:
    spec = parse_spec(FILE % 1 + "confirm: {seeds: 8, finalists: 3}\n", "f")
    told = detectable(spec, 27, Known("s", 0.9, 0.01, 400))
    assert (told.configurations, told.seeds, told.confirmed) == (3, 8, True)
    assert told.by_seeds == pytest.approx(
        stats.t.ppf(1 - 0.05 / 2 / 3 / 7, 14) * 0.01 * math.sqrt(2 / 8)
    )


@pytest.mark.parametrize(("finalists", "seeds"), [(2, 8), (8, 8), (4, 3)])
def test_a_race_tells_what_the_plan_promises_about_half_the_time(
    finalists: int, seeds: int
) -> None:
    spec = parse_spec(FILE % 1 + f"confirm: {{seeds: {seeds}, finalists: {finalists}}}\n", "f")
    told = detectable(spec, 27, Known("s", 0.9, 1.0, 400)).by_seeds
    assert told is not None
    draws, races, out = np.random.default_rng(0), 200, 0
    for _ in range(races):
        losses = draws.normal(size=(finalists, seeds))
        losses[1:] += told
        left = list(range(finalists))
        for done in range(FIRST_SEEDS, seeds + 1):
            look = look_at_race(losses[left, :done], seeds) if len(left) > 1 else None
            left = [one for place, one in enumerate(left) if look is None or place not in look.out]
        out += 1 not in left
    assert 0.45 < out / races < 0.75


def test_an_earlier_sweep_shows_spread_and_examples(tmp_path: Path) -> None:
    spec = parse_spec(FILE % 2, "f")
    assert find_earlier_results(tmp_path, spec) is None
    info = {
        "objectives": [{"name": "val_accuracy", "goal": "maximize"}],
        "spec": {"trainable": "my_model:Mine"},
    }
    folder = ResultsFolder.create(tmp_path, "before", "", info)
    events = [SessionStarted(time=1.0, resumed=False, version="1")]
    for trial, score in enumerate((0.8, 0.82, 0.7, 0.74)):
        params = {"a": trial // 2}
        events.append(
            TrialStarted(
                trial=trial,
                trial_id=str(trial),
                params=params,
                seed=trial % 2,
                repeat=trial % 2,
                time=2.0,
            )
        )
        events.append(
            EpochReported(
                trial=trial,
                epoch=1,
                metrics={"val_accuracy": score},
                time=3.0,
                time_s=1.0,
                measures={"validation_examples": 360.0},
            )
        )
        events.append(TrialEnded(trial=trial, status=Status.COMPLETED, reason="", time=4.0))
    with Log(folder.log) as log:
        log.append([*events, SessionEnded(time=5.0, reason="finished")])
    known = find_earlier_results(tmp_path, spec)
    assert known is not None
    assert (known.sweep, known.level, known.examples) == ("before", pytest.approx(0.81), 360)
    assert known.spread == pytest.approx(math.sqrt((0.0002 + 0.0008) / 2))
    compared = CliRunner().invoke(main, ["compare", "before", "--results", str(tmp_path)])
    assert "is 0.7663 .. 0.8472 on others" in compared.output
    assert (
        find_earlier_results(tmp_path, parse_spec(FILE.replace("my_model", "other") % 2, "f"))
        is None
    )


def test_a_loss_is_known_by_how_it_differs_between_examples(tmp_path: Path) -> None:
    spec = parse_spec(
        FILE.replace("val_accuracy, goal: maximize", "val_loss, goal: minimize") % 2, "f"
    )
    info = {
        "objectives": [{"name": "val_loss", "goal": "minimize"}],
        "spec": {"trainable": "my_model:Mine"},
    }
    folder = ResultsFolder.create(tmp_path, "before", "", info)
    events = [SessionStarted(time=1.0, resumed=False, version="1")]
    for trial, loss in enumerate((0.5, 0.4)):
        events.append(
            TrialStarted(
                trial=trial, trial_id=str(trial), params={"a": trial}, seed=0, repeat=0, time=2.0
            )
        )
        for epoch in (1, 2):
            measures = {
                "validation_loss_std": loss / epoch,
                **({"validation_examples": 400.0} if epoch == 1 else {}),
            }
            metrics = {"val_loss": loss}
            events.append(
                EpochReported(
                    trial=trial,
                    epoch=epoch,
                    metrics=metrics,
                    time=3.0,
                    time_s=1.0,
                    measures=measures,
                )
            )
        events.append(TrialEnded(trial=trial, status=Status.COMPLETED, reason="", time=4.0))
    with Log(folder.log) as log:
        log.append([*events, SessionEnded(time=5.0, reason="finished")])
    known = find_earlier_results(tmp_path, spec)
    assert known is not None
    # in its last epoch
    assert (known.level, known.examples, known.loss_deviation) == (
        0.4,
        400,
        pytest.approx(0.2),
    )
    told = detectable(spec, 3, known).examples
    assert told is not None
    assert told.difference == pytest.approx(1.96 * 0.2 * math.sqrt(2 / 400), rel=1e-4)
    compared = CliRunner().invoke(main, ["compare", "before", "--results", str(tmp_path)])
    assert "is 0.3804 .. 0.4196 on others (95 %, bootstrap)" in compared.output
