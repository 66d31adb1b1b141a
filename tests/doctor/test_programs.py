from __future__ import annotations

import sys

from sweep.doctor.programs import MISSING, CommandResult, run_command


def python(code: str, timeout_s: float = 300) -> CommandResult:
    return run_command([sys.executable, "-c", code], timeout_s)


def test_output_and_log_are_kept_apart() -> None:
    ran = python(
        "import os, sys; print('out', os.environ['TF_CPP_MIN_LOG_LEVEL']); sys.stderr.write('log')"
    )
    assert ran == CommandResult(0, "out 0\n", "log")


def test_what_is_missing_is_no_exception() -> None:
    assert run_command(["no-such-program-here"], 5).code == MISSING
    assert run_command(["/"], 5).code == MISSING - 1


def test_an_abort_is_told() -> None:
    reason = python(
        "import os, sys; sys.stderr.write('probe: xla\\nF0000 Check failed: no\\n'); os.abort()"
    ).reason
    assert reason == "aborted by SIGABRT during xla; F0000 Check failed: no"


def test_a_hanging_program_ends_with_its_children() -> None:
    ran = run_command(["sh", "-c", "echo 'probe: all-reduce' >&2; sleep 3600 & wait"], 2.0)
    assert ran.code is None
    assert ran.reason == "no answer in time during all-reduce"


def test_the_last_telling_line_is_the_reason() -> None:
    log = (
        "I0000 00:00:1790000000.000000    4242 a.cc:1] loading\n"
        "E0000 00:00:1790000000.000000    4242 b.cc:2] failed to load PTX\n"
        "tidying up\n"
    )
    assert CommandResult(1, "", log).reason == "exit code 1; failed to load PTX"
    assert CommandResult(1, "", "nothing of note\n").reason == "exit code 1; nothing of note"
    assert CommandResult(1, "", "").reason == "exit code 1"
    assert CommandResult(0, "", log).logged("LOADING") == "loading"
    assert CommandResult(0, "", log).logged("cuDNN") is None
