from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from sweep.cli import main
from sweep.store.folder import ResultsFolder


def made(tmp_path: Path) -> ResultsFolder:
    info = {"objectives": [{"name": "acc", "goal": "maximize"}]}
    return ResultsFolder.create(tmp_path, "first", "epochs: 3\n", info)


def test_it_lies_in_the_sweeps_folder(tmp_path: Path) -> None:
    folder = made(tmp_path)
    ran = CliRunner().invoke(main, ["report", "first", "--results", str(tmp_path)])
    assert (ran.exit_code, ran.output) == (0, f"report   {folder.path / 'report.html'}\n")
    assert folder.report.read_text().startswith("<!DOCTYPE html>")


def test_it_can_lie_elsewhere_and_is_replaced(tmp_path: Path) -> None:
    made(tmp_path)
    target = tmp_path / "sent.html"
    target.write_text("old")
    ran = CliRunner().invoke(
        main, ["report", "first", "--results", str(tmp_path), "--output", str(target)]
    )
    assert ran.exit_code == 0
    assert "<h1><bdi>first</bdi></h1>" in target.read_text()


def test_an_unknown_sweep_is_the_users_mistake(tmp_path: Path) -> None:
    ran = CliRunner().invoke(main, ["report", "none", "--results", str(tmp_path)])
    assert ran.exit_code == 3
    assert "none" in ran.output


def test_several_sweeps_are_one_report_in_the_folder_of_the_first(tmp_path: Path) -> None:
    folder = made(tmp_path)
    info = {"objectives": [{"name": "acc", "goal": "maximize"}]}
    ResultsFolder.create(tmp_path, "second", "epochs: 3\n", info)
    ran = CliRunner().invoke(
        main, ["report", "first", "second", "first", "--results", str(tmp_path)]
    )
    assert (ran.exit_code, ran.output) == (0, f"report   {folder.path / 'report.html'}\n")
    assert "<bdi>first</bdi> · <bdi>second</bdi></h1>" in folder.report.read_text()
