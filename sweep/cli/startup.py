"""Shows what a command does until its sweep is shown, because reading the file and checking the code take seconds.

On a terminal that can erase a line, each step replaces the previous one on the same line; elsewhere, only permanent
lines are written. All output goes to standard error, so that standard output has results only.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from sweep.store.closing import Closing
from sweep.text import counted, printable

if TYPE_CHECKING:
    from sweep.spec import Spec
    from sweep.spec.blocks import Budget

_CLEAR_LINE = "\r\x1b[K"


class Startup(Closing):
    """Shows the steps of a command's start on standard error.

    With ``quiet``, nothing is shown. Errors while writing are ignored.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._file = sys.stderr
        self._quiet = quiet
        self._replaces = self._file.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
        self._is_shown = False  # whether a step is shown on the terminal

    def announce(self, text: str) -> None:
        """Erase the step that is shown, and print a permanent line."""
        self.close()
        self._write(f"{printable(text)}\n")

    def step(self, text: str) -> None:
        """Show what is being done, until the next step replaces it; only on a terminal."""
        self.close()
        if self._replaces:
            self._write(printable(text))
        self._is_shown = self._replaces

    def close(self) -> None:
        """Erase the step that is shown, if there is one; the object can still be used afterwards."""
        if self._is_shown:
            self._write(_CLEAR_LINE)
        self._is_shown = False

    def _write(self, text: str) -> None:
        """Write a text unless ``quiet``; ignore errors."""
        if self._quiet:
            return
        with suppress(OSError, ValueError):  # standard error is gone or closed
            self._file.write(text)
            self._file.flush()


def describe_work(spec: Spec) -> str:
    """Describe in one line how much a sweep may train: "wine: grid, 27 trials of at most 10 epochs, 270 together".

    Limits of the budget follow, such as "; it ends after 8 h". If ``epochs`` is a parameter of the trials, their sum is
    left out.
    """
    total = spec.all_trials
    bounds = []
    if spec.counts_epochs:
        bounds.append(counted(_find_most_epochs(spec), "epoch"))
    if spec.minutes is not None:
        bounds.append(f"{spec.minutes:g} minute{'' if spec.minutes == 1 else 's'} of training")
    each = f"of at most {' and '.join(bounds)}"
    if total is None:
        count = "trials"
    else:
        count = counted(total, "trial")
    # The sum is known only if all trials train the same number of epochs.
    if total is None or "epochs" in spec.space.names or not spec.counts_epochs:
        together = ""
    else:
        together = f", {total * spec.epochs:,} together"
    limits = _list_limits(spec.budget)
    if limits:
        ends = f"; it ends after {' or '.join(limits)}"
    else:
        ends = ""
    return f"{spec.name}: {spec.method}, {count} {each}{together}{ends}"


def _find_most_epochs(spec: Spec) -> int:
    """Return the epochs of the longest trial: of all values of the parameter ``epochs``, if there is one."""
    from sweep.space.domains import list_choices

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
