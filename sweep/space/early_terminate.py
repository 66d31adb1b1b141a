"""The rules by which trials are stopped early, pause, or train as a population: plain data, and when they act."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class PopulationRules:
    """How a population trains."""

    size: int
    interval: int  # epochs of a generation
    epochs: int  # of the whole training
    quantile: float = 0.25  # the share that is replaced at the end of a generation
    resample: float = 0.25  # the chance of a value drawn anew in place of one that is moved
    perturb: tuple[str, ...] = ()  # the parameters that are moved; of none, all numbers
    method: Literal["pbt", "pb2"] = "pbt"  # with pb2, a model chooses where numbers are moved

    @property
    def replaced(self) -> int:
        """How many members a generation replaces."""
        return min(max(math.floor(self.size * self.quantile), 1), self.size // 2)

    @property
    def most_trials(self) -> int:
        """Trials there can be, unless members fail."""
        return self.size + self.replaced * len(self.ends())

    def ends(self) -> tuple[int, ...]:
        """Return the epochs at which generations end, but for the last."""
        return tuple(range(self.interval, self.epochs, self.interval))


@dataclass(frozen=True, slots=True)
class NoTermination:
    """Every trial trains all its epochs."""


@dataclass(frozen=True, slots=True)
class Asha:
    """Asynchronous successive halving that stops (Li et al., MLSys 2020, section 3).

    A trial goes on from rung ``min_iter * eta**k`` if it is among the best 1/``eta`` that reached it so
    far. No rung lies after ``max_iter`` (default: the epochs of a trial). With several ``brackets``
    each trial belongs to one of them, and bracket b leaves out the first b rungs.
    """

    min_iter: int = 1
    max_iter: int | None = None
    eta: float = 3.0
    brackets: int = 1

    def __post_init__(self) -> None:
        if not (self.min_iter >= 1 and self.eta > 1 and self.brackets >= 1):
            raise ValueError(f"not a rule: {self}")
        if self.max_iter is not None and self.max_iter < self.min_iter:
            raise ValueError(f"max_iter is below min_iter: {self}")


@dataclass(frozen=True, slots=True)
class Hyperband:
    """The rule that W&B sweeps call hyperband: successive halving at fixed epochs.

    Its brackets are ``min_iter * eta**k`` for k = 0, 1, ..., or else ``max_iter / eta**k`` for k = 1 to
    ``s``. At a bracket, a trial goes on if its best value so far, or its present one if ``strict``, is
    among the best 1/``eta`` of all values that were reported at that epoch.
    """

    min_iter: int | None = None
    max_iter: int | None = None
    s: int | None = None
    eta: float = 3.0
    strict: bool = False

    def __post_init__(self) -> None:
        forward = self.min_iter is not None and self.min_iter >= 1
        backward = self.max_iter is not None and self.s is not None
        if not (forward or backward) or self.eta <= 1:
            raise ValueError(f"not a rule: {self}")


@dataclass(frozen=True, slots=True)
class Median:
    """The median stopping rule (Golovin et al., KDD 2017, section 3.2.2).

    From epoch ``grace`` on, a trial stops if its best value so far is worse than the median of the
    running averages, at the same epoch, of the others; of which there must be ``min_trials``.
    """

    grace: int = 1
    min_trials: int = 3

    def __post_init__(self) -> None:
        if self.grace < 1 or self.min_trials < 1:
            raise ValueError(f"not a rule: {self}")


@dataclass(frozen=True, slots=True)
class AshaPromotion:
    """Asynchronous successive halving that pauses (Li et al., MLSys 2020, algorithm 2).

    A trial pauses at rung ``min_iter * eta**k`` until it is among the best 1/``eta`` of all that came there. No rung
    lies after ``max_iter`` (default: the epochs of a trial).
    """

    min_iter: int = 1
    max_iter: int | None = None
    eta: float = 3.0

    def __post_init__(self) -> None:
        if not (self.min_iter >= 1 and self.eta > 1):
            raise ValueError(f"not a rule: {self}")
        if self.max_iter is not None and self.max_iter < self.min_iter:
            raise ValueError(f"max_iter is below min_iter: {self}")


@dataclass(frozen=True, slots=True)
class Pasha:
    """Progressive ASHA: `AshaPromotion` with a highest rung that grows (Bohdal et al., ICLR 2023).

    It grows by one where the trials at the highest rung rank otherwise than at the rung before. Losses that differ by
    up to ``epsilon`` rank the same; None: as much as curves differ that cross twice.
    """

    min_iter: int = 1
    eta: float = 3.0
    epsilon: float | None = None

    def __post_init__(self) -> None:
        if not (self.min_iter >= 1 and self.eta > 1 and (self.epsilon is None or self.epsilon >= 0)):
            raise ValueError(f"not a rule: {self}")


@dataclass(frozen=True, slots=True)
class FreezeThaw:
    """Goes on with the trial that is predicted to end best (the idea: Swersky, Snoek, Adams, 2014).

    Trials pause at epochs ``min_iter * eta**k``. While new ones start, those that go on may train ``share`` as many
    epochs as these do up to their first pause.
    """

    min_iter: int = 1
    eta: float = 3.0
    share: float = 0.5

    def __post_init__(self) -> None:
        if not (self.min_iter >= 1 and self.eta > 1 and self.share >= 0):
            raise ValueError(f"not a rule: {self}")


PausingRule: TypeAlias = AshaPromotion | Pasha | FreezeThaw


@dataclass(frozen=True, slots=True)
class Own:
    """A rule of the user's, as module:Name; the epochs at which it acts are its own to know."""

    target: str


