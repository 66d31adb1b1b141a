import json
import os
import subprocess
from importlib import metadata

import pytest

from sweep import contract
from sweep.runner import planning
from sweep.spec import parse_spec
from sweep.store import sweep_info
from sweep.store.sweep_info import parse_mig_devices, provenance


def git(folder, *arguments):
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    subprocess.run(
        ["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True
    )


def test_versions_and_hardware_are_found_and_json_able(tmp_path):
    found = provenance(tmp_path)
    assert json.loads(json.dumps(found)) == found
    assert found["packages"]["ray"] == metadata.version("ray")
    assert found["cpus"] >= 1
    assert found["memory_bytes"] > 2**20
    assert isinstance(found["gpus"], list)


def test_the_commit_and_whether_the_code_differs_from_it(tmp_path):
    assert provenance(tmp_path)["git"] is None
    git(tmp_path, "init", "-b", "trunk")
    (tmp_path / "model.py").write_text("a = 1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "log.jsonl").touch()  # no code: leaves the tree clean
    clean = provenance(tmp_path)["git"]
    assert clean["branch"] == "trunk"
    assert len(clean["commit"]) == 40
    assert clean["dirty"] is False
    (tmp_path / "new.py").touch()
    assert provenance(tmp_path)["git"]["dirty"] is True
    (tmp_path / "new.py").unlink()
    (tmp_path / "model.py").write_text("a = 2\n")
    assert provenance(tmp_path)["git"]["dirty"] is True


def test_instances_belong_to_the_gpu_above_them():
    listing = (
        "GPU 0: NVIDIA A100 (UUID: GPU-a)\n"
        "GPU 3: NVIDIA A100 (UUID: GPU-b)\n"
        "  MIG 1g.5gb      Device  0: (UUID: MIG-1)\n"
        "  MIG 1g.5gb      Device  1: (UUID: MIG-2)\n"
    )
    assert parse_mig_devices(listing) == {"MIG-1": 3, "MIG-2": 3}


LISTED = "GPU 0: A (UUID: GPU-a)\nGPU 1: A (UUID: GPU-b)\n  MIG 1g Device 0: (UUID: MIG-1)\n"


@pytest.mark.parametrize(
    ("setting", "shown"),
    [(None, "AB"), ("1", "B"), ("-1", ""), ("GPU-b,GPU-a", "BA"), ("MIG-1", "B")],
)
def test_gpus_are_those_that_cuda_shows(tmp_path, monkeypatch, setting, shown):
    nvidia = tmp_path / "nvidia-smi"
    nvidia.write_text(
        f"#!/bin/sh\nif [ $1 = -L ]; then printf '{LISTED}'; else\n"
        "printf '0, GPU-a, A, 80 GiB, 600\\n1, GPU-b, B, 80 GiB, 600\\n'; fi\n"
    )
    nvidia.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    if setting is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    assert [one["name"] for one in sweep_info.gpus()] == list(shown)
    assert provenance(tmp_path)["gpus"] == sweep_info.gpus()
    spec = parse_spec(
        "trainable: m:M\nmethod: grid\nparameters: {a: {value: 1}}\nresources: {cpus: 0.01, gpus: 1}",
        "s.yaml",
    )
    assert planning.make_plan(spec, None, planning.Basis()).concurrent == (len(shown) or None)


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({}, 64),
        ({"cpu.max": "max 100000\n"}, 64),
        ({"cpu.max": "250000 100000\n"}, 2),
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 64),
        ({"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 4),
    ],
)
def test_cores_and_memory_are_what_a_container_is_given(tmp_path, monkeypatch, files, cpus):
    monkeypatch.setattr(contract, "CONTAINER", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(64), raising=False)
    whole = contract.memory_bytes()
    for name, text in {
        **files,
        "memory.max": "1048576\n",
        "memory/memory.limit_in_bytes": f"{2**63}\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert contract.cpus() == cpus
    assert contract.memory_bytes() == 2**20 < whole
    (tmp_path / "memory.max").write_text("max\n")
    assert contract.memory_bytes() == whole


def test_a_plan_counts_the_cores_to_which_the_process_is_bound(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0}, raising=False)
    spec = parse_spec("trainable: m:M\nmethod: grid\nparameters: {a: {value: 1}}", "s.yaml")
    assert planning.make_plan(spec, None, planning.Basis()).concurrent == 1
