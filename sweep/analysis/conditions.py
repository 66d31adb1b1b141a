"""The conditions of `wait`: a sweep is finished, or has a verdict, a number of trials, or a score.

This module parses and tests them; the caller observes the events and tests again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sweep.analysis.live_status import Best, Standing
from sweep.analysis.ranking import Ranking, rank
from sweep.analysis.sweep_rows import read_sweep
from sweep.errors import InputError
from sweep.statistics.verdicts import TOO_FEW, Verdict
from sweep.store.folder import ResultsFolder

Kind: TypeAlias = Literal["finished", "verdict", "trials", "best"]

EXPECTED = "finished, verdict, trials=20 or best<0.1"

_BOUND = re.compile(r"(?:trials=(?P<trials>\d{1,9})|best(?P<sign>[<>])=?(?P<score>[-+0-9.eE]+))")


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition, as it was typed; ``bound`` is a number of trials or a score."""

    text: str
    kind: Kind
    bound: float = 0.0
    below: bool = True  # the score is to be at most ``bound``; otherwise at least


def parse_condition(text: str, where: str) -> Condition:
    """Parse a condition of `wait`, such as ``finished``, ``trials=20`` or ``best<0.1``.

    White space is ignored, and ``<`` and ``>`` mean the same as ``<=`` and ``>=``. Raises `InputError`, with ``where``
    as the place of the problem, if ``text`` is no such condition, such as ``trials>20`` or ``best<nan``.
    """
    compact = "".join(text.split())
    if compact == "finished":
        return Condition(text, "finished")
    if compact == "verdict":
        return Condition(text, "verdict")
    found = _BOUND.fullmatch(compact)  # its groups are ``trials``, or ``sign`` and ``score``
    try:
        if found is not None and found["trials"]:
            return Condition(text, "trials", float(found["trials"]))
        if found is not None:
            return Condition(text, "best", float(found["score"]), below=found["sign"] == "<")
    except ValueError:  # what follows the sign is no number, such as "1e-"
        pass
    raise InputError.one(where, f"{text!r}, expected {EXPECTED}")


def is_met(condition: Condition, standing: Standing, read_ranking: Callable[[], Ranking]) -> bool:
    """Return whether a sweep in the state ``standing`` meets a condition.

    A sweep is ``finished`` if its last session ended because nothing was left to do or a limit was reached. For
    ``trials``, all trials that have ended count, in whatever way. ``best`` is not met before there is a score.
    ``read_ranking`` is only called for ``verdict``, which `has_verdict` decides; its errors are passed on.
    """
    match condition.kind:
        case "finished":
            return standing.has_finished
        case "trials":
            return standing.finished >= condition.bound
        case "best":
            return _is_good_enough(condition, standing.best)
        case "verdict":
            return has_verdict(read_ranking())


def _is_good_enough(condition: Condition, best: Best | None) -> bool:
    """Return whether the best score so far is on the right side of a condition's bound, or equal to it.

    The score is to be at most the bound if `Condition.below` is True, otherwise at least. Returns False if there is no
    score yet.
    """
    if best is None:
        return False
    if condition.below:
        return best.value <= condition.bound
    return best.value >= condition.bound


def has_verdict(ranking: Ranking) -> bool:
    """Return whether nothing is left to decide about the best configuration.

    If the sweep has a confirmation, that is the case once this has ended, decided or not. Otherwise, the first
    configuration must have the verdict "best", and none may be undecided for lack of seeds. One lacks seeds even if
    their number is unknown, as when all scores so far are equal. One that is undecided for another reason, such as a
    trial that diverged, does not matter. Returns False if no trial has completed.
    """
    if ranking.confirmed is not None:
        return ranking.confirmed.decided or bool(ranking.confirmed.over)
    if not ranking.best or ranking.best[0].verdict is not Verdict.BEST:
        return False
    for row in ranking.rows:
        lacks_seeds = row.more or row.undecided == TOO_FEW
        if row.verdict is Verdict.UNDECIDED and lacks_seeds:
            return False
    return True


def read_ranking(folder: ResultsFolder) -> Ranking:
    """Read the sweep in a folder as it is now and return its ranking.

    Raises `StoreError` if it cannot be read.
    """
    return rank([read_sweep(folder)])
