"""Which trial starts next: the one whose compiled structure the free worker holds, where the order is free."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import count

from sweep.backends.protocol import Progress
from sweep.events import Params
from sweep.hyperparameters import Hyperparameters, Reads, from_json
from sweep.searchers.contract import Searcher

LOOK_AHEAD = 64
"""How far beyond the first trial that has not started another one may be preferred: none waits for long."""


class Upcoming:
    """Chooses among the trials that have not started; trial n has the same parameters whenever it starts.

    A method that learns is asked for one trial after the other. Else a worker is given, of the next trials, the first
    one whose structure it holds, or else the first that fits no structure of another worker, or else the first.
    """

    def __init__(self, searcher: Searcher, cap: int | None) -> None:
        self._searcher = searcher
        self._cap = cap
        self._first = 0  # all trials before have started
        self._beyond: set[int] = set()  # these have as well
        self.exhausted = False  # the searcher has no more trials
        self._waiting: dict[int, Params] = {}  # what the next trials will be, as far as looked at
        self._running: dict[int, tuple[str, str | None]] = {}  # the worker of a trial, and its structure
        self._held: dict[str, list[str]] = {}  # structures by worker, the one used last at the end

    def started(self, trial: int) -> None:
        """A trial has started, in this session or before."""
        self._waiting.pop(trial, None)
        if trial >= self._first:  # else it is told once more
            self._beyond.add(trial)
        while self._first in self._beyond:
            self._beyond.remove(self._first)
            self._first += 1

    def heard(self, trial: int, progress: Progress) -> None:
        """Learn from a step which worker holds which structure; of one trial, the latest that it tells."""
        _, before = self._running.get(trial, ("", None))
        structure = progress.facts.structure or before
        self._running[trial] = progress.worker, structure
        if structure is not None:
            held = self._held.setdefault(progress.worker, [])
            held[:] = [*(other for other in held if other not in (before, structure)), structure]
            if progress.facts.structures:  # it has forgotten those used longest ago
                del held[: -progress.facts.structures]
        if progress.spoilt is not None:
            self.lost(trial)

    def ended(self, trial: int) -> None:
        """A trial has ended; its worker keeps what it holds."""
        self._running.pop(trial, None)

    def lost(self, trial: int) -> None:
        """The worker of a trial is gone, with all that it held."""
        worker, _ = self._running.pop(trial, ("", None))
        self._held.pop(worker, None)

    def choose(self, worker: str) -> tuple[int, Params] | None:
        """The next trial for a worker; None when there is none to start, and there will be none."""
        first = next(self._next(), None)
        if first is None or not self._held or not self._searcher.foresees:
            return first
        own = self._held.get(worker, [])
        others = {structure for name, held in self._held.items() if name != worker for structure in held}
        unheld: tuple[int, Params] | None = None
        for trial, params in self._next():
            if any(fits(params, structure) for structure in own):
                return trial, params
            if unheld is None and not any(fits(params, structure) for structure in others):
                unheld = trial, params
        return unheld or first

    def _next(self) -> Iterator[tuple[int, Params]]:
        """The next trials that have not started, as far as one may look ahead."""
        for trial in count(self._first):
            if (self._cap is not None and trial >= self._cap) or trial > self._first + LOOK_AHEAD:
                return
            if trial in self._beyond:
                continue
            params = self._params(trial)
            if params is None:
                return
            yield trial, params

    def _params(self, trial: int) -> Params | None:
        if trial in self._waiting:
            return self._waiting[trial]
        params = None if self.exhausted else self._searcher.suggest(trial)
        if params is None:
            self.exhausted = True  # and asked no more
        elif self._searcher.foresees:
            self._waiting[trial] = params
        return params


def fits(params: Params, structure: str) -> bool:
    """Whether a trial would be built as that structure was."""
    return Hyperparameters(params).agree(_reads(structure))


@lru_cache(maxsize=1024)
def _reads(structure: str) -> Reads:
    return from_json(structure)
