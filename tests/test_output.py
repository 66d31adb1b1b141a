"""Standard output while Ctrl-C comes."""

from __future__ import annotations

import fcntl
import signal
import struct
import subprocess
import sys
import termios

from waiting import until

SCRIPT = """
import sys
from sweep import output
output.prepare_streams()
try:
    print("\\n".join(map(str, range(1500))))
    sys.stdout.flush()
except KeyboardInterrupt:
    print("interrupted", file=sys.stderr)
output.flush()
"""
TEXT = "\n".join(map(str, range(1500))) + "\n"
PIPE_BYTES = 4096  # less than the text, which is less than a buffer


def test_what_was_written_as_ctrl_c_came_is_not_written_again() -> None:
    """The pipe is full with a part of the text, so the interruption comes within the write."""
    command = [sys.executable, "-c", SCRIPT]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, pipesize=PIPE_BYTES
    ) as process:
        assert process.stdout is not None

        def count_waiting() -> int:
            return int(
                struct.unpack("i", fcntl.ioctl(process.stdout, termios.FIONREAD, b"    "))[0]
            )

        until(lambda: count_waiting() >= PIPE_BYTES)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert err == "interrupted\n"
    assert TEXT.startswith(out)
