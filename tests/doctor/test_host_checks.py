from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from sweep.doctor import host_checks
from sweep.doctor.findings import Severity
from sweep.doctor.host_checks import Disk, Host
from sweep.doctor.probes import NodePairResult, ProbeFailure, TensorFlow

GIB = 2**30
HOST = Host(
    python="3.12.4",
    requires_python=">=3.11",
    requirements=("tensorflow<2.22,>=2.21", "ray[default,tune]<2.61,>=2.60"),
    installed={"tensorflow": "2.21.0", "ray": "2.60.0"},
    variables={},
    cpus=8,
    memory_bytes=64 * GIB,
    shared_free_bytes=32 * GIB,
)
SEEN = TensorFlow("2.21.0", "3.15.1", "tensorflow", "12.5.1", "9", (), ())


def test_tested_versions_are_fine() -> None:
    (found,) = host_checks.check_versions(HOST)
    assert found.level is Severity.OK
    assert "tensorflow 2.21.0, ray 2.60.0" in found.found


def test_all_wrong_versions_are_named_at_once() -> None:
    wrong = dataclasses.replace(
        HOST, installed={"tensorflow": "2.22.0", "ray": None}, python="3.10.2"
    )
    (found,) = host_checks.check_versions(wrong)
    assert found.level is Severity.ERROR
    for words in (
        "tensorflow 2.22.0 (expected <2.22,>=2.21)",
        "ray is missing",
        "Python 3.10.2 (expected >=3.11)",
    ):
        assert words in found.found


@pytest.mark.parametrize(
    ("variables", "change", "words"),
    [
        ({"TF_USE_LEGACY_KERAS": "1"}, {}, "TF_USE_LEGACY_KERAS is set"),
        ({"TF_USE_LEGACY_KERAS": "True"}, {}, "TF_USE_LEGACY_KERAS is set"),
        ({}, {"backend": "jax"}, "Keras runs on jax, expected tensorflow"),
        (
            {},
            {"backend": None, "keras_error": "No module named 'torch'"},
            "no backend, expected tensorflow: No module",
        ),
    ],
)
def test_another_keras_is_an_error(
    variables: dict[str, str], change: dict[str, str], words: str
) -> None:
    machine = dataclasses.replace(HOST, variables=variables)
    (found,) = host_checks.check_keras(machine, dataclasses.replace(SEEN, **change))
    assert found.level is Severity.ERROR
    assert words in found.found


def test_keras_3_on_tensorflow_is_fine() -> None:
    (found,) = host_checks.check_keras(
        dataclasses.replace(HOST, variables={"TF_USE_LEGACY_KERAS": "0"}), SEEN
    )
    assert (found.level, found.found) == (Severity.OK, "Keras 3.15.1 on TensorFlow 2.21.0")
    (failed,) = host_checks.check_keras(HOST, ProbeFailure("exit code 1"))
    assert failed.level is Severity.ERROR


@pytest.mark.parametrize(
    ("free", "level"),
    [(None, "note"), (64 * 2**20, "warning"), (8 * GIB, "note"), (20 * GIB, "ok")],
)
def test_room_for_objects(free: int | None, level: str) -> None:
    machine = dataclasses.replace(HOST, shared_free_bytes=free)
    (found,) = host_checks.check_shared_memory(machine, several_gpus=True)
    assert found.level == level
    assert ("NCCL" in found.found) == (level == "warning")


def test_results_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder, level in (
        (tmp_path / "new" / "below", Severity.OK),
        (tmp_path / "file" / "below", Severity.ERROR),
    ):
        (found,) = host_checks.check_disk(host_checks.probe_disk(folder))
        assert found.level is level
    assert not (tmp_path / "new").exists()
    (full,) = host_checks.check_disk(Disk("results", 10 * 2**20))
    assert (full.level, "10 MiB free" in full.found) == (Severity.WARNING, True)


def test_results_below_a_folder_that_may_not_be_entered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exists = Path.exists

    def look(path: Path) -> bool:
        if path.is_relative_to(tmp_path / "closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return exists(path)

    monkeypatch.setattr(Path, "exists", look)
    found = host_checks.probe_disk(tmp_path / "closed" / "results")
    assert (found.folder, found.failure) == (str(tmp_path / "closed" / "results"), None)


def test_clusters() -> None:
    (own,) = host_checks.check_ray((8, 2), usable=2, address=None)
    (blind,) = host_checks.check_ray((64, 0), usable=2, address="head:6379")
    (good,) = host_checks.check_ray((64, 16), usable=2, address="head:6379")
    assert [f.level for f in (own, blind, good)] == [Severity.OK, Severity.WARNING, Severity.OK]
    assert "8 CPUs and 2 GPUs" in own.found


def test_this_machine_has_the_packages_it_was_installed_with() -> None:
    here = host_checks.gather_facts({"KERAS_BACKEND": "tensorflow", "HOME": "/"})
    assert here.variables == {"KERAS_BACKEND": "tensorflow"}
    assert here.installed["tensorflow"]
    assert not any("extra" in text for text in here.requirements)


def test_sums_between_nodes_are_told_with_their_pace() -> None:
    fast, slow = NodePairResult(("a", "b"), 0.00012, 2e9), NodePairResult(("b", "c"), 0.03, 5e7)
    lost = NodePairResult(
        ("c", "d"), failure="on d: no answer in time during meeting the other ranks"
    )
    good, poor, bad, ports = host_checks.check_node_pairs((fast, slow, lost))
    assert (good.level, good.found) == (
        Severity.OK,
        "a and b sum up over two ranks: 0.12 ms, 2000 MB/s",
    )
    assert (poor.level, poor.found.partition("; ")[2]) == (
        Severity.WARNING,
        "each update of a model of 25 million weights waits 2.0 s",
    )
    assert (bad.level, bad.found) == (
        Severity.ERROR,
        f"c and d do not train together: {lost.failure}",
    )
    assert (ports.level, "without a password" in ports.found) == (Severity.NOTE, True)


def test_one_node_has_nothing_between() -> None:
    (found,) = host_checks.check_node_pairs(())
    assert (found.level, "one node" in found.found) == (Severity.OK, True)
    (found,) = host_checks.check_node_pairs(ProbeFailure("exit code 1"))
    assert (found.level, found.found) == (
        Severity.ERROR,
        "nothing is known of sums between nodes: exit code 1",
    )


def test_a_folder_that_ray_cannot_use_is_a_warning() -> None:
    assert list(host_checks.check_ray_folder("TMPDIR /tmp", "")) == []
    (found,) = host_checks.check_ray_folder(
        "TMPDIR /long", "is too long for Ray's sockets (105 bytes, at most 39)"
    )
    assert found.level is Severity.WARNING
    assert "export RAY_TMPDIR=DIR" in found.todo
