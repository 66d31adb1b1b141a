"""A project folder with a small trainable, the random walk of the kills, for tests of the command line."""

from __future__ import annotations

from pathlib import Path

FILE = """
trainable: walk:Walk
method: grid
metric: {name: loss, goal: minimize}
parameters: {rate: {values: [0.1, 0.3]}, drag: {value: 0.5}}
epochs: 2
"""
SLOW = "\n\nclass Slow(Walk):\n    PAUSE_S = 0.05\n"
"""Code of a walk whose epochs take so long that a test can act in between."""

_WALK = Path(__file__).parent / "kills" / "walk.py"


def write_project(folder: Path, *, code: str = "", file: str = FILE, name: str = "first") -> None:
    """Write ``walk.py``, followed by ``code``, and a sweep file into a folder."""
    (folder / "walk.py").write_text(_WALK.read_text() + code)
    (folder / f"{name}.yaml").write_text(file)
