from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from sweep.contract import Devices
from trainables.devices import compile_cache

pytestmark = pytest.mark.keras

CPU, GPU, SIMULATED = Devices(), Devices(gpus=1), Devices(gpus=2, simulated=True)


@pytest.mark.parametrize(
    ("devices", "asked", "xla", "cuda"),
    [
        (CPU, "auto", "", False),
        (SIMULATED, "auto", "", False),
        (CPU, True, "CPU", False),
        (SIMULATED, True, "CPU", False),
        (GPU, "auto", "GPU", True),
        (GPU, True, "GPU", True),
        (GPU, False, "", True),
        (CPU, False, "", False),
    ],
)
def test_it_is_kept_where_something_is_compiled(
    devices: Devices, asked: object, xla: str, cuda: bool, tmp_path: Path
) -> None:
    environment = {"HOME": str(tmp_path / "a home")}
    folder = compile_cache.enable_caches({"jit_compile": asked}, devices, environment)
    assert (folder is not None) == bool(xla or cuda)
    assert (f"device_types={xla}" in environment.get("TF_XLA_FLAGS", "")) == bool(xla)
    assert ("CUDA_CACHE_PATH" in environment) == cuda
    assert (tmp_path / "a home").exists() == bool(xla or cuda)
    if folder is not None:
        assert folder.is_relative_to(tmp_path / "a home/.cache/sweep")
        assert [path.stat().st_mode & 0o777 for path in (folder, folder / "xla")] == [0o700, 0o700]


def test_what_a_user_has_set_stands(tmp_path: Path) -> None:
    own = {"TF_XLA_FLAGS": f"{compile_cache.DIRECTORY}=/own", "CUDA_CACHE_PATH": "/own"}
    environment = {"HOME": str(tmp_path), **own}
    assert compile_cache.enable_caches({}, GPU, environment) is None
    assert environment == {"HOME": str(tmp_path), **own}
    environment = {"HOME": str(tmp_path), "TF_XLA_FLAGS": "--tf_xla_clustering_debug"}
    compile_cache.enable_caches({}, GPU, environment)
    assert environment["TF_XLA_FLAGS"].startswith(
        f"--tf_xla_clustering_debug {compile_cache.DIRECTORY}="
    )


def test_a_folder_where_others_write_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    first = compile_cache.enable_caches({"jit_compile": True}, CPU, environment)
    assert first is not None
    (first / "xla").chmod(0o770)
    again = {"XDG_CACHE_HOME": str(tmp_path), "HOME": str(tmp_path)}
    found = compile_cache.enable_caches({"jit_compile": True}, CPU, again)
    assert found is not None
    assert found.is_relative_to(tmp_path / "temporary")


def test_the_oldest_go_until_there_is_room(tmp_path: Path) -> None:
    for number in range(4):
        path = tmp_path / f"{number}.pb"
        path.write_bytes(b"x" * 10)
        os.utime(path, (number, number))
    compile_cache.prune(tmp_path, 25)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2.pb", "3.pb"]
    compile_cache.prune(tmp_path / "nowhere", 25)
