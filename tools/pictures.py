"""Make the pictures of the documentation from a real sweep: `make pictures`.

    python tools/pictures.py [FOLDER]      docs/pictures by default

Runs search_spaces/verdict.yaml on a terminal of its own and draws what that terminal shows while the sweep runs and at
its end, as SVG without fonts to download. Then photographs the sweep's report in Chromium, and the live page while
another sweep runs, as PNG. Without Chromium on the PATH these two pictures are left as they are.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROOT = Path(__file__).parents[1]
FILE = ROOT / "search_spaces" / "verdict.yaml"
LIVE_FILE = ROOT / "search_spaces" / "lr_wd_aug.yaml"
LIVE_NAME = "lr_wd_aug"
SHOWN_TRIALS = r"1[3-9]/27 trials"  # half of them
COLUMNS, ROWS = 148, 50
FONTS = re.compile(r"@font-face {.*?}\s*", re.DOTALL)  # rich's SVGs would download them
# what the live view draws between two switches of wrapping
FRAME = re.compile(rb"\x1b\[\?7l(.*?)\x1b\[\?7h", re.DOTALL)
MOVES = re.compile(r"\x1b\[(?:\?\d+[hl]|\d*[A-HJKST])|\r")  # all sequences but those of colours
WINDOW = {"width": 1280, "height": 1180}


def typescript(command: list[str], folder: Path) -> bytes:
    """Run a command in a folder on a terminal of its own; return all that it wrote there."""
    written = bytearray()
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.environ |= {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": str(ROWS)}
        os.execv(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    while True:
        try:
            written += os.read(terminal, 65536)
        except OSError:  # the terminal is closed at the end
            break
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status:
        sys.exit(
            f"{' '.join(command)} ended with {status}:\n{written.decode(errors='replace')[-2000:]}"
        )
    return bytes(written)


def running(written: bytes) -> str:
    """Return a frame of the live view shortly before the end."""
    frames = FRAME.findall(written)
    if not frames:
        sys.exit("the live view drew nothing")
    frame: bytes = frames[9 * len(frames) // 10]
    return MOVES.sub("", frame.decode()).rstrip("\n")


def ended(written: bytes) -> str:
    """Return the text after the last frame."""
    last = max(found.end() for found in FRAME.finditer(written))
    return MOVES.sub("", written[last:].decode()).strip("\n")


def draw(command: str, shown: str, file: Path) -> None:
    """Write an SVG of a terminal that shows a command line and its output."""
    with Path(os.devnull).open("w") as nowhere:
        console = Console(
            record=True, width=COLUMNS, file=nowhere, force_terminal=True, color_system="truecolor"
        )
        console.print(Text.assemble(("$ ", "bold green"), command))
        console.print(Text.from_ansi(shown))
    svg = FONTS.sub("", console.export_svg(title="", theme=MONOKAI, unique_id=file.stem))
    file.write_text(
        svg.replace("Fira Code, monospace", "Menlo, Consolas, DejaVu Sans Mono, monospace")
    )


def photograph(page: Path, file: Path) -> None:
    """Write a picture of a page in Chromium; without Chromium, leave the file as it is."""
    with opened_page(file, offline=True) as opened:
        if opened is None:
            return
        opened.goto(page.as_uri())
        opened.wait_for_selector("html[data-ready]", state="attached")
        opened.wait_for_timeout(1500)
        opened.screenshot(path=str(file))


def photograph_running_sweep(folder: Path, file: Path) -> None:
    """Write a picture of the page of a running sweep, then stop that; without Chromium, leave the file as it is."""
    with opened_page(file, offline=False) as opened:
        if opened is None:
            return
        sweep = [sys.executable, "-m", "sweep"]
        subprocess.run([*sweep, "run", str(LIVE_FILE), "--detach"], cwd=folder, check=True)
        served = [*sweep, "ui", LIVE_NAME, "--no-open", "--port", "0", "--json"]
        reader, writer = os.pipe()
        server = subprocess.Popen(served, cwd=folder, stdout=writer)
        os.close(writer)
        try:
            with os.fdopen(reader) as output:
                opened.goto(json.loads(_read_document(output))["url"])
            opened.get_by_text(re.compile(SHOWN_TRIALS)).first.wait_for(timeout=600_000)
            opened.wait_for_timeout(1500)
            opened.screenshot(path=str(file))
        finally:
            server.terminate()
            server.wait()
            subprocess.run([*sweep, "stop", LIVE_NAME, "--now"], cwd=folder, check=False)
            # until its process has ended, which still writes to the folder that is removed next
            subprocess.run(
                [*sweep, "wait", LIVE_NAME], cwd=folder, check=False, capture_output=True
            )


def _read_document(output: IO[str]) -> str:
    """Return the lines of a JSON object at the beginning of an output that goes on."""
    lines = []
    for line in output:
        lines.append(line)
        if line == "}\n":
            break
    return "".join(lines)


@contextmanager
def opened_page(file: Path, *, offline: bool) -> Iterator[Page | None]:
    """Yield a page of Chromium for a picture that becomes this file; None without Chromium."""
    chromium = (
        shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )
    if chromium is None:
        print(f"no Chromium on the PATH: {file.name} stays as it is", file=sys.stderr)
        yield None
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser.new_context(viewport=WINDOW, offline=offline).new_page()
        browser.close()


def main(target: Path, script: Callable[[list[str], Path], bytes] = typescript) -> None:
    target.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as name:
        folder = Path(name)
        written = script([sys.executable, "-m", "sweep", "run", str(FILE)], folder)
        line = f"python -m sweep run {FILE.relative_to(ROOT)}"
        draw(line, running(written), target / "running.svg")
        draw(line, ended(written), target / "terminal.svg")
        script([sys.executable, "-m", "sweep", "report", "verdict"], folder)
        photograph(folder / "results" / "verdict" / "report.html", target / "report.png")
        photograph_running_sweep(folder, target / "page.png")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "docs" / "pictures").absolute())
