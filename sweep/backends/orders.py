"""What moves between a driver and its workers."""

from __future__ import annotations

from dataclasses import dataclass, field

from sweep.contract import Assignment, Facts
from sweep.events import EpochReported, TrialEnded


@dataclass(frozen=True, slots=True)
class Order:
    """One trial for a worker."""

    assignment: Assignment
    decision_epochs: tuple[int, ...] = ()
    to_beat: float | None = None  # objective: the checkpoint of one that ends with a worse one would not be kept
    whole: bool = False  # it trains all its epochs, whatever the sweep's target
    known_data: str | None = None  # with data of this fingerprint, the trial need not be trained
    moved: bool = False  # another process had no room for it
    shares: bool = False  # its share of a GPU is not fixed: it may go on with another one, in another worker

    def __repr__(self) -> str:
        return f"trial {self.assignment.trial}"


@dataclass(frozen=True, slots=True)
class Progress:
    """What a step brought."""

    epochs: tuple[EpochReported, ...] = ()
    end: TrialEnded | None = None
    facts: Facts = field(default_factory=Facts)
    notices: tuple[str, ...] = ()
    spoilt: str | None = None  # why the worker must not be used again
    fault: str | None = None  # why the whole sweep cannot go on
    data_known: bool = False  # the trial begins with the data of `Order.known_data`
    worker: str = ""  # the name of the worker, where there are several
    accumulate: int | None = None  # micro-batches for the trial in another process: it does not fit, and this is spoilt
    crowded: bool = False  # the trial needs a larger share of a GPU, in another worker: this is spoilt
    moves: bool = False  # the trial was saved, to go on in another worker with the share that it was told
