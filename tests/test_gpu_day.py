"""`make gpu`: pieces that are cut, go on, fail, and are told of."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import gpu_day  # noqa: E402 - a tool, not part of the package
from gpu_day import Piece, read_result, run_piece, write_results  # noqa: E402  # tools/ is put on the path above

GOES_ON = """
import pathlib, sys, time
done = pathlib.Path(sys.argv[1])
count = int(done.read_text()) if done.exists() else 0
try:
    while count < 2:
        print("began", count, flush=True)
        time.sleep(60 if count == 0 and not done.exists() else 0)
        count += 1
except KeyboardInterrupt:
    done.write_text("1")
    sys.exit(130)
print("all done")
"""


def _piece(name: str, code: str, *more: str) -> Piece:
    return Piece(name, "what it shows", (sys.executable, "-c", code, *more))


def test_a_piece_that_is_cut_goes_on_in_its_next_run(tmp_path: Path) -> None:
    piece = _piece("some", GOES_ON, str(tmp_path / "done"))
    first = run_piece(piece, tmp_path, 1.0)
    assert (first.state, first.exit_code, first.runs) == ("cut", 130, 1)
    second = run_piece(piece, tmp_path, 30.0)
    assert (second.state, second.runs) == ("passed", 2)
    assert second.seconds >= first.seconds >= 1.0  # of both runs, in tenths of a second
    assert read_result(piece, tmp_path) == second
    assert (tmp_path / "some.txt").read_text().count("$ ") == 2


def test_the_results_tell_of_each_piece(tmp_path: Path) -> None:
    pieces = [
        _piece("good", "print('fine')"),
        _piece("bad", "raise SystemExit('no')"),
        _piece("later", ""),
    ]
    for piece in pieces[:2]:
        run_piece(piece, tmp_path, 30.0)
    text = write_results(pieces, tmp_path).read_text()
    for line in (
        "| good | what it shows | passed |",
        "| bad | what it shows | failed |",
        "| later | what it shows | not run",
    ):
        assert line in text
    assert "\nfine\n" in text
    assert "tensorflow " in text
    assert (
        f"commit {subprocess.check_output(['git', 'rev-parse', 'HEAD'], cwd=ROOT, text=True)}"
        in text
    )


@pytest.mark.parametrize("minutes", [0.0, 1.0])
def test_what_is_left_after_the_time_is_told(
    minutes: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pieces = [_piece("good", "print('fine')")]
    monkeypatch.setattr(gpu_day, "list_pieces", lambda *given, **more: pieces)
    arguments = ["--folder", str(tmp_path), "--minutes", str(minutes)]
    assert gpu_day.main(arguments) == (0 if minutes else 3)
    assert ("left for the next time" in capsys.readouterr().out) == (not minutes)
    assert gpu_day.main(arguments) == (0 if minutes else 3)
    assert ("good       passed" in capsys.readouterr().out) == bool(minutes)


def test_the_page_of_limits_names_the_pieces(tmp_path: Path) -> None:
    section = (
        (ROOT / "docs" / "limits.md")
        .read_text()
        .partition("## What only a GPU can show")[2]
        .partition("\n## ")[0]
    )
    named = {
        line.rpartition("| `")[2].rstrip("` |")
        for line in section.splitlines()
        if line.endswith("` |")
    }
    assert named == {piece.name for piece in gpu_day.list_pieces(tmp_path)}


@pytest.mark.exhaustive
def test_the_day_is_rehearsed_without_a_gpu(tmp_path: Path) -> None:
    assert gpu_day.main(["--rehearse", "--folder", str(tmp_path)]) == 0
    assert (tmp_path / "results.md").read_text().count("| passed |") == 5
