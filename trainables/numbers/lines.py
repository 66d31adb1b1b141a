"""Which line of the author's is being executed, for messages."""

from __future__ import annotations

import linecache
import sys
import sysconfig
from pathlib import Path
from types import FrameType

import keras
import numpy as np
import tensorflow as tf

_LIBRARIES = (
    *(str(Path(str(module.__file__)).parent) for module in (keras, np, tf)), str(Path(__file__).parents[1]), "<",
)  # fmt: skip
_INSTALLED = (sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["purelib"], *_LIBRARIES)


def of_the_author(*, quoted: bool = False) -> str:
    """The line of the caller's nearest frame that is neither ours nor a library's, as "file.py:12"."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file, line = frame.f_code.co_filename, frame.f_lineno
        if not file.startswith(_LIBRARIES) and not file.endswith("contextlib.py"):
            return f"{Path(file).name}:{line}" + (f", {linecache.getline(file, line).strip()!r:.100}" if quoted else "")
        frame = frame.f_back
    return "an unknown line"


def of_the_caller() -> str:
    """The author's line that asked Python's `random` or `secrets`; nothing where a library did, to name a file."""
    frame = sys._getframe(1)
    while frame.f_back is not None and Path(frame.f_code.co_filename).name in ("random.py", "secrets.py", "seeds.py"):
        frame = frame.f_back
    file = frame.f_code.co_filename
    return "" if file.startswith(_INSTALLED) else f"{Path(file).name}:{frame.f_lineno}"
