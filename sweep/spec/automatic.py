"""What `method: auto` chooses: a method and a rule for early stopping, by what the sweep file says."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sweep.space.early_terminate import (
    Asha,
    AshaPromotion,
    EarlyTermination,
    NoTermination,
    compute_decision_epochs,
)
from sweep.text import counted

ETA = 3
FEWEST_EPOCHS = 4
"""Epochs of a trial from which on it may pause before it ends."""
LAST_RUNG = 0.75
"""The share of a training before which the last rung lies."""
FIRST_RUNG = 9
"""The first rung is after the first of so many parts of a training."""
LOWER_FIRST_RUNGS = ((6, 27), (15, 18))
"""Budgets in full trainings, ascending, and the parts of a training if there is less to spend.

The less there is to spend, the lower the first rung: ranks are less sure there, and more configurations are seen. The
measurements are in docs/search.md.
"""
MIN_COMPLETED = 3
"""Trials that train to the end at least."""


@dataclass(frozen=True, slots=True)
class Automatic:
    """The choice of `method: auto`: a method, a rule for early stopping, and a line of explanation for each.

    The rule is None, and its line empty, if the sweep file names a rule itself.
    """

    method: str
    rule: EarlyTermination | None
    lines: tuple[str, str]


def stop_instead_of_pausing(rule: AshaPromotion) -> tuple[Asha, str]:
    """Return a rule that stops trials for good at the rungs where ``rule`` would pause them, and a line that says why.

    The cap of ``rule`` and its `min_completed` are lost, as `Asha` has neither. The result is used if trials cannot
    continue from a checkpoint: a trial that paused would start again from its first epoch.
    """
    stopping = Asha(min_iter=rule.min_iter, max_iter=rule.max_iter, eta=rule.eta)
    why = (
        "the function does not read report.restored, so that a trial that pauses would begin again"
    )
    return stopping, f"asha, chosen by auto: {why}"


def choose_automatically(
    *,
    objectives: int,
    epochs: int,
    minutes: float | None = None,
    has_rule: bool = False,
    has_prior: bool = False,
    lengths_differ: bool = False,
    budget_epochs: int | None = None,
) -> Automatic:
    """Choose a method, and a rule for early stopping unless the file names one.

    With several metrics, these are tpe and no early stopping. Otherwise they are gp and a capped `asha_promotion`, or
    no early stopping if trials have fewer than `FEWEST_EPOCHS` epochs or different numbers of them.

    ``objectives`` is the number of metrics. ``epochs`` is the number of epochs of a trial, at least 1. Pass ``minutes``
    only if trials end by nothing else; then pass 100 as ``epochs``, as rungs are in hundredths of the minutes.
    ``has_rule`` says that the file names a rule, with which the result has none. ``has_prior`` says that it has a
    `prior`, which changes the explanation only. ``lengths_differ`` says that trials train for different numbers of
    epochs. ``budget_epochs`` is the file's limit on the epochs of all trials together, or None without one; a small one
    lowers the first rung (`LOWER_FIRST_RUNGS`).
    """
    if objectives > 1:
        tpe_line = f"tpe, chosen by auto: {objectives} metrics, and gp optimizes one"
        if has_prior:
            tpe_line += "; it begins with draws by the prior"
        rule_line = "none, chosen by auto: with several metrics, all trials train to the end"
        if has_rule:
            return Automatic("tpe", None, (tpe_line, ""))
        return Automatic("tpe", NoTermination(), (tpe_line, rule_line))
    gp_line = "gp, chosen by auto: it learns most from few trials, and from those that pause or are stopped as well"
    if has_prior:
        gp_line += "; it begins with draws by the prior, and follows it while results are few"
    if has_rule:
        return Automatic("gp", None, (gp_line, ""))
    if lengths_differ:
        return Automatic(
            "gp", NoTermination(), (gp_line, "none, chosen by auto: trials differ in their epochs")
        )
    if epochs < FEWEST_EPOCHS:
        too_short_line = (
            f"none, chosen by auto: {counted(epochs, 'epoch')} a trial leave nothing to save"
        )
        return Automatic("gp", NoTermination(), (gp_line, too_short_line))
    # the last epoch that is before `LAST_RUNG`, not at it
    last_rung = math.ceil(LAST_RUNG * epochs) - 1
    rule = AshaPromotion(
        min_iter=_choose_first_rung(epochs, budget_epochs),
        max_iter=last_rung,
        eta=float(ETA),
        capped=True,
        min_completed=MIN_COMPLETED,
    )
    rungs = " and ".join(map(str, compute_decision_epochs(rule, epochs)))
    if minutes is None:
        places = f"epoch {rungs}"
    else:
        places = f"{rungs} hundredths of the {minutes:g} minutes"
    why = f"a third of the trials goes on from {places}, and {MIN_COMPLETED} at least train to the end"
    return Automatic("gp", rule, (gp_line, f"asha_promotion, chosen by auto: {why}"))


def _choose_first_rung(epochs: int, budget_epochs: int | None) -> int:
    """Return the epoch of the first rung for trials of ``epochs`` epochs.

    ``budget_epochs`` is the limit on the epochs of all trials together, or None without one.
    """
    if budget_epochs is not None:
        for trainings, parts in LOWER_FIRST_RUNGS:
            if budget_epochs < trainings * epochs:
                return math.ceil(epochs / parts)
    return math.ceil(epochs / FIRST_RUNG)
