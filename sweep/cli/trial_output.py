"""Shows what a trial has printed, for ``logs --trial``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from sweep.text import printable

if TYPE_CHECKING:
    from sweep.store.folder import ResultsFolder

LOOK_S = 1.0  # pause between two looks at the log


def print_output(folder: ResultsFolder, trial: int, *, as_json: bool) -> None:
    """Print what a trial has printed so far, or with ``as_json`` a document of it and the trial's status.

    A text that does not end with a line feed gets one, unless it is empty. Raises `UnknownNameError` if no trial with
    this number has started, and `StoreError` if the log is damaged.
    """
    from sweep.documents.shapes import TrialOutputDocument
    from sweep.render import document
    from sweep.store import log
    from sweep.store.ledger import Ledger

    ledger = Ledger(keep_epochs=False)  # the states of all trials, from the log
    for _ in ledger.follow(folder.log):  # which brings the ledger up to date
        pass
    if trial not in ledger.trials:
        raise folder.make_no_trial_error(trial, ledger.trials)
    text = log.read_output(folder.log, trial)
    if not as_json:
        # A last line without an end gets one; a trial that has printed nothing gets no empty line.
        lacks_end = bool(text) and not text.endswith("\n")
        click.echo(printable(text), nl=lacks_end)
        return
    status = ledger.trials[trial].status
    click.echo(
        document(
            TrialOutputDocument(sweep=folder.name, trial=trial, status=status.value, text=text)
        )
    )


def follow_output(folder: ResultsFolder, trial: int) -> None:
    """Print what a trial has printed and what it prints from now on, until it or the sweep ends.

    The log is read once a second. A trial that has not started yet is waited for. Raises `UnknownNameError` if the
    sweep has ended, or does not run, and no trial with this number has started, and `StoreError` if the log is damaged.
    """
    for text in _iterate_output(folder, trial):
        click.echo(printable(text), nl=False)


def _iterate_output(folder: ResultsFolder, trial: int) -> Iterator[str]:
    """Yield what a trial has printed so far, then what it prints, as it is logged.

    Waits a second between two looks at the log, and ends when the trial has ended or no process runs the sweep. Raises
    the errors of `follow_output`.
    """
    from sweep.store import features
    from sweep.store.ledger import Ledger, Printed

    ledger = Ledger(keep_epochs=False)  # the states of all trials, from the log
    offset = 0  # the byte of the log where the next look begins
    # whether the trial had ended at the last look; there is one more look after that, because what a killed worker had
    # printed is logged after its trial's end
    had_ended = False
    while True:
        running = folder.is_running()  # before the log, so that nothing is missed
        features.update_copy(folder.path, folder.store)  # from the object store, if there is one
        for change, end in ledger.follow(folder.log, offset):
            offset = end
            match change:
                case Printed(printing_trial, event) if printing_trial.number == trial:
                    yield event.text
                case _:
                    pass
        if had_ended or not running:
            break
        had_ended = trial in ledger.trials and ledger.trials[trial].ended is not None
        time.sleep(LOOK_S)
    if trial not in ledger.trials:
        raise folder.make_no_trial_error(trial, ledger.trials)
