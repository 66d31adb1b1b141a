from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hostile import FILE, story

from sweep.events import Event
from sweep.spec import parse_spec
from sweep.store.folder import ResultsFolder
from sweep.store.log import Log


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., ResultsFolder]:
    """Makes the folder of a sweep of these events."""

    def make(events: list[Event], name: str = "hostile, ü") -> ResultsFolder:
        spec = parse_spec(FILE, "file.yaml")
        info = {
            "objectives": [{"name": metric.name, "goal": metric.goal} for metric in spec.metrics],
            "spec": spec.to_json_dict(),
            "import_folders": [],
            "provenance": {
                "python": "3.12.0",
                "git": {"commit": "abc", "branch": "main", "dirty": False},
            },
        }
        folder = ResultsFolder.create(tmp_path / "results", name, FILE, info)
        if events:
            with Log(folder.log) as log:
                log.append(events)
        return folder

    return make


@pytest.fixture
def hostile(made: Callable[..., ResultsFolder]) -> ResultsFolder:
    return made(story())
