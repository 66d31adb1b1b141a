"""What is kept of what a worker's process prints."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sweep.backends.ray_tune import output_capture
from sweep.backends.ray_tune.output_capture import (
    KEPT_BYTES,
    LAST_BYTES,
    OutputCapture,
    clean_output,
)

LOG, FILE = "worker.log", "1.output"


@contextmanager
def writing_to(log: Path) -> Iterator[None]:
    """Redirect the outputs of this process to a file inside the block, as Ray does with those of its workers.

    A fixture cannot do it, because pytest redirects them itself between fixtures and tests.
    """
    before = [os.dup(output) for output in (1, 2)]
    stream = sys.stdout
    with log.open("ab", buffering=0) as file, open(1, "w", closefd=False) as sys.stdout:
        for output in (1, 2):
            os.dup2(file.fileno(), output)
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stdout = stream
            for saved, output in zip(before, (1, 2), strict=True):
                os.dup2(saved, output)
                os.close(saved)


@contextmanager
def capturing(folder: Path) -> Iterator[OutputCapture]:
    """Capture the outputs of this process for a trial."""
    with writing_to(folder / LOG):
        capture = OutputCapture(folder / FILE)
        try:
            yield capture
        finally:
            capture.close()


def test_what_python_its_children_and_libraries_print_is_kept_in_order(tmp_path: Path) -> None:
    with capturing(tmp_path) as capture:
        sys.stdout.write("by Python\n")
        sys.stdout.flush()
        subprocess.run("echo by a child; echo its error >&2", shell=True, check=True)
        os.write(2, b"by a library\n")
        sys.stdout.write("not flushed")
        text, rest = capture.take(trial_ends=False), capture.take(trial_ends=True)
    assert text == "by Python\nby a child\nits error\nby a library\n"
    assert rest == "not flushed"
    assert (tmp_path / LOG).read_text() == text + rest


def test_a_line_is_taken_once_it_is_complete(tmp_path: Path) -> None:
    taken = []
    with capturing(tmp_path) as capture:
        for printed in ("50%", "\r60%", "\r100%\nnext", " one"):
            os.write(1, printed.encode())
            taken.append(capture.take(trial_ends=False))
        taken.append(capture.take(trial_ends=True))
    assert taken == ["", "", "100%\n", "", "next one"]


def test_what_was_printed_before_a_trial_is_not_its_output(tmp_path: Path) -> None:
    with capturing(tmp_path) as capture:
        sys.stdout.write("before\n")
        capture.begin_trial()
        sys.stdout.write("in the trial\n")
        text = capture.take(trial_ends=True)
    assert text == "in the trial\n"
    assert (tmp_path / LOG).read_text() == "before\nin the trial\n"


def test_of_a_long_output_the_beginning_is_kept_and_the_end_when_the_trial_ends(
    tmp_path: Path,
) -> None:
    taken = []
    with capturing(tmp_path) as capture:
        for printed in (
            "a" * (KEPT_BYTES - 2) + "\n",
            "bcc",
            "d" * 100,
            "e" * 1000 + "f" * LAST_BYTES,
        ):
            os.write(1, printed.encode())
            taken.append(capture.take(trial_ends=printed.startswith("e")))
        capture.begin_trial()
        os.write(1, b"g\n")
        taken.append(capture.take(trial_ends=False))
    assert taken == [
        "a" * (KEPT_BYTES - 2) + "\n",
        "b\n[what follows is kept only if the trial ends by itself, and then only its end]\n",
        "",
        "\n[1,102 bytes are left out]\n" + "f" * LAST_BYTES,
        "g\n",
    ]


def test_nothing_is_left_out_that_fits_with_the_end(tmp_path: Path) -> None:
    printed = "x" * KEPT_BYTES + "y" * LAST_BYTES
    with capturing(tmp_path) as capture:
        os.write(1, printed.encode())
        text = capture.take(trial_ends=True)
    assert text == printed


def test_the_file_is_emptied_during_a_long_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_capture, "LOOK_S", 0.01)
    monkeypatch.setattr(output_capture, "LARGE_BYTES", KEPT_BYTES)
    with capturing(tmp_path) as capture:
        os.write(1, b"z" * (10 * KEPT_BYTES))
        while (tmp_path / FILE).stat().st_size:
            time.sleep(0.01)
        text = capture.take(trial_ends=True)
    left_out = 9 * KEPT_BYTES - LAST_BYTES
    assert text == "z" * KEPT_BYTES + f"\n[{left_out:,} bytes are left out]\n" + "z" * LAST_BYTES
    assert (tmp_path / LOG).stat().st_size == 10 * KEPT_BYTES


def test_a_closed_capture_gives_the_outputs_back_and_leaves_no_file(tmp_path: Path) -> None:
    with writing_to(tmp_path / LOG):
        capture = OutputCapture(tmp_path / FILE)
        os.write(1, b"captured\n")
        capture.close()
        os.write(1, b"out\n")
        os.write(2, b"error\n")
    assert (tmp_path / LOG).read_text() == "captured\nout\nerror\n"
    assert not (tmp_path / FILE).exists()


def test_what_a_lost_worker_had_printed_is_in_its_file(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_bytes(b"last words" + b"." * (KEPT_BYTES + 2 * LAST_BYTES) + b"!")
    text = output_capture.take_unsent_output(path)
    assert text.startswith("last words...")
    assert text.endswith("...!")
    assert f"[{LAST_BYTES + 11:,} bytes are left out]" in text
    assert not path.exists()
    assert output_capture.take_unsent_output(path) == ""


@pytest.mark.parametrize(
    ("printed", "text"),
    [
        (b"plain\n", "plain\n"),
        (b"  0%|  |\r 50%|# |\r100%|##|\ndone\n", "100%|##|\ndone\n"),
        (b"one\r\ntwo\r\n", "one\ntwo\n"),
        (b"1/3 loss 2.0\x08\x08\x08\r2/3 loss 1.0", "2/3 loss 1.0"),
        (b"kept at the end\r", "kept at the end"),
        (b"10%\x08\x08\x0820%\x08\x08\x08100%\n", "100%\n"),
        (b"|\x08/\x08-\x08ok\n", "ok\n"),
        (b"\x08\x08ab\x08c", "ac"),
        (b"\x1b[1mbold\x1b[0m \x1b]0;title\x07x\n", "bold x\n"),
        (b"bell \x07 and zero \x00\n", "bell \\x07 and zero \\x00\n"),
        ("grün ✓\n".encode(), "grün ✓\n"),
        (b"half \xe2\x9c", "half \ufffd"),
        (b":actor_name:one/worker-0\n:task_name:x\nmine\n", "mine\n"),
        (b"nan", "nan"),
    ],
)
def test_text_is_what_is_left_of_each_line(printed: bytes, text: str) -> None:
    assert clean_output(printed) == text


def test_a_file_that_cannot_be_created_leaves_no_descriptor(tmp_path: Path) -> None:
    before = len([*Path("/proc/self/fd").iterdir()])
    with pytest.raises(FileNotFoundError):
        OutputCapture(tmp_path / "absent" / FILE)
    assert len([*Path("/proc/self/fd").iterdir()]) == before
