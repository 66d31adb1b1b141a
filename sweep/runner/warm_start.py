"""Earlier sweeps that the search learns from, the same trials of them in every session.

What was taken is written down as a length of each log: an earlier sweep that goes on meanwhile changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from sweep.errors import InputError, Problem, StoreError
from sweep.events import Event
from sweep.searchers.contract import Searcher
from sweep.store import ledger
from sweep.store import log as store_log
from sweep.store.folder import ResultsFolder
from sweep.store.sweep_info import EarlierSweep


def take(sweeps: Iterable[str], results: Path) -> list[EarlierSweep]:
    """What sweep.json says of each earlier sweep, by name or path. Raises InputError for all that are missing."""
    problems: list[Problem] = []
    taken: list[EarlierSweep] = []
    for number, sweep in enumerate(sweeps):
        try:
            folder = ResultsFolder.open(results, sweep)
            log_bytes = 0
            if folder.log.exists():
                for _, end in store_log.read_with_ends(folder.log):
                    log_bytes = end
            taken.append({"path": str(folder.path.resolve()), "log_bytes": log_bytes})
        except (InputError, StoreError) as error:
            found = error.problems if isinstance(error, InputError) else (Problem("", str(error)),)
            problems += (Problem(f"warm_start.{number}", f"{p.where}: {p.what}".strip(": "), p.hint) for p in found)
    if problems:
        raise InputError(problems)
    return taken


def learn(searcher: Searcher, taken: Iterable[EarlierSweep], notice: Callable[[str], None]) -> None:
    """Let a searcher learn from what was taken; call it before the first event. Raises StoreError."""
    for earlier in taken:
        path, log_bytes = earlier["path"], earlier["log_bytes"]
        log = ResultsFolder(Path(path)).log
        if log_bytes and not log.exists():
            raise StoreError(f"{log} is gone, which this sweep was started from (warm_start)")
        with ledger.naming(log):
            past = ledger.ended(_first(log, log_bytes))
        used = searcher.learn(past)
        notice(f"warm start: {used} of {len(past)} trials of {path} fit and count")


def _first(log: Path, log_bytes: int) -> Iterator[Event]:
    if not log_bytes:
        return
    for event, end in store_log.read_with_ends(log):
        if end > log_bytes:
            return
        yield event
