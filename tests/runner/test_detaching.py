"""What is left of a process in the background that could not be started."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import pytest

from sweep.errors import StoreError
from sweep.runner import detaching
from sweep.store.disk import get_process_name
from sweep.store.folder import ResultsFolder


@pytest.mark.parametrize("kind", ["json", "log"])
@pytest.mark.filterwarnings("error")
def test_a_file_that_cannot_be_created_is_named_and_nothing_is_left(
    tmp_path: Path, kind: str
) -> None:
    at = tmp_path / f".one.{get_process_name()}.driver.{kind}"
    at.symlink_to(tmp_path / "absent" / "file")
    open_before = len([*Path("/proc/self/fd").iterdir()])
    with pytest.raises(StoreError, match=rf"\.driver\.{kind}: No such file"):
        detaching.start_detached(ResultsFolder(tmp_path / "one"), ["run", "one.yaml"])
    assert list(tmp_path.iterdir()) == []
    assert len([*Path("/proc/self/fd").iterdir()]) == open_before


def test_a_process_whose_output_cannot_be_moved_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = ResultsFolder(tmp_path / "one")
    (folder.path / "driver.log").mkdir(parents=True)  # it cannot be replaced by a file
    started = []

    def begin(arguments: Sequence[str], start: Path, output: BinaryIO) -> subprocess.Popen[bytes]:
        folder.log.write_text("{}\n")
        start.write_text(json.dumps({"log_bytes": 0}))
        with output:
            started.append(subprocess.Popen(["sleep", "600"], stdout=output))
        return started[0]

    monkeypatch.setattr(detaching, "start_process", begin)
    try:
        with pytest.raises(StoreError, match=r"driver\.log: Is a directory"):
            detaching.start_detached(folder, ["run", "one.yaml"])
        assert started[0].poll() is not None
        assert list(tmp_path.iterdir()) == [folder.path]
    finally:
        started[0].kill()
        started[0].wait()
