"""Finds parameters and settings that a worker's trials never read, and which refusals depend on parameters."""

from __future__ import annotations

from collections.abc import Container

from sweep.backends import Job
from sweep.contract import Incompatible
from sweep.events import Params
from sweep.hyperparameters import RecordedParams
from sweep.text import guess


class UnreadParameters:
    """Records which parameters and settings a worker's trials read, and reports those that none has read."""

    def __init__(self, job: Job) -> None:
        self._job = job
        # parameters that may be unread, of which no call of `report_unread` has decided yet
        self._undecided = {*job.unsure, *job.sometimes}
        self._unreported_settings = [*job.settings]  # keys of `training` not yet reported on
        self._present: frozenset[str] = frozenset()  # parameters of the present trial
        self._ever_read: set[str] = set()  # names read so far, including those that do not exist
        self.now: set[str] = set()  # names read by the present trial

    def wrap_params(self, params: Params) -> Params:
        """Begin a trial: empty `now`, and return a copy of its ``params`` that adds each name that is read to `now`."""
        self.now = set()
        self._present = frozenset(params)
        return RecordedParams(params, self.now)

    @property
    def varying(self) -> set[str]:
        """Names that the present trial has read among ``epochs`` and the parameters that differ between trials."""
        return self.now & {"epochs", *self._job.varying}

    def depends_on_file_alone(self, error: Incompatible) -> bool:
        """Return whether this error would refuse every trial, whatever values its parameters have.

        Parameters in ``error.about`` must have the same values in all trials, and the present trial must not have
        read a parameter that may decide whether the error is raised: one with a condition, or with several values that
        are not all numbers. If ``error.about`` is empty, the trial must have read neither ``epochs`` nor any parameter
        that differs between trials.
        """
        if not error.about:
            return not self.varying
        # it may also name settings of the file, which are the same in all trials
        named_params = self._present & {*error.about}
        return named_params <= {*self._job.constant} and not self.now & {*self._job.choosing}

    def report_unread_settings(self, read: Container[str]) -> list[str]:
        """Return a line for each key of ``training`` that is not in ``read``; later calls return an empty list.

        ``read`` has the keys that a training function has read by the end of its first epoch. Keys with their default
        value are not reported.
        """
        notices = []
        for key in self._unreported_settings:
            if key not in read:
                notices.append(
                    f"nothing has read training.{key} in a whole epoch, so it has no effect"
                )
        self._unreported_settings = []
        return notices

    def report_unread(self, params: Params) -> list[str]:
        """Return a line for each parameter in ``params``, those of the present trial, that no trial has read so far.

        Call it after the trial has trained an epoch. Only parameters of which the source does not show that they are
        read in each trial are reported (`Job.unsure` and `Job.sometimes`), by name, each in one call at most. Those in
        `Job.sometimes` are left to the calls for later trials if this trial has read a parameter by which code may
        choose (`Job.choosing`).
        """
        self._ever_read |= self.now
        due = sorted(self._undecided & set(params))
        # a trial with another choice may read what this one did not
        if self.now & {*self._job.choosing}:
            due = [name for name in due if name not in self._job.sometimes or name in self.now]
        # those that were read need no line, and the others get theirs now
        self._undecided -= set(due)
        notices = []
        for name in due:
            if name not in self._ever_read:
                notices.append(self._describe_unread(name, params))
        return notices

    def _describe_unread(self, name: str, params: Params) -> str:
        """Return the line that says that a parameter was not read.

        It ends with a guess at a misspelled name if a similar one was read that the trial does not have.
        """
        if name in self._job.sometimes:  # some choice reads it, so it is not misspelled
            hint = ""
        else:  # it may be a misspelling of a name that was read and that the trial does not have
            hint = guess(name, self._ever_read - set(params))
        return f"nothing has read parameter {name!r} in a whole epoch" + (
            f"; {hint}" if hint else ""
        )
