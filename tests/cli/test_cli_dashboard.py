"""``dashboard`` as a process: says where it is, and ends when told to."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

from sweep.events import Status, TrialEnded, TrialStarted
from sweep.store.folder import ResultsFolder
from sweep.store.log import Log

pytest.importorskip("optuna_dashboard", reason="an extra of its own")


def test_it_serves_until_it_is_told_to_end(tmp_path: Path) -> None:
    info = {"objectives": [{"name": "acc", "goal": "maximize"}]}
    folder = ResultsFolder.create(tmp_path / "results", "first", "", info)
    with Log(folder.log) as log:
        log.append(
            [TrialStarted(trial=0, trial_id="t", params={"x": 1}, seed=0, repeat=0, time=1.0)]
        )
    command = [sys.executable, "-m", "sweep", "dashboard", "first", "first", "--port", "0"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        where = server.stdout.readline().split()
        assert (where[0], server.stdout.readline()) == ("dashboard", "end it with Ctrl-C\n")
        with Log(folder.log) as log:
            log.append([TrialEnded(trial=0, status=Status.FAILED, reason="", time=2.0)])
        with urlopen(where[1].replace("dashboard/", "api/studies/0")) as answer:
            assert [trial["state"] for trial in json.load(answer)["trials"]] == ["Fail"]
        server.send_signal(signal.SIGINT)
        out, err = server.communicate(timeout=1500)
    assert (server.returncode, out, err) == (0, "", "")
