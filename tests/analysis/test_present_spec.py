"""The sweep file along the log, and the number of trials that follows from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.analysis import Outline
from sweep.analysis.live_status import Standing
from sweep.analysis.present_spec import PresentSpec
from sweep.analysis.sweep_changes import list_changes
from sweep.events import (
    ConfigurationsEnqueued,
    Event,
    Params,
    SessionStarted,
    SweepChanged,
    TrialStarted,
)
from sweep.spec import Spec, changes, parse_spec
from sweep.store.folder import ResultsFolder
from sweep.store.ledger import Ledger
from sweep.store.log import Log

FILE = """
name: present
trainable: none:None
method: {method}
metric: {{name: loss}}
parameters: {{a: {{values: [1, 2]}}, b: {{values: [1, 2, 3]}}}}
epochs: 9
repeats: 2
"""


def spec(method: str = "grid", more: str = "") -> Spec:
    return parse_spec(FILE.format(method=method) + more, "f.yaml")


def started(trial: int, a: int, b: int) -> TrialStarted:
    return TrialStarted(
        trial=trial, trial_id="t", params={"a": a, "b": b}, seed=0, repeat=trial % 2, time=1.0
    )


def changed(given: Spec, *assignments: str, dropped: tuple[Params, ...] = ()) -> SweepChanged:
    after = changes.with_assignments(given, assignments, "f.yaml")
    settings = changes.make_settings(given, after)
    return SweepChanged(
        settings=settings, dropped=dropped, request=str(assignments), by="ada", time=2.0
    )


def along(given: Spec, *events: Event) -> PresentSpec:
    present, ledger = PresentSpec(given), Ledger()
    for event in events:
        present.observe(ledger.observe(event))
    return present


BEGUN = [started(0, 1, 1), started(1, 1, 1), started(2, 1, 2), started(3, 1, 2)]


def test_trials_of_before_count_where_the_space_has_them_no_longer() -> None:
    given = spec()
    assert along(given, *BEGUN).all_trials == 12
    narrower = changed(given, "parameters.b.values=[1, 3]")
    assert along(given, *BEGUN, narrower).all_trials == 10  # 2 x 2, and one of before
    wider = changed(given, "parameters.b.values=[1, 2, 3, 4]")
    assert along(given, *BEGUN, wider).all_trials == 16
    assert along(given, *BEGUN, narrower, wider).all_trials == 16


def test_added_configurations_count_unless_the_search_has_them() -> None:
    given = parse_spec(
        FILE.format(method="random").replace("{values: [1, 2]}", "{min: 0.0, max: 1.0}"), "f.yaml"
    )
    added = ConfigurationsEnqueued(
        configurations=({"a": 0.5, "b": 1},), request="a", by="ada", time=2.0
    )
    assert along(given, added).all_trials is None
    assert along(spec("random"), added).all_trials == 14
    on_grid = ConfigurationsEnqueued(
        configurations=({"a": 1, "b": 3},), request="a", by="ada", time=2.0
    )
    assert along(spec(), *BEGUN, on_grid).all_trials == 12
    capped = along(spec(more="run_cap: 3\n"), added)
    assert capped.all_trials == 6
    assert capped.is_added({"a": 0.5, "b": 1})
    assert not capped.is_added({"a": 1, "b": 1})


def test_what_is_dropped_does_not_count() -> None:
    given = spec()
    params = {"a": 1, "b": 3}
    added = ConfigurationsEnqueued(configurations=(params,), request="a", by="ada", time=2.0)
    narrower = changed(given, "parameters.b.values=[1, 2]", dropped=(params,))
    present = along(given, *BEGUN, added, narrower)
    assert (present.all_trials, present.is_known(params), present.space_version) == (8, False, 1)


@pytest.mark.parametrize("later", [False, True])
def test_the_live_view_counts_as_many(later: bool) -> None:
    """Also if it begins with the file as it is now."""
    given = spec()
    event = changed(given, "parameters.b.values=[1, 4]", "run_cap=9")
    now = changes.apply_settings(given, event.settings)
    standing = Standing(Outline.of(now if later else given))
    for one in (SessionStarted(time=0.0, resumed=False, version="1"), *BEGUN, event):
        standing.observe(one)
    assert (standing.total, standing.outline.total) == (10, 8)


def test_changes_are_listed_with_what_was_different(tmp_path: Path) -> None:
    given = spec()
    info = {"spec": given.to_json_dict(), "objectives": [{"name": "loss", "goal": "minimize"}]}
    folder = ResultsFolder.create(tmp_path, "present", "", info)  # type: ignore[arg-type]  # as `run` writes it
    first = changed(given, "run_cap=9")
    second = changed(
        changes.apply_settings(given, first.settings), "run_cap=8", "parameters.a.values=[1]"
    )
    with Log(folder.log) as log:
        log.append([first, second])
    found = list_changes(folder)
    assert [
        (one.by, [difference.describe() for difference in one.differences]) for one in found
    ] == [
        ("ada", ["run_cap is 9 from now on; it was not set"]),
        (
            "ada",
            [
                "parameters.a.values is [1] from now on; it was [1, 2]",
                "run_cap is 8 from now on; it was 9",
            ],
        ),
    ]
