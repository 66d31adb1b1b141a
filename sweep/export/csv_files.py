"""``trials.csv`` and ``metrics.csv``: the columns of the Parquet files as text."""

from __future__ import annotations

from pathlib import Path

from sweep.store import csv_lines, reading
from sweep.store.disk import replacing, storing
from sweep.store.folder import ResultsFolder


def export(folder: ResultsFolder, target: Path) -> list[Path]:
    """Write both files; returns them. Raises `StoreError`."""
    tables = reading.read(folder)
    with storing(target):
        target.mkdir(parents=True, exist_ok=True)
    written = []
    for name, table in (("trials.csv", tables.trials), ("metrics.csv", tables.metrics)):
        with replacing(target / name) as aside, aside.open("w", encoding="utf-8", newline="") as file:
            file.writelines(csv_lines.lines(table))
        written.append(target / name)
    return written
