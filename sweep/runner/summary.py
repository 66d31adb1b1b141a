"""``configurations.parquet``: what a session came to, configuration by configuration."""

from __future__ import annotations

from types import TracebackType

from sweep.analysis import ranking, trials
from sweep.store import tables
from sweep.store.folder import ResultsFolder


class Summary:
    """Writes the file when a session ends, after its tables."""

    def __init__(self, folder: ResultsFolder) -> None:
        self._folder = folder

    def __enter__(self) -> Summary:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        found = ranking.columns(ranking.rank([trials.read(self._folder)]))
        tables.write_configurations(self._folder, found.names, found.params, found.numbers, found.integers, found.texts)
