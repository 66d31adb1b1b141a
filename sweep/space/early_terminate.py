"""The rules by which trials stop early, pause, or train as a population, and the epochs at which they act.

Each rule is a class here: its type and its keys in the sweep file, the epochs at which it acts, and where its scheduler
is. The sweep file, its JSON Schema, the schedulers and the documentation take from these classes what they know of
rules. A new rule is a class here and its scheduler in `sweep.schedulers`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class PopulationRules:
    """The settings of population based training: size, generations, and how members are replaced and perturbed."""

    size: int
    interval: int  # epochs per generation
    epochs: int  # of the whole training
    quantile: float = 0.25  # the share of members replaced after each generation
    resample: float = 0.25  # the probability that a value is drawn anew instead of perturbed
    perturb: tuple[str, ...] = ()  # the parameters that are perturbed; empty: all numbers
    method: str = "pbt"  # with pb2, a model chooses the new values of numbers

    @property
    def replaced(self) -> int:
        """The number of members that are replaced after each generation: the share ``quantile``, rounded down.

        It is at least 1, but at most half of the members, also rounded down: 0 if there is a single member.
        """
        return min(max(math.floor(self.size * self.quantile), 1), self.size // 2)

    @property
    def most_trials(self) -> int:
        """The number of trials in a sweep if no member fails: the members, and the copies that replace some.

        After each generation but the last, `replaced` copies are made.
        """
        return self.size + self.replaced * len(self.list_generation_ends())

    def list_generation_ends(self) -> tuple[int, ...]:
        """Return the last epoch of each generation except the last generation, after which nothing is replaced.

        They are ascending; () if the training has a single generation.
        """
        return tuple(range(self.interval, self.epochs, self.interval))


class Misfit(ValueError):
    """Raised if a rule's keys are invalid.

    ``what`` describes the error; ``key`` has the name of the key if a single one is invalid.
    """

    def __init__(self, what: str, *key: str) -> None:
        super().__init__(f"not a rule: {' '.join(key)} {what}")
        self.what, self.key = what, key


def _make_key_field(
    default: object, description: str, low: float | None = None, high: float | None = None
) -> Any:
    """Return a dataclass field for a key of a rule, with its description and its bounds as metadata.

    The bounds are included; None stands for no bound.
    """
    return field(default=default, metadata={"description": description, "low": low, "high": high})


def _make_first_rung_field() -> Any:
    """Return the dataclass field for ``min_iter``, the first rung of a rule, with the default 1.

    Who reads the sweep file replaces that default by `default_first_rung` if the method learns.
    """
    default = "1 by default, epochs / eta^2 rounded up with a method that learns"
    return _make_key_field(1, f"First rung, in epochs: {default}; later ones by factors of eta.", 1)


def _make_eta_field(what: str = "Factor between rungs; the best 1/eta of the trials go on.") -> Any:
    """Return the dataclass field for ``eta``, the factor between rungs, with ``what`` as its description.

    The default is 3, and values from 1.1 to 1000 are valid.
    """
    return _make_key_field(3.0, what, 1.1, 1000)


@dataclass(frozen=True, slots=True)
class Rule:
    """Base class of the rules that ``early_terminate`` of a sweep file can name; each field of a subclass is a key.

    The first line of a subclass's docstring is the rule's description in the JSON Schema.

    ``scheduler`` is the ``module:Name`` of the class of its scheduler (`sweep.schedulers.Scheduler`), which is imported
    only when a sweep uses the rule, and called with ``(rule, objective, epochs)``. ``scheduler_of_several`` is the same
    for sweeps with several objectives; if it is empty, these are refused.
    """

    type: ClassVar[str]
    does: ClassVar[str]  # for its row in docs/sweep_file.md
    scheduler: ClassVar[str]
    scheduler_of_several: ClassVar[str] = ""
    pauses: ClassVar[bool] = False  # trials pause at its decision epochs, and may go on later
    first_rung_by_epochs: ClassVar[Literal["never", "if learning", "always"]] = "never"
    """Whether `min_iter` is `default_first_rung` if a file names none: never, with methods that learn, or always."""

    def __post_init__(self) -> None:
        """Check the keys: raise `Misfit` if a value is out of bounds, or if keys contradict each other (`check`).

        A key whose value is None is not checked against its bounds.
        """
        for one in fields(self):
            value = getattr(self, one.name)
            low = one.metadata["low"]
            high = one.metadata["high"]
            if value is None:
                continue
            is_within = (low is None or low <= value) and (high is None or value <= high)
            if not is_within:
                raise Misfit(f"number {value}, expected from {low} to {high}", one.name)
        self.check()

    def compute_brackets(self, epochs: int) -> tuple[tuple[int, ...], ...]:
        """Return for each bracket the epochs at which a trial of ``epochs`` epochs can be stopped or paused, ascending.

        Most rules have a single bracket; a rule that never acts returns (). A bracket may be empty. The last epoch is
        never among them, because stopping there would save nothing. Raises NotImplementedError in the base class.
        """
        raise NotImplementedError  # each rule has its own

    @property
    def key_of_first_rung(self) -> str:
        """The name of the key that sets the first epoch at which the rule acts, also if the rule has no such key."""
        return "min_iter"

    def check(self) -> None:
        """Raise `Misfit` if keys contradict each other; here, if ``max_iter`` is below ``min_iter``.

        A rule without one of these keys, or with None as its value, passes.
        """
        first = getattr(self, "min_iter", None)
        last = getattr(self, "max_iter", None)
        if first is not None and last is not None and last < first:
            raise Misfit(f"number {last}, expected at least min_iter, which is {first}", "max_iter")


@dataclass(frozen=True, slots=True)
class NoTermination(Rule):
    """Every trial trains all its epochs."""

    type: ClassVar = "none"
    does: ClassVar = "every trial trains all its epochs"
    scheduler: ClassVar = "sweep.schedulers.early_termination:NoScheduler"
    scheduler_of_several: ClassVar = scheduler

    def compute_brackets(self, epochs: int) -> tuple[tuple[int, ...], ...]:
        return ()


@dataclass(frozen=True, slots=True)
class Asha(Rule):
    """Asynchronous successive halving: at each rung the best 1/eta of the trials go on.

    All others stop: Li et al., MLSys 2020, section 3. A trial goes on from rung ``min_iter * eta**k`` if it is among
    the best 1/``eta`` of the trials that have reached the rung so far. With several ``brackets``, each trial belongs to
    one of them.
    """

    type: ClassVar = "asha"
    does: ClassVar = (
        "stops a trial at a rung unless it is among the best 1/eta that came there so far"
    )
    scheduler: ClassVar = "sweep.schedulers.early_termination:AshaScheduler"
    scheduler_of_several: ClassVar = "sweep.schedulers.non_dominated:NonDominatedAshaScheduler"
    first_rung_by_epochs: ClassVar = "if learning"
    min_iter: int = _make_first_rung_field()
    max_iter: int | None = _make_key_field(
        None, "No rung after this epoch; the trials' epochs by default.", 1
    )
    eta: float = _make_eta_field()
    brackets: int = _make_key_field(1, "Bracket b, from 0, does without the first b rungs.", 1, 100)

    def compute_brackets(self, epochs: int) -> tuple[tuple[int, ...], ...]:
        last = min(epochs - 1, self.max_iter or epochs)
        rungs = _list_rungs(self.min_iter, self.eta, last)
        brackets = []
        for bracket in range(self.brackets):  # bracket b has all rungs but the first b
            brackets.append(_select_epochs(map(math.ceil, rungs[bracket:]), epochs))
        return tuple(brackets)


@dataclass(frozen=True, slots=True)
class AshaPromotion(Rule):
    """Asynchronous successive halving that pauses: trials wait at a rung until they are among its best 1/eta.

    Li et al., MLSys 2020, algorithm 2. The rungs are those of `Asha`. Without the cap, a trial goes on whenever it is
    among the best 1/``eta``, and a method that learns makes nearly every new trial one of these. With several
    objectives, which trials of a front are among the best changes whenever one is added, so the cap is the default.
    """

    type: ClassVar = "asha_promotion"
    does: ClassVar = "lets it [pause](pausing.md) there until it is among them"
    scheduler: ClassVar = "sweep.schedulers.promotion:PromotionScheduler"
    scheduler_of_several: ClassVar = "sweep.schedulers.non_dominated:NonDominatedPromotionScheduler"
    pauses: ClassVar = True
    first_rung_by_epochs: ClassVar = "if learning"
    min_iter: int = _make_first_rung_field()
    max_iter: int | None = _make_key_field(
        None, "No rung after this epoch; the trials' epochs by default.", 1
    )
    eta: float = _make_eta_field()
    capped: bool | None = _make_key_field(
        None,
        "No more than 1/eta of the trials that came to a rung ever go on from it; by default with several metrics.",
    )
    min_completed: int = _make_key_field(
        1, "Trials that train to the end at least, once no other is left to start.", 1
    )

    def compute_brackets(self, epochs: int) -> tuple[tuple[int, ...], ...]:
        rungs = _list_rungs(self.min_iter, self.eta, min(epochs - 1, self.max_iter or epochs))
        return (_select_epochs(map(math.ceil, rungs), epochs),)

    def is_capped(self, *, several: bool) -> bool:
        """Return whether the number of trials that continue from a rung is capped.

        By default it is in sweeps with ``several`` objectives, and not in sweeps with one.
        """
        if self.capped is None:
            return several
        return self.capped


@dataclass(frozen=True, slots=True)
class Pasha(Rule):
    """As asha_promotion, with a highest rung that grows only while the trials there change ranks.

    Progressive ASHA: Bohdal et al., ICLR 2023. The highest rung moves up by one if the trials there rank otherwise than
    at the rung before. Losses that differ by up to ``epsilon`` rank the same; if it is None, the difference between
    curves that cross twice is used.
    """

    type: ClassVar = "pasha"
    does: ClassVar = "the same, and the highest rung grows only while trials change ranks"
    scheduler: ClassVar = "sweep.schedulers.promotion:PashaScheduler"
    pauses: ClassVar = True
    first_rung_by_epochs: ClassVar = "if learning"
    min_iter: int = _make_first_rung_field()
    eta: float = _make_eta_field()
    epsilon: float | None = _make_key_field(
        None,
        "Largest difference of the metric that counts as a tie; estimated from curves by default.",
        0,
    )

    def compute_brackets(self, epochs: int) -> tuple[tuple[int, ...], ...]:
        rungs = _list_rungs(self.min_iter, self.eta, epochs - 1)
        return (_select_epochs(map(math.ceil, rungs), epochs),)


@dataclass(frozen=True, slots=True)
class FreezeThaw(Rule):
    """Trials pause, and the one that is predicted to end best goes on.

    The idea: Swersky, Snoek, Adams, 2014. Trials pause at epochs ``min_iter * eta**k``.
    """

    type: ClassVar = "freeze_thaw"
    does: ClassVar = "lets trials pause, and goes on with the one that is predicted to end best"
    scheduler: ClassVar = "sweep.schedulers.promotion:FreezeThawScheduler"
    pauses: ClassVar = True
    first_rung_by_epochs: ClassVar = "always"
    min_iter: int = _make_key_field(
        1,
        "First pause, in epochs: epochs / eta^2 rounded up by default; later ones by factors of eta.",
        1,
    )
    eta: float = _make_eta_field("Factor between pauses.")
    share: float = _make_key_field(
        0.5,
        "Epochs for resumed trials, per epoch that new trials train before their first pause.",
        0,
        100,
    )

    def compute_brackets(self, epochs: int) -> tuple[tuple[int, ...], ...]:
        rungs = _list_rungs(self.min_iter, self.eta, epochs - 1)
        return (_select_epochs(map(math.ceil, rungs), epochs),)


@dataclass(frozen=True, slots=True)
class Hyperband(Rule):
    """Hyperband's brackets as in W&B sweeps: give min_iter, or max_iter and s.

    Successive halving at fixed epochs: ``min_iter * eta**k`` for k = 0, 1, ..., or else ``max_iter / eta**k`` for k = 1
    to ``s``. There, a trial goes on if its best value so far, or its present one if ``strict``, is among the best
    1/``eta`` of all values that were reported at that epoch.
    """

    type: ClassVar = "hyperband"
    does: ClassVar = (
        "as in W&B: stops a trial at a bracket unless its best value is among the best 1/eta"
    )
    scheduler: ClassVar = "sweep.schedulers.early_termination:HyperbandScheduler"
    min_iter: int | None = _make_key_field(
        None, "First bracket, in epochs; later ones by factors of eta.", 1
    )
    max_iter: int | None = _make_key_field(
        None, "Epochs of a whole trial; brackets divide them by eta.", 1
    )
    s: int | None = _make_key_field(None, "Number of brackets below max_iter.", 1, 100)
    eta: float = _make_eta_field("Factor between brackets; the best 1/eta of the trials go on.")
    strict: bool = _make_key_field(False, "Stop more trials, as in the original paper.")

    def compute_brackets(self, epochs: int) -> tuple[tuple[int, ...], ...]:
        """Return one bracket with the epochs at which a trial may stop, ascending.

        What W&B calls a bracket is one of these epochs. All trials can stop at each of them, so that here they are a
        single bracket. If ``max_iter`` and ``s`` are given, ``min_iter`` is ignored. Epochs are rounded down.
        """
        if self.max_iter is not None and self.s is not None:
            candidates = []  # in descending order, perhaps several times the same; `_select_epochs` sorts that out
            for k in range(1, self.s + 1):
                candidates.append(int(self.max_iter / self.eta**k))
        elif self.min_iter is not None:
            rungs = _list_rungs(self.min_iter, self.eta, epochs)
            candidates = [int(rung) for rung in rungs]
        else:  # `check` has refused such a rule
            raise ValueError(f"not a rule: {self}")
        return (_select_epochs(candidates, epochs),)

    @property
    def key_of_first_rung(self) -> str:
        if self.max_iter:
            return "max_iter"
        return "min_iter"

    def check(self) -> None:
        """Raise `Misfit` unless ``min_iter`` is given without ``max_iter``, or ``max_iter`` with ``s``."""
        given = []
        for key in ("min_iter", "max_iter", "s"):
            if getattr(self, key) is not None:
                given.append(key)
        up_from_first = self.min_iter is not None and self.max_iter is None
        down_from_last = self.max_iter is not None and self.s is not None
        if not up_from_first and not down_from_last:
            raise Misfit(
                f"{' and '.join(given) or 'neither'} given, expected min_iter alone, or max_iter and s"
            )


@dataclass(frozen=True, slots=True)
class Median(Rule):
    """A trial stops whose best value is worse than the median of the others at that epoch.

    The median stopping rule (Golovin et al., KDD 2017, section 3.2.2). The median is that of the other trials' running
    averages at the same epoch. There must be at least ``min_trials`` others.
    """

    type: ClassVar = "median"
    does: ClassVar = "stops a trial that is worse than the median of the others"
    scheduler: ClassVar = "sweep.schedulers.early_termination:MedianScheduler"
    first_rung_by_epochs: ClassVar = "if learning"
    min_iter: int = _make_key_field(
        1,
        "First epoch at which a trial may stop: 1 by default, epochs / 9 rounded up with a method that learns.",
        1,
    )
    min_trials: int = _make_key_field(3, "Number of other trials it takes to compare with.", 1)

    def compute_brackets(self, epochs: int) -> tuple[tuple[int, ...], ...]:
        return (_select_epochs(range(self.min_iter, epochs), epochs),)


@dataclass(frozen=True, slots=True)
class Own:
    """A user's own rule, named as ``module:Name``; the epochs at which it acts are unknown here."""

    target: str
    pauses: ClassVar = False  # its scheduler says whether trials pause


