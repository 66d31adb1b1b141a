"""What of a project goes along with a submitted sweep, and what is left out."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from sweep.cli import submitting
from sweep.cli.submitting import CodePackage
from sweep.errors import InputError


def project(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def names(package: CodePackage) -> list[str]:
    return [path.as_posix() for path in package.files]


def test_gitignore_environments_and_results_are_left_out(tmp_path: Path) -> None:
    root = project(
        tmp_path,
        {
            ".gitignore": "*.tmp\n/data/\n!data/keep.csv\nlogs\n",
            "model.py": "",
            "sweep.yaml": "",
            "a.tmp": "",
            "data/large.csv": "",
            "package/__init__.py": "",
            "package/.gitignore": "!a.tmp\nsecret.txt\n",
            "package/a.tmp": "",
            "package/secret.txt": "",
            "package/data/small.csv": "",
            "package/__pycache__/x.pyc": "",
            "logs/run.log": "",
            ".git/HEAD": "",
            ".mypy_cache/x": "",
            "my_env/pyvenv.cfg": "",
            "my_env/lib/x.py": "",
            "results/first/sweep.json": "",
            "old/second/sweep.json": "",
            "old/second/spec.yaml": "",
            "old/notes.txt": "",
        },
    )
    package = CodePackage.collect(root)
    assert names(package) == [
        *(
            ".gitignore",
            "model.py",
            "old/notes.txt",
            "package/.gitignore",
            "package/__init__.py",
            "package/a.tmp",
        ),
        *("package/data/small.csv", "sweep.yaml"),
    ]
    assert package.left_out == (
        *(
            ".git/",
            ".mypy_cache/",
            "a.tmp",
            "data/",
            "logs/",
            "my_env/",
            "old/second/",
            "package/__pycache__/",
        ),
        *("package/secret.txt", "results/"),
    )


def test_what_is_named_goes_along_anyhow(tmp_path: Path) -> None:
    root = project(
        tmp_path, {".gitignore": "data/\n", "data/a/b.csv": "", "data/c.csv": "", "m.py": ""}
    )
    assert names(CodePackage.collect(root, ["data/a"])) == [".gitignore", "data/a/b.csv", "m.py"]
    assert names(CodePackage.collect(root, ["data/c.csv"])) == [".gitignore", "data/c.csv", "m.py"]
    for wrong in ("nothing", "../elsewhere", "/etc/passwd"):
        with pytest.raises(InputError, match=f"--include {wrong}: is not below"):
            CodePackage.collect(root, [wrong])


def test_the_same_files_are_the_same_archive(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for root in (one, other):
        project(root, {"b.py": "2", "a.py": "1", "run.sh": "#!/bin/sh\n"})
        (root / "run.sh").chmod(0o755)
        CodePackage.collect(root).write(tmp_path / f"{root.name}.zip")
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "other.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "one.zip") as archive:
        assert archive.namelist() == ["a.py", "b.py", "run.sh"]
        assert archive.read("a.py") == b"1"
        assert archive.getinfo("run.sh").external_attr >> 16 & 0o777 == 0o755


def test_links_lead_out_of_no_project(tmp_path: Path) -> None:
    project(tmp_path / "elsewhere", {"secret": "x"})
    root = project(tmp_path / "project", {"m.py": ""})
    (root / "out").symlink_to(tmp_path / "elsewhere")
    (root / "file").symlink_to(tmp_path / "elsewhere" / "secret")
    (root / "folder").mkdir()
    (root / "folder" / "round").symlink_to(root)
    package = CodePackage.collect(root)
    assert names(package) == ["m.py"]
    assert package.left_out == ("file", "folder/round/", "out/")


def test_links_that_form_a_cycle_below_a_link_are_left_out(tmp_path: Path) -> None:
    root = project(tmp_path, {"a/a.py": "", "b/b.py": "", "c/c.py": ""})
    (root / "a" / "to_b").symlink_to(root / "b")
    (root / "b" / "to_c").symlink_to(root / "c")
    (root / "c" / "to_b").symlink_to(root / "b")
    package = CodePackage.collect(root)
    # each link is followed once: the cycle ends where it would enter a folder again
    assert "a/to_b/to_c/c.py" in names(package)
    assert package.left_out == ("a/to_b/to_c/to_b/", "b/to_c/to_b/", "c/to_b/to_c/")


def test_secrets_stay_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project(tmp_path, {".git/HEAD": "", ".gitignore": "private.txt\n/exp/only.txt\n"})
    files = {
        "private.txt": "",
        "only.txt": "",
        ".env": "",
        ".env.local": "",
        ".aws/credentials": "",
        "m.py": "",
    }
    package = CodePackage.collect(project(tmp_path / "exp", files))
    assert names(package) == ["m.py"]
    assert package.left_out == (".aws/", ".env", ".env.local", "only.txt", "private.txt")
    monkeypatch.setenv("HOME", str(tmp_path / "exp"))
    with pytest.raises(InputError, match="is not a project folder: everything in it would be sent"):
        CodePackage.collect(tmp_path / "exp")


def test_too_much_is_refused_with_the_largest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submitting, "MOST_BYTES", 3 << 20)
    root = project(tmp_path, {"m.py": ""})
    for number in (1, 2, 3):
        (root / f"{number}.bin").write_bytes(b"x" * (number << 20))
    with pytest.raises(
        InputError,
        match=r"has 6 MiB of files, a cluster accepts at most 3 MiB; the largest: 3.bin \(3 MiB\), 2.bin",
    ):
        CodePackage.collect(root)


def test_what_is_included_is_not_among_what_is_left_out(tmp_path: Path) -> None:
    files = {".gitignore": "data/\nlogs/\n", "data/a.csv": "", "logs/a.log": "", "model.py": ""}
    root = project(tmp_path, files)
    package = CodePackage.collect(root, ["data"])
    assert "data/a.csv" in names(package)
    assert package.left_out == ("logs/",)
    assert CodePackage.collect(root, ["data/a.csv"]).left_out == ("data/", "logs/")


FILE = """
trainable: train:train
method: grid
metric: {name: loss, goal: minimize}
parameters: {rate: {values: [1, 2]}}
epochs: 1
"""


@pytest.mark.parametrize("missing", ["sweep.yaml", "train.py"])
def test_a_project_without_the_file_or_its_trainable_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    code = "def train(hp, report):\n    report(loss=hp.rate)\n"
    files = {".gitignore": f"{missing}\n", "sweep.yaml": FILE, "train.py": code}
    monkeypatch.chdir(project(tmp_path, files))
    asked = submitting.check_file(Path("sweep.yaml"), ())
    with pytest.raises(InputError, match=f"{missing}: would not be sent.*--include {missing}"):
        asked.collect()
    assert missing in names(asked.collect([missing]))
