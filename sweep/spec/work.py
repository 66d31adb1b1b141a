"""Describes in a line how much a sweep may train, and computes the lengths of its trials."""

from __future__ import annotations

import random

from sweep.progress import count_length
from sweep.space.domains import list_choices
from sweep.space.draws import from_unit
from sweep.spec.blocks import Budget
from sweep.spec.resolved import Spec
from sweep.text import counted

DRAWS = 200
"""Number of random configurations by whose lengths those of a sweep's trials are estimated."""


def describe_work(spec: Spec) -> str:
    """Describe in one line how much a sweep may train: "grid, 27 trials of at most 10 epochs, 270 together".

    Limits of the budget follow, such as "; it ends after 8 h". The minutes of a trial are named, too, if the sweep has
    them. The sum of the epochs is left out if ``epochs`` is a parameter, if only `minutes` ends trials, or if the
    number of trials is not known. For a population, it is the sum over its members alone, because copies only train
    what is left of their epochs.
    """
    total = spec.all_trials
    bounds = []
    if spec.counts_epochs:
        bounds.append(counted(find_most_epochs(spec), "epoch"))
    if spec.minutes is not None:
        bounds.append(f"{spec.minutes:g} minute{'' if spec.minutes == 1 else 's'} of training")
    each = f"of at most {' and '.join(bounds)}"
    if total is None:
        count = "trials"
    else:
        count = counted(total, "trial")
    if spec.population is None:
        full_trials = total  # trials that train all their epochs
    else:  # a copy has the epochs of its parent and trains only the rest
        full_trials = spec.population.size
    # The sum is known only if all trials train the same number of epochs.
    if full_trials is None or "epochs" in spec.space.names or not spec.counts_epochs:
        together = ""
    else:
        together = f", {full_trials * spec.epochs:,} together"
    limits = _list_limits(spec.budget)
    if limits:
        ends = f"; it ends after {' or '.join(limits)}"
    else:
        ends = ""
    return f"{spec.method}, {count} {each}{together}{ends}"


def find_most_epochs(spec: Spec) -> int:
    """Return the largest number of epochs that a trial may train.

    Without a parameter ``epochs``, it is the sweep's, which is `UNBOUNDED_EPOCHS` if only `minutes` ends trials.
    Otherwise, it is the maximum of the parameter's values, of the baseline's epochs and, if the parameter has a
    condition, of the sweep's.
    """
    searched = _find_max_search_epochs(spec)
    if "epochs" in spec.space.names and spec.baseline is not None:
        return max(searched, spec.trial_epochs(spec.baseline))
    return searched


def find_max_length(spec: Spec) -> int:
    """Return the maximum length of a trial of the search: its epochs, or 100 if only `minutes` ends it.

    The stopping rule has rungs up to this length, which is `Spec.length` unless there is a parameter ``epochs``.
    """
    return count_length(_find_max_search_epochs(spec))


def draw_lengths(spec: Spec) -> list[int]:
    """Return the lengths of the trials of `DRAWS` random configurations, in the units of `Spec.length`.

    The draws are the same at each call. Those that do not meet the constraints are left out; if none meets them, the
    result is the maximum length alone. Without a parameter ``epochs``, nothing is drawn: all trials have the same
    length, which is returned once.
    """
    if "epochs" not in spec.space.names:
        return [spec.length]
    numbers = random.Random(0)  # not cryptographic; any fixed sample works
    lengths = []
    for _ in range(DRAWS):
        # None if the draw does not meet the constraints
        params = spec.space.complete_if_feasible(
            lambda parameter: from_unit(parameter.domain, numbers.random())
        )
        if params is not None:
            lengths.append(spec.trial_length(params))
    # empty if no draw has met them
    return lengths or [find_max_length(spec)]


def _find_max_search_epochs(spec: Spec) -> int:
    """Return the largest number of epochs that a trial of the search may train, without the baseline.

    It is the largest value of a parameter ``epochs``, or the sweep's epochs without one; if the parameter has a
    condition, it is the larger of both.
    """
    for parameter in spec.space.parameters:
        if parameter.name == "epochs":
            counts = [
                choice for choice in list_choices(parameter.domain) or () if isinstance(choice, int)
            ]
            # trials to which it does not apply train the sweep's epochs
            if parameter.when is not None:
                counts.append(spec.epochs)
            return max(counts)
    return spec.epochs


def _list_limits(budget: Budget) -> list[str]:
    """Return the limits of a budget as texts, such as "8 h" and "100 epochs", without its number of trials."""
    limits = []
    if budget.hours is not None:
        limits.append(f"{budget.hours:g} h")
    if budget.gpu_hours is not None:
        limits.append(f"{budget.gpu_hours:g} GPU hours")
    if budget.epochs is not None:
        limits.append(counted(budget.epochs, "epoch"))
    if budget.money is not None:
        limits.append(f"a cost of {budget.money:g}")
    return limits
