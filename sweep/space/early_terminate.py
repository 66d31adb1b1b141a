"""The rules by which trials are stopped early, pause, or train as a population: plain data, and when they act."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, TypeAlias


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


class Misfit(ValueError):
    """What is wrong with a rule: at which key, if at one alone."""

    def __init__(self, what: str, *key: str) -> None:
        super().__init__(f"not a rule: {' '.join(key)} {what}")
        self.what, self.key = what, key


def _key(default: object, description: str, low: float | None = None, high: float | None = None) -> Any:
    """Return the field of a key, with its bounds."""
    return field(default=default, metadata={"description": description, "low": low, "high": high})


def _first(what: str = "First rung", default: int | None = 1) -> Any:
    return _key(default, f"{what}, in epochs; later ones by factors of eta.", 1)


def _eta(what: str = "Factor between rungs; the best 1/eta of the trials go on.") -> Any:
    return _key(3.0, what, 1.1, 1000)


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule as a sweep file has it: the first line of each says there what it does, each field is a key."""

    type: ClassVar[str]

    def __post_init__(self) -> None:
        """Raise `Misfit`."""
        for one in fields(self):
            value, low, high = getattr(self, one.name), one.metadata["low"], one.metadata["high"]
            if value is not None and not ((low is None or low <= value) and (high is None or value <= high)):
                raise Misfit(f"number {value}, expected from {low} to {high}", one.name)
        self.check()

    def check(self) -> None:
        """Raise `Misfit` for keys that do not go together."""
        first, last = getattr(self, "min_iter", None), getattr(self, "max_iter", None)
        if first is not None and last is not None and last < first:
            raise Misfit(f"number {last}, expected at least min_iter, which is {first}", "max_iter")


@dataclass(frozen=True, slots=True)
class NoTermination(Rule):
    """Every trial trains all its epochs."""

    type: ClassVar = "none"


@dataclass(frozen=True, slots=True)
class Asha(Rule):
    """Asynchronous successive halving: at each rung the best 1/eta of the trials go on.

    One that is not among them stops: Li et al., MLSys 2020, section 3. It goes on from rung ``min_iter * eta**k`` if it
    is among the best 1/``eta`` that reached it so far. With several ``brackets`` each trial belongs to one of them.
    """

    type: ClassVar = "asha"
    min_iter: int = _first()
    max_iter: int | None = _key(None, "No rung after this epoch; the trials' epochs by default.", 1)
    eta: float = _eta()
    brackets: int = _key(1, "Bracket b, from 0, does without the first b rungs.", 1, 100)


@dataclass(frozen=True, slots=True)
class AshaPromotion(Rule):
    """Asynchronous successive halving that pauses: trials wait at a rung until they are among its best 1/eta.

    Li et al., MLSys 2020, algorithm 2. The rungs are those of `Asha`. Without the cap, a trial goes on whenever it is
    among the best 1/``eta``, and a method that learns makes nearly every new trial one of these.
    """

    type: ClassVar = "asha_promotion"
    min_iter: int = _first()
    max_iter: int | None = _key(None, "No rung after this epoch; the trials' epochs by default.", 1)
    eta: float = _eta()
    capped: bool = _key(False, "No more than 1/eta of the trials that came to a rung ever go on from it.")
    min_completed: int = _key(1, "Trials that train to the end at least, once no other is left to start.", 1)


@dataclass(frozen=True, slots=True)
class Pasha(Rule):
    """As asha_promotion, with a highest rung that grows only while the trials there change ranks.

    Progressive ASHA: Bohdal et al., ICLR 2023. It grows by one where the trials at the highest rung rank otherwise than
    at the rung before. Losses that differ by up to ``epsilon`` rank the same; None: as much as curves differ that cross
    twice.
    """

    type: ClassVar = "pasha"
    min_iter: int = _first()
    eta: float = _eta()
    epsilon: float | None = _key(
        None, "Largest difference of the metric that counts as a tie; estimated from curves by default.", 0
    )


@dataclass(frozen=True, slots=True)
class FreezeThaw(Rule):
    """Trials pause, and the one that is predicted to end best goes on.

    The idea: Swersky, Snoek, Adams, 2014. Trials pause at epochs ``min_iter * eta**k``.
    """

    type: ClassVar = "freeze_thaw"
    min_iter: int = _first("First pause")
    eta: float = _eta("Factor between pauses.")
    share: float = _key(
        0.5, "Epochs for resumed trials, per epoch that new trials train before their first pause.", 0, 100
    )


@dataclass(frozen=True, slots=True)
class Hyperband(Rule):
    """Hyperband's brackets as in W&B sweeps: give min_iter, or max_iter and s.

    Successive halving at fixed epochs: ``min_iter * eta**k`` for k = 0, 1, ..., or else ``max_iter / eta**k`` for k = 1
    to ``s``. There, a trial goes on if its best value so far, or its present one if ``strict``, is among the best
    1/``eta`` of all values that were reported at that epoch.
    """

    type: ClassVar = "hyperband"
    min_iter: int | None = _first("First bracket", None)
    max_iter: int | None = _key(None, "Epochs of a whole trial; brackets divide them by eta.", 1)
    s: int | None = _key(None, "Number of brackets below max_iter.", 1, 100)
    eta: float = _eta("Factor between brackets; the best 1/eta of the trials go on.")
    strict: bool = _key(False, "Stop more trials, as in the original paper.")

    def check(self) -> None:
        given = [key for key in ("min_iter", "max_iter", "s") if getattr(self, key) is not None]
        if (self.max_iter is None or self.s is None) and (self.min_iter is None or self.max_iter is not None):
            raise Misfit(f"{' and '.join(given) or 'neither'} given, expected min_iter alone, or max_iter and s")


@dataclass(frozen=True, slots=True)
class Median(Rule):
    """A trial stops whose best value is worse than the median of the others at that epoch.

    The median stopping rule (Golovin et al., KDD 2017, section 3.2.2). It is the median of the running averages, at the
    same epoch, of the others; of which there must be ``min_trials``.
    """

    type: ClassVar = "median"
    min_iter: int = _key(1, "First epoch at which a trial may stop.", 1)
    min_trials: int = _key(3, "Number of other trials it takes to compare with.", 1)


PausingRule: TypeAlias = AshaPromotion | Pasha | FreezeThaw


@dataclass(frozen=True, slots=True)
class Own:
    """A rule of the user's, as module:Name; the epochs at which it acts are its own to know."""

    target: str


RULES = {one.type: one for one in (Asha, AshaPromotion, Pasha, FreezeThaw, Hyperband, Median, NoTermination)}
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
        case Median(first):
            return (_between(range(first, epochs), epochs),)
    raise ValueError(f"not a rule: {rule}")


def decision_epochs(rule: EarlyTermination, epochs: int) -> tuple[int, ...]:
    """Return all epochs of `brackets` together, ascending; empty for a rule that can never act."""
    return tuple(sorted({epoch for bracket in brackets(rule, epochs) for epoch in bracket}))


def _growing(first: float, eta: float, limit: int) -> list[float]:
    """Return ``first * eta**k`` up to the limit; 100 at most, which is W&B's bound as well."""
    return [rung for k in range(100) if (rung := first * eta**k) <= limit]


def _between(candidates: Iterable[int], epochs: int) -> tuple[int, ...]:
    return tuple(sorted({epoch for epoch in candidates if 1 <= epoch < epochs}))
