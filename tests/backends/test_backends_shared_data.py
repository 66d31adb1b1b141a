from __future__ import annotations

import tempfile
from pathlib import Path

from sweep import backends


def test_a_session_cleans_up_after_all_sessions_of_its_sweep_and_no_other(tmp_path: Path) -> None:
    mine, other = tmp_path / "a", tmp_path / "b"
    names = [
        backends.shared_data_name(mine),
        backends.shared_data_name(mine),
        backends.shared_data_name(other),
    ]
    assert len(set(names)) == 3
    folders = [Path(tempfile.gettempdir()) / name for name in names]
    for folder in folders:
        folder.mkdir()
        (folder / "data.npy").write_bytes(b"x")
    backends.remove_shared_data(backends.shared_data_prefix(mine))
    assert [folder.exists() for folder in folders] == [False, False, True]
    backends.remove_shared_data(backends.shared_data_prefix(other))
    assert not folders[2].exists()
