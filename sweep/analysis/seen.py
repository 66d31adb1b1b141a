"""What whoever watches a sweep sees of its trials."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sweep.analysis.curve import Curve
from sweep.events import Params, Status
from sweep.store.ledger import TrialState


@dataclass(slots=True)
class Open:
    """A trial that has not ended for good."""

    state: TrialState
    of: int  # epochs that it is to train
    value: float | None = None  # of the objective, as last reported
    curve: Curve = field(default_factory=Curve)
    measures: Mapping[str, float] = field(default_factory=dict)  # of its last epoch
    trained_s: float | None = 0.0  # None where not all of it was trained in one go

    @property
    def trial(self) -> int:
        return self.state.number

    @property
    def params(self) -> Params:
        return self.state.params

    @property
    def started(self) -> float:
        return self.state.started

    @property
    def epochs(self) -> int:
        return self.state.epoch


@dataclass(frozen=True, slots=True)
class Ended:
    """A trial that ended; ``took_s`` from its start on."""

    trial: int
    status: Status
    reason: str
    epochs: int
    value: float | None
    params: Params
    took_s: float


@dataclass(slots=True)
class Failure:
    """Trials that ended badly for one kind of reason: the type of an exception, mostly."""

    count: int = 0
    trial: int = 0  # the last of them
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Best:
    """The best configuration that completed: the mean of its repeats."""

    value: float
    trials: tuple[int, ...]
    params: Params


@dataclass(frozen=True, slots=True)
class Rung:
    """An epoch at which trials can be, or were, pruned."""

    epoch: int
    reached: int
    pruned: int