_RULES: tuple[type[Rule], ...] = (
    Asha,
    AshaPromotion,
    Pasha,
    FreezeThaw,
    Hyperband,
    Median,
    NoTermination,
)
RULES = {rule.type: rule for rule in _RULES}
"""The rules by type, in the order in which messages and the documentation list them."""

EarlyTermination: TypeAlias = Rule | Own


def list_brackets(rule: EarlyTermination, epochs: int) -> tuple[tuple[int, ...], ...]:
    """Return the epochs at which a rule can act, for each of its brackets (`Rule.compute_brackets`).

    Returns () for a user's own rule, whose epochs only its scheduler knows.
    """
    if isinstance(rule, Own):
        return ()
    return rule.compute_brackets(epochs)


def earliest_ranking_epoch(rule: Rule, epochs: int) -> int:
    """Return ceil(epochs / eta**2), the first epoch at which ranks predict those at the last epoch.

    ``epochs`` is the number of epochs of a trial. The result is at least 1, and before the last epoch if there are
    several. For a rule without ``eta``, 3 is used.

    At an earlier rung, a method that learns from ranks proposes more and more configurations that start quickly, and
    the rule stops those that would end best. ``docs/search.md`` has the measurements.
    """
    return _divide_epochs(rule, epochs, powers=2)


