import json
import subprocess
from importlib import metadata

from sweep.store.sweep_info import provenance


def git(folder, *arguments):
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


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
