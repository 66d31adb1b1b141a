"""What libraries print goes into a file, also if the disk is full."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys
from pathlib import Path
from sweep import output
from sweep.runner.debug_log import redirected
output.prepare_streams()
with redirected(Path(sys.argv[1])) as terminal:
    print("Traceback of a library", file=sys.stderr)
    print("for the user", file=terminal)
print("after the block", file=sys.stderr)
"""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only on Linux")
def test_what_a_full_disk_does_not_take_stays_off_the_terminal() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, "/dev/full"], capture_output=True, text=True, check=True
    )
    assert ran.stderr == "for the user\nafter the block\n"


def test_a_terminal_that_was_closed_ends_nothing(tmp_path: Path) -> None:
    script = SCRIPT.replace(
        '    print("for the user", file=terminal)\n',
        """
    try:
        print("for the user", file=terminal)
    except OSError:
        print("it is gone", file=sys.stderr)
""",
    )
    reader, writer = os.pipe()
    os.close(reader)
    log = tmp_path / "debug.log"
    try:
        subprocess.run([sys.executable, "-c", script, str(log)], stderr=writer, check=True)
    finally:
        os.close(writer)
    assert log.read_text() == "Traceback of a library\nit is gone\n"