EarlyTermination: TypeAlias = NoTermination | Asha | Hyperband | Median | AshaPromotion | Pasha | FreezeThaw | Own


def brackets(rule: EarlyTermination, epochs: int) -> tuple[tuple[int, ...], ...]:
    """Return the epochs at which a trial of ``epochs`` epochs can be stopped or pause, for each bracket of the rule.

    The last epoch is never among them: there is nothing left to save.
    """
    match rule:
        case NoTermination() | Own():
            return ()
        case Asha(min_iter, max_iter, eta, count):
            rungs = _growing(min_iter, eta, min(epochs - 1, max_iter or epochs))
            return tuple(_between(map(math.ceil, rungs[b:]), epochs) for b in range(count))
        case AshaPromotion(min_iter, max_iter, eta):
            return (_between(map(math.ceil, _growing(min_iter, eta, min(epochs - 1, max_iter or epochs))), epochs),)
        case Pasha(min_iter=min_iter, eta=eta) | FreezeThaw(min_iter=min_iter, eta=eta):
            return (_between(map(math.ceil, _growing(min_iter, eta, epochs - 1)), epochs),)
        case Hyperband(max_iter=int(max_iter), s=int(s), eta=eta):
            return (_between((int(max_iter / eta**k) for k in range(1, s + 1)), epochs),)
        case Hyperband(min_iter=int(min_iter), eta=eta):
            return (_between(map(int, _growing(min_iter, eta, epochs)), epochs),)
        case Median(grace):
            return (_between(range(grace, epochs), epochs),)
    raise ValueError(f"not a rule: {rule}")


def decision_epochs(rule: EarlyTermination, epochs: int) -> tuple[int, ...]:
    """Return all epochs of `brackets` together, ascending; empty for a rule that can never act."""
    return tuple(sorted({epoch for bracket in brackets(rule, epochs) for epoch in bracket}))


def _growing(first: float, eta: float, limit: int) -> list[float]:
    """Return ``first * eta**k`` up to the limit; 100 at most, which is W&B's bound as well."""
    return [rung for k in range(100) if (rung := first * eta**k) <= limit]


def _between(candidates: Iterable[int], epochs: int) -> tuple[int, ...]:
    return tuple(sorted({epoch for epoch in candidates if 1 <= epoch < epochs}))
