"""The document of a sweep's state."""

from __future__ import annotations

from sweep.analysis import read_sweep, rung_ranks
from sweep.analysis.present_spec import PresentSpec
from sweep.analysis.verdict import summarize_sweep
from sweep.documents.mistakes import describe_problems
from sweep.documents.shapes import StatusDocument, extend
from sweep.runner.limits import ExpectedGain
from sweep.runner.resuming import ResumableSweep, StoredSweep
from sweep.store.ledger import Ledger
from sweep.store.log import is_steered


def describe_status(sweep: StoredSweep, *, with_trials: bool = False) -> StatusDocument:
    """Return the state of a sweep as it is now, and with ``with_trials`` the list of all its trials.

    The total is the number of trials of the search, the baseline and the confirmation so far, and at least that of the
    trials that there are. If the log is damaged, the document has neither trials nor rungs nor an expected gain. If
    this version of sweep refuses the sweep file, it has neither a total nor an expected gain.
    """
    folder = sweep.folder
    summary = summarize_sweep(folder)
    is_damaged = summary.state == "damaged"
    # the number of trials without those of the confirmation, which are `fresh`; None if nothing limits it
    if sweep.resumable is None:  # this version of sweep refuses the sweep file
        all_trials = None
    elif is_damaged:
        all_trials = sweep.resumable.spec.all_trials
    else:
        all_trials = count_all_trials(sweep.resumable)
    if all_trials is None:
        total = None
    else:
        total = max(all_trials + summary.fresh, sum(summary.trials.values()))
    if folder.log.exists():
        written = folder.log.stat().st_mtime
    else:
        written = None
    if is_damaged:  # nothing else can be read from the log
        return extend(
            StatusDocument,
            summary,
            total=total,
            written=written,
            rungs=(),
            each=None,
            expected_gain=None,
            file_problems=describe_problems(sweep.problems),
        )
    return extend(
        StatusDocument,
        summary,
        total=total,
        written=written,
        rungs=tuple(rung_ranks.measure_folder(folder)),
        each=read_sweep(folder).trials if with_trials else None,
        expected_gain=_find_expected_gain(sweep.resumable) if sweep.resumable else None,
        file_problems=describe_problems(sweep.problems),
    )


def count_all_trials(sweep: ResumableSweep) -> int | None:
    """Return the number of trials of the search and the baseline; None if nothing but time or epochs limits it.

    It is that of the sweep file with the changes in the log, whether or not the trials have started. Raises
    `StoreError` if the log is damaged.
    """
    log = sweep.folder.log
    # the file was never changed, so its events need not be read
    if not log.exists() or not is_steered(log):
        return sweep.spec.all_trials
    present = PresentSpec(sweep.first)
    for change, _ in Ledger(keep_epochs=False).follow(log):
        present.observe(change)
    return present.all_trials


def _find_expected_gain(sweep: ResumableSweep) -> ExpectedGain | None:
    """Return the gain that the next configurations promise; None if it is not asked for, or if it is unknown.

    It is asked for if `stop_when` in the sweep file has a limit of the gain.
    """
    when = sweep.spec.stop_when
    if when is None or not when.asks_for_gain:
        return None
    from sweep.runner.expected_gain import measure_expected_gain

    return measure_expected_gain(sweep.folder, sweep.spec, sweep.first)
