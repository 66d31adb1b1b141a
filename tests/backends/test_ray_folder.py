"""The folder in which a local Ray keeps its sockets and logs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sweep.backends.ray_tune import ray_folder
from sweep.errors import InputError

LONG = "/tmp/" + 30 * "long"


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    monkeypatch.delenv("TMPDIR", raising=False)


def test_the_longest_path_is_that_of_ray_itself() -> None:
    from ray._private.utils import validate_socket_filepath

    def socket(bytes_: int) -> str:
        return "/" + "x" * (bytes_ - 1) + ray_folder.LONGEST_SOCKET

    validate_socket_filepath(socket(ray_folder.LONGEST_FOLDER))
    with pytest.raises(OSError, match="cannot exceed"):
        validate_socket_filepath(socket(ray_folder.LONGEST_FOLDER + 1))


@pytest.mark.parametrize(
    ("folder", "fault"),
    [
        ("/tmp", ""),
        (
            LONG,
            f"is too long for Ray's sockets ({len(LONG)} bytes, at most {ray_folder.LONGEST_FOLDER})",
        ),
        ("/tmp/" + 20 * "ß", "is too long for Ray's sockets (45 bytes, "),
        ("/proc/none", "cannot be used by Ray: /proc/none"),
        ("/dev/null", "cannot be used by Ray: /dev/null"),
        ("", "is no absolute path"),
        ("tmp", "is no absolute path"),
    ],
)
def test_a_folder_that_ray_cannot_use(folder: str, fault: str) -> None:
    found = ray_folder.find_fault(folder)
    assert found.startswith(fault)
    assert bool(found) == bool(fault)


@pytest.mark.skipif(sys.platform == "darwin", reason="there Ray does not look at TMPDIR")
@pytest.mark.parametrize("name", ["TMPDIR", "RAY_TMPDIR"])
def test_another_folder_is_taken_and_the_variables_stay(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, LONG)
    said: list[str] = []
    with ray_folder.ensure_usable_folder(said.append):
        assert os.environ["RAY_TMPDIR"] == "/tmp"
    assert os.environ.get("RAY_TMPDIR") == (LONG if name == "RAY_TMPDIR" else None)
    assert said == [
        f"Ray keeps its files in /tmp/ray, for {name} {LONG} {ray_folder.find_fault(LONG)}"
    ]


def test_a_folder_that_ray_can_use_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_TMPDIR", "/tmp")
    with ray_folder.ensure_usable_folder(pytest.fail):
        assert os.environ["RAY_TMPDIR"] == "/tmp"


def test_where_there_is_no_other_folder_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_TMPDIR", "/proc/none")
    monkeypatch.setattr(ray_folder, "FOLDERS", ("/proc/nor", "/proc/neither"))
    with (
        pytest.raises(
            InputError,
            match=r"RAY_TMPDIR /proc/none: cannot be used by Ray: .*; export RAY_TMPDIR=DIR",
        ),
        ray_folder.ensure_usable_folder(pytest.fail),
    ):
        pytest.fail("Ray would start")


@pytest.mark.ray
def test_a_sweep_runs_without_a_home_and_with_a_long_temporary_folder(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text("def train(hp, report):\n    report(val_loss=hp.lr)\n")
    (tmp_path / "t.yaml").write_text(
        "trainable: t:train\nmethod: grid\nmetric: {name: val_loss}\nparameters: {lr: {values: [1, 2]}}\nepochs: 1\n"
    )
    environ = {
        name: value
        for name, value in os.environ.items()
        if name not in ("RAY_AUTH_TOKEN", "RAY_ADDRESS")
    }
    ran = subprocess.run(
        [sys.executable, "-m", "sweep", "run", "t.yaml"],
        cwd=tmp_path,
        env=environ | {"HOME": "/proc/none", "TMPDIR": LONG},
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, "Traceback" in ran.stderr) == (0, False), ran.stderr
    assert "Ray keeps its files in /tmp/ray, for TMPDIR" in ran.stdout
    assert "The best was lr=1 (trial 0)" in ran.stdout
