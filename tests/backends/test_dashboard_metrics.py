"""What is set in Ray's metrics, with a list for its recorder; the real one is in test_tune_callbacks.py."""

from __future__ import annotations

import json
import re
from importlib.resources import files

import pytest

from sweep.backends import SweepStatus
from sweep.backends.ray_tune import dashboard
from sweep.backends.ray_tune.dashboard import GAUGES, DashboardGauges

pytestmark = pytest.mark.ray
NOTHING_YET = SweepStatus(
    trials={"running": 1, "completed": 0},
    total=None,
    epochs=0,
    epochs_per_s=0.0,
    metric="größe",
    goal="maximize",
)


class Recorder:
    """Stands in for a gauge of Ray; knows what it would refuse."""

    records: list[tuple[str, float, dict[str, str]]] = []  # noqa: RUF012 - shared on purpose

    def __init__(self, name: str, description: str, tag_keys: tuple[str, ...]) -> None:
        self.name, self.tag_keys = name, tag_keys

    def set(self, value: float, tags: dict[str, str]) -> None:
        assert set(tags) == set(self.tag_keys)
        assert all(text.isascii() for text in tags.values())
        self.records.append((self.name, value, tags))


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float, dict[str, str]]]:
    monkeypatch.setattr(dashboard, "Gauge", Recorder)
    monkeypatch.setattr(Recorder, "records", [])
    return Recorder.records


def test_what_is_not_known_is_not_set(records: list[tuple[str, float, dict[str, str]]]) -> None:
    DashboardGauges("größe\n高", "abc").set(NOTHING_YET, 1, 4)
    assert {name for name, _, _ in records} == {
        *("sweep_trials", "sweep_epochs_trained", "sweep_epochs_per_second"),
        *("sweep_workers", "sweep_workers_busy", "sweep_utilization"),
    }
    assert records[0] == (
        "sweep_trials",
        1,
        {"sweep": "gr\\xf6\\xdfe\n\\u9ad8", "session": "abc", "state": "running"},
    )
    assert records[-1][1] == 0.25


def test_every_gauge_is_set_once_all_is_known(
    records: list[tuple[str, float, dict[str, str]]],
) -> None:
    status = SweepStatus(
        trials={"running": 0, "completed": 2},
        total=9,
        epochs=12,
        epochs_per_s=3.0,
        metric="loss",
        goal="minimize",
        best=0.25,
        best_trials=(1,),
        left_s=60.0,
    )
    DashboardGauges("s", "abc").set(status, 5, 4)
    assert {name for name, _, _ in records} == set(GAUGES)
    found = {name: value for name, value, _ in records}
    assert (
        found["sweep_best_objective"],
        found["sweep_utilization"],
        found["sweep_seconds_left"],
    ) == (0.25, 1.0, 60.0)
    assert (
        next(tags for name, _, tags in records if name == "sweep_best_objective")["goal"]
        == "minimize"
    )


def test_the_dashboard_for_grafana_shows_these_gauges_and_no_others() -> None:
    text = (files("sweep.backends.ray_tune") / "grafana.json").read_text(encoding="utf-8")
    dashboard = json.loads(text)
    assert set(re.findall(r"ray_(sweep_\w+)", text)) == set(GAUGES)
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert {variable["name"] for variable in dashboard["templating"]["list"]} == {
        "datasource",
        "sweep",
    }
    assert all(panel["datasource"]["uid"] == "${datasource}" for panel in panels)
    assert all(
        'sweep=~"$sweep"' in target["expr"] for panel in panels for target in panel["targets"]
    )
    places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in panels]
    assert len(set(places)) == len(places)
    assert dashboard["uid"]
    assert dashboard["schemaVersion"] >= 36
