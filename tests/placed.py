"""What a trial failed of, without the line of the author's that it names first."""

from __future__ import annotations

import re


def without_place(reason: str) -> str:
    """The reason as if no line of the author's took part."""
    return re.sub(r"(?<=: )[\w.<>-]+\.py:\d+ in \S+?(: |$)", "", reason)
