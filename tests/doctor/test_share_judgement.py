from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from sweep.doctor import share_judgement
from sweep.doctor.commands import MISSING, Ran
from sweep.doctor.probe import Failure, Shared
from sweep.doctor.share_judgement import PIPES


@pytest.mark.parametrize(
    ("code", "environ", "level", "words"),
    [
        (0, {}, "ok", "compute at the same time"),
        (1, {}, "note", "take turns"),
        (0, {PIPES: "no/such/folder"}, "warning", "no/such/folder, which does not exist"),
        (MISSING, {}, None, ""),
    ],
)
def test_the_daemon(code: int, environ: dict[str, str], level: str | None, words: str) -> None:
    def run(command: Sequence[str], timeout_s: float) -> Ran:
        return Ran(code, "")

    found = list(share_judgement.mps(share_judgement.gather(run, environ)))
    assert [f.level.value for f in found] == ([level] if level else [])
    assert all(words in f.found for f in found)


def test_a_folder_that_is_there(tmp_path: Path) -> None:
    found = share_judgement.gather(lambda command, timeout_s: Ran(0, "4711\n"), {PIPES: str(tmp_path)})
    assert (found.runs, found.pipes_exist) == (True, True)


@pytest.mark.parametrize(
    ("tried", "level", "words"),
    [
        (Shared(6 * 2**30, True, True), "ok", "a quarter may have 6.0 GiB, more is refused"),
        (Shared(6 * 2**30, False, True), "error", "more was not refused"),
        (Shared(6 * 2**30, True, False), "error", "cannot go on"),
        (Failure("aborted by SIGABRT"), "error", "aborted by SIGABRT"),
    ],
)
def test_the_limit(tried: Shared | Failure, level: str, words: str) -> None:
    (found,) = share_judgement.limit("gpu:0", tried)
    assert found.level.value == level
    assert words in found.found
