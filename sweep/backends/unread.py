"""What the trials of a worker do not read of what the sweep file gives them, and what refusals follow from."""

from __future__ import annotations

from collections.abc import Container

from sweep.backends import Job
from sweep.contract import Incompatible
from sweep.events import Params
from sweep.hyperparameters import Watched
from sweep.text import guess


class UnreadParameters:
    """Watches what a worker's trials read of their parameters."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._open = {*job.unsure, *job.sometimes}
        self._open_settings = [*job.settings]  # keys of `training`
        self._present: frozenset[str] = frozenset()  # parameters of the present trial
        self._seen: set[str] = set()  # also names that were asked for and are not there
        self.now: set[str] = set()  # those of the present trial

    def watched(self, params: Params) -> Params:
        """Return the parameters as a trainable gets them: they tell what is read."""
        self.now, self._present = set(), frozenset(params)
        return Watched(params, self.now)

    @property
    def varying(self) -> set[str]:
        """What the present trial has read of the parameters that differ between trials."""
        return self.now & {"epochs", *self._job.varying}

    def hangs_on_the_file(self, error: Incompatible) -> bool:
        """Return whether a refusal of the present trial follows from the file and the code alone.

        One that says which parameters it is about follows from these and from the code, and only a text, a truth or a
        list chooses between pieces of code. Of any other refusal nothing is known but what was read before it.
        """
        if not error.about:
            return not self.varying
        about = self._present & {*error.about}
        return about <= {*self._job.constant} and not self.now & {*self._job.choosing}

    def told_of_settings(self, read: Container[str]) -> list[str]:
        """Return a line for each key of `training` that a function has not read in a whole epoch, said once."""
        unread, self._open_settings = [key for key in self._open_settings if key not in read], []
        return [f"nothing has read training.{key} in a whole epoch, so it has no effect" for key in unread]

    def told(self, params: Params) -> list[str]:
        """Once a trial has trained an epoch: a line for each of its parameters that no trial has read, said once."""
        self._seen |= self.now
        due = sorted(self._open & set(params))
        if self.now & {*self._job.choosing}:  # another choice may read what this one has no use for
            due = [name for name in due if name not in self._job.sometimes or name in self.now]
        self._open -= set(due)
        return [self._line(name, params) for name in due if name not in self._seen]

    def _line(self, name: str, params: Params) -> str:
        hint = "" if name in self._job.sometimes else guess(name, self._seen - set(params))
        return f"nothing has read parameter {name!r} in a whole epoch" + (f"; {hint}" if hint else "")
