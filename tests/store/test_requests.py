"""What one process asks of another."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.store import requests
from sweep.store.folder import ResultsFolder
from sweep.store.requests import StopRequest


@pytest.mark.parametrize("trial", [None, 0, 12])
@pytest.mark.parametrize("now", [False, True])
def test_a_request_is_taken_once(tmp_path: Path, trial: int | None, now: bool) -> None:
    folder = ResultsFolder(tmp_path)
    assert requests.take(folder) == []
    for _ in range(2):
        requests.ask(folder, StopRequest(trial, now))
    assert requests.take(folder) == [StopRequest(trial, now)]
    assert requests.take(folder) == []


def test_what_is_withdrawn_or_no_request_is_not_taken(tmp_path: Path) -> None:
    folder = ResultsFolder(tmp_path)
    requests.withdraw(folder, StopRequest(3))
    requests.ask(folder, StopRequest(3))
    (folder.requests / "stop-trial-x").touch()
    requests.withdraw(folder, StopRequest(3))
    assert requests.take(folder) == []
