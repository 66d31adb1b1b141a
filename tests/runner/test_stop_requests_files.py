"""What one process asks of another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sweep.runner import stop_requests
from sweep.runner.stop_requests import StopRequest
from sweep.store.folder import ResultsFolder


@pytest.mark.parametrize("trial", [None, 0, 12])
@pytest.mark.parametrize("now", [False, True])
def test_a_request_is_taken_once(tmp_path: Path, trial: int | None, now: bool) -> None:
    folder = ResultsFolder(tmp_path)
    assert stop_requests.take_requests(folder) == []
    for _ in range(2):
        stop_requests.leave_request(folder, StopRequest(trial, now))
    assert stop_requests.take_requests(folder) == [StopRequest(trial, now)]
    assert stop_requests.take_requests(folder) == []


def test_what_is_withdrawn_or_no_request_is_not_taken(tmp_path: Path) -> None:
    folder = ResultsFolder(tmp_path)
    stop_requests.withdraw_request(folder, StopRequest(3))
    stop_requests.leave_request(folder, StopRequest(3))
    (folder.requests / "stop-trial-x").touch()
    stop_requests.withdraw_request(folder, StopRequest(3))
    assert stop_requests.take_requests(folder) == []


def test_a_request_that_is_withdrawn_meanwhile_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the listing of the requests and its own turn, also after another one."""
    folder = ResultsFolder(tmp_path)
    for request in (StopRequest(3), StopRequest(5)):
        stop_requests.leave_request(folder, request)
    unlink = Path.unlink

    def withdraw_first(path: Path, **how: Any) -> None:
        if path.name.endswith("5"):
            unlink(path)
        unlink(path, **how)

    monkeypatch.setattr(Path, "unlink", withdraw_first)
    assert stop_requests.take_requests(folder) == [StopRequest(3)]
