"""What the README and the folder say is so."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from sweep.inspection import inspect
from sweep.runner import planning
from sweep.spec import load, parse

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_readmes_model_reads_the_parameters_of_the_readmes_file(tmp_path: Path) -> None:
    (tmp_path / "my_model.py").write_text(_blocks("python")[0])
    spec = parse(_blocks("yaml")[0], "README.md")
    planning.check(spec, "README.md", [tmp_path])


@pytest.mark.keras
@pytest.mark.slow
def test_the_readmes_model_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from click.testing import CliRunner

    from sweep.cli import main

    (tmp_path / "my_model.py").write_text(_blocks("python")[0])
    (tmp_path / "wine.yaml").write_text(_blocks("yaml")[0])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    result = CliRunner().invoke(main, ["run", "wine.yaml", "--inline"])
    assert result.exit_code == 0, result.output
    assert "[12/12]" in result.output


def test_the_tree_names_what_is_there() -> None:
    tree = _blocks("text")[1]
    folders = re.findall(r"^(?:  )?([a-z_]+)/ ", tree, re.MULTILINE)
    for name in folders:
        assert list(ROOT.glob(f"{name}/")) or (ROOT / "sweep" / name).is_dir(), name
    for folder in (path for path in (ROOT / "sweep").iterdir() if path.is_dir() and path.name != "__pycache__"):
        assert folder.name in folders


@pytest.mark.parametrize("path", sorted((ROOT / "search_spaces").rglob("*.yaml")), ids=lambda p: p.stem)
def test_shipped_files_are_read_in_full(path: Path) -> None:
    spec = load(path)
    planning.check(spec, str(path), [ROOT, path.parent])
    first = path.read_text().splitlines()[:2]
    assert all(line.startswith("# ") for line in first)


def test_the_source_of_a_keras_trainable_tells_what_it_reads() -> None:
    reads = inspect("trainables.digits_cnn:DigitsCNN", [ROOT]).reads
    assert reads is not None
    assert {"learning_rate", "augmentation", "lr_final", "beta_1", "clipnorm"} <= reads
    assert "get" not in reads


def test_the_page_of_standard_hyperparameters_is_complete() -> None:
    reads = inspect("trainables.keras_trainable:KerasTrainable", [ROOT]).reads or frozenset()
    page = (ROOT / "docs" / "hyperparameters.md").read_text()
    named = set(re.findall(r"`([a-z_0-9.<>]+)`", page))
    assert {name.replace(".*", ".<output>") for name in reads} <= named
    schedules = re.findall(r"^\| `([a-z_]+)` \|", page.split("| --- | --- | --- |\n")[-1], re.MULTILINE)
    source = (ROOT / "trainables" / "schedules.py").read_text()
    assert set(schedules) == set(re.findall(r'"([a-z_]+)"', source.split("SCHEDULES = (")[1].split(")")[0]))


def test_no_file_is_longer_than_400_lines() -> None:
    for folder in ("sweep", "trainables", "tests", "benchmarks"):
        for path in (ROOT / folder).rglob("*.py"):
            assert len(path.read_text().splitlines()) <= 400, path