def default_first_rung(rule: Rule, epochs: int) -> int:
    """Return the default of ``min_iter``, for a rule whose default depends on the number of epochs.

    `Rule.first_rung_by_epochs` says when it does, which is not checked here. The result is `earliest_ranking_epoch`,
    but an earlier epoch if the rule has more than two brackets, because each needs a rung of its own. It is never later
    than ``max_iter``.
    """
    last: int = getattr(rule, "max_iter", None) or epochs
    powers = max(2, getattr(rule, "brackets", 1))
    return min(_divide_epochs(rule, epochs, powers=powers), last)


def _divide_epochs(rule: Rule, epochs: int, *, powers: int) -> int:
    """Return ceil(epochs / eta**powers), limited to the epochs from 1 to the one before the last.

    For a rule without ``eta``, 3 is used.
    """
    eta: float = getattr(rule, "eta", 3.0)
    return max(min(math.ceil(epochs / eta**powers), epochs - 1), 1)


def compute_decision_epochs(rule: EarlyTermination, epochs: int) -> tuple[int, ...]:
    """Return all epochs at which a rule can act, in any bracket, ascending.

    Returns () if it never can, or for a user's own rule, whose epochs only its scheduler knows.
    """
    return tuple(sorted({epoch for bracket in list_brackets(rule, epochs) for epoch in bracket}))


def _list_rungs(first: float, eta: float, limit: int) -> list[float]:
    """Return the rungs ``first * eta**k`` for k = 0 to 99 that are not above ``limit``, ascending and not rounded.

    W&B has the same limit of 100 rungs.
    """
    return [rung for k in range(100) if (rung := first * eta**k) <= limit]


def _select_epochs(candidates: Iterable[int], epochs: int) -> tuple[int, ...]:
    """Return those of ``candidates`` that are epochs before the last of ``epochs``, ascending, each once."""
    return tuple(sorted({epoch for epoch in candidates if 1 <= epoch < epochs}))
