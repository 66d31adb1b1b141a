"""Columns that grow row by row in a few bytes a value, for tables that are written again and again."""

from __future__ import annotations

import sys
from array import array
from typing import Generic, Literal, TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T")


class Numbers:
    """Integers ("q") or floats ("d") by row, null where none was set; 9 bytes a row."""

    def __init__(self, typecode: Literal["q", "d"]) -> None:
        self._values: array[float] = array(typecode)
        self._valid = bytearray()

    def set(self, row: int, value: float | None) -> None:
        """Set a row; those skipped on the way are null."""
        missing = row + 1 - len(self._valid)
        if missing > 0:
            self._values.frombytes(bytes(8 * missing))
            self._valid.extend(bytes(missing))
        self._valid[row] = value is not None
        if value is not None:
            self._values[row] = value

    def get(self, row: int) -> float | None:
        return self._values[row] if row < len(self._valid) and self._valid[row] else None

    def filled(self, rows: int) -> tuple[npt.NDArray[np.generic], npt.NDArray[np.bool_]]:
        """Values and null mask of the first ``rows`` rows, as copies."""
        values = np.zeros(rows, dtype=np.int64 if self._values.typecode == "q" else np.float64)
        null = np.ones(rows, dtype=np.bool_)
        known = min(rows, len(self._valid))
        values[:known] = np.frombuffer(self._values, dtype=values.dtype)[:known]
        null[:known] = np.frombuffer(self._valid, dtype=np.uint8)[:known] == 0
        return values, null


class Objects(Generic[T]):
    """Any values by row, None where none was set; equal short texts are kept once."""

    def __init__(self) -> None:
        self._values: list[T | None] = []

    def set(self, row: int, value: T | None) -> None:
        """Set a row; those skipped on the way are None."""
        self._values.extend([None] * (row + 1 - len(self._values)))
        if type(value) is str and len(value) <= 40:
            value = sys.intern(value)  # type: ignore[assignment]  # a str stays a T
        self._values[row] = value

    def get(self, row: int) -> T | None:
        return self._values[row] if row < len(self._values) else None

    def filled(self, rows: int) -> list[T | None]:
        """The first ``rows`` rows."""
        return self._values[:rows] + [None] * (rows - len(self._values))
