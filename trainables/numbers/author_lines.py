"""The line of the author's code that is being executed, for messages."""

from __future__ import annotations

import linecache
import sys
from pathlib import Path
from types import FrameType

from sweep.author_code import is_author_file


def find_present_line(*, quoted: bool = False) -> str:
    """Return the line of the author's code that is being executed, such as "file.py:12".

    It is the line of the caller's nearest frame that belongs neither to sweep nor to a library. Returns "an unknown
    line" if there is no such frame. With ``quoted``, the source text of the line follows, at most 100 characters.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        line = frame.f_lineno
        if is_author_file(file):
            place = f"{Path(file).name}:{line}"
            if not quoted:
                return place
            return f"{place}, {linecache.getline(file, line).strip()!r:.100}"
        frame = frame.f_back
    return "an unknown line"
