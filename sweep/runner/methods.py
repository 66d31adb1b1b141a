"""The search method and the stopping rule of a sweep, the user's own among them, and what a warm start learns.

What is learnt from earlier sweeps is written down as a length of each log: a sweep that goes on meanwhile changes
nothing, and every session learns from the same trials.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import ParamSpec, TypeVar

from sweep.errors import InputError, Problem, StoreError, SweepError
from sweep.events import Event
from sweep.loading import load_part
from sweep.schedulers import Scheduler
from sweep.schedulers.early_termination import build as build_scheduler
from sweep.searchers import Factory, Searcher
from sweep.searchers.build import build as build_searcher
from sweep.searchers.build import starting_points
from sweep.searchers.population import Population
from sweep.space.stopping_rules import Own
from sweep.spec import Spec
from sweep.store import ledger
from sweep.store import log as store_log
from sweep.store.folder import ResultsFolder
from sweep.store.object_store import is_url
from sweep.store.sweep_info import EarlierSweep

Given = ParamSpec("Given")
Made = TypeVar("Made")


def check(spec: Spec, folders: Sequence[Path]) -> None:
    """Raise `InputError` where a part of the user's own cannot be had; sweep's own are not even imported."""
    if ":" in spec.method:
        searcher(spec, folders)
    if isinstance(spec.early_terminate, Own):
        scheduler(spec, folders)


def searcher(spec: Spec, folders: Sequence[Path], repeats: int = 1) -> Searcher:
    """Return the searcher of a sweep's method. Raises `InputError` where that cannot be had."""
    if spec.population is not None:
        first = starting_points(spec.space, spec.start_with, spec.seed)
        return Population(spec.space, spec.objectives[0], spec.seed, spec.population, first)
    method: str | Factory = spec.method
    if ":" in spec.method:
        contract = "sweep.searchers.Searcher"
        own = load_part(spec.method, folders, "method", ("foresees", "learn", "suggest", "observe"), contract)
        method = _made("method", spec.method, own)
    return build_searcher(method, spec.space, spec.objectives, spec.seed, repeats, spec.start_with)


def scheduler(spec: Spec, folders: Sequence[Path]) -> Scheduler:
    """Return the scheduler of a sweep's rule. Raises `InputError` where that cannot be had."""
    rule, own = spec.early_terminate, None
    if isinstance(rule, Own):
        contract = "sweep.schedulers.Scheduler"
        found = load_part(rule.target, folders, "early_terminate", ("decision_epochs", "observe"), contract)
        own = _made("early_terminate", rule.target, found)
    return build_scheduler(rule, spec.objectives[0], spec.epochs, own)


def _made(where: str, target: str, factory: Callable[Given, Made]) -> Callable[Given, Made]:
    """Return the factory, whose failures are the user's to mend."""

    def made(*given: Given.args, **named: Given.kwargs) -> Made:
        try:
            return factory(*given, **named)
        except SweepError:
            raise
        except Exception as error:
            reason = str(error).splitlines() or [""]
            raise InputError.one(where, f"{target} failed: {type(error).__name__}: {reason[0]}") from error

    return made


def take_warm_start(sweeps: Iterable[str], results: Path) -> list[EarlierSweep]:
    """Return what sweep.json says of each earlier sweep, by name or path.

    Raises InputError for all that are missing.
    """
    problems: list[Problem] = []
    taken: list[EarlierSweep] = []
    for number, sweep in enumerate(sweeps):
        try:
            folder = ResultsFolder.open(results, sweep)
            log_bytes = 0
            if folder.log.exists():
                for _, end in store_log.read_with_ends(folder.log):
                    log_bytes = end
            place = str(folder.path.resolve()) if folder.store is None else folder.place
            taken.append({"path": place, "log_bytes": log_bytes})
        except (InputError, StoreError) as error:
            found = error.problems if isinstance(error, InputError) else (Problem("", str(error)),)
            problems += (Problem(f"warm_start.{number}", f"{p.where}: {p.what}".strip(": "), p.hint) for p in found)
    if problems:
        raise InputError(problems)
    return taken


def learn_warm_start(searcher: Searcher, taken: Iterable[EarlierSweep], notice: Callable[[str], None]) -> None:
    """Let a searcher learn from what was taken; call it before the first event. Raises StoreError."""
    for earlier in taken:
        path, log_bytes = earlier["path"], earlier["log_bytes"]
        log = (ResultsFolder.open(Path(), path) if is_url(path) else ResultsFolder(Path(path))).log
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
