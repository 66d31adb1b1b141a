"""The searcher and the scheduler of a sweep, the user's own among them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ParamSpec, TypeVar

from sweep.errors import InputError, SweepError
from sweep.loading import load_part
from sweep.schedulers.contract import Scheduler
from sweep.schedulers.early_termination import build as build_scheduler
from sweep.searchers.build import build as build_searcher
from sweep.searchers.contract import Factory, Searcher
from sweep.space.termination import Own
from sweep.spec import Spec

Given = ParamSpec("Given")
Made = TypeVar("Made")


def check(spec: Spec, folders: Sequence[Path]) -> None:
    """Raise `InputError` where a part of the user's own cannot be had; sweep's own are not even imported."""
    if ":" in spec.method:
        searcher(spec, folders)
    if isinstance(spec.early_terminate, Own):
        scheduler(spec, folders)


def searcher(spec: Spec, folders: Sequence[Path], repeats: int = 1) -> Searcher:
    """The searcher of a sweep's method. Raises `InputError` where that cannot be had."""
    method: str | Factory = spec.method
    if ":" in spec.method:
        contract = "sweep.searchers.contract.Searcher"
        own = load_part(spec.method, folders, "method", ("foresees", "learn", "suggest", "observe"), contract)
        method = _made("method", spec.method, own)
    return build_searcher(method, spec.space, spec.objectives, spec.seed, repeats, spec.start_with)


def scheduler(spec: Spec, folders: Sequence[Path]) -> Scheduler:
    """The scheduler of a sweep's rule. Raises `InputError` where that cannot be had."""
    rule, own = spec.early_terminate, None
    if isinstance(rule, Own):
        contract = "sweep.schedulers.contract.Scheduler"
        found = load_part(rule.target, folders, "early_terminate", ("decision_epochs", "observe"), contract)
        own = _made("early_terminate", rule.target, found)
    return build_scheduler(rule, spec.objectives[0], spec.epochs, own)


def _made(where: str, target: str, factory: Callable[Given, Made]) -> Callable[Given, Made]:
    """The factory, whose failures are the user's to mend."""

    def made(*given: Given.args, **named: Given.kwargs) -> Made:
        try:
            return factory(*given, **named)
        except SweepError:
            raise
        except Exception as error:
            reason = str(error).splitlines() or [""]
            raise InputError.one(where, f"{target} failed: {type(error).__name__}: {reason[0]}") from error

    return made
