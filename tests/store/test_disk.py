import subprocess
import sys
from pathlib import Path

import pytest

from sweep.errors import StoreError
from sweep.store.disk import get_process_name, replacing, storing


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    path = tmp_path / "table"
    path.write_text("old")
    with pytest.raises(ValueError, match="half"), replacing(path) as aside:
        raise ValueError(f"half {aside.write_text('half')}")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("table", "old")]
    with replacing(path) as aside:
        aside.write_text("new")
        assert path.read_text() == "old"
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("table", "new")]


def test_an_error_names_the_file_and_what_is_free(tmp_path):
    message = r"/x: No such file or directory \(the disk mounted at /\S* has [\d,]+ MB free\)"
    with pytest.raises(StoreError, match=message), storing(tmp_path / "x"):
        (tmp_path / "missing" / "x").touch()


def test_processes_of_several_machines_write_aside_under_different_names(tmp_path: Path) -> None:
    code = "import os\nos.getpid = lambda: 7\nfrom sweep.store import disk\nprint(disk.get_process_name())\n"
    names = {
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
        for _ in range(2)
    }
    assert len(names) == 2
    assert all(name.startswith("7-") for name in names)
    with replacing(tmp_path / "table") as path:
        assert get_process_name() in path.name
        path.write_text("new")
