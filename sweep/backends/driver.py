"""What a backend asks of the sweep that it runs, and what a sweep asks of its backend."""

from __future__ import annotations

from typing import Protocol

from sweep.backends.worker import Order, Progress


class Driver(Protocol):
    """Gives out trials and hears of them; its answers are orders."""

    @property
    def running(self) -> int:
        """Trials that are given out and have not ended."""

    @property
    def room(self) -> int | None:
        """How many trials may run at once by their shares of GPUs; None: as many as fit."""

    @property
    def stopping(self) -> str | None:
        """The reason why no more trials are given out and the running ones end early."""

    def next(self, worker: str = "") -> Order | None:
        """The next trial, for the worker of this name; None when there is none to start, unless a worker is lost."""

    def begun(self, trial: int) -> None:
        """Hear that a worker begins a trial: from now on its time counts."""

    def tick(self) -> list[int]:
        """Look at the clock, in every turn; the trials just ended of which the workers are to be killed."""

    def take(self, trial: int, progress: Progress) -> bool:
        """Hear of a step; whether the trial goes on."""

    def lose(self, trial: int, reason: str, *, with_node: bool = False) -> bool:
        """Hear that a trial's worker is gone, perhaps with its node; whether the trial goes on with another for that.

        It is called for every spoilt worker as well.
        """


class Backend(Protocol):
    """What trains the trials of a session."""

    def train(self, driver: Driver) -> None:
        """Train all trials that the driver gives out."""

    def at_once(self, gpus: float) -> int:
        """Return how many trials of so many GPUs each run at once."""
