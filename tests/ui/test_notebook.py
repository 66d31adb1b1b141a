"""The live page in a notebook's cell, without a browser: what is shown, and that the server ends with the kernel."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from living import finished, make_sweep

import sweep
from sweep.api import running
from sweep.errors import InputError
from sweep.ui import address, notebook
from sweep.ui.access import is_pass


class FakeProcess:
    """A server's process that runs until it is told otherwise."""

    def __init__(self) -> None:
        self.code: int | None = None

    def poll(self) -> int | None:
        return self.code


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The options of the servers that were started; the process is a kernel, and nothing is shown."""
    found: list[list[str]] = []
    monkeypatch.chdir(tmp_path)
    make_sweep(tmp_path / "results", "one", finished(time.time()))
    make_sweep(tmp_path / "elsewhere", "two", finished(time.time()))

    def start(options: list[str]) -> tuple[Any, str]:
        found.append(options)
        return FakeProcess(), f"http://127.0.0.1:{9000 + len(found)}/?token=the-token"

    monkeypatch.setattr(address, "start_process", start)
    monkeypatch.setattr(running, "is_here", lambda: True)
    monkeypatch.setattr(notebook, "servers", {})
    return found


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The HTML that was shown."""
    found: list[str] = []
    monkeypatch.setattr(running, "show_html", found.append)
    return found


def attribute(html: str, name: str) -> str:
    found = re.search(f'data-{name}="([^"]*)"', html)
    assert found is not None
    return found[1]


def test_a_kernel_has_one_server_for_each_results_folder(
    started: list[list[str]], shown: list[str]
) -> None:
    sweep.show("one")
    sweep.show()
    sweep.show(Path("results") / "one", height=300)
    assert started == [["--results", "results", "--port", "0", "--within", str(os.getpid())]]
    sweep.show("two", results="elsewhere")
    sweep.show("elsewhere/two")
    assert [options[1] for options in started] == ["results", "elsewhere"]
    assert [attribute(html, "port") for html in shown] == ["9001", "9001", "9001", "9002", "9002"]
    assert [attribute(html, "sweep") for html in shown] == ["one", "", "one", "two", "two"]
    assert [attribute(html, "height") for html in shown] == ["700", "700", "300", "700", "700"]


def test_a_server_that_has_ended_is_started_again(
    started: list[list[str]], shown: list[str]
) -> None:
    sweep.show()
    for one in notebook.servers.values():
        one.process.code = 0  # type: ignore[attr-defined]  # it is a fake
    sweep.show()
    assert len(started) == 2


def test_each_cell_has_passes_of_its_own_and_not_the_token(
    started: list[list[str]], shown: list[str]
) -> None:
    sweep.show()
    sweep.show()
    passes = [attribute(html, name) for html in shown for name in ("frame-pass", "tab-pass")]
    assert len(set(passes)) == 4
    assert all(is_pass(one, "the-token") for one in passes)
    assert "the-token" not in "".join(shown)


def test_a_name_is_only_text_in_the_cell(
    started: list[list[str]], shown: list[str], tmp_path: Path
) -> None:
    name = '"><script>alert(1)<'
    (tmp_path / "results" / "one").rename(tmp_path / "results" / name)
    sweep.show(name)
    assert "<script>alert" not in shown[0]
    assert 'data-sweep="&#34;&gt;&lt;script&gt;alert(1)&lt;"' in shown[0]


def test_mistakes(
    started: list[list[str]], shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="oen: no such sweep in results; did you mean 'one'"):
        sweep.show("oen")
    with pytest.raises(InputError, match="height is 0, expected a number of pixels above 0"):
        sweep.show(height=0)
    monkeypatch.setattr(address, "start_process", lambda options: (FakeProcess(), ""))
    with pytest.raises(InputError, match="the page's process did not start"):
        sweep.show()
    monkeypatch.setattr(running, "is_here", lambda: False)
    with pytest.raises(
        InputError, match="no kernel of a notebook; in a terminal: python -m sweep ui one"
    ):
        sweep.show("one")
    assert shown == []


KERNEL = """
import os, sys, time
from sweep.ui import notebook
print(notebook.find_server("results").port, flush=True)
time.sleep(600)
"""


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_the_server_ends_with_the_kernel(tmp_path: Path, end: signal.Signals) -> None:
    (tmp_path / "results").mkdir()
    command = [sys.executable, "-c", KERNEL]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as kernel:
        assert kernel.stdout is not None
        port = int(kernel.stdout.readline())
        assert answers(port)
        time.sleep(3)  # it looks after its parent, and stays
        assert answers(port)
        kernel.send_signal(end)
    deadline = time.monotonic() + 60
    while answers(port):
        assert time.monotonic() < deadline
        time.sleep(0.2)
