"""Shows what a command does until its sweep is shown, because reading the file and checking the code take seconds.

On a terminal that can erase a line, each step replaces the previous one on the same line; elsewhere, only permanent
lines are written. All output goes to standard error, so that standard output has results only.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from sweep import prices
from sweep.progress import count_length
from sweep.store.closing import Closing
from sweep.text import figure, money, printable, roughly

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sweep.events import Value
    from sweep.runner import Options
    from sweep.spec import Spec

_CLEAR_LINE = "\r\x1b[K"


class Startup(Closing):
    """Shows the steps of a command's start on standard error.

    With ``quiet``, nothing is shown. Errors while writing are ignored.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._file = sys.stderr
        self._quiet = quiet
        self._can_erase_lines = self._file.isatty() and os.environ.get("TERM") not in (
            "dumb",
            "unknown",
        )
        self._is_step_shown = False  # whether a step is shown on the terminal

    def announce(self, text: str) -> None:
        """Erase the step that is shown, and print a line that stays, to standard error; nothing with ``quiet``."""
        self.close()
        self._write(f"{printable(text)}\n")

    def step(self, text: str) -> None:
        """Show on standard error what is being done, until the next step or a line of `announce` replaces it.

        Nothing is shown with ``quiet``, or if standard error is not a terminal that can erase a line.
        """
        self.close()
        if self._can_erase_lines:
            self._write(printable(text))
        self._is_step_shown = self._can_erase_lines

    def close(self) -> None:
        """Erase the step that the terminal shows, if there is one; the object can still be used afterwards."""
        if self._is_step_shown:
            self._write(_CLEAR_LINE)
        self._is_step_shown = False

    def _write(self, text: str) -> None:
        """Write a text to standard error, at once; do nothing with ``quiet``, and ignore errors of writing."""
        if self._quiet:
            return
        with suppress(OSError, ValueError):  # standard error is gone or closed
            self._file.write(text)
            self._file.flush()


def describe_cost(spec: Spec, results: Path, how: Options) -> str:
    """Describe what a sweep costs at the pace of an earlier one: "about 2 min 05 s, 0.11 s an epoch as in sweep wine".

    The earlier sweep is the latest one in the folder ``results`` with the same trainable, the same ``steps_per_epoch``
    and the same number of simulated GPUs. The longest trial is taken for all. If trials or the search may end early,
    the text begins with "at most". The money is added if the sweep file has a price and trials use GPUs.

    Return "" if there is no such earlier sweep, if ``steps_per_epoch`` has several values, if the sweep may go on
    without an end, or if it runs on a cluster, whose size is not known yet.
    """
    from sweep.runner import earlier_times
    from sweep.spec.work import find_most_epochs

    if how.address is not None:
        return ""
    lengths = _list_epoch_lengths(spec)
    if len(lengths) != 1:  # epochs of several lengths take several times
        return ""
    # only epochs of the same length are compared
    timing = earlier_times.find_earlier_times(
        results, spec.trainable, how.simulated_gpus, [{earlier_times.EPOCH_LENGTH: lengths[0]}]
    )
    if timing is None:
        return ""
    at_once = _count_trials_at_once(spec, how)
    if spec.population is None:
        trials = spec.all_trials
    else:
        trials = spec.population.size  # copies train only the epochs that their parents have left
    # trials that end after minutes are counted in other units than epochs
    compute_price = earlier_times.price if spec.minutes is None else earlier_times.price_units
    price = compute_price(spec, trials, count_length(find_most_epochs(spec)), timing, at_once)
    if price.hours is None:  # nothing limits the sweep
        return ""
    takes = roughly(price.hours * 3600)
    if _may_end_early(spec):
        takes = f"at most {takes}"
    gpu_hours = earlier_times.gpu_hours(spec, price, timing)
    if gpu_hours is not None and spec.resources.price is not None:
        low, high = prices.find_price_bounds(spec.resources.price)
        takes += f" and {money(gpu_hours * low)}"
        if high > low:
            takes += f" to {money(gpu_hours * high)}"
    return f"{takes}, {figure(timing.epoch_s)} s an epoch as in {timing.source}"


def _count_trials_at_once(spec: Spec, how: Options) -> int:
    """Return how many trials run at the same time on this machine, within all limits, at least 1; 1 with ``inline``."""
    from sweep.runner import earlier_times

    if how.inline:
        at_once = 1
    else:
        at_once = earlier_times.count_concurrent_trials(spec, how.simulated_gpus)
    limit = how.limit_concurrent(spec)  # None: no limit
    if limit is not None:
        at_once = min(at_once, limit)
    return max(at_once, 1)


def _list_epoch_lengths(spec: Spec) -> Sequence[Value | None]:
    """Return the values of the parameter ``steps_per_epoch``: [None] without it, [] if they cannot be listed.

    They cannot if they are too many, or if the parameter is tied to another one.
    """
    from sweep.runner.earlier_times import EPOCH_LENGTH
    from sweep.space.domains import list_choices

    for parameter in spec.space.parameters:
        if parameter.name == EPOCH_LENGTH:
            return list(list_choices(parameter.domain) or ())
    return [None]


def _may_end_early(spec: Spec) -> bool:
    """Return whether trials may be stopped before their last epoch, or the search before its last trial.

    A rule of early termination or `patience` stops trials, and `stop_when` the search. Limits of the budget and
    targets of metrics do not count.
    """
    from sweep.space.early_terminate import NoTermination

    return (
        not isinstance(spec.early_terminate, NoTermination)
        or spec.training.get("patience") is not None
        or "patience" in spec.space.names
        or spec.stop_when is not None
    )
