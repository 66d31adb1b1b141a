"""The base class of context managers that call `close` at the end of the block."""

from __future__ import annotations

from typing import Self


class Closing:
    """Base class of context managers that call `close` at the end of the block."""

    def close(self) -> None:
        """Release what the object holds; called at the end of the block, also if the block raises.

        Subclasses must implement it.
        """
        raise NotImplementedError  # subclasses implement it

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()
