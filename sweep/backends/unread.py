"""Which parameters the trials of a worker have not read."""

from __future__ import annotations

from collections.abc import Iterable

from sweep.events import Params
from sweep.hyperparameters import Watched
from sweep.text import guess


class UnreadParameters:
    """Watches what a worker's trials read of their parameters."""

    def __init__(self, unsure: Iterable[str]) -> None:
        self._open = set(unsure)
        self._seen: set[str] = set()  # also names that were asked for and are not there
        self.now: set[str] = set()  # those of the present trial

    def watched(self, params: Params) -> Params:
        """Return the parameters as a trainable gets them: they tell what is read."""
        self.now = set()
        return Watched(params, self.now)

    def told(self, params: Params) -> list[str]:
        """Once a trial has trained an epoch: a line for each of its parameters that no trial has read, said once."""
        self._seen |= self.now
        due = sorted(self._open & set(params))
        self._open -= set(due)
        return [self._line(name, params) for name in due if name not in self._seen]

    def _line(self, name: str, params: Params) -> str:
        hint = guess(name, self._seen - set(params))
        return f"nothing has read parameter {name!r} in a whole epoch" + (f"; {hint}" if hint else "")
